"""What clients do with messages: send, receive, settle, renew, peek, schedule, cancel, resubmit, purge.

Each function is a use case (see store.driver): call it for the answer now, `await name.aio(...)` under asyncio,
`name.steps(...)` to compose.
All take an `actor`; without one the calling process itself acts, with all rights. They raise the refusals of semantics.errors,
and nothing is
stored or changed when they do. Rights: Send to send, schedule and cancel, Listen to receive, settle and peek, Operate to
resubmit and purge.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from .renewal import renewer
from .semantics import service_bus
from .semantics.errors import (
    EntityDisabled,
    EntityNotFound,
    InvalidArgument,
    MessageNotFound,
    MessageTooLarge,
    NotAllowed,
    QuotaExceeded,
)
from .semantics.limits import STRICT
from .semantics.types import (
    Actor,
    EntityAddress,
    EntityStatus,
    LockedMessage,
    Message,
    MessageState,
    Right,
    SettleReport,
    SubQueue,
    sequence_number_of,
    unique_tokens,
)
from .store import connections
from .store.driver import Atomically, Listening, Steps, WaitForMessages, use_case
from .store.rows import locked_message, settle_report, stored_message
from .store.statements import call

TIDY_BATCH = 500  # messages a receive moves out of its way at most
HEAD_LAG = 1000  # numbers between the bound and what is received that make it worth advancing
PURGE_BATCH = 500
POLL_SECONDS = 1.0  # between looks while waiting; wake-ups come sooner
FIRST_POLL_SECONDS = 0.05  # a send that was under way when the wait began may not know of it


# Sending


@use_case
def send(address: EntityAddress, messages: Iterable[Message], *, actor: Actor | None = None) -> Steps:
    """Store messages in order, all or none, with consecutive sequence numbers, which are returned (SB-001, SB-004).

    A message with a `scheduled_enqueue_at` that lies ahead is scheduled (SB-045, SB-046); its number serves to cancel it. One
    without a message id is given
    one (SB-134). Raises InvalidArgument, MessageTooLarge (SB-007), QuotaExceeded (SB-012), EntityDisabled, EntityNotFound,
    NotAllowed (SB-013).
    """
    actor = actor or Actor.local()
    actor.require(Right.SEND, address)
    if address.subqueue is not SubQueue.MAIN:
        raise NotAllowed(f"Nothing can be sent to {address}: it takes messages through dead-lettering only (SB-013).")
    prepared = [service_bus.prepare(message) for message in messages]
    if not prepared:
        return []
    columns = _columns(prepared)
    entity_id, rows, look = yield from _on(address, "send", actor=str(actor), **columns)
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
    numbers = _numbers(sequence_numbers)
    if not numbers:
        return
    _, rows, _ = yield from _on(address.main, "cancel_scheduled", actor=str(actor), numbers=numbers)
    if not (rows and rows[0].done):
        missing = set(numbers) - {row.sequence_number for row in rows}
        raise MessageNotFound(str(address), sorted(missing), "scheduled message")


# Receiving


@use_case
def receive(
    address: EntityAddress,
    max_count: int = 1,
    *,
    max_wait_seconds: float = 0,
    auto_renew: timedelta | None = None,
    actor: Actor | None = None,
) -> Steps:
    """Lock up to max_count messages, lowest number first (SB-061, SB-062); an empty list when there are none.

    With max_wait_seconds it waits so long for the first one. With auto_renew this process renews the locks for that time, or
    until the messages are
    settled here. What is due on the entity (expired, spent, scheduled) is applied on the way, so it is right
    with no sweep running (SB-032).
    """
    take = _taker("receive", address, max_count, actor, locked_message)
    messages = yield from _patiently(take, address, max_wait_seconds)
    if auto_renew is not None:
        for message in messages:
            renewer.hold(message, for_=auto_renew, actor=actor)
    return messages


@use_case
def receive_and_delete(
    address: EntityAddress, max_count: int = 1, *, max_wait_seconds: float = 0, actor: Actor | None = None
) -> Steps:
    """Remove and return up to max_count messages: what the caller loses is lost (SB-060)."""
    take = _taker("receive_and_delete", address, max_count, actor, lambda row, _: stored_message(row))
    return (yield from _patiently(take, address, max_wait_seconds))


@use_case
def receive_from(addresses: Sequence[EntityAddress], max_count: int = 1, *, actor: Actor | None = None) -> Steps:
    """Lock up to max_count messages of several queues: one question to the database when all are empty.

    Queues are served in the order given, so a caller rotates them for fairness. Ones that do not exist have nothing.
    """
    ids = {}
    for address in addresses:
        try:
            ids[(yield from _entity_id(address))] = address
        except EntityNotFound:
            continue
    rows = yield call("ready", entity_ids=list(ids))
    ready = {row.entity_id for row in rows}
    found: list[LockedMessage] = []
    for entity_id, address in ids.items():
        if entity_id in ready and len(found) < max_count:
            found += yield from receive.steps(address, max_count - len(found), actor=actor)
    if len(rows) < len(ids):
        _forget_some(addresses)
    return found


@use_case
def receive_deferred(address: EntityAddress, sequence_numbers: Sequence[int], *, actor: Actor | None = None) -> Steps:
    """Lock deferred messages by number: all of them, or none and MessageNotFound (SB-084, SB-085, SB-912)."""
    actor = actor or Actor.local()
    actor.require(Right.LISTEN, address)
    numbers = _numbers(sequence_numbers)
    if not numbers:
        return []
    _, rows, look = yield from _on(
        address, "receive_deferred", numbers=numbers, holder=actor.holder_label, expires_deferred=True, properties=None
    )
    if not rows:
        _require_receivable(address, look)
        raise MessageNotFound(str(address), numbers, "unlocked deferred message")
    return [locked_message(row, address) for row in rows]


@use_case
def peek(address: EntityAddress, from_sequence_number: int = 1, max_count: int = 100, *, actor: Actor | None = None) -> Steps:
    """Up to max_count messages from a number on, in every state, changing nothing (SB-140, SB-141). It is activity (SB-147)."""
    actor = actor or Actor.local()
    actor.require(Right.LISTEN, address)
    _require_count("max_count", max_count)
    from_number = _numbers([from_sequence_number])[0]
    _, rows, _ = yield from _on(address, "peek", from_number=from_number, max_count=max_count)
    return [stored_message(row) for row in rows]


# Settling


@use_case
def complete(address: EntityAddress, tokens: Sequence[UUID], *, actor: Actor | None = None) -> Steps:
    """Remove the messages that these tokens hold (SB-080). Answers with a SettleReport: lost locks change nothing (SB-071)."""
    return (yield from _settle("complete", address, tokens, actor))


@use_case
def abandon(
    address: EntityAddress, tokens: Sequence[UUID], properties: Mapping[str, Any] | None = None, *, actor: Actor | None = None
) -> Steps:
    """Give the messages back: a failed delivery, which may dead-letter or expire them (SB-081, SB-027, SB-091).

    properties: application properties to set or overwrite.
    """
    patch = service_bus.properties_json(properties)
    return (yield from _settle("abandon", address, tokens, actor, properties=patch, expires_deferred=False))


@use_case
def release(address: EntityAddress, tokens: Sequence[UUID], *, actor: Actor | None = None) -> Steps:
    """Give the messages back as if they had not been delivered (SB-090, SB-926)."""
    return (yield from _settle("release", address, tokens, actor))


@use_case
def defer(
    address: EntityAddress, tokens: Sequence[UUID], properties: Mapping[str, Any] | None = None, *, actor: Actor | None = None
) -> Steps:
    """Set the messages aside, to be received by number (SB-083)."""
    return (yield from _settle("defer", address, tokens, actor, properties=service_bus.properties_json(properties)))


@use_case
def dead_letter(
    address: EntityAddress,
    tokens: Sequence[UUID],
    reason: str | None = None,
    description: str | None = None,
    properties: Mapping[str, Any] | None = None,
    *,
    actor: Actor | None = None,
) -> Steps:
    """Move the messages to the dead-letter queue (SB-082). Raises NotAllowed inside one (SB-089)."""
    service_bus.check_may_dead_letter(address.subqueue)
    for name, text in (("reason", reason), ("description", description)):
        if text is not None and (len(text) > STRICT.dead_letter_text or "\x00" in text):
            raise InvalidArgument(name, f"must have at most {STRICT.dead_letter_text} characters and no NUL (1.2)")
    patch = service_bus.properties_json(properties)
    return (yield from _settle("dead_letter", address, tokens, actor, reason=reason, description=description, properties=patch))


@use_case
def renew(address: EntityAddress, tokens: Sequence[UUID], *, actor: Actor | None = None) -> Steps:
    """Let the locks end lock_duration from now, as often as wanted (SB-064). The report's `locked_until` is the new end."""
    return (yield from _settle("renew", address, tokens, actor))


