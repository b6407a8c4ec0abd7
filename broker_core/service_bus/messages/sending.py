"""Send messages, and cancel scheduled ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from broker_core.common.arguments import whole_numbers
from broker_core.common.errors import MessageNotFound, MessageTooLarge, NotAllowed, QuotaExceeded
from broker_core.common.types import Actor, EntityAddress, EntityKind, EntityStatus, Right, SubQueue
from broker_core.runtime.contention import send_in_turn
from broker_core.runtime.entity_cache import CachedEntity
from broker_core.runtime.gathering import Gathering
from broker_core.runtime.room import require_room
from broker_core.service_bus.rules import messages as service_bus
from broker_core.service_bus.rules import sessions
from broker_core.service_bus.rules.messages import Prepared
from broker_core.service_bus.rules.values import Message
from broker_core.store.driver import AfterCommit, Steps, all_or_none, undo
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .duplicates import claim_ids, record_ids
from .forwarding import wake_and_forward
from .publishing import Stored, merge_numbers, publish
from .shared import new_ids, on_entity, require_sendable, run_on_entity, touch


@use_case
def send(address: EntityAddress, messages: Iterable[Message], *, actor: Actor | None = None) -> Steps:
    """Store messages in order, all or none, with consecutive sequence numbers, which are returned (SB-001, SB-004).

    For a topic these are its own numbers; each matching subscription stores a copy under a number of its own (SB-210). A message
    whose `scheduled_enqueue_at` is in the future is scheduled (SB-045, SB-046); its number is needed to cancel it. A message
    without an id gets one (SB-134). With duplicate detection, the number of a dropped duplicate is None (SB-131).
    Raises InvalidArgument, MessageTooLarge (SB-007), QuotaExceeded (SB-012), StorageFull, EntityDisabled, EntityNotFound,
    NotAllowed (SB-008, SB-013).
    """
    actor = actor or Actor.local()
    actor.require(Right.SEND, address)
    prepared = prepare_all(address, messages)
    if not prepared:
        return []
    yield from require_room(address.namespace)
    return (yield from _sends.call((address, str(actor)), prepared))


def _send_together(key: tuple[EntityAddress, str], batches: Sequence[Sequence[Prepared]]) -> Steps[list[list[int | None]]]:
    """Store the messages of several calls; returns the numbers of each."""
    address, actor = key
    prepared = [p for batch in batches for p in batch]
    _, stored, status = yield from on_entity(address, lambda entity: store(address, entity, prepared, actor))
    if stored is None:
        refuse_send(address, status, prepared)
    yield from wake_and_forward(stored)
    numbers = iter(stored.numbers)
    return [list(islice(numbers, len(batch))) for batch in batches]


def _weight(batch: Sequence[Prepared]) -> int:
    return sum(1 + len(p.message.body) // _BODY_BYTES_LIKE_A_MESSAGE for p in batch)


_BODY_BYTES_LIKE_A_MESSAGE = 8192  # large bodies fill a group sooner, at some 4 MB
_sends: Gathering[Sequence[Prepared], list[int | None]] = Gathering(_send_together, size_of=_weight)


def prepare_all(address: EntityAddress, messages: Iterable[Message]) -> list[Prepared]:
    """Check messages and prepare them to be stored. Raises NotAllowed for an address that cannot be sent to (SB-013)."""
    if address.subqueue is not SubQueue.MAIN:
        raise NotAllowed(f"Cannot send to {address}: messages are added to it only by dead-lettering (SB-013).")
    if address.topic is not None:
        raise NotAllowed(f"Cannot send to the subscription {address}; send to its topic {address.topic} (SB-013).")
    return [service_bus.prepare(message) for message in messages]


def store(address: EntityAddress, entity: CachedEntity, prepared: Sequence[Prepared], actor: str) -> Steps:
    """Store prepared messages in a queue, or publish them. Returns Stored, or None if the entity rejects them."""
    if entity.requires_session:
        sessions.check_have_session(address, [p.message for p in prepared])
    if entity.requires_duplicate_detection:
        return (yield from _store_new(entity, prepared, actor))
    return (yield from _store(entity, prepared, actor))


@use_case
def cancel_scheduled(address: EntityAddress, sequence_numbers: Sequence[int], *, actor: Actor | None = None) -> Steps[None]:
    """Delete scheduled messages: all of them, or none and MessageNotFound (SB-048, SB-049)."""
    actor = actor or Actor.local()
    actor.require(Right.SEND, address)
    numbers = whole_numbers(sequence_numbers)
    if not numbers:
        return
    _, rows, _ = yield from run_on_entity(address.main, "cancel_scheduled", actor=str(actor), numbers=numbers)
    if not (rows and rows[0].done):
        missing = set(numbers) - {row.sequence_number for row in rows}
        raise MessageNotFound(str(address), sorted(missing), "scheduled message")


def _store(entity: CachedEntity, prepared: Sequence[Prepared], actor: str) -> Steps:
    if entity.kind is EntityKind.TOPIC:
        return (yield from _store_in_topic(entity, prepared, actor))
    columns = _columns(prepared)
    statement = "send_to_sessions" if entity.requires_session else "send_scheduled" if columns["scheduled_at"] else "send"
    send_all = call(statement, entity_id=entity.id, subqueue=SubQueue.MAIN, actor=actor, **columns)
    rows = yield from send_in_turn(entity.id, send_all, len(prepared))
    if not rows:
        return None
    sent = rows[0]
    if sent.idle:
        yield AfterCommit(touch("touch_by_send", entity.id))
    return Stored(
        list(range(sent.first, sent.first + len(prepared))),
        [entity.id],
        [entity.id] if sent.waiting else (),
        [entity.id] if sent.forwards else (),
    )


def _store_in_topic(topic: CachedEntity, prepared: Sequence[Prepared], actor: str) -> Steps:
    """Store scheduled messages at the topic itself (SB-051); publish the others at once."""
    later: set[int] = set()
    if any(p.message.scheduled_enqueue_at for p in prepared):
        rows = yield call("entity_status", entity_id=topic.id)
        if not rows or rows[0].status != EntityStatus.ACTIVE:
            return None
        later = {i for i, p in enumerate(prepared) if (at := p.message.scheduled_enqueue_at) and at > rows[0].now}
    if not later:
        return (yield from publish(topic.id, prepared, actor))

    def steps() -> Steps:
        columns = _columns([prepared[i] for i in sorted(later)])
        rows = yield call("send_scheduled", entity_id=topic.id, subqueue=SubQueue.MAIN, actor=actor, **columns)
        if rows and rows[0].idle:
            yield AfterCommit(touch("touch_by_send", topic.id))
        rest = [p for i, p in enumerate(prepared) if i not in later]
        published = (yield from publish(topic.id, rest, actor)) if rows and rest else Stored([])
        if not rows or published is None:
            undo()
        scheduled = range(rows[0].first, rows[0].first + len(later))
        return published._replace(numbers=merge_numbers(len(prepared), later, scheduled, published.numbers))

    return (yield from all_or_none(steps()))


def _store_new(entity: CachedEntity, prepared: Sequence[Prepared], actor: str) -> Steps:
    """Store the messages whose ids the entity has not seen within its window (SB-130); the number of a duplicate is None
    (SB-131)."""

    def steps() -> Steps:
        ids: list[Any] = [p.message.message_id for p in prepared]  # texts, as prepared
        is_new = yield from claim_ids(entity.id, ids)
        to_store = [p for p, new in zip(prepared, is_new, strict=True) if new]
        stored = (yield from _store(entity, to_store, actor)) if to_store else (yield from _nothing_to_store(entity))
        if stored is None:
            undo()
        left = iter(stored.numbers)
        numbers = [next(left) if new else None for new in is_new]
        yield from record_ids(entity.id, ids, numbers, actor)
        return stored._replace(numbers=numbers)

    return (yield from all_or_none(steps()))


def _nothing_to_store(entity: CachedEntity) -> Steps[Stored | None]:
    rows = yield call("entity_status", entity_id=entity.id)
    return Stored([]) if rows and EntityStatus(rows[0].status).may_send else None


def _columns(prepared: Sequence[Prepared]) -> dict[str, Any]:
    """A batch as the array parameters of `send`; None instead of an array without values, which is cheaper."""
    messages = [p.message for p in prepared]
    sizes = [p.size for p in prepared]
    ids = new_ids(len(messages))
    return {
        "bodies": [bytes(m.body) for m in messages],
        "sizes": sizes,
        "bytes": sum(sizes),
        "largest": max(sizes),
        "message_ids": [m.message_id or new_id for m, new_id in zip(messages, ids, strict=True)],
        "body_kinds": _unless_empty([int(m.body_kind) for m in messages]),
        "session_ids": _unless_empty([m.session_id for m in messages]),
        "times_to_live": _unless_empty([p.time_to_live for p in prepared]),
        "scheduled_at": _unless_empty([m.scheduled_enqueue_at for m in messages]),
        "properties": _unless_empty([p.properties for p in prepared]),
        "application_properties": _unless_empty([p.application_properties for p in prepared]),
        "encoded": _unless_empty([p.encoded for p in prepared]),
    }


def _unless_empty(values: list) -> list | None:
    return values if any(values) or "" in values else None  # an empty string is a value


def refuse_send(address: EntityAddress, status: Any, prepared: Sequence[Prepared]) -> None:
    """Raise the reason why an entity rejected messages."""
    require_sendable(address, status)
    largest = max(p.size for p in prepared)
    if largest > status.largest:
        raise MessageTooLarge("message", largest, status.largest)
    raise QuotaExceeded(str(address), status.quota)
