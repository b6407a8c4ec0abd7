"""An entity as it was at an instant of its clock, rebuilt from events: `fold` is pure, `past` reads what it needs.

It is exact for an entity with full history, for messages whose events are still kept. The settings are those of that time; where
the clock is stepped, those before the entity's next event was recorded. A clock that was paused may have several states at one
instant: this is the last one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from broker_core.common.errors import EntityNotFound
from broker_core.common.family import definition_of
from broker_core.common.types import (
    TERMINAL_KINDS,
    Actor,
    EntityAddress,
    EventKind,
    Family,
    HoldKind,
    MessageState,
    Right,
    SubQueue,
)
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .entities import Counts, EntityRow, rows_of
from .messages import MessageRow
from .revisions import settings_at
from .shared import entity_id_of, require
from .timelines import Event, events_of

MOST_REBUILT = 5_000  # messages
MOST_GONE = 30  # messages that had left
NEWEST = 100  # events that tell what left, and who received
RECORDED_LATE = timedelta(minutes=10)  # an event is recorded at most so long after it happened, if the clock is the database's
_ENDS_LOCK = (
    EventKind.ABANDONED, EventKind.RELEASED, EventKind.LOCK_LOST, EventKind.DEFERRED, EventKind.DEAD_LETTERED, EventKind.RESTORED,
)  # fmt: skip
_NO_CHANGE = (EventKind.SETTLE_REFUSED, EventKind.DUPLICATE_DROPPED)


@dataclass(frozen=True, slots=True)
class Past:
    """An entity at an instant. rows: its messages by number; capped: there were more, whose number is in `counts` only.

    events: the newest of those that received messages or removed them. before, after: the instants of the events around it.
    first: of its first event that is kept. settings: those of that time, as in Revision.columns.
    """

    entity: EntityRow
    at: datetime
    rows: tuple[MessageRow, ...]
    counts: Counts
    capped: bool
    events: tuple[Event, ...]
    before: datetime | None
    after: datetime | None
    first: datetime | None
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rules:
    """What the rebuilt messages have from their entity."""

    entity_id: int
    address: EntityAddress
    family: Family
    max_delivery_count: int
    time_to_live: timedelta | None


@dataclass(slots=True)
class _Message:
    """A message while its events are applied."""

    number: int
    is_present: bool = True
    state: MessageState = MessageState.ACTIVE
    subqueue: SubQueue = SubQueue.MAIN
    message_id: str | None = None
    session_id: str | None = None
    size: int = 0
    delivery_count: int = 0
    enqueued_at: datetime | None = None
    time_to_live: timedelta | None = None
    scheduled_at: datetime | None = None
    locked_until: datetime | None = None
    locked_by: str | None = None
    first_received_at: datetime | None = None
    last_received_at: datetime | None = None
    dead_letter_reason: str | None = None
    dead_letter_description: str | None = None
    dead_lettered_at: datetime | None = None
    visible_at: datetime | None = None
    hold_kind: int | None = None
    held_since: datetime | None = None
    renewals: int = 0
    owner_id: int | None = None
    priority: int | None = None


@use_case
def past(address: EntityAddress, at: datetime, *, actor: Actor | None = None) -> Steps[Past]:
    """An entity as it was at an instant of its clock. Raises EntityNotFound."""
    require(actor, Right.BROWSE, address)
    entity_id = yield from entity_id_of(address)
    entities = yield from rows_of([entity_id])
    if not entities:
        raise EntityNotFound(str(address))
    entity = entities[0]
    terminal = sorted(int(kind) for kind in TERMINAL_KINDS)
    until = None if entity.clock.is_manual else at + RECORDED_LATE
    present, events = yield Atomically(_events(entity_id, at, until, terminal))
    newest = [event for event in events if event.kind in terminal or event.kind == EventKind.RECEIVED][: -NEWEST - 1 : -1]
    instant = present.after_recorded if entity.clock.is_manual else at
    settings = yield from settings_at(entity_id, instant)
    of_topic = (yield from settings_at(entity.topic_id, instant)) if entity.topic_id else {}
    lives = [
        time_to_live
        for columns in (settings, of_topic)
        if columns and (time_to_live := columns["default_message_time_to_live"]) is not None
    ]
    rules = Rules(entity_id, entity.address, entity.family, settings["max_delivery_count"], min(lives, default=None))
    rows = fold(events, at, rules)
    by_kind = {EventKind(int(kind)): n for kind, n in (present.by_kind or {}).items()}
    capped = sum(by_kind.values()) > len(present.numbers)
    missing = Counter(by_kind) - Counter(_last_kinds(events, {row.sequence_number for row in rows}).values())
    return Past(
        entity, at, tuple(rows), counted(rows, at, missing if capped else {}), capped, tuple((yield from events_of(newest))),
        present.before, present.after, present.first, settings,
    )  # fmt: skip


def _events(entity_id: int, at: datetime, until: datetime | None, terminal: list[int]) -> Steps[tuple[Any, list[Any]]]:
    yield call("prepare_for_sums")
    [present] = yield call(
        "read_past_numbers", entity_id=entity_id, at=at, terminal=terminal, cap=MOST_REBUILT, max_gone=MOST_GONE
    )
    numbers = [*present.numbers, *present.gone]
    return present, (yield call("read_past_events", entity_id=entity_id, at=at, recorded_until=until, numbers=numbers))


def fold(events: Iterable[Any], at: datetime, rules: Rules) -> list[MessageRow]:
    """The messages present after these events, by number. events: in their order, those until `at`."""
    lock_column = definition_of(rules.family).lock_column
    messages: dict[int, _Message] = {}
    for event in events:
        message = messages.get(event.sequence_number)
        if message is None:
            message = messages[event.sequence_number] = _Message(event.sequence_number)
        _apply(message, event, EventKind(event.kind), lock_column)
    return [_row(message, at, rules) for _, message in sorted(messages.items()) if message.is_present]


def _last_kinds(events: Iterable[Any], numbers: Collection[int]) -> dict[int, EventKind]:
    """The kind of the last event of each of these messages."""
    return {
        event.sequence_number: EventKind(event.kind)
        for event in events
        if event.sequence_number in numbers and event.kind not in (*_NO_CHANGE, EventKind.EDITED)
    }


def counted(rows: Sequence[MessageRow], at: datetime, missing: Mapping[EventKind, int]) -> Counts:
    """The counts of rebuilt messages, and of those that were not, by their last event. Of these, messages last received or
    returned count as active."""
    main = [row for row in rows if row.subqueue == SubQueue.MAIN]
    active = sum(row.state == MessageState.ACTIVE for row in main)
    elsewhere = (EventKind.DEFERRED, EventKind.SCHEDULED, EventKind.DEAD_LETTERED)
    return Counts(
        active=active + sum(n for kind, n in missing.items() if kind not in elsewhere),
        locked=sum(row.state == MessageState.ACTIVE and is_held(row) for row in main),
        deferred=sum(row.state == MessageState.DEFERRED for row in main) + missing.get(EventKind.DEFERRED, 0),
        scheduled=sum(row.state == MessageState.SCHEDULED for row in main) + missing.get(EventKind.SCHEDULED, 0),
        dead_letter=sum(row.subqueue == SubQueue.DEAD_LETTER for row in rows) + missing.get(EventKind.DEAD_LETTERED, 0),
        transfer_dead_letter=sum(row.subqueue == SubQueue.TRANSFER_DEAD_LETTER for row in rows),
        read_at=at,
    )


def is_held(row: MessageRow) -> bool:
    """Whether the message is locked at the instant of the row: by a receive, by a get, or as an unacknowledged delivery."""
    if row.owner_id is not None:
        return True
    if row.visible_at is not None:
        return row.visible_at > row.read_at and row.hold_kind in (HoldKind.GET, HoldKind.UPDATE)
    return row.locked_until is not None and row.locked_until > row.read_at


def _apply(message: _Message, event: Any, kind: EventKind, lock_column: str) -> None:
    details = event.details or {}
    if kind in TERMINAL_KINDS:
        message.is_present = False
        return
    if kind in _NO_CHANGE or _is_of_earlier_lock(message, event, kind, lock_column):
        return
    message.is_present = True
    message.message_id = event.message_id or message.message_id
    message.session_id = event.session_id or message.session_id
    message.size = event.size or message.size
    message.enqueued_at = message.enqueued_at or event.enqueued_at or event.at
    if kind in (EventKind.SENT, EventKind.SCHEDULED):
        _arrive(message, event, kind, details)
    elif kind in (EventKind.RECEIVED, EventKind.RENEWED):
        _hold(message, event, kind, lock_column)
    elif kind in _ENDS_LOCK:
        _let_go(message, event, lock_column)
    if event.delivery_count is not None and kind is not EventKind.DEAD_LETTERED:
        message.delivery_count = event.delivery_count
    if kind is EventKind.DEFERRED:
        message.state = MessageState.DEFERRED
    elif kind is EventKind.DEAD_LETTERED:
        message.state, message.delivery_count = MessageState.ACTIVE, 0
        message.subqueue = SubQueue(details.get("to_subqueue", SubQueue.DEAD_LETTER))
        message.dead_letter_reason, message.dead_letter_description = event.reason, details.get("description")
        message.dead_lettered_at = event.at


def _arrive(message: _Message, event: Any, kind: EventKind, details: Mapping[str, Any]) -> None:
    message.subqueue = SubQueue(event.subqueue)
    message.time_to_live, message.priority = event.time_to_live, event.priority
    if kind is EventKind.SCHEDULED:
        message.state = MessageState.SCHEDULED
        message.scheduled_at = _instant(details.get("scheduled_enqueue_at"))
    if "visible_at" in details:
        message.visible_at, message.hold_kind = _instant(details["visible_at"]), int(HoldKind.PUT)
        message.held_since, message.locked_by = event.at, event.actor


def _hold(message: _Message, event: Any, kind: EventKind, lock_column: str) -> None:
    """A lock that was taken or renewed; in a storage queue, an update that makes the message invisible."""
    message.locked_by = event.actor
    is_taken = kind is EventKind.RECEIVED
    if is_taken:
        message.first_received_at = message.first_received_at or event.at
        message.last_received_at, message.renewals = event.at, 0
    else:
        message.renewals += 1
    if lock_column == "locked_until":
        message.locked_until = event.locked_until
    elif lock_column == "owner_id":
        message.owner_id = 0  # of a connection that events do not name
    else:
        before_get = not is_taken and not event.delivery_count
        message.hold_kind = int(HoldKind.GET if is_taken else HoldKind.UPDATE_BEFORE_GET if before_get else HoldKind.UPDATE)
        message.visible_at, message.held_since = event.locked_until, event.at


def _is_of_earlier_lock(message: _Message, event: Any, kind: EventKind, lock_column: str) -> bool:
    """Whether the event records a lock that a receiver found ended: it comes after that of the receiver's own lock."""
    return kind is EventKind.LOCK_LOST and lock_column != "owner_id" and event.locked_until != getattr(message, lock_column)


