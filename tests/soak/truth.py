"""The truth of Service Bus: rows and events on one side, what clients were told on the other.

Every event of every entity is replayed, in the order in which each message lived through them. A finding is a sentence that names
the message; none is what a soak hopes for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row

from broker_core.common.types import EventKind as Kind

from .findings import Findings, compare_ledger, entities_of, next_number_of
from .journal import entries
from .scene import Scene, taken_by

SETTLED = {"complete", "abandon", "defer", "dead_letter", "release"}
ENDS_A_LOCK = {Kind.COMPLETED, Kind.ABANDONED, Kind.RELEASED, Kind.DEFERRED}
ACTIVE, DEFERRED, SCHEDULED = 0, 1, 2


@dataclass
class Life:
    """A message of an entity, as its events tell it."""

    list: int = 0
    state: int = ACTIVE
    until: datetime | None = None  # of the last lock, unless it was given up
    holder: str | None = None
    previous_until: datetime | None = None
    gone: Kind | None = None
    message_id: str | None = None
    session_id: str | None = None

    def locked_at(self, at: datetime) -> bool:
        return self.until is not None and self.until > at


def examine(scene: Scene, dsn: str, folder: Path, *, empty: bool = False) -> Findings:
    """All that can be said about a scene at rest. empty: nothing may be left."""
    findings = Findings()
    told = list(entries(folder))
    births: dict[str, Counter] = {}
    lives: dict[str, dict[int, Life]] = {}
    with psycopg.connect(dsn, row_factory=namedtuple_row) as connection:
        ids = {entity.path: entity.id for entity in entities_of(connection, scene.namespace)}
        for path in scene.all_paths:
            replay = Replay(path, findings)
            for event in _events(connection, ids[path]):
                replay.step(event)
            replay.compare(_rows(connection, ids[path]), next_number_of(connection, ids[path]))
            births[path], lives[path] = replay.births, replay.lives
            if empty and (left := [number for number, life in replay.lives.items() if life.gone is None]):
                findings.wrong.append(f"{path}: {left[:5]} could not be received, {len(left)} in all")
        for path in scene.all_paths:
            compare_ledger(connection, scene.address(path), ids[path], findings)
    _compare_sends(scene, told, births, lives, findings)
    _compare_receives(told, lives, findings)
    return findings


class Replay:
    """Follows the events of one entity and says where one was not possible."""

    def __init__(self, path: str, findings: Findings):
        self._path, self._findings = path, findings
        self.lives: dict[int, Life] = {}
        self.births: Counter = Counter()  # by message id; not those born of an own earlier number
        self._in_session: dict[str, dict[int, Life]] = defaultdict(dict)  # what has not gone yet

    def step(self, event: Any) -> None:
        kind = Kind(event.kind)
        self._findings.did[f"{kind.name.lower()} events"] += 1
        if event.sequence_number not in self.lives:
            self._is_born(event, kind)
        elif kind is not Kind.DUPLICATE_DROPPED:
            self._lives_on(self.lives[event.sequence_number], event, kind)

    def _wrong(self, event: Any, what: str) -> None:
        self._findings.wrong.append(
            f"{self._path} {event.sequence_number}: {what} (event {event.event_id}, {Kind(event.kind).name} at {event.at})"
        )

    def _is_born(self, event: Any, kind: Kind) -> None:
        if kind not in (Kind.SENT, Kind.SCHEDULED, Kind.DEAD_LETTERED, Kind.PUBLISHED):
            self._wrong(event, "is not born yet")
        life = Life(message_id=event.message_id, session_id=event.session_id)
        life.list = 1 if kind is Kind.DEAD_LETTERED else 0
        life.state = SCHEDULED if kind is Kind.SCHEDULED else ACTIVE
        life.gone = kind if kind is Kind.PUBLISHED else None
        self.lives[event.sequence_number] = life
        if life.session_id is not None:
            self._in_session[life.session_id][event.sequence_number] = life
        details = event.details or {}
        if not {"from", "resubmitted_from"} & details.keys():
            self.births[event.message_id] += 1

    def _lives_on(self, life: Life, event: Any, kind: Kind) -> None:
        if kind is Kind.LOCK_LOST:
            self._lock_lost(life, event)
        elif life.gone is not None:
            self._wrong(event, f"was gone already, {life.gone.name}")
        elif kind is Kind.RECEIVED:
            self._received(life, event)
        else:
            self._settled(life, event, kind)

    def _settled(self, life: Life, event: Any, kind: Kind) -> None:
        held = life.locked_at(event.at)
        by_holder = kind in ENDS_A_LOCK or kind is Kind.RENEWED or (kind is Kind.DEAD_LETTERED and event.locked_until is not None)
        if by_holder and not held:
            self._wrong(event, f"was settled or renewed without a valid lock; the last one ended {life.until}")
        if not by_holder and held:
            self._wrong(event, f"was taken from under a lock valid until {life.until}, of {life.holder}")
        if by_holder and kind is not Kind.RENEWED and event.locked_until != life.until:
            self._wrong(event, f"was settled under a lock until {event.locked_until}; the lock is valid until {life.until}")
        self._change(life, event, kind)

    def _received(self, life: Life, event: Any) -> None:
        if life.state == SCHEDULED:
            self._wrong(event, "was delivered though it was scheduled")
        if life.locked_at(event.at):
            self._wrong(event, f"was delivered to {event.actor} while the lock of {life.holder} was valid until {life.until}")
        if life.session_id is not None and life.list == 0 and life.state == ACTIVE:
            self._in_order(life, event)
        life.previous_until, life.until, life.holder = life.until, event.locked_until, event.actor

    def _in_order(self, life: Life, event: Any) -> None:
        """Whatever lies before it in its session is held by the same holder; nobody else holds anything of the session."""
        for number, other in self._in_session[life.session_id].items():
            if other.list or number == event.sequence_number:
                continue
            held = other.locked_at(event.at)
            if other.state == ACTIVE and number < event.sequence_number and not held:
                self._wrong(event, f"was delivered before {number} of its session, which nobody held")
            if held and other.holder != event.actor:
                self._wrong(event, f"was delivered to {event.actor} while {other.holder} held {number} of its session")

    def _lock_lost(self, life: Life, event: Any) -> None:
        if event.locked_until > event.at:
            self._wrong(event, f"lost a lock that was valid until {event.locked_until}")
        if life.until == event.locked_until:
            life.until = None
        elif life.previous_until != event.locked_until:
            self._wrong(event, f"lost a lock until {event.locked_until} that it did not have")

    def _change(self, life: Life, event: Any, kind: Kind) -> None:
        if kind is Kind.RENEWED:
            life.until = event.locked_until
            return
        life.previous_until, life.until = life.until, None
        if kind is Kind.DEFERRED:
            life.state = DEFERRED
        elif kind is Kind.DEAD_LETTERED:
            life.list, life.state = (event.details or {}).get("to_subqueue", 1), ACTIVE
        elif kind.is_terminal:
            life.gone = kind
            if life.session_id is not None:
                self._in_session[life.session_id].pop(event.sequence_number, None)

    def compare(self, rows: dict[int, Any], next_number: int) -> None:
        """Invariants 1 and 2: the numbers have no gap, and what events leave over is what is there, where it is."""
        born = set(self.lives)
        if born != set(range(1, next_number)):
            missing = sorted(set(range(1, next_number)) ^ born)[:5]
            self._findings.wrong.append(f"{self._path}: numbers without an event, or beyond the counter: {missing}")
        for number, life in self.lives.items():
            row = rows.pop(number, None)
            if life.gone is not None and row is not None:
                self._findings.wrong.append(f"{self._path} {number}: is gone by its events, {life.gone.name}, and still there")
            elif life.gone is None and row is None:
                self._findings.wrong.append(f"{self._path} {number}: is lost, without an event that says how")
            elif row is not None and (row.subqueue, row.state, row.locked_until) != (life.list, life.state, life.until):
                wanted = (life.list, life.state, life.until)
                self._findings.wrong.append(f"{self._path} {number}: is {tuple(row[1:])}, by its events {wanted}")
        if rows:
            self._findings.wrong.append(f"{self._path}: there without an event: {sorted(rows)[:5]}")


def _compare_sends(
    scene: Scene, told: list[dict], births: dict[str, Counter], lives: dict[str, dict], findings: Findings
) -> None:
    """Nothing accepted is lost, nothing is stored twice or in part, and each subscription has what it takes."""
    accepted: dict[str, set] = defaultdict(set)
    sent: dict[str, list] = defaultdict(list)
    for entry in told:
        if entry["kind"] == "accepted":
            accepted[entry["path"]].update(entry["ids"])
        elif entry["kind"] == "sends":
            sent[entry["path"]].append(entry["ids"])
    for path in scene.sent_to:
        findings.did["accepted messages"] += len(accepted[path])
        for message_id in accepted[path]:
            if births[path][message_id] == 0:
                findings.wrong.append(f"{path}: {message_id} was accepted and is not there")
        for batch in sent[path]:
            stored = [births[path][message_id] > 0 for message_id in batch]
            if len(set(stored)) > 1:
                findings.wrong.append(f"{path}: a batch was stored in part: {stored} of {batch}")
        for message_id, times in births[path].items():
            if times > 1 and path != "topic":  # a scheduled message of a topic has a number until it is published
                findings.wrong.append(f"{path}: {message_id} was stored {times} times")
    if "topics" in scene.kinds:
        _compare_copies(scene, births, lives, findings)
    if "sessions" in scene.kinds:
        _compare_order(lives["talks"], findings)


def _compare_copies(scene: Scene, births: dict[str, Counter], lives: dict[str, dict], findings: Findings) -> None:
    subscriptions = [path for path in scene.all_paths if path.startswith("topic/")]
    published = {life.message_id for life in lives["topic"].values() if life.gone is Kind.PUBLISHED}
    for path in subscriptions:
        wanted = {message_id for message_id in published if path in taken_by(message_id)}
        got = births[path]
        findings.did["copies"] += len(got)
        for message_id in wanted ^ set(got):
            findings.wrong.append(f"{path}: {message_id} {'is missing' if message_id in wanted else 'should not be here'}")
        findings.wrong += [f"{path}: {message_id} was copied {n} times" for message_id, n in got.items() if n > 1]
    for source, target in scene.sources.items():
        forwarded = Counter(life.message_id for life in lives[source].values() if life.gone is Kind.FORWARDED)
        if forwarded != births[target]:
            findings.wrong.append(
                f"{source} -> {target}: {list((forwarded - births[target]) + (births[target] - forwarded))[:5]} differ"
            )


def _compare_order(lives: dict[int, Life], findings: Findings) -> None:
    """Each session has one sender, who numbers what it sends: the broker's numbers keep that order."""
    last: dict[str, int] = {}
    for _, life in sorted(lives.items()):
        count = int(life.message_id.rsplit("-", 1)[1])
        if count <= last.get(life.session_id, -1):
            findings.wrong.append(f"talks: {life.message_id} of session {life.session_id} is numbered out of order")
        last[life.session_id] = count


