"""What a replay starts from: the messages of a queue with their work, the consumers that there were, and what really happened."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.common.types import SubQueue
from broker_core.history import archive, schema

from .. import messages
from ..jobs import outcomes
from ..simulation import FOREVER, MOST_MESSAGES, History, Message, Outcome, Result, Setting, TooMuch, absences, concurrency
from ..survival import FEWEST, CannotTell
from . import held, stored
from .scope import Range, Scope

COLUMNS = [
    *("entity_id", "subqueue", "sequence_number", "outcome", "reason", "enqueued_at", "first_received_at", "last_received_at"),
    *("ended_at", "time_to_live_us", "time_to_live_in_force_us", "session_id", "generated"),
]
BY_CONSUMERS = (outcomes.COMPLETED, outcomes.RECEIVED_AND_DELETED)
WAITED_US = 1000  # a message that was received later than this after its arrival had waited
REMOVED = (outcomes.PURGED, outcomes.DELETED, outcomes.RESUBMITTED, outcomes.FORWARDED, outcomes.DROPPED, outcomes.MOVED)


@dataclass(frozen=True, slots=True)
class Replayable:
    """setting: what was in force, as far as known. actual: what really happened."""

    history: History
    setting: Setting
    actual: Outcome
    generated: int


@dataclass(frozen=True, slots=True)
class _Delivery:
    number: int
    received: int
    until: int
    holder: str | None
    result: Result


def read(scope: Scope, deliveries: int | None) -> Replayable:
    """Read a queue's history. deliveries: the maximum in force. Raises TooMuch, messages.TooManyLives, CannotTell."""
    lives, span = _lives(scope), scope.range
    if lives.num_rows > MOST_MESSAGES:
        raise TooMuch(
            f"{lives.num_rows:,} messages entered in this range; at most {MOST_MESSAGES:,} are replayed. Choose a shorter one."
        )
    return replayable(
        lives, held.read(scope), span.start, span.end, deliveries, notices_crashes=scope.family.limits.notices_crashes
    )


def replayable(
    lives: pa.Table, judged: pa.Table, start: datetime, end: datetime, deliveries: int | None, *, notices_crashes: bool = False
) -> Replayable:
    """The history in lives and judged held. Raises CannotTell for too few deliveries, and for queues with sessions."""
    if pc.any(pc.is_valid(lives["session_id"])).as_py():
        raise CannotTell("Messages of this queue have sessions, whose order a replay does not follow.")
    made = [one for one in _deliveries(judged, start) if one is not None]
    if len(made) < FEWEST:
        raise CannotTell(f"Only {len(made):,} deliveries are known; a replay needs at least {FEWEST}, at the history level full.")
    zero, until = _us(start), _us(end) - _us(start)
    batches = _batches(made)
    rows = messages.with_outcome(lives).sort_by([("enqueued_at", "ascending"), ("sequence_number", "ascending")]).to_pylist()
    rows = [_as_of(row, end) for row in rows]
    work, working = _work(batches, {row["sequence_number"]: _us(row["enqueued_at"]) - zero for row in rows})
    listed = [_message(row, work.get(row["sequence_number"], ()), zero) for row in rows]
    waiting = [(one.arrived, _left_waiting(row, zero, until)) for one, row in zip(listed, rows, strict=True)]
    lock, consumers = held.usual_lock(judged), concurrency(working)
    setting = Setting(
        consumers=consumers,
        prefetch=_usual_prefetch(batches),
        lock=None if lock is None else round(lock.total_seconds() * 1_000_000),
        deliveries=deliveries,
    )
    history = History(listed, absences(waiting, working, consumers), until, notices_crashes)
    return Replayable(history, setting, _actual(rows, waiting, zero, until, judged), sum(row["generated"] for row in rows))


def _lives(scope: Scope) -> pa.Table:
    """The messages that entered the main list in the range, also those that are still there."""
    span = scope.range
    ended = stored.lives(scope, span.start, Range(span.start, max(span.end, scope.now)), COLUMNS)
    over = pa.scalar(span.end, ended["enqueued_at"].type)
    inside = pc.and_(pc.less(ended["enqueued_at"], over), pc.equal(ended["subqueue"], int(SubQueue.MAIN)))
    ended = ended.filter(pc.and_(inside, pc.not_equal(ended["outcome"], outcomes.CANCELLED)))
    with archive.connected() as postgres:
        there = archive.read_arrow(postgres, "history_still_there", entity_ids=scope.ids, start=span.start, end=span.end)
    present = schema.conform(there, ended.schema)
    gone = pc.is_in(present["sequence_number"], ended["sequence_number"].combine_chunks())
    return pa.concat_tables([ended, present.filter(pc.invert(gone))])


