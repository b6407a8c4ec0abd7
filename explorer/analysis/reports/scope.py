"""What a report is about: queues and a range."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from broker_core.models import Namespace
from broker_core.namespaces import get_clock

from ..jobs.constants import HOUR
from ..jobs.measures import STEP
from ..subject import Subject

MOST_BUCKETS = 24 * 12 + 1  # a day from the beginning of a step
BUCKETS = {
    STEP: "5 minutes", 3 * STEP: "15 minutes", HOUR: "hour", 6 * HOUR: "6 hours", 24 * HOUR: "day", 7 * 24 * HOUR: "week",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Axis:
    """starts: of intervals. partial: which of them are only partly in the range."""

    starts: list[datetime]
    partial: list[bool]


@dataclass(frozen=True, slots=True)
class Range:
    """From the beginning of a step to an instant. finest: the shortest interval that there is of it (jobs/measures.py: AGED)."""

    start: datetime
    end: datetime
    finest: timedelta = STEP

    @property
    def length(self) -> timedelta:
        return self.end - self.start

    @property
    def bucket(self) -> timedelta:
        """The interval of charts: the shortest with which they have few enough points."""
        possible = (bucket for bucket in BUCKETS if bucket >= self.finest and self.length <= MOST_BUCKETS * bucket)
        return next(possible, max(BUCKETS))

    @property
    def unit(self) -> str:
        """The interval in words: "hour", "6 hours"."""
        return BUCKETS[self.bucket]

    @property
    def buckets(self) -> list[datetime]:
        """The starts of the intervals that the range touches."""
        first = floor(self.start, self.bucket)
        return [first + i * self.bucket for i in range(-int((first - self.end) // self.bucket))]

    @property
    def partial(self) -> list[bool]:
        """Which of the intervals are only partly in the range."""
        return [at < self.start or at + self.bucket > self.end for at in self.buckets]

    def before(self, by: timedelta) -> Range:
        """The same range, earlier."""
        return replace(self, start=self.start - by, end=self.end - by)

    def axis(self, since: datetime | None) -> Axis:
        """The intervals of a chart: without those before `since`, the first step of the history that is known."""
        starts, partial = self.buckets, self.partial
        first = next((i for i, at in enumerate(starts) if since and since < at + self.bucket), 0)
        return Axis(starts[first:], partial[first:])

    def __str__(self) -> str:
        return f"{self.start:%Y-%m-%d %H:%M} to {self.end:%Y-%m-%d %H:%M}"


@dataclass(frozen=True)
class Scope(Subject):
    """Adds the range, the time by the namespace's clock, and the range to compare with."""

    range: Range
    now: datetime
    compared: Range | None = None

    @property
    def ranges(self) -> list[Range]:
        """The range, and the one to compare with if there is one."""
        return [self.range, *([self.compared] if self.compared else [])]


def clock_now(namespace: Namespace) -> datetime:
    """The time by a namespace's clock; real time if the namespace was deleted."""
    return datetime.now(UTC) if namespace.deleted_at else get_clock(namespace.name).now


def floor(at: datetime, bucket: timedelta) -> datetime:
    """The start of the interval in which an instant is. Weeks begin on Monday."""
    monday = datetime(1970, 1, 5, tzinfo=UTC)
    return monday + (at - monday) // bucket * bucket
