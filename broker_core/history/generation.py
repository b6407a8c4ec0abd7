"""Generates the history of a load with known parameters (load.py) as events, as the broker would have written them.

They go straight to files of the archive, as many as wanted, or to the event table, for the demo. The actor of each begins with
`generated`, its details have {"generated": true}, and its message id begins with "generated-". Pages that count such messages
say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime
from io import BytesIO
from itertools import chain, pairwise
from math import ceil
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from broker_core.common.types import EventKind, SubQueue
from broker_core.models import Entity
from broker_core.store.statements import SQL

from . import archive, foreign, retention, schema
from .load import EXPIRED, LOAD, REGIONS, REJECTED, SECOND, SESSIONS, SPENT, Load, Played, Truth, play

FILE_BLOCK = 1_000_000  # events that are one table at a time
TABLE_BLOCK = 5_000  # events of a transaction
SENDER, BROKER, OPERATOR = (f"{schema.GENERATED_ACTOR}:{name}" for name in ("sender", "broker", "operator"))
REASONS = ("MaxDeliveryCountExceeded", "TTLExpiredException", "complete")  # of dead letters, and of a refused settlement
_LIMIT, _TOO_LATE, _COMPLETE = range(3)
MARK = '{"generated": true}'
DESCRIBED = '{"description": "%s", "generated": true}'
_REGIONS = [f'{{"region": ["string", "{one}"]}}' for one in REGIONS]
_SESSIONS = [f"session-{number}" for number in range(SESSIONS)]
_NEEDED = ("queue", "number", "enqueued", "deliveries", "first", "session", "size", "own_time_to_live", "region")
_COPIED = (
    *("recorded_at", "at", "entity_id", "subqueue", "sequence_number", "kind", "message_id", "delivery_count", "locked_until"),
    *("actor", "reason", "enqueued_at", "first_received_at", "last_received_at", "session_id", "size", "time_to_live"),
    *("application_properties", "details"),
)  # as in the statement history_copy_events


@dataclass(frozen=True, slots=True)
class Generated:
    """messages, events: how many. truths: of each queue. parameters: the path of the file with the load and the truths, if files
    of the archive were written; added: these."""

    messages: int
    events: int
    truths: tuple[Truth, ...]
    added: foreign.Added | None = None
    parameters: str = ""


def generate(
    entities: Sequence[Entity],
    *,
    messages: int,
    days: float,
    until: datetime,
    load: Load | Sequence[Load] = LOAD,
    skew: float | None = None,
    seed: int = 0,
    recorded: bool = False,
) -> Generated:
    """Add the history of about so many messages to the archive, over the days before `until`. The queues are of one namespace.

    load: of all queues, or of each. skew: the share of the first queue; None: every queue has the same. Numbers come from the
    queues' counters. The same arguments give the same times. recorded: write to the event table instead (see _record).
    """
    loads = [load] * len(entities) if isinstance(load, Load) else load
    counts = [round(messages * share) for share in _shares(len(entities), skew)]
    played = [
        play(entity.path, count, days, until, one, np.random.default_rng([seed, index]))
        for index, (entity, count, one) in enumerate(zip(entities, counts, loads, strict=True))
    ]
    truths, events = tuple(one.truth for one in played), _Events(entities, played)
    if recorded:
        retention.create_partitions(until.date(), days_before=ceil(days) + 1)
        _record(events)
        return Generated(events.messages, events.count, truths)
    addition = foreign.Addition(entities[0].namespace_id)
    for table in _ahead(events.by_day()):
        addition.add(table)
    queues = [asdict(one.truth) | {"load": asdict(one.load)} for one in played]
    path = addition.note("parameters", {"seed": seed, "days": days, "until": until, "queues": queues})
    return Generated(events.messages, events.count, truths, addition.finish(), path)


def _record(events: _Events) -> None:
    """Write events to the event table, and count them in the traffic of their queues and namespaces.

    They are archived like any others. Each TABLE_BLOCK events are a transaction. Real messages may arrive only afterwards, so
    that numbers follow time.
    """
    with archive.connected() as connection:
        for table in _ahead(events.by_time()):
            with connection.transaction():
                _copy(connection, table)
                archive.run(connection, "history_count_generated")


def _shares(count: int, skew: float | None) -> list[float]:
    if skew is None or count == 1:
        return [1 / count] * count
    return [skew, *([(1 - skew) / (count - 1)] * (count - 1))]


def _ahead(items: Iterator) -> Iterator:
    """The items, each of which is made in a thread while the one before is used."""
    done = object()
    with ThreadPoolExecutor(1) as maker:
        made = maker.submit(next, items, done)
        while (item := made.result()) is not done:
            made = maker.submit(next, items, done)
            yield item


def _copy(connection: psycopg.Connection, events: pa.Table) -> None:
    """Copy events to the event table, in this transaction."""
    lifetime = pc.binary_join_element_wise(pc.cast(events["time_to_live_us"], pa.string()), " microseconds", "")
    rows, text = events.append_column("time_to_live", lifetime).select(_COPIED), BytesIO()
    csv.write_csv(rows, text, csv.WriteOptions(include_header=False))
    with connection.cursor().copy(SQL["history_copy_events"]) as copy:
        copy.write(text.getbuffer())


def _reserve(entities: Sequence[Entity], counts: Sequence[int]) -> list[int]:
    """The first of so many numbers of each queue."""
    with archive.connected() as connection:
        return [
            archive.row(connection, "history_reserve_numbers", entity_id=entity.pk, count=count).first_number
            for entity, count in zip(entities, counts, strict=True)
        ]


class _Events:
    """The events of queues. Arrays by event hold those of a message one after the other, in the order in which they happened."""

    def __init__(self, entities: Sequence[Entity], played: Sequence[Played]):
        self._entities, self._played = entities, played
        sizes = [len(one.messages["enqueued"]) for one in played]
        self._m = {name: np.concatenate([one.messages[name] for one in played]) for name in played[0].messages}
        self._a = {name: np.concatenate([one.attempts[name] for one in played]) for name in played[0].attempts}
        attempts = [len(one.attempts["message"]) for one in played]
        for one in played:  # they are needed no more
            one.messages.clear()
            one.attempts.clear()
        self._m["queue"] = np.repeat(np.arange(len(played), dtype=np.int32), sizes)
        firsts = _reserve(entities, sizes)
        self._m["first"] = np.cumsum(self._m["deliveries"]) - self._m["deliveries"]  # the place of its first attempt
        self._m["number"] = np.concatenate([first + np.arange(size) for first, size in zip(firsts, sizes, strict=True)])
        offsets = np.cumsum([0, *sizes[:-1]])
        self._a["message"] += np.repeat(offsets, attempts)
        self.messages = sum(sizes)
        self._words()
        self._lay_out()
        self._order = np.argsort(self._at, kind="stable")  # a transaction's events stay together
        self._xid, self._event_id = np.empty(self.count, np.int64), np.empty(self.count, np.int64)
        self._xid[self._order] = np.cumsum(~self._joined[self._order])
        self._event_id[self._order] = np.arange(1, self.count + 1)

    def by_day(self) -> Iterator[pa.Table]:
        """The rows of schema.EVENT, a day after the other; those of a day are ordered by queue, number and event id."""
        days = self._at[self._order] // (86_400 * SECOND)
        begins = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), self.count]
        for begin, end in pairwise(begins):
            rows = self._order[begin:end]
            rows = rows[np.argsort(self._message[rows], kind="stable")]
            for place in range(0, len(rows), FILE_BLOCK):
                yield self._table(rows[place : place + FILE_BLOCK])

    def by_time(self) -> Iterator[pa.Table]:
        """The rows of schema.EVENT, ordered by event id, in blocks for the event table: no transaction's events are divided."""
        begin = 0
        while begin < self.count:
            end = min(begin + TABLE_BLOCK, self.count)
            while end < self.count and self._joined[self._order[end]]:
                end += 1
            yield self._table(self._order[begin:end])
            begin = end

    def _lay_out(self) -> None:
        """Place the events: sent; for each attempt received, and its end; what ended the message, if no attempt did; purged.
        A receive writes its own event before that of the lock whose end it noticed. Refused settlements come last."""
        m, a = self._m, self._a
        m["dead"] = (m["fate"] == REJECTED) | (m["fate"] == SPENT)
        m["dead"] |= (m["fate"] == EXPIRED) & self._by_queue([one.load.dead_letters_expired for one in self._played])
        apart = m["fate"] >= SPENT
        counts = 1 + 2 * m["deliveries"] + apart + m["dead"]
        begin, refused = np.cumsum(counts) - counts, np.flatnonzero(a["refused_at"])
        total, places = int(counts.sum()), np.arange(len(a["how"]))
        self.count = total + len(refused)
        self._message = np.concatenate([np.repeat(np.arange(self.messages), counts), a["message"][refused]])
        self._kind, self._at = np.full(self.count, EventKind.SENT, np.int8), np.empty(self.count, np.int64)
        self._attempt, self._actor = np.full(self.count, -1, np.int32), np.zeros(self.count, np.int32)
        self._joined, self._failures = np.zeros(self.count, bool), np.full(self.count, -1, np.int32)
        consumer = self._first_consumer[m["queue"][a["message"]]] + a["consumer"]
        base, failed = begin[a["message"]] + 2 * a["attempt"] - 1, np.isin(a["how"], (EventKind.ABANDONED, EventKind.LOCK_LOST))
        received, released = base - np.roll(a["noticed"], 1), base + 1 + a["noticed"]
        spent, dead = (begin + 1 + 2 * m["deliveries"])[apart], m["dead"]
        self._put(begin, EventKind.SENT, m["enqueued"])
        self._put(received, EventKind.RECEIVED, a["received"], consumer, places, a["attempt"] - 1)
        self._put(released, a["how"], a["released"], consumer, places, a["attempt"] - 1 + failed)
        self._joined[released] = a["noticed"]
        abandoned = m["joined"][apart] & (self._kind[spent - 1] == EventKind.ABANDONED)
        self._put(spent, np.where(dead[apart], EventKind.DEAD_LETTERED, EventKind.EXPIRED), m["ended"][apart],
                  np.where(abandoned, self._actor[spent - 1], 1), failures=m["deliveries"][apart])  # fmt: skip
        self._joined[spent] = m["joined"][apart]
        purged_at = m["ended"] + self._by_queue([int(one.load.purge_after * SECOND) for one in self._played])
        purged_at = np.minimum(purged_at, self._by_queue([one.until for one in self._played]))
        self._put((begin + counts - 1)[dead], EventKind.PURGED, purged_at[dead], 2, failures=0)
        self._put(np.arange(total, self.count), EventKind.SETTLE_REFUSED, a["refused_at"][refused], consumer[refused])

    def _put(self, places: Any, kind: Any, at: Any, actor: Any = 0, attempt: Any = -1, failures: Any = -1) -> None:
        """Events of one sort. actor: its place among _actors. attempt, failures: -1: none."""
        self._kind[places], self._at[places], self._actor[places] = kind, at, actor
        self._attempt[places], self._failures[places] = attempt, failures

    def _by_queue(self, values: Sequence[Any]) -> np.ndarray:
        """A value of each message's queue."""
        return np.array(values)[self._m["queue"]]

    def _words(self) -> None:
        """The texts of columns that have few."""
        consumers = [
            [f"{schema.GENERATED_ACTOR}:{entity.path}-consumer-{number + 1}" for number in range(one.truth.consumers)]
            for entity, one in zip(self._entities, self._played, strict=True)
        ]
        reasons = [one.load.reasons for one in self._played]
        spent = [f"Message could not be consumed after {one.load.max_deliveries} delivery attempts." for one in self._played]
        self._actors = [SENDER, BROKER, OPERATOR, *chain.from_iterable(consumers)]
        self._first_consumer = 3 + np.cumsum([0, *map(len, consumers[:-1])])
        self._reasons = [*REASONS, *chain.from_iterable(reasons)]
        first_reason = len(REASONS) + np.cumsum([0, *map(len, reasons[:-1])])
        self._details = [MARK, *(DESCRIBED % one for one in ("The message expired and was dead lettered.", *spent))]
        self._entity_ids = np.array([entity.pk for entity in self._entities])
        self._has_sessions = np.array([entity.requires_session for entity in self._entities])
        self._default_us = np.array([int((one.load.time_to_live or 0) * SECOND) for one in self._played])
        fate, queue, count = self._m["fate"], self._m["queue"], np.array([len(each) for each in reasons])
        given = first_reason[queue] + self._m["number"] % count[queue]
        self._reason = np.select([fate == REJECTED, fate == SPENT, fate == EXPIRED], [given, _LIMIT, _TOO_LATE], -1)
        self._described = np.select([fate == SPENT, fate == EXPIRED], [2 + queue, 1], 0)  # its place among _details

    def _table(self, rows: np.ndarray) -> pa.Table:
        """The events at these places as rows of schema.EVENT; what is NULL in all is left out."""
        kind, message, attempt, at, failures = (
            values[rows] for values in (self._kind, self._message, self._attempt, self._at, self._failures)
        )
        m = {name: self._m[name][message] for name in _NEEDED}
        sent, purged, refused = (kind == one for one in (EventKind.SENT, EventKind.PURGED, EventKind.SETTLE_REFUSED))
        ended = np.isin(kind, (EventKind.COMPLETED, EventKind.DEAD_LETTERED, EventKind.EXPIRED, EventKind.PURGED))
        received, buried = ended & (m["deliveries"] > 0), ended & ~purged & (kind != EventKind.COMPLETED)
        reasons, queue = np.where(buried, self._reason[message], np.where(refused, _COMPLETE, -1)), m["queue"]
        default = self._default_us[queue]
        described = np.where(buried & (kind == EventKind.DEAD_LETTERED), self._described[message], 0)
        return _table(
            event_id=self._event_id[rows], recorded_at=at, xid=self._xid[rows], at=at, entity_id=self._entity_ids[queue],
            subqueue=np.where(purged, int(SubQueue.DEAD_LETTER), int(SubQueue.MAIN)), sequence_number=m["number"], kind=kind,
            message_id=pc.if_else(pa.array(~refused), _numbered("generated-", m["number"]), None),
            delivery_count=_masked(failures, failures >= 0), actor=_texts(self._actor[rows], self._actors),
            locked_until=_masked(_taken(self._a["locked_until"], attempt), attempt >= 0), reason=_texts(reasons, self._reasons),
            enqueued_at=_masked(m["enqueued"], sent | ended),
            first_received_at=_masked(_taken(self._a["received"], m["first"]), received),
            last_received_at=_masked(_taken(self._a["received"], m["first"] + m["deliveries"] - 1), received),
            session_id=_texts(np.where(sent & self._has_sessions[queue], m["session"], -1), _SESSIONS),
            size=_masked(m["size"], sent), time_to_live_us=_masked(m["own_time_to_live"], sent & (m["own_time_to_live"] > 0)),
            application_properties=_texts(np.where(sent, m["region"], -1), _REGIONS), details=_texts(described, self._details),
            entity_time_to_live_us=_masked(default, default > 0), default_limits_own=np.zeros(len(rows), bool),
        )  # fmt: skip


def _table(**given: Any) -> pa.Table:
    """A table of the columns of schema.EVENT that are given."""
    there = [column for column in schema.EVENT if column.name in given]
    return pa.table([_array(given[column.name], column.type) for column in there], schema=pa.schema(there))


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    array = values if isinstance(values, pa.Array) else pa.array(values)
    if pa.types.is_timestamp(kind):
        return array.view(kind)
    return array if array.type == kind else pc.cast(array, kind)


def _masked(values: np.ndarray, valid: np.ndarray) -> pa.Array:
    return pa.array(values, mask=~valid)


def _taken(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Values at these places; any where a place is outside."""
    return values[np.clip(places, 0, len(values) - 1)] if len(values) else np.zeros(len(places), np.int64)


def _texts(codes: np.ndarray, texts: Sequence[str]) -> pa.Array:
    """Texts by their places; -1: NULL."""
    return pa.array(texts, pa.string()).take(_masked(codes, codes >= 0))


def _numbered(prefix: str, numbers: np.ndarray) -> pa.Array:
    return pc.binary_join_element_wise(prefix, pc.cast(pa.array(numbers), pa.string()), "")
