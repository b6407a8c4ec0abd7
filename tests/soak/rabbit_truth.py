"""The truth of RabbitMQ: every message's life by its events, against what is there and what clients were told."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row

from broker_core.common.types import EventKind as Kind
from broker_core.rabbitmq.rules.deaths import MOVED

from .findings import FOR_ALL, Findings, compare_ledger, entities_of, events_of, next_number_of, rows_of
from .journal import entries
from .rabbit import ALWAYS_DEAD_LETTERS, DEAD_LETTERS, DELIVERY_LIMIT, FEW, FULL, POLICY_TTL, QUEUES, Scene, routed_to

ENDS = (Kind.COMPLETED, Kind.RECEIVED_AND_DELETED, Kind.EXPIRED, Kind.DROPPED, Kind.MOVED, Kind.PURGED, Kind.DELETED)
REASONS = {"expired", "rejected", "maxlen", "delivery_limit"}
BY_PRIORITY = "copy-2"
AT_MOST_TTL = {"all-news": timedelta(milliseconds=POLICY_TTL)}  # that a policy may have put in force meanwhile


@dataclass
class Life:
    """A message of a queue as its events tell it. holders: of each delivery, by how often it had come back before."""

    born: Any
    expires_at: datetime | None
    holder: str | None = None
    returns: int = 0
    holders: dict[int, str] = field(default_factory=dict)
    end: Any = None

    @property
    def origin(self) -> tuple[int, int] | None:
        """The message of another queue that it was before."""
        came = (self.born.details or {}).get("from")
        return came and (came["entity"], came["sequence_number"])

    @property
    def gone(self) -> Kind | None:
        return self.end and Kind(self.end.kind)

    def is_over_at(self, at: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= at


@dataclass
class Queue:
    """One queue that there was, under its id; another one may have had its name."""

    entity: Any
    lives: dict[int, Life]

    @property
    def path(self) -> str:
        return self.entity.path


def examine(scene: Scene, dsn: str, folder: Path, *, empty: bool = False) -> Findings:
    """All that can be said about the virtual host at rest. empty: nothing may be left."""
    findings = Findings()
    queues: dict[int, Queue] = {}
    with psycopg.connect(dsn, row_factory=namedtuple_row) as connection:
        for entity in entities_of(connection, scene.namespace):
            replay = Replay(entity, findings)
            for event in events_of(connection, entity.id):
                replay.step(event)
            queues[entity.id] = Queue(entity, replay.lives)
            if not entity.is_deleted:
                rows = rows_of(connection, entity.id)
                replay.compare(rows, next_number_of(connection, entity.id))
                compare_ledger(connection, scene.address(entity.path), entity.id, findings)
                _compare_limit(entity, rows, findings)
            if empty and (left := [number for number, life in replay.lives.items() if life.end is None]):
                findings.wrong.append(f"{entity.path}: {left[:5]} could not be got, {len(left)} in all")
        _nobody_is_left(connection, scene, queues, findings)
    _compare_dead_letters(queues, findings)
    told = Told(queues, findings)
    told.read(entries(folder))
    told.compare_publishes()
    return findings


class Replay:
    """Follows the events of one queue and says where one was not possible."""

    def __init__(self, entity: Any, findings: Findings):
        self._path, self._is_deleted, self._findings = entity.path, entity.is_deleted, findings
        self.lives: dict[int, Life] = {}

    def step(self, event: Any) -> None:
        kind = Kind(event.kind)
        self._findings.did[f"rabbit {kind.name.lower()} events"] += 1
        life = self.lives.get(event.sequence_number)
        if life is None:
            self._is_born(event, kind)
        elif life.end is not None:
            self._wrong(event, f"was gone already, {life.gone.name}")
        elif kind is Kind.RECEIVED:
            self._delivered(life, event)
        elif kind in (Kind.ABANDONED, Kind.LOCK_LOST):
            self._comes_back(life, event, kind)
        elif kind in ENDS:
            self._goes(life, event, kind)
        else:
            self._wrong(event, "is no event of this family")

    def _wrong(self, event: Any, what: str) -> None:
        self._findings.of_event(self._path, event, what)

    def _is_born(self, event: Any, kind: Kind) -> None:
        if kind is not Kind.SENT:
            self._wrong(event, "is not born yet")
        expires_at = None if event.time_to_live is None else event.enqueued_at + event.time_to_live
        self.lives[event.sequence_number] = Life(event, expires_at)

    def _delivered(self, life: Life, event: Any) -> None:
        if life.holder is not None:
            self._wrong(event, f"was delivered while {life.holder} held it")
        self._lives(life, event)
        if event.delivery_count != life.returns:
            self._wrong(event, f"was delivered as returned {event.delivery_count} times; it was {life.returns} times")
        if self._path == "quorum" and life.returns > DELIVERY_LIMIT:
            self._wrong(event, f"was delivered after {life.returns} returns")
        life.holder = life.holders[life.returns] = event.actor

    def _lives(self, life: Life, event: Any) -> None:
        """What may live for no time is handed over in the moment it is published."""
        at_once = life.born.time_to_live == timedelta(0) and event.xid == life.born.xid
        if life.is_over_at(event.at) and not at_once:
            self._wrong(event, f"was delivered after its life ended at {life.expires_at}")

    def _comes_back(self, life: Life, event: Any, kind: Kind) -> None:
        if life.holder is None:
            self._wrong(event, "came back, and nobody held it")
        elif kind is Kind.ABANDONED and event.actor != life.holder:
            self._wrong(event, f"was given back while {life.holder} held it")
        life.returns += 1
        life.holder = None
        if event.delivery_count != life.returns:
            self._wrong(event, f"came back for the {event.delivery_count}th time, which is the {life.returns}th")

    def _goes(self, life: Life, event: Any, kind: Kind) -> None:
        if kind is Kind.DELETED:
            if not self._is_deleted:
                self._wrong(event, "went with its queue, which is there")
        elif kind is Kind.COMPLETED:
            if event.actor != life.holder:
                self._wrong(event, f"was acknowledged while {life.holder} held it")
        elif kind is Kind.RECEIVED_AND_DELETED:
            self._lives(life, event)
            self._not_held(life, event)
        elif kind is Kind.PURGED:
            self._not_held(life, event)
        elif kind is Kind.MOVED and event.reason == MOVED:
            self._is_moved(life, event)
        else:
            self._dies(life, event, kind)
        life.end = event

    def _not_held(self, life: Life, event: Any) -> None:
        if life.holder is not None:
            self._wrong(event, f"was taken from {life.holder}, who held it")

    def _is_moved(self, life: Life, event: Any) -> None:
        self._not_held(life, event)
        if life.is_over_at(event.at):
            self._wrong(event, f"was moved after its life ended at {life.expires_at}")

    def _dies(self, life: Life, event: Any, kind: Kind) -> None:
        expires = event.reason == "expired" and not is_cycle(event)
        if event.reason not in REASONS or kind is not (
            Kind.MOVED if kind is Kind.MOVED else Kind.EXPIRED if expires else Kind.DROPPED
        ):
            self._wrong(event, f"went for the reason {event.reason!r}")
        if event.reason in ("rejected", "delivery_limit"):
            if life.holder is None:
                self._wrong(event, f"was {event.reason}, and nobody held it")
        else:
            self._not_held(life, event)
        if event.reason == "rejected" and event.actor != life.holder:
            self._wrong(event, f"was rejected while {life.holder} held it")
        if event.reason == "delivery_limit" and not (self._path == "quorum" and life.returns == DELIVERY_LIMIT):
            self._wrong(event, f"was over the delivery limit after {life.returns} returns")
        if event.reason == "expired":
            by_policy = life.born.enqueued_at + AT_MOST_TTL[self._path] if self._path in AT_MOST_TTL else event.at + timedelta(1)
            if min(life.expires_at or by_policy, by_policy) > event.at:
                self._wrong(event, f"expired; its life ended at {life.expires_at}")
        if event.reason == "maxlen" and self._path not in ("few", "copy-1"):
            self._wrong(event, "was too much for a queue without a limit")
        if kind is not Kind.MOVED and self._path in ALWAYS_DEAD_LETTERS and not is_cycle(event):
            self._wrong(event, f"was not dead-lettered: {event.details}")

    def compare(self, rows: dict[int, Any], next_number: int) -> None:
        """The numbers have no gap, and what events leave over is what is there, as it should be, held by nobody."""
        if missing := sorted(set(range(1, next_number)) ^ set(self.lives))[:5]:
            self._findings.wrong.append(f"{self._path}: numbers without an event, or beyond the counter: {missing}")
        for number, life in self.lives.items():
            row = rows.get(number)
            if (life.end is None) != (row is not None):
                gone = (
                    "lost, without an event that says how" if row is None else f"gone by its events, {life.gone}, and still there"
                )
                self._findings.wrong.append(f"{self._path} {number}: is {gone}")
            elif row is not None:
                is_so = row.locked_by, row.delivery_count, row.expires_at, bool(row.first_received_at)
                wanted = life.holder, life.returns, life.expires_at, bool(life.holders)
                if is_so != wanted:
                    self._findings.wrong.append(f"{self._path} {number}: is {is_so}, by its events {wanted}")
                if row.owner_id is not None or row.lock_token is not None:
                    self._findings.wrong.append(f"{self._path} {number}: is held by {row.locked_by}, who is dead")
        if extra := sorted(set(rows) - set(self.lives))[:5]:
            self._findings.wrong.append(f"{self._path}: there without an event: {extra}")


def is_cycle(event: Any) -> bool:
    """Whether a message was dropped since it had been in the next queue before, without a rejection on the way (RMQ-072)."""
    return event.kind == Kind.DROPPED and "RMQ-072" in (event.details or {}).get("description", "")


def _compare_limit(entity: Any, rows: dict[int, Any], findings: Findings) -> None:
    most = {"few": FEW, "full": FULL}.get(entity.path)
    if most is not None and len(rows) > most:
        findings.wrong.append(f"{entity.path}: has {len(rows)} messages at rest; {most} are allowed")


def _nobody_is_left(connection: psycopg.Connection, scene: Scene, queues: dict[int, Queue], findings: Findings) -> None:
    """No connection and no consumer is left, and no queue that lived by one or is unused for too long."""
    query = """
        SELECT c.name, (SELECT count(*) FROM vitrine_consumer AS o WHERE o.connection_id = c.id) AS consumers
          FROM vitrine_connection AS c JOIN vitrine_namespace AS n ON n.id = c.namespace_id WHERE n.name = %s
    """
    for row in connection.execute(query, [scene.namespace]):
        findings.wrong.append(f"the connection {row.name} is there, with {row.consumers} consumers, and its process is dead")
    for queue in queues.values():
        options = queue.entity.options
        findings.did["queues that came and went"] += queue.entity.is_deleted
        if queue.entity.is_deleted:
            continue
        if queue.entity.owner_id is not None:
            findings.wrong.append(f"{queue.path}: is there, and its connection is not")
        if options["auto_delete"] and options["had_consumer"]:
            findings.wrong.append(f"{queue.path}: is there, and its last consumer is not")
        if "expires" in queue.entity.effective:
            findings.wrong.append(f"{queue.path}: is there, unused for longer than it lives")


def _compare_dead_letters(queues: dict[int, Queue], findings: Findings) -> None:
    """What was dead-lettered is in exactly the queues that it was routed to, once, and says so; and the other way round."""
    came: dict[tuple[int, int], list] = defaultdict(list)
    for queue_id, queue in queues.items():
        for number, life in queue.lives.items():
            if life.origin:
                came[life.origin].append((queue_id, number))
    for queue_id, queue in queues.items():
        for number, life in queue.lives.items():
            to = [(t["entity"], t["sequence_number"]) for t in life.end.details["to"]] if life.gone is Kind.MOVED else []
            got = came.pop((queue_id, number), [])
            if sorted(to) != sorted(got):
                findings.wrong.append(f"{queue.path} {number}: was dead-lettered to {to}; from it came {got}")
            names = sorted(queues[target].path for target, _ in to)
            if to and life.end.reason != MOVED and names != sorted(DEAD_LETTERS.get(queue.path, ())):
                findings.wrong.append(f"{queue.path} {number}: was dead-lettered to {names}")
            if life.end is not None and is_cycle(life.end):
                _compare_cycle(queues, (queue_id, number), findings)
    if came:
        findings.wrong.append(f"dead letters that come from nowhere: {list(came.items())[:5]}")


def _compare_cycle(queues: dict[int, Queue], place: tuple[int, int], findings: Findings) -> None:
    """What was dropped as going round in circles did so, and was rejected nowhere; what it did before a move does not count."""
    way: list[str] = []
    reasons: list[str] = []
    at: tuple[int, int] | None = place
    while at is not None:
        life = queues[at[0]].lives[at[1]]
        if life.end.reason == MOVED:
            break
        way.append(queues[at[0]].path)
        reasons.append(life.end.reason)
        at = life.origin
    if not set(DEAD_LETTERS[way[0]]) & set(way) or "rejected" in reasons:
        findings.wrong.append(f"{way[0]} {place[1]}: was dropped as a cycle; it came by {way} for the reasons {reasons}")


class Told:
    """What clients were told, against the events."""

    def __init__(self, queues: dict[int, Queue], findings: Findings):
        self._queues, self._findings = queues, findings
        self._fixed = {queue.path: queue for queue in queues.values() if queue.path in QUEUES}
        self._by_path: dict[str, list[Queue]] = defaultdict(list)
        for queue in queues.values():
            self._by_path[queue.path].append(queue)
        self._plans: list[list] = []
        self._confirmed: dict[str, tuple[list, bool]] = {}
        self._settled: Counter = Counter()

    def read(self, told: Iterable[dict]) -> None:
        for entry in told:
            self._findings.heed(entry)
            if entry["kind"] not in FOR_ALL:
                getattr(self, f"on_{entry['kind']}")(entry)

    def _wrong(self, entry: dict, what: str) -> None:
        self._findings.wrong.append(f"{what} ({entry['kind']} of {entry.get('who', entry.get('path'))})")

    def on_publishes(self, entry: dict) -> None:
        self._plans.append(entry["plan"])

    def on_published(self, entry: dict) -> None:
        for message_id, queues, refused in entry["told"]:
            self._confirmed[message_id] = queues, refused

    def on_delivered(self, entry: dict) -> None:
        for queue_id, number, returns, redelivered in entry["deliveries"]:
            self._findings.did["rabbit deliveries"] += 1
            life = self._queues[queue_id].lives.get(number)
            if life is None or life.holders.get(returns) != entry["who"]:
                self._wrong(entry, f"{self._queues[queue_id].path} {number}: was delivered after {returns} returns; {life}")
            elif redelivered != (returns > 0):
                self._wrong(
                    entry, f"{self._queues[queue_id].path} {number}: redelivered is {redelivered} after {returns} returns"
                )

    def _settles(self, entry: dict, ends: tuple[Kind, ...]) -> None:
        for queue_id, number, returns in entry["deliveries"]:
            queue = self._queues[queue_id]
            life = queue.lives[number]
            self._settled[queue_id, number, returns] += 1
            self._findings.did[f"rabbit {entry['kind']}"] += 1
            by_it = returns == life.returns and (life.gone in ends or life.gone is Kind.DELETED)
            if not by_it and not (queue.entity.is_deleted and life.end is None):
                self._wrong(
                    entry, f"{queue.path} {number}: was settled after {returns} returns; it is {life.gone} after {life.returns}"
                )
            if self._settled[queue_id, number, returns] > 1:
                self._wrong(entry, f"{queue.path} {number}: was settled twice after {returns} returns")

    def on_acked(self, entry: dict) -> None:
        self._settles(entry, (Kind.COMPLETED,))

    def on_rejected(self, entry: dict) -> None:
        self._settles(entry, (Kind.DROPPED, Kind.MOVED))

    def on_requeued(self, entry: dict) -> None:
        for queue_id, number, returns in entry["deliveries"]:
            queue = self._queues[queue_id]
            life = queue.lives[number]
            self._findings.did["rabbit requeued"] += 1
            spent = life.end is not None and life.end.reason == "delivery_limit"
            if life.returns <= returns and not spent and not queue.entity.is_deleted:
                self._wrong(
                    entry, f"{queue.path} {number}: was given back after {returns} returns, and came back {life.returns} times"
                )

    on_recovered = on_requeued

    def on_taken(self, entry: dict) -> None:
        life = self._fixed[entry["path"]].lives.get(entry["number"])
        if life is None or life.gone is not Kind.RECEIVED_AND_DELETED:
            self._wrong(entry, f"{entry['path']} {entry['number']}: was delivered for good, and is {life and life.gone}")

    def on_drained(self, entry: dict) -> None:
        """One client alone is given what is there in its order."""
        if entry["path"] != BY_PRIORITY and entry["numbers"] != sorted(entry["numbers"]):
            self._wrong(entry, f"{entry['path']}: was delivered out of order: {entry['numbers'][:50]}")

    def compare_publishes(self) -> None:
        """A batch is stored whole or not at all; each message once in each queue it goes to, as its publisher was told."""
        births: dict[str, Counter] = defaultdict(Counter)
        for queue_id, queue in self._queues.items():
            for number, life in queue.lives.items():
                if life.origin is None:
                    births[life.born.message_id][queue_id, number] += 1
        for plan in self._plans:
            stored = [self._compare_publish(births.pop(planned[2], Counter()), *planned) for planned in plan]
            if len(set(stored) - {None}) > 1:
                self._findings.wrong.append(f"a batch was stored in part: {stored} of {plan}")
        if births:
            self._findings.wrong.append(f"messages that nobody published: {list(births.items())[:5]}")

    def _compare_publish(self, stored: Counter, exchange: str, key: str, message_id: str, _: Any) -> bool | None:
        """Whether it was stored; None where a queue that refuses may be why it was not."""
        names = Counter(self._queues[queue_id].path for queue_id, _ in stored)
        wanted = routed_to(exchange, key)
        may_refuse = wanted & {"full"}
        confirmed, refused = self._confirmed.get(message_id, (None, False))
        if doubled := [name for name, n in names.items() if n > 1]:
            self._findings.wrong.append(f"{message_id} to {exchange!r} {key!r}: was stored more than once in {doubled}")
        if refused and not may_refuse:
            self._findings.wrong.append(f"{message_id} to {exchange!r} {key!r}: was refused, by no queue of those it goes to")
        if confirmed is not None:
            self._findings.did["rabbit accepted messages"] += 1
            told = Counter(path for path, _ in confirmed)
            numbers = {(path, number) for path, number in confirmed}
            if told != names or numbers != {(self._queues[queue_id].path, number) for queue_id, number in stored}:
                self._findings.wrong.append(
                    f"{message_id}: was said to be in {confirmed}, and is in {list(stored)}: {dict(names)}"
                )
            if missing := wanted - set(told) - (may_refuse if refused else set()):
                self._findings.wrong.append(f"{message_id} to {exchange!r} {key!r}: did not go to {missing}, but to {dict(told)}")
        elif names and (missing := wanted - set(names) - may_refuse):
            self._findings.wrong.append(f"{message_id} to {exchange!r} {key!r}: went to {dict(names)} and not to {missing}")
        if strange := [n for n in names if n in QUEUES and n not in wanted]:
            self._findings.wrong.append(f"{message_id} to {exchange!r} {key!r}: went to {strange}")
        return None if may_refuse == wanted else bool(names)
