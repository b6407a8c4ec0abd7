"""What a replay (simulation.py) starts from: the messages of a queue with their work, the consumers that there were, and what
really happened; and resampled blocks of it. Pure, with nothing but the standard library, as workers of a cluster get it by value.

Times are microseconds since the start of the range.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from .simulation import (
    FOREVER,
    History,
    Message,
    Outcome,
    Result,
    Setting,
    absences,
    backlog_share,
    concurrency,
    most_at_once,
    promptness,
    quantiles,
)  # fmt: skip

FEWEST = 30  # deliveries; there is no replay from fewer
WAITED_US = 1000  # a message that was received later than this after its arrival had waited
BLOCKS = 40  # into which a history is cut, at most
FEWEST_BLOCKS = 6  # of a history, else equal ones are cut; and of a resampled one
BACKLOG = 0.05  # share of the waiting behind busy consumers, from which on a queue has a backlog
RESAMPLES = 30  # resampled histories for each band
Z95 = 1.959964


class CannotReplay(Exception):
    """The history is not replayed. The text says why."""


class End(IntEnum):
    """How the stay of a message ended. REMOVED: by an operator, or by the broker for another reason than these."""

    THERE = 0
    PROCESSED = 1
    EXPIRED = 2
    LIMIT = 3
    REMOVED = 4


@dataclass(frozen=True, slots=True)
class Life:
    """received: first; None: never. ended: None: it is still there."""

    number: int
    arrived: int
    received: int | None
    ended: int | None
    end: End
    time_to_live: int | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """place: among the deliveries of its message, from 1 on; None: unknown. until: when its consumer let go or its lock ended.
    result: VANISHED: the lock ended first. lock: at the receipt; None: it does not end by time."""

    number: int
    place: int | None
    received: int
    until: int
    holder: str | None
    result: Result
    lock: int | None = None
    renews: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A settlement that came after the lock had ended: how long the consumer needed. result: as the consumer settled it."""

    number: int
    at: int
    holder: str | None
    result: Result


@dataclass(frozen=True, slots=True)
class Traits:
    """What the queue's family and settings say. deliveries: the maximum in force; None: unlimited. The others: see History."""

    deliveries: int | None
    notices_crashes: bool = False
    by_visibility: bool = False


@dataclass(frozen=True, slots=True)
class Replayable:
    """setting: what was in force, as far as known. actual: what really happened. backlog: of simulation.backlog_share. blocks:
    (from, until) of parts that hardly depend on each other. by_messages, by_waiting: how many effective ones these are for what
    happens to any message, and for what waiting does, of which an outage may have most. late: lost locks whose consumer settled
    later, so that the time that it needed is known. headless: messages whose first delivery is unknown. waits:
    how long each message waited, at least, and whether it was received then."""

    history: History
    setting: Setting
    actual: Outcome
    backlog: float
    blocks: Sequence[tuple[int, int]]
    by_messages: float
    by_waiting: float
    late: int
    headless: int
    waits: Sequence[tuple[int, bool]] = ()

    @property
    def has_backlog(self) -> bool:
        """Whether waiting depends on the messages before, so that an estimate without feedback is wrong."""
        return self.backlog >= BACKLOG


