"""Who receives from an entity: its receivers, from its newest events and from the locks they hold now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from broker_core import reads
from broker_core.common.types import Actor, EventKind, HistoryLevel
from broker_core.reads import EntityRow, Event, EventFilter, MessageRow

from .actors import ShownActor, shown_actor

NEWEST = 300  # events looked at
MOST_HELD = 500  # locked messages counted by holder
TAKEN = (EventKind.RECEIVED, EventKind.RECEIVED_AND_DELETED)
DONE = (EventKind.COMPLETED,)
FAILED = (EventKind.ABANDONED, EventKind.LOCK_LOST)


@dataclass(frozen=True, slots=True)
class Receiver:
    """A receiver. received, completed, failed: its events among the newest ones. holds: messages that it has locked now.

    last_at: its last event; None: it only holds messages.
    """

    actor: ShownActor
    received: int
    completed: int
    failed: int
    holds: int
    last_at: datetime | None


@dataclass(frozen=True, slots=True)
class Receivers:
    """since: the time of the oldest event that was looked at; None: there was none. knows: whether all events are recorded."""

    rows: tuple[Receiver, ...]
    since: datetime | None
    knows: bool


def receivers_of(entity: EntityRow, locked: Iterable[MessageRow], actor: Actor) -> Receivers:
    """locked: the messages that are locked now."""
    kinds = (*TAKEN, *DONE, *FAILED)
    events = reads.events(EventFilter(entity_id=entity.id, kinds=kinds), limit=NEWEST, actor=actor).rows
    since = min((event.at for event in events), default=None)
    return Receivers(tuple(summarised(locked, events)), since, entity.history_level is HistoryLevel.FULL)


def summarised(locked: Iterable[MessageRow], events: Sequence[Event]) -> list[Receiver]:
    """One line for each receiver, the latest first. A settlement counts for whoever received the message: of old events, a
    connection of RabbitMQ settles under another name than its consumers have."""
    locks: Counter[ShownActor] = Counter(shown_actor(row.locked_by) for row in locked if row.locked_by)
    by_actor: dict[ShownActor, list[Event]] = {actor: [] for actor in locks}
    holders: dict[int, ShownActor] = {}
    for event in sorted(events, key=lambda event: event.event_id):
        if event.kind in TAKEN and event.actor:
            holders[event.sequence_number] = shown_actor(event.actor)
        if actor := holders.get(event.sequence_number) or (shown_actor(event.actor) if event.actor else None):
            by_actor.setdefault(actor, []).append(event)
    receivers = [_receiver(actor, own, locks[actor]) for actor, own in by_actor.items()]
    return sorted(
        receivers,
        key=lambda receiver: (receiver.last_at is None, receiver.last_at and -receiver.last_at.timestamp(), receiver.actor.name),
    )


def _receiver(actor: ShownActor, events: Sequence[Event], holds: int) -> Receiver:
    received, completed, failed = (sum(event.kind in kinds for event in events) for kinds in (TAKEN, DONE, FAILED))
    return Receiver(actor, received, completed, failed, holds, max((event.at for event in events), default=None))
