"""Roles: Django groups, and the broker's rights that each grants (docs/design.md D13)."""

from __future__ import annotations

from collections.abc import Iterable

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

from broker_core.common.errors import NotAuthorized
from broker_core.common.types import Actor, Right

VIEWER, OPERATOR, ADMINISTRATOR = "viewer", "operator", "administrator"
SEE_BODIES = "explorer.see_bodies"
RIGHTS = {
    ADMINISTRATOR: Right.ALL,
    OPERATOR: Right.BROWSE | Right.SEE_BODIES | Right.SEND | Right.LISTEN | Right.OPERATE,
    VIEWER: Right.BROWSE,
}  # strongest first


def actor_for(user: AbstractBaseUser | AnonymousUser) -> Actor:
    """The broker's actor for a user. A user without a role, or not signed in, has no rights."""
    role = _role(user)
    rights = Right.NONE if role is None else RIGHTS[role]
    if role == VIEWER and user.has_perm(SEE_BODIES):
        rights |= Right.SEE_BODIES
    return Actor("user", user.get_username() or "anonymous", rights)


def actors_now(user_ids: Iterable[int]) -> dict[int, Actor]:
    """Actors by user id, with the users' current rights. Deactivated and deleted users are left out."""
    users = get_user_model().objects.filter(pk__in=list(user_ids), is_active=True).prefetch_related("groups")
    return {user.pk: actor_for(user) for user in users}


def role_name(user: AbstractBaseUser | AnonymousUser) -> str:
    """The name of the strongest role."""
    return _role(user) or "no role"


def _way_out(actor: str, right: str) -> str:
    """What a user without a right should ask for: the weakest role that includes it."""
    if not actor.startswith("user:"):
        return "Ask an administrator for access."
    wanted = [Right[name] for name in right.split("|")]
    role = next(role for role in reversed(RIGHTS) if all(each in RIGHTS[role] for each in wanted))
    return f"The role {role} includes it; ask an administrator for access."


NotAuthorized.way_out = _way_out


def _role(user: AbstractBaseUser | AnonymousUser) -> str | None:
    if not user.is_authenticated or not user.is_active:
        return None
    if user.is_superuser:
        return ADMINISTRATOR
    groups = {group.name for group in user.groups.all()}
    return next((role for role in RIGHTS if role in groups), None)