def replayable(
    lives: Iterable[Life],
    deliveries: Iterable[Delivery],
    refusals: Iterable[Refusal],
    until: int,
    traits: Traits,
    within: int = 60_000_000,
) -> Replayable:
    """The history in the rows of one queue. until: the end of the range. Raises CannotReplay for too few deliveries."""
    rows = sorted(lives, key=lambda life: (life.arrived, life.number))
    in_order = sorted(deliveries, key=lambda delivery: (delivery.received, delivery.number))
    if len(in_order) < FEWEST:
        raise CannotReplay(
            f"Only {len(in_order):,} deliveries are known; a replay needs at least {FEWEST}, at the history level full."
        )
    known, late = with_needed_times(in_order, refusals)
    batches = _batches(known)
    work, working = _work(batches, {row.number: row.arrived for row in rows}, tells_late=late > 0)
    first = _first_places(in_order)
    consumers = concurrency(working)
    waiting = [(row.arrived, _left_waiting(row, until)) for row in rows]
    renewing = {delivery.number for delivery in in_order if delivery.renews}
    messages = [_message(row, work.get(row.number, ()), first.get(row.number, 1), row.number in renewing) for row in rows]
    locks = Counter(delivery.lock for delivery in in_order if delivery.lock is not None)
    setting = Setting(
        consumers=consumers,
        prefetch=_usual_prefetch(batches),
        lock=locks.most_common(1)[0][0] if locks else None,
        deliveries=traits.deliveries,
    )
    history = History(
        messages, absences(waiting, working, consumers), until, traits.notices_crashes, traits.by_visibility
    )  # fmt: skip
    blocks = blocks_of(waiting, until)
    by_messages = effective_blocks(blocks, [(arrived, 1) for arrived, _ in waiting])
    by_waiting = effective_blocks(blocks, [(arrived, left - arrived) for arrived, left in waiting])
    return Replayable(
        history, setting, _actual(rows, in_order, until, within), backlog_share(waiting, working, consumers), blocks, by_messages,
        by_waiting, late, sum(place > 1 for place in first.values()),
        [(left - row.arrived, row.received is not None) for row, (_, left) in zip(rows, waiting, strict=True)],
    )  # fmt: skip


def with_needed_times(deliveries: Sequence[Delivery], refusals: Iterable[Refusal]) -> tuple[list[Delivery], int]:
    """The deliveries; of those whose lock was lost and whose consumer settled later, until that settlement and with its result.
    Also how many these are. deliveries: in the order of their receipt."""
    lost: dict[tuple[int, str | None], list[int]] = defaultdict(list)
    for at, delivery in enumerate(deliveries):
        if delivery.result is Result.VANISHED:
            lost[delivery.number, delivery.holder].append(at)
    corrected = list(deliveries)
    late = 0
    for refusal in sorted(refusals, key=lambda refusal: refusal.at):
        candidates = [at for at in lost.get((refusal.number, refusal.holder), ()) if deliveries[at].until <= refusal.at]
        if candidates and corrected[candidates[0]] is deliveries[candidates[0]]:  # the oldest one that is not matched yet
            corrected[candidates[0]] = replace(deliveries[candidates[0]], until=refusal.at, result=refusal.result)
            lost[refusal.number, refusal.holder].remove(candidates[0])
            late += 1
    return corrected, late