def _as_of(row: dict, end: datetime) -> dict:
    """A life as it was at the end of the range."""
    row = row if row["ended_at"] is None or row["ended_at"] < end else row | {"ended_at": None, "outcome": 0, "reason": None}
    received = row["first_received_at"]
    return row if received is None or received < end else row | {"first_received_at": None}


def _deliveries(judged: pa.Table, start: datetime) -> Iterable[_Delivery | None]:
    """The deliveries that kept a consumer busy; None: one that was only released."""
    names = ("sequence_number", "received_at", "held_us", "received_by", "lost", "failed", "well", "rejected", "let_go")
    zero = _us(start)
    for number, at, took, holder, lost, failed, well, rejected, let_go in zip(
        *(judged[name].to_pylist() for name in names), strict=True
    ):
        received = _us(at) - zero
        if lost:
            yield _Delivery(number, received, received + took, holder, Result.VANISHED)
        elif failed:
            yield _Delivery(number, received, received + took, holder, Result.FAILED)
        elif well or rejected or let_go:
            yield _Delivery(number, received, received + took, holder, Result.WELL)
        else:
            yield None


def _batches(made: Sequence[_Delivery]) -> list[list[_Delivery]]:
    """Deliveries that a consumer got at once, in the order in which it ended them."""
    found: dict[tuple, list[_Delivery]] = defaultdict(list)
    for one in made:
        found[one.received, one.holder].append(one)
    return [
        sorted(batch, key=lambda one: (one.until, one.number)) for _, batch in sorted(found.items(), key=lambda item: item[0][0])
    ]


def _work(
    batches: Sequence[Sequence[_Delivery]], arrived: Mapping[int, int]
) -> tuple[dict[int, tuple[tuple[int, Result], ...]], list[tuple[int, int]]]:
    """By message, the work of its deliveries; and when consumers worked.

    Messages of a batch are worked on one after the other. A delivery whose lock was lost needed longer than it had: it gets the
    work of another one that did, or if there was none, its consumer vanished. If messages waited when its consumer received
    again, the consumer had worked until then.
    """
    timed = [list(_times(batch)) for batch in batches]
    known = sorted(work for batch in timed for one, work in batch if one.result is not Result.VANISHED)
    draw = random.Random(1)
    found: dict[int, list[tuple[int, Result]]] = defaultdict(list)
    working = []
    for batch, after in zip(timed, _following(batches), strict=True):
        begun, own = batch[0][0].received, sum(least for one, least in batch if one.result is not Result.VANISHED)
        lost = {one.number: least for one, least in batch if one.result is Result.VANISHED}
        needed = {number: _longer(known, least, draw) for number, least in lost.items()}
        if lost and after is not None:
            waited = any(arrived.get(one.number, one.received) < one.received - WAITED_US for one in after)
            needed = _fitted(lost, needed, after[0].received - begun - own, waited)
        for one, least in batch:
            slow = needed.get(one.number, 0) > least
            found[one.number].append((needed.get(one.number, least), Result.WELL if slow else one.result))
        working.append((begun, begun + own + sum(needed.values())))
    return {number: tuple(each) for number, each in found.items()}, working


