"""The times of messages as histograms, as the tables of jobs have them, and the estimates that reports make from them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from operator import attrgetter
from typing import Any

from ..jobs import measures
from ..survival import Curve
from .report import duration


@dataclass(frozen=True)
class Times:
    """Histograms of microseconds (measures.bin_of): waiting of messages that were received, time of those that were not, and
    processing."""

    waiting: Counter[int] = field(default_factory=Counter)
    absent: Counter[int] = field(default_factory=Counter)
    work: Counter[int] = field(default_factory=Counter)

    def of(self, measure: int) -> Counter[int]:
        """The histogram of a measure."""
        return {measures.WAITING: self.waiting, measures.NEVER_RECEIVED: self.absent, measures.PROCESSING: self.work}[measure]

    @property
    def messages(self) -> int:
        return self.waiting.total() + self.absent.total()

    @cached_property
    def curve(self) -> Curve:
        """The survival estimate of the waiting."""
        return Curve(self.waiting, self.absent)

    def wait(self, share: float) -> timedelta | None:
        """The time within which this share was received; None: that was not observed."""
        return duration(self.curve.quantile(share))

    def processing(self, share: float) -> timedelta | None:
        """The time of processing that this share does not exceed; None: nothing was processed."""
        return duration(percentile(self.work, share))


def times_by(rows: Iterable[Any], *keys: str) -> dict[Any, Times]:
    """The times of each key: the value of a column of the rows, or a tuple of several; without keys, all together under None.
    rows: measure, bins, counts."""
    key_of = attrgetter(*keys) if keys else lambda row: None
    by_key: dict[Any, Times] = {}
    for row in rows:
        by_key.setdefault(key_of(row), Times()).of(row.measure).update(dict(zip(row.bins, row.counts, strict=True)))
    return by_key


def together(times: Iterable[Times]) -> Times:
    """The sum of some."""
    whole = Times()
    for part in times:
        for measure in (measures.WAITING, measures.NEVER_RECEIVED, measures.PROCESSING):
            whole.of(measure).update(part.of(measure))
    return whole


def percentile(histogram: Mapping[int, int], share: float) -> int | None:
    """The value (the middle of its bin) that this share does not exceed; None: there are no values."""
    left = share * sum(histogram.values())
    for number in sorted(histogram):
        left -= histogram[number]
        if left <= 1e-9:
            return round(measures.middle(number))
    return None
