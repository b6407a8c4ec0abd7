"""Who receives from an entity: its receivers by name, from its newest events and from the locks they hold now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from broker_core import reads
from broker_core.common.types import Actor, EventKind, HistoryLevel
from broker_core.reads import EntityRow, Event, EventFilter, MessageRow

from .presenters import actor_name

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

    name: str
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
    """One line for each name, the latest first. A settlement counts for whoever received the message: a connection may settle
    under another name than its consumers have. If the receive is older than these events, it counts for the consumer of the
    settlements beside it, if there is one."""
    locks: Counter[str] = Counter(actor_name(row.locked_by) for row in locked if row.locked_by)
    by_name: dict[str, list[Event]] = {name: [] for name in locks}
    holders: dict[int, str] = {}
    consumers: dict[str, str] = {}  # by who settles
    by_time = sorted(events, key=lambda event: event.event_id)
    received_by: dict[int, str] = {}
    for event in by_time:
        actor = actor_name(event.actor)
        if event.kind in TAKEN and actor:
            holders[event.sequence_number] = actor
        if name := holders.get(event.sequence_number):
            received_by[event.event_id] = name
            if actor:
                consumers[actor] = name
    for event in by_time:
        actor = actor_name(event.actor)
        if name := received_by.get(event.event_id) or consumers.get(actor) or actor:
            by_name.setdefault(name, []).append(event)
    receivers = [_receiver(name, own, locks[name]) for name, own in by_name.items()]
    return sorted(
        receivers,
        key=lambda receiver: (receiver.last_at is None, receiver.last_at and -receiver.last_at.timestamp(), receiver.name),
    )


def _receiver(name: str, events: Sequence[Event], holds: int) -> Receiver:
    received, completed, failed = (sum(event.kind in kinds for event in events) for kinds in (TAKEN, DONE, FAILED))
    return Receiver(name, received, completed, failed, holds, max((event.at for event in events), default=None))