def _let_go(message: _Message, event: Any, lock_column: str) -> None:
    message.locked_until = message.locked_by = message.owner_id = None
    if lock_column == "visible_at":
        message.visible_at, message.hold_kind, message.held_since = event.at, None, None


def _instant(text: Any) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _row(message: _Message, at: datetime, rules: Rules) -> MessageRow:
    enqueued_at = message.enqueued_at or at
    own = enqueued_at + message.time_to_live if message.time_to_live is not None else None
    expires_at = definition_of(rules.family).life_ends_at(own, enqueued_at, rules.time_to_live)
    may_expire = message.subqueue == SubQueue.MAIN and message.state != MessageState.SCHEDULED
    return MessageRow(
        entity_id=rules.entity_id,
        address=EntityAddress(rules.address.namespace, rules.address.path, message.subqueue),
        sequence_number=message.number,
        state=message.state,
        message_id=message.message_id,
        session_id=message.session_id,
        subject=None,
        correlation_id=None,
        content_type=None,
        size=message.size,
        delivery_count=message.delivery_count,
        max_delivery_count=rules.max_delivery_count,
        enqueued_at=enqueued_at,
        expires_at=expires_at if may_expire else None,
        expires_by_default=may_expire and expires_at != own,
        scheduled_enqueue_at=message.scheduled_at,
        locked_until=message.locked_until,
        locked_by=message.locked_by,
        lock_token=None,
        first_received_at=message.first_received_at,
        last_received_at=message.last_received_at,
        dead_letter_reason=message.dead_letter_reason,
        dead_letter_description=message.dead_letter_description,
        dead_lettered_at=message.dead_lettered_at,
        read_at=at,
        family=rules.family,
        visible_at=message.visible_at,
        hold_kind=message.hold_kind,
        held_since=message.held_since,
        renewals=message.renewals,
        owner_id=message.owner_id,
        priority=message.priority,
    )