# Operating


@use_case
def resubmit(
    address: EntityAddress,
    sequence_numbers: Sequence[int],
    *,
    properties: Mapping[str, Any] | None = None,
    body: bytes | None = None,
    actor: Actor | None = None,
) -> Steps:
    """Send dead letters to their queue again and remove them, in one transaction (SB-105). Returns old number -> new number.

    A number missing from the answer was not there or is held by a receiver. properties are set on the new messages, which name
    their ancestor; a body replaces theirs.
    """
    actor = actor or Actor.local()
    actor.require(Right.OPERATE, address)
    numbers = _numbers(sequence_numbers)
    if not numbers:
        return {}
    entity_id, rows, look = yield from _on(
        address.main, "resubmit", actor=str(actor), numbers=numbers, properties=service_bus.properties_json(properties), body=body
    )
    if not rows:
        _require_sendable(address, look)
        return {}
    if rows[0].waiting:
        yield call("wake", entity_id=entity_id)
    return {row.old_number: row.new_number for row in rows}


@use_case
def purge(
    address: EntityAddress,
    *,
    states: Sequence[MessageState] = (MessageState.ACTIVE,),
    enqueued_before: datetime | None = None,
    sequence_numbers: Sequence[int] | None = None,
    max_count: int | None = None,
    actor: Actor | None = None,
) -> Steps:
    """Delete messages of a list that nobody holds, oldest first, and say how many (SB-150, SB-151, SB-153).

    Without enqueued_before it takes what was there when it began. In batches, each its own transaction.
    """
    actor = actor or Actor.local()
    actor.require(Right.OPERATE, address)
    numbers = None if sequence_numbers is None else _numbers(sequence_numbers)
    entity_id = yield from _entity_id(address)
    look = yield call("look", entity_id=entity_id)
    if not look:
        _forget(address)
        raise EntityNotFound(str(address))
    total = 0
    for state in states:
        # Scheduled ones were accepted at enqueued_at, too, so one cut-off serves every state.
        while max_count is None or total < max_count:
            wanted = PURGE_BATCH if max_count is None else min(PURGE_BATCH, max_count - total)
            (row,) = yield call(
                "purge",
                entity_id=entity_id,
                subqueue=address.subqueue,
                state=state,
                numbers=numbers,
                max_count=wanted,
                enqueued_before=enqueued_before or look[0].now,
                actor=str(actor),
            )
            total += row.done
            if row.done < wanted:
                break
    return total


