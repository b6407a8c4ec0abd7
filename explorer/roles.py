"""Roles of people: Django groups, and the rights of the broker that each gives (design D13)."""

from __future__ import annotations

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

from broker_core.semantics.types import Actor, Right

VIEWER, OPERATOR, ADMINISTRATOR = "viewer", "operator", "administrator"
SEE_BODIES = "explorer.see_bodies"
RIGHTS = {
    ADMINISTRATOR: Right.ALL,
    OPERATOR: Right.BROWSE | Right.SEE_BODIES | Right.SEND | Right.LISTEN | Right.OPERATE,
    VIEWER: Right.BROWSE,
}  # the strongest first


def actor_for(user: AbstractBaseUser | AnonymousUser) -> Actor:
    """The broker's actor for a signed-in person. Without a role, or not signed in, it has no right at all."""
    role = _role(user)
    rights = Right.NONE if role is None else RIGHTS[role]
    if role == VIEWER and user.has_perm(SEE_BODIES):
        rights |= Right.SEE_BODIES
    return Actor("user", user.get_username() or "anonymous", rights)


def role_name(user: AbstractBaseUser | AnonymousUser) -> str:
    """The strongest role in words."""
    return _role(user) or "no role"


def _role(user: AbstractBaseUser | AnonymousUser) -> str | None:
    if not user.is_authenticated or not user.is_active:
        return None
    if user.is_superuser:
        return ADMINISTRATOR
    groups = set(user.groups.values_list("name", flat=True))
    return next((role for role in RIGHTS if role in groups), None)
