"""Creates users and assigns roles."""

from __future__ import annotations

from collections.abc import Mapping

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import Q, QuerySet

from broker_core.common.types import Actor
from explorer import audit

from .roles import ADMINISTRATOR, RIGHTS


class LastAdministrator(Exception):
    """The change would leave the site without an administrator."""


@transaction.atomic
def set_role(name: str, role: str) -> bool:
    """Activate a user with exactly this role. Returns whether the user is new. Administrators may open the admin.

    A new user has no password and signs in with a link. Raises LastAdministrator.
    """
    users = get_user_model().objects
    user, is_new = users.select_for_update().get_or_create(username=name)
    if is_new:
        user.set_unusable_password()
    user.is_active = True
    user.is_staff = role == ADMINISTRATOR
    user.is_superuser = user.is_superuser and role == ADMINISTRATOR
    user.save()
    user.groups.remove(*Group.objects.filter(name__in=RIGHTS))
    user.groups.add(Group.objects.get_or_create(name=role)[0])
    if role != ADMINISTRATOR and not is_new and not administrators().exists():
        raise LastAdministrator(f"{name} is the only administrator. Assign that role to another user first.")
    audit.done(Actor.local(), "create person" if is_new else "change person", target=name, detail=f"Role {role}.")
    return is_new


def administrators() -> QuerySet:
    """Active administrators, superusers first."""
    is_administrator = Q(is_superuser=True) | Q(groups__name=ADMINISTRATOR)
    return get_user_model().objects.filter(is_administrator, is_active=True).distinct().order_by("-is_superuser", "pk")


def ensure(roles: Mapping[str, str]) -> None:
    """Create the missing users. Existing ones are not changed."""
    existing = set(get_user_model().objects.filter(username__in=roles).values_list("username", flat=True))
    for name, role in roles.items():
        if name not in existing:
            set_role(name, role)