# Tidying: applied by receives to their own entity, and by the sweeps to all


def tidy(entity_id: int, look: Any, max_count: int = TIDY_BATCH) -> Steps:
    """Apply a bounded batch of what is due on an entity, as `look` saw it (design D5). Returns how many messages were touched."""
    done = 0
    if look.scheduled:
        done += yield from activate(entity_id, max_count)
    if look.locks:
        done += yield from end_locks(entity_id, max_count)
    if look.expired:
        done += yield from expire(entity_id, look.expiry_mode, max_count)
    return done


def activate(entity_id: int, max_count: int) -> Steps:
    """Put scheduled messages that are due at the end of the queue (SB-047)."""
    (row,) = yield call("activate", entity_id=entity_id, max_count=max_count)
    if row.done and row.waiting:
        yield call("wake", entity_id=entity_id)
    return row.done


def end_locks(entity_id: int, max_count: int) -> Steps:
    """Take back messages whose lock has ended (SB-090, SB-091). max_count: receives whose messages are looked at."""
    (row,) = yield call(
        "end_locks", entity_id=entity_id, subqueue=SubQueue.MAIN, max_count=max_count, expires_deferred=False, properties=None
    )
    if row.done and row.waiting:
        yield call("wake", entity_id=entity_id)
    return row.done


def expire(entity_id: int, expiry_mode: str, max_count: int, from_number: int = 0) -> Steps:
    """Take expired messages away in the manner of the entity (SB-033, SB-034, design D10)."""
    if expiry_mode == "at_head":
        (row,) = yield _expiring("expire_at_head", entity_id, max_count)
        return row.done
    (own,) = yield _expiring("expire", entity_id, max_count)
    (default,) = yield _expiring("expire_by_default", entity_id, max_count, from_number=from_number)
    return own.done + default.done


def advance_head(entity_id: int, subqueue: SubQueue) -> Steps:
    """Raise the bound below which nothing is present, unless another process is at it."""

    def steps():
        if (yield call("take_head", entity_id=entity_id, subqueue=subqueue)):
            yield call("advance_head", entity_id=entity_id, subqueue=subqueue)

    yield Atomically(steps())


def _expiring(name: str, entity_id: int, max_count: int, **params: Any):
    return call(name, entity_id=entity_id, subqueue=SubQueue.MAIN, max_count=max_count, properties=None, **params)


# How it is done

_ids: dict[tuple[connections.Database, str, str], int] = {}


def _key(address: EntityAddress):
    return connections.current_database(), address.namespace.lower(), address.path.lower()


def _forget(address: EntityAddress) -> None:
    _ids.pop(_key(address), None)


def _forget_some(addresses: Sequence[EntityAddress]) -> None:
    """Ids are looked up again now and then, so that a queue deleted and made anew is found by those who only poll."""
    if time.monotonic() - _forgotten.get("at", 0) > 5:
        _forgotten["at"] = time.monotonic()
        for address in addresses:
            _forget(address)


