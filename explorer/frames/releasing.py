"""Operators release locks: of one message, of a session, or of all that a filter of the page of locks shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from django.http import HttpRequest

from broker_core import namespaces, reads
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.reads import Lock, LockFilter, MessageRow
from explorer import sandbox_names

from .actions import Action
from .family import LockPages, pages_of
from .presenters import plural
from .shell import Act, act

RELEASE = "release"
MOST_RELEASED = 5_000  # by one action


@dataclass(frozen=True, slots=True)
class Released:
    """How many locks a release ended, on how many entities; ended: how many had ended before."""

    locks: int
    entities: int
    ended: int


def action(row: MessageRow, why_not: str) -> Action:
    """The action that releases a locked message."""
    locks = pages_of(row.family).locks
    return Action(RELEASE, f"Release {locks.word}…", "unlock", why_not, locks.effect, asks_reason=True)


def release_posted(request: HttpRequest) -> Act:
    """Release the lock that a form names: `namespace` and `path` of its entity, and `number` of the message or `session`."""
    data = request.POST
    address = EntityAddress(data.get("namespace", ""), data.get("path", ""))
    sandbox_names.require_access(request.user, request.actor, [address.namespace])
    number = data.get("number", "")
    if number.isascii() and number.isdigit() and len(number) <= 18:
        return release_message(request, address, int(number))
    if data.get("session"):
        return release_session(request, address, data["session"])
    return Act(error=InvalidArgument("number", "must be the number of a locked message"))


def release_message(request: HttpRequest, address: EntityAddress, number: int) -> Act:
    """Release the lock of a message, for the posted reason."""
    locks, reason = _of(address, request.actor), reason_of(request)
    return act(
        request, f"release {locks.word}", address, lambda: locks.release(address, [number], reason, request.actor),
        target=f"message {number}",
        says=lambda done: (
            f"Released the {locks.word} of message {number}{_because(reason)}."
            if done else f"Message {number} was not released: its {locks.word} had ended already."
        ),
    )  # fmt: skip


def release_session(request: HttpRequest, address: EntityAddress, session_id: str) -> Act:
    """Release the lock of a session, for the posted reason."""
    locks, reason = _of(address, request.actor), reason_of(request)
    return act(
        request, "release session", address, lambda: locks.release_session(address, session_id, reason, request.actor),
        target=f"session {session_id}",
        says=lambda done: (
            f"Released session {session_id}{_because(reason)}."
            if done else f"Session {session_id} was not released: its lock had ended already."
        ),
    )  # fmt: skip


def release_all(request: HttpRequest, filter: LockFilter) -> Act:
    """Release the locks that the filter shows, up to MOST_RELEASED, for the posted reason."""
    reason = reason_of(request)
    return act(
        request, "release locks", None, lambda: _release_all(filter, reason, request.actor),
        target=f"held by {filter.holder}" if filter.holder else "all that match",
        says=lambda done: (
            f"Released {plural(done.locks, 'lock')} on {plural(done.entities, 'entity', 'entities')}{_because(reason)}."
            + (f" {plural(done.ended, 'lock')} had ended already." if done.ended else "")
        ),
    )  # fmt: skip


def reason_of(request: HttpRequest) -> str:
    return " ".join(request.POST.get("reason", "").split())


def _release_all(filter: LockFilter, reason: str, actor: Actor) -> Released:
    actor.require(Right.OPERATE, "locks")
    locks = reads.locks(filter, limit=MOST_RELEASED, actor=actor).rows
    released = ended = 0
    entities = set()
    for address, group in groupby(locks, key=lambda lock: lock.address.main):
        own_locks = list(group)
        done = _release(address, own_locks, reason, actor)
        released += done
        ended += len(own_locks) - done
        entities |= {address} if done else set()
    return Released(released, len(entities), ended)


def _release(address: EntityAddress, held_locks: Iterable[Lock], reason: str, actor: Actor) -> int:
    """Release locks of one entity: its sessions first, with the messages received through them. Returns how many."""
    locks = _of(address, actor)
    sessions = [lock.session_id for lock in held_locks if lock.is_session and lock.session_id is not None]
    numbers = [lock.number for lock in held_locks if lock.number is not None]
    ended = sum(locks.release_session(address, session, reason, actor) for session in sessions)
    through_session = [lock.number for lock in held_locks if lock.number is not None and lock.session_id in sessions]
    other_numbers = [number for number in numbers if number not in set(through_session)]
    return ended + len(through_session) + (len(locks.release(address, other_numbers, reason, actor)) if other_numbers else 0)


def _of(address: EntityAddress, actor: Actor) -> LockPages:
    return pages_of(namespaces.get_namespace(address.namespace, actor=actor).family).locks


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""
