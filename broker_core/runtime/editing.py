"""Edits of messages that wait: an operator replaces the body or the properties of one that nobody holds (docs/design.md D22).

A family says what a body and properties may be, and its statement which messages may be edited.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from broker_core.common.arguments import require_kind, require_reason, whole_numbers
from broker_core.common.errors import (
    BrokerError,
    EntityNotFound,
    InvalidArgument,
    MessageChanged,
    MessageHeld,
    MessageNotFound,
    NotAllowed,
)
from broker_core.common.types import Actor, EntityAddress, Right, SubQueue
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from .room import require_room

_RIGHTS = Right.OPERATE | Right.SEE_BODIES


class Edit(NamedTuple):
    """A checked edit. body: as stored; None: unchanged. properties: their JSON, "{}" for none; None: unchanged. version: of the
    message that was read; None: whatever it is."""

    number: int
    body: bytes | None
    properties: str | None
    version: str | None
    reason: str | None
    actor: Actor


class Content(NamedTuple):
    """The size of an edited message, and its properties as in Edit."""

    size: int
    properties: str | None = None


def authorized(address: EntityAddress, actor: Actor | None) -> Actor:
    """The actor. Raises NotAuthorized unless it may operate on messages and see bodies."""
    require_kind("address", address, EntityAddress)
    actor = actor or Actor.local()
    actor.require(_RIGHTS, address)
    return actor


def checked(
    number: int, body: bytes | None, properties: str | None, version: str | None, reason: str | None, actor: Actor
) -> Edit:
    """Raises InvalidArgument for a number, version or reason that is none, and for an edit that changes nothing."""
    (number,) = whole_numbers([number])
    if body is None and properties is None:
        raise InvalidArgument("body", "give a new body, new properties, or both; nothing would change")
    if version is not None:
        require_kind("version", version, str)
    require_reason(reason)
    return Edit(number, body, properties, version, reason, actor)


def apply(
    address: EntityAddress,
    entity_id: int,
    statement: str,
    edit: Edit,
    *,
    hold: str,
    content_of: Callable[[Any], Steps[Content]],
    full: Callable[[int], BrokerError] | None = None,
) -> Steps[str]:
    """Run the family's statement for an edit. Returns the message's new version.

    hold: as in MessageHeld. content_of: (stored row) -> what the message would have; raises if it is too large. full: (most
    bytes) -> the error for an entity without room.
    """
    rows = yield call("read_message", entity_id=entity_id, sequence_number=edit.number)
    if not rows:
        yield from _refuse_missing(address, entity_id, edit.number)
    (row,) = rows
    if row.subqueue != SubQueue.MAIN:
        raise NotAllowed(
            f"Message {edit.number} of '{address}' is a dead letter, which cannot be edited. Repair and resubmit it instead."
        )
    size, properties = yield from content_of(row)
    if size > row.size:
        yield from require_room(address.namespace)
    rows = yield call(
        statement, entity_id=entity_id, number=edit.number, version=edit.version or row.version, body=edit.body,
        properties=properties, size=size, reason=edit.reason, actor=str(edit.actor),
    )  # fmt: skip
    if not rows:
        yield from _refuse_missing(address, entity_id, edit.number)
    (answer,) = rows
    if answer.problem is not None:
        raise _refusal(address, edit.number, answer, hold, full)
    return answer.version


def _refuse_missing(address: EntityAddress, entity_id: int, number: int) -> Steps[NoReturn]:
    if not (yield call("entity_status", entity_id=entity_id)):
        raise EntityNotFound(str(address))
    raise MessageNotFound(str(address), [number], "message")


def _refusal(
    address: EntityAddress, number: int, answer: Any, hold: str, full: Callable[[int], BrokerError] | None
) -> BrokerError:
    match answer.problem:
        case "held":
            return MessageHeld(str(address), number, hold, answer.held_by, answer.held_until)
        case "expired":
            return NotAllowed(f"Message {number} of '{address}' has expired. Nothing was changed; send a new message.")
        case "full" if full is not None:
            return full(answer.most)
    return MessageChanged(str(address), number)
