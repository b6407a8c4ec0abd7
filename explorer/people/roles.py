"""Roles: Django groups, and the broker's rights that each grants (docs/design.md D13)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser

from broker_core.common.errors import NotAuthorized
from broker_core.common.types import Actor, Right
from explorer import sandbox_names

VIEWER, OPERATOR, ADMINISTRATOR = "viewer", "operator", "administrator"
SEE_BODIES = "explorer.see_bodies"
RIGHTS = {
    ADMINISTRATOR: Right.ALL,
    OPERATOR: Right.BROWSE | Right.SEE_BODIES | Right.SEND | Right.LISTEN | Right.OPERATE,
    VIEWER: Right.BROWSE,
}  # strongest first
ALLOWS = {
    VIEWER: "Sees entities, counts, properties and timelines.",
    OPERATOR: "Also sees message bodies, sends, receives, settles, resubmits, moves and purges.",
    ADMINISTRATOR: "Also creates, changes and deletes entities, and manages people, keys, policies and schedules.",
}
_ACTS = {
    Right.BROWSE: "view",
    Right.SEE_BODIES: "view message bodies of",
    Right.SEND: "send messages to",
    Right.LISTEN: "receive messages from",
    Right.OPERATE: "act on",
    Right.MANAGE: "change",
}


def actor_for(user: AbstractBaseUser | AnonymousUser, namespace: str | None = None) -> Actor:
    """The broker's actor for a user. A user without a role, or not signed in, has no rights.

    namespace: the one that a page is about. In a sandbox, its owner has all rights, whatever the role; elsewhere those of it.
    """
    actor = _actor_for(user)
    if namespace and Right.BROWSE in actor.rights and actor.rights is not Right.ALL and sandbox_names.is_owner(user, namespace):
        return replace(actor, rights=Right.ALL, namespace=namespace, rights_elsewhere=actor.rights)
    return actor


def _actor_for(user: AbstractBaseUser | AnonymousUser) -> Actor:
    role = _role(user)
    rights = Right.NONE if role is None else RIGHTS[role]
    if role == VIEWER and user.has_perm(SEE_BODIES):
        rights |= Right.SEE_BODIES
    return Actor("user", user.get_username() or "anonymous", rights)


def actors_now(places: Iterable[tuple[int, str]]) -> dict[tuple[int, str], Actor]:
    """Actors by user id and namespace, with the users' current rights there. Deactivated and deleted users are left out."""
    keys = list(places)
    ids = {user_id for user_id, _ in keys}
    users = get_user_model().objects.filter(pk__in=ids, is_active=True).prefetch_related("groups").in_bulk()
    return {(pk, namespace): actor_for(users[pk], namespace) for pk, namespace in keys if pk in users}


def role_name(user: AbstractBaseUser | AnonymousUser) -> str:
    """The name of the strongest role."""
    return _role(user) or "no role"


def refusal(actor: str, right: str, entity: str) -> str:
    """What a user without a right, or several, needs: the weakest role that includes it."""
    if not actor.startswith("user:"):
        return _refusal_without_roles(actor, right, entity)
    rights = [Right[name] for name in right.split("|")]
    role = next(role for role in reversed(RIGHTS) if all(each in RIGHTS[role] for each in rights))
    return f"You need the role {role} to {' and '.join(_ACTS[each] for each in rights)} {entity}."


_refusal_without_roles = NotAuthorized.refusal
NotAuthorized.refusal = refusal


def _role(user: AbstractBaseUser | AnonymousUser) -> str | None:
    if not user.is_authenticated or not user.is_active:
        return None
    if user.is_superuser:
        return ADMINISTRATOR
    groups = {group.name for group in user.groups.all()}
    return next((role for role in RIGHTS if role in groups), None)