def blocks_of(waiting: Sequence[tuple[int, int]], until: int) -> list[tuple[int, int]]:
    """Parts of a range that are cut where nothing waits, so that an outage is in one part with the messages that it delayed. At
    most BLOCKS of them; equal ones if there are too few such moments. waiting: (arrived, first received or gone)."""
    end = min(until, max((left for _, left in waiting), default=until) + 1)
    changes = sorted([(at, 1) for at, _ in waiting] + [(left, -1) for _, left in waiting])
    cuts, waiting_count = [0], 0
    for at, change in changes:
        if change > 0 and not waiting_count and at - cuts[-1] >= end / BLOCKS:
            cuts.append(at)
        waiting_count += change
    if len(cuts) < FEWEST_BLOCKS:
        cuts = [end * i // FEWEST_BLOCKS // 2 for i in range(2 * FEWEST_BLOCKS)]
    return [(start, stop) for start, stop in zip(cuts, [*cuts[1:], end], strict=True) if stop > start]


def resampled(replayable_history: Replayable, draw: random.Random, most: int) -> History:
    """A history of blocks drawn with replacement: as many as there are, or until it has `most` messages and some blocks."""
    history = replayable_history.history
    arrived = [message.arrived for message in history.messages]
    starts = [start for start, _, _ in history.absences]
    messages: list[Message] = []
    absent: list[tuple[int, int, float]] = []
    at = 0
    for count in range(1, len(replayable_history.blocks) + 1):
        start, stop = draw.choice(replayable_history.blocks)
        by = at - start
        messages += [
            _moved(message, by) for message in history.messages[bisect_left(arrived, start) : bisect_left(arrived, stop)]
        ]
        first = max(0, bisect_right(starts, start) - 1)
        for since, over, share in history.absences[first : bisect_left(starts, stop)]:
            if min(over, stop) > max(since, start):
                absent.append((max(since, start) + by, min(over, stop) + by, share))
        at += stop - start
        if len(messages) >= most and count >= FEWEST_BLOCKS:
            break
    return replace(history, messages=messages, absences=absent, until=at)


def effective_blocks(blocks: Sequence[tuple[int, int]], weights: Sequence[tuple[int, float]]) -> float:
    """How many blocks of equal weight say as much as these, of which heavy ones count more. weights: (instant, weight), in
    order."""
    at = [instant for instant, _ in weights]
    inside = [sum(weight for _, weight in weights[bisect_left(at, start) : bisect_left(at, stop)]) for start, stop in blocks]
    return sum(inside) ** 2 / (sum(weight**2 for weight in inside) or 1)


def share_band(share: float, again: Sequence[float], count: int, blocks: float, scale: float = 1.0) -> tuple[float, float]:
    """The 95 % band of a share of `count`, from those of resampled histories, on the logit scale. blocks: how many effective ones
    they were drawn from. scale: the square root of how long they are, as a part of the history."""
    near = (share * count + 0.5) / (count + 1)
    width = _half_width(again, blocks) * scale
    middle, spread = math.log(near / (1 - near)), width / (near * (1 - near))
    low, high = (1 / (1 + math.exp(min(700.0, -logit))) for logit in (middle - spread, middle + spread))
    low, high = max(low, share - 2 * width), min(high, share + 2 * width)  # the scale exaggerates near 0 and 1
    if share <= 0:
        low, high = 0.0, max(high, min(1.0, 3 / max(1, count)))  # the rule of three
    if share >= 1:
        low, high = min(low, max(0.0, 1 - 3 / max(1, count))), 1.0
    return min(low, share), max(high, share)


def amount_band(amount: float, again: Sequence[float], blocks: float, scale: float = 1.0) -> tuple[float, float]:
    """The 95 % band of a duration or a number, on a logarithmic scale."""
    spread, middle = _half_width([math.log1p(other) for other in again], blocks) * scale, math.log1p(amount)
    return max(0.0, math.expm1(middle - spread)), math.expm1(min(middle + spread, 700.0))


def _half_width(values: Sequence[float], blocks: float) -> float:
    """Half the width of a 95 % band: Student's t of few blocks, whose resampling shows a part of the variance only."""
    if len(values) < 2:
        return 0.0
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1)
    free = max(2.0, blocks - 1)
    quantile = Z95 + (Z95**3 + Z95) / (4 * free) + (5 * Z95**5 + 16 * Z95**3 + 3 * Z95) / (96 * free**2)
    return quantile * math.sqrt(variance * (1 + 1 / free))


def _moved(message: Message, by: int) -> Message:
    removed = message.removed if message.removed == FOREVER else message.removed + by
    return replace(message, arrived=message.arrived + by, removed=removed)


def _first_places(deliveries: Iterable[Delivery]) -> dict[int, int]:
    """The place of the first known delivery of each message."""
    places: dict[int, int] = {}
    for delivery in deliveries:
        places.setdefault(delivery.number, delivery.place or 1)
    return places


