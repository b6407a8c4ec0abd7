"""Traffic by interval: what came in and went out, the depth, and how long messages waited and were processed."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Any

from broker_core.common.errors import EntityNotFound, InvalidArgument
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, use_case

from .shared import entity_id_of, require

MOST_MINUTES = 90 * 1440  # hours are kept for 90 days
MOST_POINTS = 180
WIDTHS = (10, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200)  # seconds of an interval
RECENT_MINUTES = 30
_STEPS = (3600, 60, 10)  # seconds of the stored intervals


@dataclass(frozen=True, slots=True)
class Times:
    """How long something took, in seconds. total, most: of all. classes: how many took less than 1 ms, and then less than
    2^(i/2) ms, as in vitrine_traffic."""

    total: float = 0.0
    most: float = 0.0
    classes: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return sum(self.classes)

    @property
    def mean(self) -> timedelta | None:
        return timedelta(seconds=self.total / self.count) if self.count else None

    @property
    def maximum(self) -> timedelta | None:
        return timedelta(seconds=self.most) if self.count else None

    def percentile(self, share: float) -> timedelta | None:
        """The duration that `share` of them took at most, interpolated within its class (at most a fifth off); None: of none."""
        rank, below = share * self.count, 0
        for i, n in enumerate(self.classes):
            if n and below + n >= rank:
                low, high = (2 ** ((i - 1) / 2) if i else 0.0), 2 ** (i / 2)
                milliseconds = low + (high - low) * (rank - below) / n
                return timedelta(seconds=min(milliseconds / 1000, self.most))
            below += n
        return None

    def __add__(self, other: Times) -> Times:
        classes = tuple(a + b for a, b in zip_longest(self.classes, other.classes, fillvalue=0))
        return Times(self.total + other.total, max(self.most, other.most), classes)


@dataclass(frozen=True, slots=True)
class TrafficPoint:
    """Messages in one interval that begins at `at` (database's clock) and lasts `seconds`.

    dead_lettered: to a dead-letter queue or exchange, or to a poison queue. active, dead: how many there were at its end; of a
    namespace, those in queues that collect dead letters are both.
    waiting, processing: of the messages completed in it: until the first receive, and from the last receive to completion.
    oldest: the age of an entity's oldest active message at its end; 0: it had none; None: not known, as for several entities.
    partial: it has not ended.
    """

    at: datetime
    seconds: int
    sent: int
    completed: int
    dead_lettered: int
    received: int = 0
    expired: int = 0
    abandoned: int = 0
    active: int = 0
    dead: int = 0
    waiting: Times = Times()
    processing: Times = Times()
    oldest: timedelta | None = None
    partial: bool = False


@dataclass(frozen=True, slots=True)
class Recent:
    """What came in and went out in each of the last RECENT_MINUTES minutes, oldest first; the last is not over. active_changes,
    dead_changes: how many active messages and dead letters more there were after it than before."""

    sent: tuple[int, ...] = (0,) * RECENT_MINUTES
    completed: tuple[int, ...] = (0,) * RECENT_MINUTES
    active_changes: tuple[int, ...] = (0,) * RECENT_MINUTES
    dead_changes: tuple[int, ...] = (0,) * RECENT_MINUTES


@use_case
def traffic(address: EntityAddress, minutes: int = 15, *, actor: Actor | None = None) -> Steps[list[TrafficPoint]]:
    """The entity's traffic of the last minutes in at most 180 equal intervals, oldest first, without gaps; the last one is not
    over. Raises EntityNotFound."""
    require(actor, Right.BROWSE, address)
    _check(minutes)
    return (yield from _points([(yield from entity_id_of(address))], minutes, with_oldest=True))


def _added(results: list[list[TrafficPoint]]) -> list[TrafficPoint]:
    return [_sum(points) for points in zip(*results, strict=False)]


@use_case(combine=_added)
def namespace_traffic(namespace: str | None, minutes: int = 15, *, actor: Actor | None = None) -> Steps[list[TrafficPoint]]:
    """The same of all entities of a namespace, or of all namespaces but Vitrine's own. A message that a topic published counts
    once for each copy. What is in poison queues, and in queues that only collect dead letters, is dead. Raises EntityNotFound."""
    require(actor, Right.BROWSE, namespace or "all namespaces")
    _check(minutes)
    rows = yield call("read_traffic_namespaces", namespace=namespace)
    if namespace is not None and not rows:
        raise EntityNotFound(namespace, "namespace")
    points = yield from _points([-row.id for row in rows], minutes)
    collecting = yield call("read_collecting_queues", namespace_ids=[row.id for row in rows])
    if not collecting:
        return points
    collected = {point.at: point.active for point in (yield from _points([row.id for row in collecting], minutes))}
    return [replace(point, dead=point.dead + collected.get(point.at, 0)) for point in points]


@use_case(namespace=WHOLE_DATABASE)
def recent_traffic(ids: Sequence[int], *, actor: Actor | None = None) -> Steps[dict[int, Recent]]:
    """The traffic of the last half hour of these entities by their id, without those that had none."""
    require(actor, Right.BROWSE, "entities")
    first = int(time.time()) // 60 - RECENT_MINUTES + 1
    rows = yield call("read_recent_traffic", ids=list(ids), since=datetime.fromtimestamp(first * 60, UTC))
    sums: dict[int, list[list[int]]] = {}
    for row in rows:
        place = int(row.at.timestamp()) // 60 - first
        if not 0 <= place < RECENT_MINUTES:  # the database's clock differs from this process's
            continue
        columns = sums.setdefault(row.entity_id, [[0] * RECENT_MINUTES for _ in range(4)])
        for column, count in zip(columns, (row.sent, row.completed, row.active_change, row.dead_change), strict=True):
            column[place] += count
    return {entity_id: Recent(*map(tuple, columns)) for entity_id, columns in sums.items()}


def _check(minutes: int) -> None:
    if not 1 <= minutes <= MOST_MINUTES:
        raise InvalidArgument("minutes", f"{minutes!r} must be a whole number from 1 to {MOST_MINUTES:,}: kept for 90 days")


def _points(ids: list[int], minutes: int, *, with_oldest: bool = False) -> Steps[list[TrafficPoint]]:
    width = next((width for width in WIDTHS if minutes * 60 / width <= MOST_POINTS), WIDTHS[-1])
    step = next(step for step in _STEPS if step <= width)
    end = int(time.time()) // width * width
    begin = end - (math.ceil(minutes * 60 / width) - 1) * width
    rows = yield call("read_traffic", ids=ids, step=step, width=width, since=datetime.fromtimestamp(begin, UTC))
    known = {row.at: row for row in rows if row.at is not None}
    active, dead = rows[0].active_now, rows[0].dead_now
    points = []
    for start in range(max([end, *(int(at.timestamp()) for at in known)]), begin - width, -width):  # clocks may differ a little
        at = datetime.fromtimestamp(start, UTC)
        row = known.get(at)
        points.append(_point(at, width, row, active, dead, partial=start >= end))
        if row:
            active, dead = active - int(row.active_change), dead - int(row.dead_change)
    points = points[-math.ceil(minutes * 60 / width) :][::-1]
    return (
        _with_oldest(points, {at: row.oldest_at for at, row in known.items()}, rows[0].oldest_before) if with_oldest else points
    )


def _with_oldest(
    points: Sequence[TrafficPoint], known: Mapping[datetime, datetime | None], last: datetime | None
) -> list[TrafficPoint]:
    """The points with the age of the oldest message. known, last: since when it waits at the end of an interval with traffic, and
    before the first; None: unknown. Without traffic it is the same message as before."""
    with_ages = []
    for point in points:
        last = known.get(point.at, last) if point.active else None
        end = min(point.at + timedelta(seconds=point.seconds), datetime.now(UTC))
        age = timedelta() if not point.active else None if last is None else max(end - last, timedelta())
        with_ages.append(replace(point, oldest=age))
    return with_ages


def _point(at: datetime, width: int, row: Any, active: int, dead: int, *, partial: bool) -> TrafficPoint:
    if row is None:
        return TrafficPoint(at, width, 0, 0, 0, active=active, dead=dead, partial=partial)
    return TrafficPoint(
        at=at,
        seconds=width,
        sent=int(row.sent),
        completed=int(row.completed),
        dead_lettered=int(row.dead_lettered),
        received=int(row.received),
        expired=int(row.expired),
        abandoned=int(row.abandoned),
        active=active,
        dead=dead,
        waiting=Times(row.waiting_sum, row.waiting_max, tuple(row.waiting)),
        processing=Times(row.processing_sum, row.processing_max, tuple(row.processing)),
        partial=partial,
    )


def _sum(points: Sequence[TrafficPoint]) -> TrafficPoint:
    """Points of the same interval added up."""
    first = points[0]
    return TrafficPoint(
        at=first.at,
        seconds=first.seconds,
        sent=sum(p.sent for p in points),
        completed=sum(p.completed for p in points),
        dead_lettered=sum(p.dead_lettered for p in points),
        received=sum(p.received for p in points),
        expired=sum(p.expired for p in points),
        abandoned=sum(p.abandoned for p in points),
        active=sum(p.active for p in points),
        dead=sum(p.dead for p in points),
        waiting=sum((p.waiting for p in points), Times()),
        processing=sum((p.processing for p in points), Times()),
        partial=first.partial,
    )
