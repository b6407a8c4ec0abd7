"""Sending: messages in, scheduled ones called back."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from broker_core.semantics import service_bus, sessions
from broker_core.semantics.errors import MessageNotFound, MessageTooLarge, NotAllowed, QuotaExceeded
from broker_core.semantics.types import Actor, EntityAddress, Message, Right, SubQueue
from broker_core.store.driver import Steps, use_case
from broker_core.store.statements import call

from .shared import Known, on, require_sendable, whole_numbers


@use_case
def send(address: EntityAddress, messages: Iterable[Message], *, actor: Actor | None = None) -> Steps:
    """Store messages in order, all or none, with consecutive sequence numbers, which are returned (SB-001, SB-004).

    A message with a `scheduled_enqueue_at` that lies ahead is scheduled (SB-045, SB-046); its number serves to cancel it. One
    without a message id is given
    one (SB-134). Raises InvalidArgument, MessageTooLarge (SB-007), QuotaExceeded (SB-012), EntityDisabled, EntityNotFound,
    NotAllowed (SB-008, SB-013).
    """
    actor = actor or Actor.local()
    actor.require(Right.SEND, address)
    if address.subqueue is not SubQueue.MAIN:
        raise NotAllowed(f"Nothing can be sent to {address}: it takes messages through dead-lettering only (SB-013).")
    messages = list(messages)
    prepared = [service_bus.prepare(message) for message in messages]
    if not prepared:
        return []
    columns = _columns(prepared)
    entity_id, rows, look = yield from on(address, partial(_send_statement, address, messages), actor=str(actor), **columns)
    if not rows:
        _refuse_send(address, look, columns["largest"])
    if rows[0].waiting:
        yield call("wake", entity_id=entity_id)
    return list(range(rows[0].first, rows[0].first + len(prepared)))


@use_case
def cancel_scheduled(address: EntityAddress, sequence_numbers: Sequence[int], *, actor: Actor | None = None) -> Steps:
    """Delete scheduled messages: all of them, or none and MessageNotFound (SB-048, SB-049)."""
    actor = actor or Actor.local()
    actor.require(Right.SEND, address)
    numbers = whole_numbers(sequence_numbers)
    if not numbers:
        return
    _, rows, _ = yield from on(address.main, "cancel_scheduled", actor=str(actor), numbers=numbers)
    if not (rows and rows[0].done):
        missing = set(numbers) - {row.sequence_number for row in rows}
        raise MessageNotFound(str(address), sorted(missing), "scheduled message")


def _send_statement(address: EntityAddress, messages: Sequence[Message], entity: Known) -> str:
    """The statement that sends to this entity. Raises NotAllowed for a message without a session where one is needed."""
    if not entity.requires_session:
        return "send"
    sessions.check_have_session(address, messages)
    return "send_to_sessions"


def _columns(prepared: Sequence[service_bus.Prepared]) -> dict[str, Any]:
    """A batch as the arrays that `send` takes; None for an array of nothing, which costs nothing."""
    messages = [p.message for p in prepared]
    sizes = [p.size for p in prepared]
    ids = os.urandom(16 * len(messages)).hex()
    return {
        "bodies": [bytes(m.body) for m in messages],
        "sizes": sizes,
        "bytes": sum(sizes),
        "largest": max(len(m.body) for m in messages),
        "message_ids": [m.message_id or ids[32 * i : 32 * i + 32] for i, m in enumerate(messages)],
        "body_kinds": _unless_empty([int(m.body_kind) for m in messages]),
        "session_ids": _unless_empty([m.session_id for m in messages]),
        "times_to_live": _unless_empty([p.time_to_live for p in prepared]),
        "scheduled_at": _unless_empty([m.scheduled_enqueue_at for m in messages]),
        "properties": _unless_empty([p.properties for p in prepared]),
        "application_properties": _unless_empty([p.application_properties for p in prepared]),
    }


def _unless_empty(values: list) -> list | None:
    return values if any(values) else None


def _refuse_send(address: EntityAddress, look: Any, largest: int) -> None:
    require_sendable(address, look)
    if largest > look.largest:
        raise MessageTooLarge("message", largest, look.largest)
    raise QuotaExceeded(str(address), look.quota)