_forgotten: dict[str, float] = {}


def _entity_id(address: EntityAddress) -> Steps:
    """The id behind an address, remembered: ids are never used again. Raises EntityNotFound."""
    key = _key(address)
    if key not in _ids:
        rows = yield call("find_entity", namespace=address.namespace, path=address.path)
        if not rows:
            raise EntityNotFound(str(address))
        _ids[key] = rows[0].id
    return _ids[key]


def _on(address: EntityAddress, name: str, **params: Any) -> Steps:
    """Run a statement on an entity. Returns its id, the rows, and, if there are none, a look at the entity.

    An id remembered from an entity deleted since is looked up once more. Raises EntityNotFound.
    """
    for _ in range(2):
        remembered = _key(address) in _ids
        entity_id = yield from _entity_id(address)
        rows = yield call(name, entity_id=entity_id, subqueue=address.subqueue, **params)
        if rows:
            return entity_id, rows, None
        look = yield call("look", entity_id=entity_id)
        if look:
            return entity_id, [], look[0]
        _forget(address)
        if not remembered:
            break
    raise EntityNotFound(str(address))


def _taker(name: str, address: EntityAddress, max_count: int, actor: Actor | None, as_message):
    actor = actor or Actor.local()
    actor.require(Right.LISTEN, address)
    _require_count("max_count", max_count)

    def take() -> Steps:
        params = {"holder": actor.holder_label}
        entity_id, rows, look = yield from _on(address, name, max_count=max_count, **params)
        if look:
            _require_receivable(address, look)
        far = bool(rows) and rows[0].sequence_number - rows[0].head > HEAD_LAG
        if len(rows) < max_count or far:
            if not look:
                look = next(iter((yield call("look", entity_id=entity_id))), None)
            touched = look and (yield from tidy(entity_id, look))
            if far:
                yield from advance_head(entity_id, address.subqueue)
            if touched and len(rows) < max_count:
                more = call(name, entity_id=entity_id, subqueue=address.subqueue, max_count=max_count - len(rows), **params)
                rows = [*rows, *(yield more)]
        return [as_message(row, address) for row in rows]

    return take


def _patiently(take, address: EntityAddress, max_wait_seconds: float) -> Steps:
    """Take; and if there is nothing, wait for a wake-up, looking once a second behind it (design D8)."""
    messages = yield from take()
    if messages or max_wait_seconds <= 0:
        return messages
    entity_id = yield from _entity_id(address)
    deadline = time.monotonic() + max_wait_seconds

    def steps():
        pause = FIRST_POLL_SECONDS
        while (left := deadline - time.monotonic()) > 0:
            yield call("wait_begins", entity_id=entity_id, seconds=min(left, POLL_SECONDS + 1))
            found = yield from take()
            if found:
                return found
            yield WaitForMessages((entity_id,), min(left, pause))
            pause = POLL_SECONDS
        return (yield from take())

    return (yield Listening((entity_id,), steps()))


def _settle(name: str, address: EntityAddress, tokens: Sequence[UUID], actor: Actor | None, **params: Any) -> Steps:
    actor = actor or Actor.local()
    actor.require(Right.LISTEN, address)
    tokens = unique_tokens(tokens)
    if not tokens:
        return SettleReport((), ())
    if name != "renew":
        renewer.drop(tokens)
    numbers = [sequence_number_of(token) for token in tokens]
    entity_id, rows, look = yield from _on(address, name, actor=str(actor), numbers=numbers, tokens=tokens, **params)
    if look:
        _require_receivable(address, look)
    elif getattr(rows[0], "waiting", False):
        yield call("wake", entity_id=entity_id)
    return settle_report(tokens, rows)


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


def _numbers(sequence_numbers: Sequence[int]) -> list[int]:
    numbers = list(dict.fromkeys(sequence_numbers))
    for number in numbers:
        if not isinstance(number, int) or not 0 <= number < 2**63:
            raise InvalidArgument("sequence_number", f"{number!r} is no whole number from 0 to 2^63 - 1")
    return numbers


def _require_count(name: str, count: int) -> None:
    if not isinstance(count, int) or count < 1:
        raise InvalidArgument(name, f"{count!r} is no whole number from 1 on")


def _require_receivable(address: EntityAddress, look: Any) -> None:
    if not EntityStatus(look.status).may_receive:
        raise EntityDisabled(str(address), look.status, "receives or settlements")


def _require_sendable(address: EntityAddress, look: Any) -> None:
    if not EntityStatus(look.status).may_send:
        raise EntityDisabled(str(address), look.status, "sends")


def _refuse_send(address: EntityAddress, look: Any, largest: int) -> None:
    _require_sendable(address, look)
    if largest > look.largest:
        raise MessageTooLarge("message", largest, look.largest)
    raise QuotaExceeded(str(address), look.quota)
