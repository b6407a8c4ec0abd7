"""Times without overlaps, such as those in which a receiver held a message, and how much of a range they cover."""

from __future__ import annotations

from bisect import bisect_right
from datetime import datetime, timedelta
from itertools import accumulate, pairwise

import pyarrow as pa
import pyarrow.compute as pc

from . import attempts
from .scope import Range


class Spans:
    """The times that any of some others cover, without overlaps, in order."""

    def __init__(self, since: pa.Array, until: pa.Array):
        """since, until: instants, when each of the others began and ended."""
        order = pc.array_sort_indices(since)
        since, until = (pc.cast(one, pa.int64()).take(order) for one in (since, until))
        until = pc.cumulative_max(until)
        begins = pa.concat_arrays([pa.array([True]), pc.greater(since[1:], until[:-1])])
        ends = pa.concat_arrays([begins[1:], pa.array([True])])
        self._since, self._until = since.filter(begins).to_pylist(), until.filter(ends).to_pylist()
        lengths = (until - since for since, until in zip(self._since, self._until, strict=True))
        self._sums = list(accumulate(lengths, initial=0))

    @property
    def first(self) -> datetime:
        return attempts.instant(self._since[0])

    def before(self, at: datetime) -> timedelta:
        """How much of them is before an instant."""
        until = attempts.microseconds(at)
        place = bisect_right(self._since, until)
        over = max(0, self._until[place - 1] - until) if place else 0
        return timedelta(microseconds=self._sums[place] - over)

    def shares(self, span: Range) -> list[float]:
        """The share of each interval of a range that they cover."""
        bounds = [self.before(at) for at in (*span.buckets, span.buckets[-1] + span.bucket)]
        return [(until - since) / span.bucket for since, until in pairwise(bounds)]
