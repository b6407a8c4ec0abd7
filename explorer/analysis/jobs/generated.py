"""The events of a load with known parameters (load.py), as the broker would have written them. Without PySpark.

The actor of each begins with `generated:`, its details have {"generated": true}, and its message id begins with "generated-".
Pages that count such messages say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from .kinds import GENERATED, Kind
from .load import EXPIRED, REGIONS, REJECTED, SECOND, SESSIONS, SPENT, Load, Played, play

BLOCK = 5_000  # events of a table, which is a transaction where they are recorded
BROKER, OPERATOR = (f"{GENERATED}:process:{name}" for name in ("broker", "operator"))
REASONS = ("MaxDeliveryCountExceeded", "TTLExpiredException", "complete")  # of dead letters, and of a refused settlement
_LIMIT, _TOO_LATE, _COMPLETE = range(3)
MARK = '{"generated": true}'
DESCRIBED = '{"description": "%s", "generated": true}'
_REGIONS = [f'{{"region": ["string", "{region}"]}}' for region in REGIONS]
_SESSIONS = [f"session-{number}" for number in range(SESSIONS)]
_NEEDED = ("queue", "number", "enqueued", "deliveries", "first", "session", "size", "own_time_to_live", "region")
_INSTANT = pa.timestamp("us", tz="UTC")
# The columns that have values, as in jobs/schemas.py.
EVENT = pa.schema(
    {
        "event_id": pa.int64(), "recorded_at": _INSTANT, "xid": pa.int64(), "at": _INSTANT, "entity_id": pa.int64(),
        "subqueue": pa.int16(), "sequence_number": pa.int64(), "kind": pa.int16(), "message_id": pa.string(),
        "delivery_count": pa.int32(), "locked_until": _INSTANT, "actor": pa.string(), "reason": pa.string(),
        "enqueued_at": _INSTANT, "first_received_at": _INSTANT, "last_received_at": _INSTANT, "session_id": pa.string(),
        "size": pa.int32(), "time_to_live_us": pa.int64(), "application_properties": pa.string(), "details": pa.string(),
        "entity_time_to_live_us": pa.int64(), "default_limits_own": pa.bool_(),
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Queue:
    """first_number: of its messages."""

    entity_id: int
    path: str
    first_number: int
    has_sessions: bool = False


def shares(count: int, skew: float | None) -> list[float]:
    """The share of each of so many queues. skew: that of the first; None: every queue has the same."""
    if skew is None or count == 1:
        return [1 / count] * count
    return [skew, *([(1 - skew) / (count - 1)] * (count - 1))]


def played(queue: Queue, place: int, messages: int, days: float, until: datetime, load: Load, seed: int) -> Played:
    """What happens in a queue, by its place among others. The same arguments give the same."""
    return play(queue.path, messages, days, until, load, np.random.default_rng([seed, place]))


class Events:
    """The events of queues. Arrays by event hold those of a message one after the other, in the order in which they happened.

    archived: as in files of the archive, where the end of a lock comes before the receive that noticed it. first_id: of events,
    and of transactions.
    """

    def __init__(self, queues: Sequence[Queue], played: Sequence[Played], *, archived: bool, first_id: int = 1):
        self._queues, self._played, self._archived = queues, played, archived
        sizes = [len(entry.messages["enqueued"]) for entry in played]
        self._m = {name: np.concatenate([entry.messages[name] for entry in played]) for name in played[0].messages}
        self._a = {name: np.concatenate([entry.attempts[name] for entry in played]) for name in played[0].attempts}
        attempts = [len(entry.attempts["message"]) for entry in played]
        for entry in played:  # they are needed no more
            entry.messages.clear()
            entry.attempts.clear()
        self._m["queue"] = np.repeat(np.arange(len(played), dtype=np.int32), sizes)
        firsts = [queue.first_number for queue in queues]
        self._m["first"] = np.cumsum(self._m["deliveries"]) - self._m["deliveries"]  # the place of its first attempt
        self._m["number"] = np.concatenate([first + np.arange(size) for first, size in zip(firsts, sizes, strict=True)])
        offsets = np.cumsum([0, *sizes[:-1]])
        self._a["message"] += np.repeat(offsets, attempts)
        self.messages = sum(sizes)
        self._words()
        self._lay_out()
        self._order = np.argsort(self._at, kind="stable")  # a transaction's events stay together
        self._xid, self._event_id = np.empty(self.count, np.int64), np.empty(self.count, np.int64)
        self._xid[self._order] = first_id - 1 + np.cumsum(~self._joined[self._order])
        self._event_id[self._order] = first_id + np.arange(self.count)

    def by_time(self, block: int = BLOCK) -> Iterator[pa.Table]:
        """Rows of EVENT, ordered by event id, about so many at a time: no transaction's events are divided."""
        begin = 0
        while begin < self.count:
            end = min(begin + block, self.count)
            while end < self.count and self._joined[self._order[end]]:
                end += 1
            yield self._table(self._order[begin:end])
            begin = end

    def _lay_out(self) -> None:
        """Place the events: sent; for each attempt received, and its end; what ended the message, if no attempt did; purged.
        A receive writes its own event before that of the lock whose end it noticed, unless `archived`. Refused settlements come
        last."""
        m, a = self._m, self._a
        m["dead"] = (m["fate"] == REJECTED) | (m["fate"] == SPENT)
        m["dead"] |= (m["fate"] == EXPIRED) & self._by_queue([entry.load.dead_letters_expired for entry in self._played])
        apart = m["fate"] >= SPENT
        counts = 1 + 2 * m["deliveries"] + apart + m["dead"]
        begin, refused = np.cumsum(counts) - counts, np.flatnonzero(a["refused_at"])
        total, places = int(counts.sum()), np.arange(len(a["how"]))
        self.count = total + len(refused)
        self._message = np.concatenate([np.repeat(np.arange(self.messages), counts), a["message"][refused]])
        self._kind, self._at = np.full(self.count, Kind.SENT, np.int8), np.empty(self.count, np.int64)
        self._attempt, self._actor = np.full(self.count, -1, np.int32), np.zeros(self.count, np.int32)
        self._joined, self._failures = np.zeros(self.count, bool), np.full(self.count, -1, np.int32)
        consumer = self._first_consumer[m["queue"][a["message"]]] + a["consumer"]
        base, failed = begin[a["message"]] + 2 * a["attempt"] - 1, np.isin(a["how"], (Kind.ABANDONED, Kind.LOCK_LOST))
        notices = np.roll(a["noticed"], 1)  # whether the receive noticed the end of the attempt before
        received, released = (base, base + 1) if self._archived else (base - notices, base + 1 + a["noticed"])
        spent, dead = (begin + 1 + 2 * m["deliveries"])[apart], m["dead"]
        self._put(begin, Kind.SENT, m["enqueued"], self._senders[m["queue"]])
        self._put(received, Kind.RECEIVED, a["received"], consumer, places, a["attempt"] - 1)
        self._put(released, a["how"], a["released"], consumer, places, a["attempt"] - 1 + failed)
        self._joined[received if self._archived else released] = notices if self._archived else a["noticed"]
        abandoned = m["joined"][apart] & (self._kind[spent - 1] == Kind.ABANDONED)
        self._put(spent, np.where(dead[apart], Kind.DEAD_LETTERED, Kind.EXPIRED), m["ended"][apart],
                  np.where(abandoned, self._actor[spent - 1], 0), failures=m["deliveries"][apart])  # fmt: skip
        self._joined[spent] = m["joined"][apart]
        purged_at = m["ended"] + self._by_queue([int(entry.load.purge_after * SECOND) for entry in self._played])
        purged_at = np.minimum(purged_at, self._by_queue([entry.until for entry in self._played]))
        self._put((begin + counts - 1)[dead], Kind.PURGED, purged_at[dead], 1, failures=0)
        self._put(np.arange(total, self.count), Kind.SETTLE_REFUSED, a["refused_at"][refused], consumer[refused])

    def _put(self, places: Any, kind: Any, at: Any, actor: Any = 0, attempt: Any = -1, failures: Any = -1) -> None:
        """Events of one sort. actor: its place among _actors. attempt, failures: -1: none."""
        self._kind[places], self._at[places], self._actor[places] = kind, at, actor
        self._attempt[places], self._failures[places] = attempt, failures

    def _by_queue(self, values: Sequence[Any]) -> np.ndarray:
        """A value of each message's queue."""
        return np.array(values)[self._m["queue"]]

    def _words(self) -> None:
        """The texts of columns that have few."""
        pairs = list(zip(self._queues, self._played, strict=True))
        senders = [entry.load.sender or f"process:{queue.path}-sender" for queue, entry in pairs]
        consumers = [_receivers(queue, entry) for queue, entry in pairs]
        reasons = [entry.load.reasons for entry in self._played]
        spent = [f"Message could not be consumed after {entry.load.max_deliveries} delivery attempts." for entry in self._played]
        of_queues = [f"{GENERATED}:{actor}" for actor in (*senders, *chain.from_iterable(consumers))]
        self._actors = [BROKER, OPERATOR, *of_queues]
        self._senders = 2 + np.arange(len(senders))
        self._first_consumer = 2 + len(senders) + np.cumsum([0, *map(len, consumers[:-1])])
        self._reasons = [*REASONS, *chain.from_iterable(reasons)]
        first_reason = len(REASONS) + np.cumsum([0, *map(len, reasons[:-1])])
        self._details = [
            MARK,
            *(DESCRIBED % description for description in ("The message expired and was dead lettered.", *spent)),
        ]
        self._entity_ids = np.array([described.entity_id for described in self._queues])
        self._has_sessions = np.array([described.has_sessions for described in self._queues])
        self._default_us = np.array([int((entry.load.time_to_live or 0) * SECOND) for entry in self._played])
        fate, queue, count = self._m["fate"], self._m["queue"], np.array([len(each) for each in reasons])
        own_reason = first_reason[queue] + self._m["number"] % count[queue]
        self._reason = np.select([fate == REJECTED, fate == SPENT, fate == EXPIRED], [own_reason, _LIMIT, _TOO_LATE], -1)
        self._described = np.select([fate == SPENT, fate == EXPIRED], [2 + queue, 1], 0)  # its place among _details

    def _table(self, rows: np.ndarray) -> pa.Table:
        """The events at these places as rows of EVENT."""
        kind, message, attempt, at, failures = (
            values[rows] for values in (self._kind, self._message, self._attempt, self._at, self._failures)
        )
        m = {name: self._m[name][message] for name in _NEEDED}
        sent, purged, refused = (kind == event_kind for event_kind in (Kind.SENT, Kind.PURGED, Kind.SETTLE_REFUSED))
        ended = np.isin(kind, (Kind.COMPLETED, Kind.DEAD_LETTERED, Kind.EXPIRED, Kind.PURGED))
        received, buried = ended & (m["deliveries"] > 0), ended & ~purged & (kind != Kind.COMPLETED)
        reasons, queue = np.where(buried, self._reason[message], np.where(refused, _COMPLETE, -1)), m["queue"]
        default = self._default_us[queue]
        described = np.where(buried & (kind == Kind.DEAD_LETTERED), self._described[message], 0)
        return _table(
            event_id=self._event_id[rows], recorded_at=at, xid=self._xid[rows], at=at, entity_id=self._entity_ids[queue],
            subqueue=purged.astype(np.int16), sequence_number=m["number"], kind=kind,
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


def _receivers(queue: Queue, entry: Played) -> list[str]:
    """Who the consumers of a queue are."""
    count, named = entry.truth.consumers, entry.load.receivers
    return [named[number] if number < len(named) else f"process:{queue.path}-{number + 1}" for number in range(count)]


def _table(**values: Any) -> pa.Table:
    return pa.table([_array(values[column.name], column.type) for column in EVENT], schema=EVENT)


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
