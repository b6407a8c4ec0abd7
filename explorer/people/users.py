"""Creates users, assigns roles, and deactivates users. An active administrator always remains."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.db import connection, transaction
from django.db.models import Q, QuerySet

from broker_core.common.errors import NotAllowed
from broker_core.common.types import Actor
from explorer import audit
from explorer.models import AuditRecord

from .roles import ADMINISTRATOR, RIGHTS, SEE_BODIES, VIEWER


class LastAdministrator(NotAllowed):
    """The change would leave the site without an administrator."""

    def __init__(self, name: str):
        super().__init__(f"{name} is the only administrator. Assign that role to another user first.")


@transaction.atomic
def set_role(name: str, role: str) -> bool:
    """Activate a user with exactly this role. Returns whether the user is new. Administrators may open the admin.

    A new user has no password and signs in with a link. Raises LastAdministrator.
    """
    user, is_new = get_user_model().objects.get_or_create(username=name)
    if is_new:
        user.set_unusable_password()
    user.is_active = True
    user.save()
    assign(user, role)
    audit.done(Actor.local(), "create person" if is_new else "change person", target=name, detail=f"Role {role}.")
    return is_new


@transaction.atomic
def assign(user: Any, role: str, *, see_bodies: bool | None = None) -> None:
    """Give a user exactly this role. see_bodies: whether a viewer may see message bodies; None: as it is. Raises
    LastAdministrator."""
    was_administrator = _begin(user)
    user.is_staff = role == ADMINISTRATOR
    user.is_superuser = user.is_superuser and role == ADMINISTRATOR
    user.save(update_fields=["is_staff", "is_superuser"])
    user.groups.remove(*Group.objects.filter(name__in=RIGHTS))
    user.groups.add(Group.objects.get_or_create(name=role)[0])
    if see_bodies is not None:
        change = user.user_permissions.add if see_bodies and role == VIEWER else user.user_permissions.remove
        change(see_bodies_permission())
    _require_an_administrator(user, was_administrator)


@transaction.atomic
def set_active(user: Any, active: bool) -> None:
    """Activate or deactivate a user. A deactivated one cannot sign in, and is signed out. Raises LastAdministrator."""
    was_administrator = _begin(user)
    user.is_active = active
    user.save(update_fields=["is_active"])
    _require_an_administrator(user, was_administrator)


def administrators() -> QuerySet:
    """Active administrators, superusers first."""
    is_administrator = Q(is_superuser=True) | Q(groups__name=ADMINISTRATOR)
    return get_user_model().objects.filter(is_administrator, is_active=True).distinct().order_by("-is_superuser", "pk")


def may_see_bodies(user: Any) -> bool:
    """Whether a viewer was given the right to see message bodies."""
    return user.user_permissions.filter(pk=see_bodies_permission().pk).exists()


def ensure(roles: Mapping[str, str]) -> None:
    """Create the missing users. Existing ones are not changed."""
    existing = set(get_user_model().objects.filter(username__in=roles).values_list("username", flat=True))
    for name, role in roles.items():
        if name not in existing:
            set_role(name, role)


def _begin(user: Any) -> bool:
    """Whether the user is an active administrator. Until the transaction ends, no other user is changed: two administrators who
    take the role from each other at once must not both succeed."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(7463)")
    user.refresh_from_db()
    return administrators().filter(pk=user.pk).exists()


def _require_an_administrator(user: Any, was_administrator: bool) -> None:
    if was_administrator and not administrators().exists():
        raise LastAdministrator(user.get_username())


def see_bodies_permission() -> Permission:
    """The right that a viewer can be given."""
    kind = ContentType.objects.get_for_model(AuditRecord)
    words = {"name": "Can see the bodies of messages"}
    return Permission.objects.get_or_create(codename=SEE_BODIES.partition(".")[2], content_type=kind, defaults=words)[0]