def _compare_receives(told: list[dict], lives: dict[str, dict[int, Life]], findings: Findings) -> None:
    """No two locks share a token, no lock is settled twice, and what was completed is gone."""
    tokens, settled = Counter(), Counter()
    for entry in told:
        findings.heed(entry)
        if entry["kind"] == "got":
            tokens.update(token for token, _ in entry["locks"])
        elif entry["kind"] == "deleted":
            _are_gone(entry["path"], entry["numbers"], "received and deleted", lives, findings)
        elif entry["kind"] in SETTLED:
            settled.update(token for token, _ in entry["settled"])
            findings.did["late settlements refused"] += entry["lost"]
            if entry["kind"] == "complete":
                _are_gone(entry["path"], [number for _, number in entry["settled"]], "completed", lives, findings)
    findings.did["locks"] += len(tokens)
    findings.wrong += [f"the lock {token} was given {n} times" for token, n in tokens.items() if n > 1]
    findings.wrong += [f"the lock {token} was settled {n} times" for token, n in settled.items() if n > 1]


def _are_gone(path: str, numbers: list[int], how: str, lives: dict[str, dict[int, Life]], findings: Findings) -> None:
    for number in numbers:
        if (life := lives[path].get(number)) is None or life.gone not in (Kind.COMPLETED, Kind.RECEIVED_AND_DELETED):
            findings.wrong.append(
                f"{path} {number}: its client was told that it is {how}; by its events it is {life and life.gone}"
            )


# Rows


def _events(connection: psycopg.Connection, entity_id: int):
    # A statement writes its events after it has locked all of its messages, in any order: they count as one, in number order.
    query = """
        SELECT event_id, at, sequence_number, kind, locked_until, message_id, session_id, actor, details
          FROM vitrine_message_event WHERE entity_id = %s
         ORDER BY min(event_id) OVER (PARTITION BY xid), sequence_number, event_id
    """
    return connection.execute(query, [entity_id])


def _rows(connection: psycopg.Connection, entity_id: int) -> dict[int, Any]:
    query = "SELECT sequence_number, subqueue, state, locked_until FROM vitrine_message WHERE entity_id = %s"
    return {row.sequence_number: row for row in connection.execute(query, [entity_id])}