def _batches(deliveries: Sequence[Delivery]) -> list[list[Delivery]]:
    """Deliveries that a consumer got at once, in the order in which it ended them."""
    batches: dict[tuple[int, str | None], list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        batches[delivery.received, delivery.holder].append(delivery)
    return [
        sorted(batch, key=lambda delivery: (delivery.until, delivery.number))
        for _, batch in sorted(batches.items(), key=lambda item: item[0][0])
    ]


def _work(
    batches: Sequence[Sequence[Delivery]], arrived: Mapping[int, int], *, tells_late: bool
) -> tuple[dict[int, tuple[tuple[int, Result], ...]], list[tuple[int, int]]]:
    """By message, the work of its deliveries; and when consumers worked.

    Messages of a batch are worked on one after the other. Of a delivery whose lock was lost without a later settlement nothing is
    known but its least work. If other consumers did settle late (tells_late), its consumer vanished; else it gets the work of
    another delivery that was longer, or if there was none, its consumer vanished. If messages waited when its consumer received
    again, the consumer had worked until then.
    """
    timed = [list(_times(batch)) for batch in batches]
    known = sorted(work for batch in timed for delivery, work in batch if delivery.result is not Result.VANISHED)
    draw = random.Random(1)
    work_of: dict[int, list[tuple[int, Result]]] = defaultdict(list)
    working = []
    for batch, after in zip(timed, _following(batches), strict=True):
        begun, own = batch[0][0].received, sum(least for delivery, least in batch if delivery.result is not Result.VANISHED)
        lost = {delivery.number: least for delivery, least in batch if delivery.result is Result.VANISHED}
        if tells_late:
            lost = dict.fromkeys(lost, 0)
        needed = {number: _longer(known, least, draw) for number, least in lost.items()}
        if lost and after is not None:
            waited = any(arrived.get(delivery.number, delivery.received) < delivery.received - WAITED_US for delivery in after)
            needed = _fitted(lost, needed, after[0].received - begun - own, waited)
        for delivery, least in batch:
            is_slow = not tells_late and needed.get(delivery.number, 0) > least
            work_of[delivery.number].append((needed.get(delivery.number, least), Result.WELL if is_slow else delivery.result))
        working.append((begun, begun + own + sum(needed.values())))
    return {number: tuple(each) for number, each in work_of.items()}, working


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


def _times(batch: Sequence[Delivery]) -> Iterable[tuple[Delivery, int]]:
    """How long the consumer of a batch worked on each of its messages, at least if the lock was lost. Settlements at the same
    instant share the time; of locks that ended together, the first message had all of it."""
    settled = Counter(delivery.until for delivery in batch if delivery.result is not Result.VANISHED)
    before = batch[0].received
    for i, delivery in enumerate(batch):
        if i and delivery.until != batch[i - 1].until:
            before = batch[i - 1].until
        if delivery.result is not Result.VANISHED:
            yield delivery, (delivery.until - before) // settled[delivery.until]
        else:
            yield delivery, delivery.until - before
            before = delivery.until


def _following(batches: Sequence[Sequence[Delivery]]) -> list[Sequence[Delivery] | None]:
    """The next batch of the consumer of each; None: unknown, as for a name under which a batch begins before another has ended:
    it stands for several consumers."""
    by_holder: dict[str | None, list[int]] = defaultdict(list)
    for i, batch in enumerate(batches):
        by_holder[batch[0].holder].append(i)
    following: list[Sequence[Delivery] | None] = [None] * len(batches)
    for own in by_holder.values():
        pairs = list(zip(own, own[1:], strict=False))
        if all(batches[after][0].received >= _settled(batches[earlier]) for earlier, after in pairs):
            for earlier, after in pairs:
                following[earlier] = batches[after]
    return following


def _settled(batch: Sequence[Delivery]) -> int:
    """When its last message was settled."""
    return max((delivery.until for delivery in batch if delivery.result is not Result.VANISHED), default=batch[0].received)


def _usual_prefetch(batches: Sequence[Sequence[Delivery]]) -> int:
    """The largest batch, but for sizes that are less than 1 % of all."""
    sizes = sorted(map(len, batches))
    return sizes[min(len(sizes) - 1, int(len(sizes) * 0.99))]


def _message(row: Life, work: tuple[tuple[int, Result], ...], first: int, renews: bool) -> Message:
    """Deliveries before the first known one failed, or there would be no second one."""
    unknown = ((work[0][0], Result.FAILED),) * (first - 1) if work else ()
    removed = row.ended if row.end is End.REMOVED and row.ended is not None else FOREVER
    return Message(row.arrived, row.time_to_live, unknown + work, removed, renews)


def _left_waiting(row: Life, until: int) -> int:
    at = row.received if row.received is not None else row.ended
    return until if at is None else min(until, at)


def _actual(rows: Sequence[Life], deliveries: Sequence[Delivery], until: int, within: int) -> Outcome:
    by_end = Counter(row.end for row in rows)
    prompt, due = promptness(((row.arrived, row.received, row.ended) for row in rows), until, within)
    return Outcome(
        messages=len(rows),
        processed=by_end[End.PROCESSED],
        expired=by_end[End.EXPIRED],
        unreceived=sum(row.end is End.EXPIRED and row.received is None for row in rows),
        dead_lettered=by_end[End.LIMIT],
        duplicates=None,
        deliveries=len(deliveries),
        locks_lost=sum(delivery.result is Result.VANISHED for delivery in deliveries),
        depth=most_at_once((row.arrived, row.ended) for row in rows),
        waiting=quantiles(row.received - row.arrived for row in rows if row.received is not None),
        prompt=prompt,
        due=due,
    )