def _fitted(lost: Mapping[int, int], needed: dict[int, int], left: int, waited: bool) -> dict[int, int]:
    """The work of lost deliveries if the consumer had so much time for them until it received again, and if messages `waited`,
    needed all of it. lost: their least work; a consumer that was free before that had given up."""
    if left < sum(lost.values()):
        return dict.fromkeys(lost, max(0, left) // len(lost))
    more = {number: needed[number] - least for number, least in lost.items()}
    total, rest = sum(more.values()), left - sum(lost.values())
    if not total or (total <= rest and not waited):
        return needed
    return {number: least + more[number] * rest // total for number, least in lost.items()}


def _longer(known: Sequence[int], least: int, draw: random.Random) -> int:
    """A work of these that is longer; `least`, if none is."""
    first = bisect_right(known, least)
    return known[draw.randrange(first, len(known))] if first < len(known) else least


def _times(batch: Sequence[_Delivery]) -> Iterable[tuple[_Delivery, int]]:
    """How long the consumer of a batch worked on each of its messages, at least if the lock was lost. Settlements at the same
    instant share the time; of locks that ended together, the first message had all of it."""
    settled = Counter(one.until for one in batch if one.result is not Result.VANISHED)
    before = batch[0].received
    for i, one in enumerate(batch):
        if i and one.until != batch[i - 1].until:
            before = batch[i - 1].until
        if one.result is not Result.VANISHED:
            yield one, (one.until - before) // settled[one.until]
        else:
            yield one, one.until - before
            before = one.until


def _following(batches: Sequence[Sequence[_Delivery]]) -> list[Sequence[_Delivery] | None]:
    """The next batch of the consumer of each; None: unknown, as for a name under which a batch begins before another has ended:
    it stands for several consumers."""
    by_holder: dict[str | None, list[int]] = defaultdict(list)
    for i, batch in enumerate(batches):
        by_holder[batch[0].holder].append(i)
    found: list[Sequence[_Delivery] | None] = [None] * len(batches)
    for own in by_holder.values():
        pairs = list(zip(own, own[1:], strict=False))
        if all(batches[after][0].received >= _settled(batches[one]) for one, after in pairs):
            for one, after in pairs:
                found[one] = batches[after]
    return found


def _settled(batch: Sequence[_Delivery]) -> int:
    """When its last message was settled."""
    return max((one.until for one in batch if one.result is not Result.VANISHED), default=batch[0].received)


def _usual_prefetch(batches: Sequence[Sequence]) -> int:
    """The largest batch, but for sizes that are less than 1 % of all."""
    sizes = sorted(map(len, batches))
    return sizes[min(len(sizes) - 1, int(len(sizes) * 0.99))]


def _message(row: dict, work: tuple[tuple[int, Result], ...], zero: int) -> Message:
    by_limit = row["reason"] in held.LIMIT_REASONS
    rejected = row["outcome"] in outcomes.WITH_REASON and row["reason"] not in outcomes.BROKER_REASONS
    removed = row["outcome"] in REMOVED and not by_limit and not rejected
    own = row["time_to_live_in_force_us"] if row["outcome"] else row["time_to_live_us"]
    return Message(_us(row["enqueued_at"]) - zero, own, work, _us(row["ended_at"]) - zero if removed else FOREVER)


def _left_waiting(row: dict, zero: int, until: int) -> int:
    at = row["first_received_at"] or row["ended_at"]
    return until if at is None else min(until, _us(at) - zero)


def _actual(rows: Sequence[dict], waiting: Sequence[tuple[int, int]], zero: int, until: int, judged: pa.Table) -> Outcome:
    received = (row["first_received_at"] or (row["outcome"] == outcomes.RECEIVED_AND_DELETED and row["ended_at"]) for row in rows)
    waits = sorted(left - arrived for (arrived, left), was in zip(waiting, received, strict=True) if was)
    changes = [(arrived, 1) for arrived, _ in waiting]
    changes += [(_us(row["ended_at"]) - zero, -1) for row in rows if row["ended_at"]]
    depth = most = 0
    for _, change in sorted(changes):
        depth += change
        most = max(most, depth)
    rejected = [r for r in rows if r["outcome"] in outcomes.WITH_REASON and r["reason"] not in outcomes.BROKER_REASONS]
    return Outcome(
        messages=len(rows),
        processed=sum(row["outcome"] in BY_CONSUMERS for row in rows) + len(rejected),
        expired=sum(row["outcome"] == outcomes.EXPIRED for row in rows),
        dead_lettered=sum(row["reason"] in held.LIMIT_REASONS for row in rows),
        duplicates=None,
        locks_lost=pc.sum(judged["lost"]).as_py() or 0,
        depth=most,
        waiting=waits[min(len(waits) - 1, int(len(waits) * 0.95))] if waits else None,
    )


def _us(at: datetime) -> int:
    return int(at.timestamp()) * 1_000_000 + at.microsecond
