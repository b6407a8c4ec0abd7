"""What must hold for every family after a soak: no accepted message is lost, stored twice or held twice, and counts agree.

Every event is replayed, message by message, and compared with the rows and with what clients were told. The models and the
differential tests hold what a family's operations mean; a soak holds what only crashes and concurrency break (docs/proof.md).
A finding is a sentence that names the message.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row

from broker_core.common.types import BROKER
from broker_core.common.types import EventKind as Kind

from .findings import Findings, compare_ledger, entities_of, events_of, next_number_of, rows_of
from .journal import entries

FOREVER = datetime.max.replace(tzinfo=UTC)
AT_ANY_TIME = (Kind.LOCK_LOST, Kind.DUPLICATE_DROPPED)  # kinds that are also written after a message has gone
BIRTHS = (Kind.SENT, Kind.SCHEDULED, Kind.DEAD_LETTERED, Kind.PUBLISHED)
DELIVERIES = (Kind.RECEIVED, Kind.RECEIVED_AND_DELETED)
Place = tuple[int, int]  # entity id and sequence number


@dataclass(frozen=True)
class Locks:
    """How the events of a family tell who holds a message.

    by_holder: whether an event needs a valid lock; every other one needs that there is none, but those of the kinds `anyway`.
    holds: kinds after which a message is held, or hidden, until the event's `locked_until`; for ever where that is not set.
    own: whether the actor of the event has to be the holder, as where locks belong to connections.
    """

    by_holder: Callable[[Any], bool]
    holds: tuple[Kind, ...]
    anyway: tuple[Kind, ...] = ()
    own: bool = False
    in_sessions: bool = False


@dataclass
class Life:
    """A message of an entity, as its events tell it. until: nobody else may be given it before. returned_by: the transaction of
    the last event, if that returned it to its queue."""

    born: Any
    until: datetime | None = None
    holder: str | None = None
    list: int = 0
    end: Any = None
    returned_by: Any = None

    def held_at(self, at: datetime) -> bool:
        return self.until is not None and self.until > at

    @property
    def gone(self) -> str:
        return "still there" if self.end is None else Kind(self.end.kind).name


@dataclass
class Replay:
    """Follows the events of one entity and says where one was not possible (docs/design.md, invariants)."""

    entity: Any
    locks: Locks
    findings: Findings
    lives: dict[int, Life] = field(default_factory=dict)
    sessions: dict[str, dict[int, Life]] = field(default_factory=lambda: defaultdict(dict))  # what is still there

    def step(self, event: Any) -> None:
        kind, life = Kind(event.kind), self.lives.get(event.sequence_number)
        if kind is Kind.SETTLE_REFUSED:  # it changed nothing, whatever the message's state
            return
        if life is None:
            self._is_born(event, kind)
        elif kind is Kind.LOCK_LOST and not self.locks.own:
            self._lock_ends(life, event)
        elif life.end is not None and kind not in AT_ANY_TIME:
            self._wrong(event, f"had gone already: {life.gone}")
        elif kind is not Kind.DUPLICATE_DROPPED:
            self._is_possible(life, event, kind)
            self._changes(life, event, kind)

    def _wrong(self, event: Any, what: str) -> None:
        self.findings.of_event(self.entity.path, event, what)

    def _is_born(self, event: Any, kind: Kind) -> None:
        if kind not in BIRTHS:
            self._wrong(event, "has no event that says where it came from")
        hidden = (event.details or {}).get("visible_at")
        life = Life(event, hidden and datetime.fromisoformat(hidden), list=int(kind is Kind.DEAD_LETTERED))
        life.end = event if kind is Kind.PUBLISHED else None
        self.lives[event.sequence_number] = life
        if event.session_id is not None:
            self.sessions[event.session_id][event.sequence_number] = life

    def _is_possible(self, life: Life, event: Any, kind: Kind) -> None:
        held = life.held_at(event.at)
        if self.locks.by_holder(event):
            if not held:
                self._wrong(event, f"was settled or renewed without a valid lock; the last one ended {life.until}")
            elif self.locks.own and kind is not Kind.LOCK_LOST and event.actor != life.holder and not _is_spent(event):
                self._wrong(event, f"was settled while {life.holder} held it")
        elif held and kind not in self.locks.anyway:
            self._wrong(event, f"was taken from {life.holder}, whose lock is valid until {life.until}")
        if kind in DELIVERIES:
            self._is_deliverable(life, event)

    def _is_deliverable(self, life: Life, event: Any) -> None:
        born = life.born
        if born.kind == Kind.SCHEDULED:
            self._wrong(event, "was delivered though it was scheduled")
        lives_until = born.time_to_live is not None and (born.enqueued_at or born.at) + born.time_to_live
        cannot_wait = born.time_to_live is not None and not born.time_to_live
        is_passed_on = cannot_wait and event.xid == life.returned_by  # to a consumer of another process (RMQ-922)
        is_at_once = event.xid == born.xid or is_passed_on
        if lives_until and life.list == 0 and lives_until <= event.at and not is_at_once:
            self._wrong(event, f"was delivered after its life ended at {lives_until}")
        for number, other in self.sessions[born.session_id].items() if self.locks.in_sessions and life.list == 0 else ():
            if other.list == 0 and other is not life and other.held_at(event.at) and other.holder != event.actor:
                self._wrong(event, f"was delivered to {event.actor} while {other.holder} held {number} of its session")

    def _lock_ends(self, life: Life, event: Any) -> None:
        """The event may follow the one by which the next receiver got it."""
        if event.locked_until > event.at:
            self._wrong(event, f"lost a lock that was valid until {event.locked_until}")
        if life.until == event.locked_until and life.end is None:
            life.until = None

    def _changes(self, life: Life, event: Any, kind: Kind) -> None:
        if kind is Kind.RECEIVED:
            life.holder = event.actor
        life.until = (event.locked_until or FOREVER) if kind in self.locks.holds else None
        life.returned_by = event.xid if kind is Kind.ABANDONED else None
        if kind is Kind.DEAD_LETTERED:
            life.list = (event.details or {}).get("to_subqueue", 1)
        elif kind.is_terminal:
            life.end = event
            self.sessions[life.born.session_id].pop(event.sequence_number, None)

    def compare(self, rows: dict[int, Any], next_number: int) -> None:
        """The numbers have no gap, and what events leave over is what is there, where it is, held as it is."""
        path, wrong = self.entity.path, self.findings.wrong
        if missing := sorted(set(range(1, next_number)) ^ set(self.lives))[:5]:
            wrong.append(f"{path}: numbers without an event, or beyond the counter: {missing}")
        if extra := sorted(set(rows) - set(self.lives))[:5]:
            wrong.append(f"{path}: there without an event: {extra}")
        for number, life in self.lives.items():
            row = rows.get(number)
            if (life.end is None) != (row is not None):
                wrong.append(f"{path} {number}: is {'lost' if row is None else 'there'}; by its events it is {life.gone}")
            elif row is not None:
                until = FOREVER if row.owner_id is not None else row.locked_until if row.hold_kind is None else row.visible_at
                if (row.subqueue, until) != (life.list, life.until):
                    wrong.append(f"{path} {number}: is {(row.subqueue, until)}, by its events {(life.list, life.until)}")


def _is_spent(event: Any) -> bool:
    """Whether a connection ended in the database, by another process, while it held the message for the last time (RMQ-121)."""
    return event.actor == BROKER and event.reason == "delivery_limit"


def examine(scene: Any, locks: Locks, dsn: str, folder: Path, *, empty: bool = False) -> Findings:
    """All that can be said about a scene at rest. empty: nothing may be left."""
    findings, replays = Findings(), {}
    with psycopg.connect(dsn, row_factory=namedtuple_row) as connection:
        for entity in entities_of(connection, scene.namespace):
            replay = replays[entity.id] = Replay(entity, locks, findings)
            for event in events_of(connection, entity.id, by_statement=locks.in_sessions):
                findings.did[f"{folder.name} {Kind(event.kind).name.lower()} events"] += 1
                replay.step(event)
            if not entity.is_deleted:
                replay.compare(rows_of(connection, entity.id), next_number_of(connection, entity.id))
                compare_ledger(connection, scene.address(entity.path), entity.id, findings)
            if empty and (left := [number for number, life in replay.lives.items() if life.end is None]):
                findings.wrong.append(f"{entity.path}: {left[:5]} could not be received, {len(left)} in all")
    originals = _compare_moves(replays, findings)
    _compare_told(list(entries(folder)), folder.name, replays, originals, findings)
    return findings


def _targets(place: Place, event: Any) -> Iterator[Place]:
    """The messages that a message became elsewhere, or under another number."""
    to = (event.details or {}).get("to", [])
    for target in to if isinstance(to, list) else [to]:
        if not isinstance(target, dict):
            yield place[0], target
        elif "sequence_number" in target:  # a duplicate that was dropped where it was forwarded to has none
            yield target["entity"], target["sequence_number"]


def _compare_moves(replays: dict[int, Replay], findings: Findings) -> dict[Place, Any]:
    """What moved on is there once, and what came from elsewhere left there. Returns the births of all others."""
    lives = {(entity, number): life for entity, replay in replays.items() for number, life in replay.lives.items()}
    came: dict[Place, Place] = {}
    for old, life in lives.items():
        for new in _targets(old, life.end) if life.end is not None else ():
            if new in came or new not in lives:
                findings.wrong.append(f"{old} {life.gone}: became {new}, which {came.get(new, 'nobody')} became")
            came[new] = old
    for new, life in lives.items():
        if new not in came and {"from", "resubmitted_from"} & (life.born.details or {}).keys():
            findings.wrong.append(f"{new}: came from {life.born.details}, which did not go there")
    return {place: life.born for place, life in lives.items() if place not in came}


def _compare_told(
    told: list[dict], family: str, replays: dict[int, Replay], originals: dict[Place, Any], findings: Findings
) -> None:
    """What clients were told is so; what they sent is stored whole, once, or not at all."""
    stored: dict[str, Counter] = defaultdict(Counter)  # by message id: where
    batches: dict[str, Counter] = defaultdict(Counter)  # by entity and transaction: how many
    for (entity, _), born in originals.items():
        stored[born.message_id][replays[entity].entity.path] += 1
        batches[replays[entity].entity.path][born.xid] += 1
    accepted, sent, sizes = set(), [], defaultdict(Counter)
    given, settled = Counter(), Counter()
    for entry in told:
        findings.heed(entry)
        match entry["kind"]:
            case "sends":
                sent.append(entry["copies"])
            case "puts":
                sizes[entry["path"]][entry["count"]] += 1
            case "accepted":
                accepted.update(entry["ids"])
                for path, number, message_id in entry.get("made", ()):
                    if not any(life.born.message_id == message_id for life in _lives_of(path, number, replays)):
                        findings.wrong.append(f"{path} {number}: was said to be {message_id}, and is not")
            case "got":
                given.update(entry["locks"])
            case "settled":
                settled.update(entry["locks"])
            case "gone":
                findings.did[f"{family} gone"] += len(entry["numbers"])
                _compare_gone(entry, replays, findings)
    findings.did[f"{family} accepted"] += len(accepted)
    findings.did[f"{family} got"] += len(given)
    findings.did[f"{family} settled"] += len(settled)
    findings.wrong += [f"the lock {lock} was given {n} times" for lock, n in given.items() if n > 1]
    findings.wrong += [f"the lock {lock} was settled {n} times" for lock, n in settled.items() if n > 1]
    findings.wrong += [f"{each}: was accepted and is not there" for each in accepted if not stored.get(each)]
    for copies in sent:
        _compare_batch(copies, stored, accepted, findings)
    if strange := stored.keys() - {each for copies in sent for each in copies} if sent else ():
        findings.wrong.append(f"messages that nobody sent: {sorted(strange)[:5]}")
    for path, expected in sizes.items():
        if extra := Counter(batches[path].values()) - expected:
            findings.wrong.append(f"{path}: stored in part or twice: batches of {dict(extra)} that nobody put")
    for message_id, places in stored.items():
        for path, n in places.items():
            if n > 1 and path != "topic":  # a scheduled message of a topic has a number until it is published
                findings.wrong.append(f"{path}: {message_id} was stored {n} times")


def _compare_batch(copies: dict[str, list[str]], stored: dict[str, Counter], accepted: set[str], findings: Findings) -> None:
    """A batch is in all the places that it was to go to, or in none."""
    there = {}
    for message_id, paths in copies.items():
        missing = [path for path in paths if not stored[message_id][path]]
        if missing and (message_id in accepted or len(missing) < len(paths)):
            findings.wrong.append(f"{message_id}: is missing in {missing}; it is in {dict(stored[message_id])}")
        if paths:
            there[message_id] = not missing
    if len(set(there.values())) > 1:
        findings.wrong.append(f"a batch was stored in part: {there}")


def _lives_of(place: str | int, number: int, replays: dict[int, Replay]) -> list[Life]:
    """The messages of this number of an entity, by its id, or of all that had its path."""
    candidates = [replays[place]] if isinstance(place, int) else [r for r in replays.values() if r.entity.path == place]
    return [replay.lives[number] for replay in candidates if number in replay.lives]


def _compare_gone(entry: dict, replays: dict[int, Replay], findings: Findings) -> None:
    """What a client was told to have left has left, in that way; or with its queue, which took what was settled with it."""
    for number in entry["numbers"]:
        lives = _lives_of(entry["path"], number, replays)
        if not {life.gone for life in lives} & {*entry["how"], "DELETED"} and not (
            isinstance(entry["path"], int) and replays[entry["path"]].entity.is_deleted
        ):
            findings.wrong.append(f"{entry['path']} {number}: is {[life.gone for life in lives]}, not {entry['how']} as was told")
