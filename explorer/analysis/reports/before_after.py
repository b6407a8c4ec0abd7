"""Figures on both sides of an instant, with their bands: quantiles of times, and shares. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from explorer.shared.charts import brief

from ..jobs import measures
from ..survival import FEWEST, Z95
from .attempts import wilson
from .report import percent

TOLERANCE = 1e-9  # of a share, for products
Band = tuple[float, float, float]  # a value, and the ends of its 95 % band


@dataclass(frozen=True, slots=True)
class Metric:
    """A value on both sides of a change, each with its band; None: unknown. Durations are microseconds; infinite: longer than
    was observed."""

    name: str
    is_duration: bool
    before: Band | None
    after: Band | None

    @property
    def differs(self) -> str:
        """In which direction it clearly differs; empty: it does not."""
        if self.before is None or self.after is None:
            return ""
        words = ("longer", "shorter") if self.is_duration else ("more", "less")
        return words[0] if self.after[1] > self.before[2] else words[1] if self.after[2] < self.before[1] else ""

    @property
    def columns(self) -> tuple[Any, ...]:
        """As texts: the name, each side with its band, and how it differs."""
        return self.name, *(self.text(side) or None for side in (self.before, self.after)), self.differs or "no"

    def value(self, side: Band | None) -> str:
        if side is None or not self.is_duration:
            return percent(side[0]) if side else ""
        return _time(side[0]) if math.isfinite(side[0]) else f"over {_time(side[1])}"

    def text(self, side: Band | None) -> str:
        """The value with its band."""
        if side is None:
            return ""
        ends = [percent(one) if not self.is_duration else _time(one) if math.isfinite(one) else "?" for one in side[1:]]
        return f"{self.value(side)} ({ends[0]} – {ends[1]})"

    @property
    def words(self) -> str:
        return f"{self.name} {self.differs} ({self.value(self.before)} → {self.value(self.after)})"


def metrics(times: Mapping[str, Mapping[int, Mapping[int, int]]], shares: Mapping[str, Any]) -> list[Metric]:
    """What is compared. times: by side and measure, histograms. shares: by side, the row of counts; both lack a side without
    messages."""
    found = []
    for name, measure, absent in (
        ("waiting", measures.WAITING, measures.NEVER_RECEIVED), ("processing", measures.PROCESSING, None),
    ):  # fmt: skip
        of = (times.get("before", {}), times.get("after", {}))
        sides = [(one.get(measure, {}), {} if absent is None else one.get(absent, {})) for one in of]
        found += [
            Metric(f"{name}, {words}", True, *(quantile_band(*side, share) for side in sides))
            for words, share in (("median", 0.5), ("95\xa0%", 0.95))
        ]
    for name, part, whole in (
        ("failed deliveries", "failed", "deliveries"), ("lost locks", "lock_lost", "deliveries"), ("lost messages", "lost",
        "left"),
    ):  # fmt: skip
        found.append(Metric(name, False, *(_share(shares.get(side), part, whole) for side in ("before", "after"))))
    return found


def quantile_band(observed: Mapping[int, int], at_least: Mapping[int, int], share: float) -> Band | None:
    """A quantile of times with its 95 % band, by the shares that it has with this probability in the Kaplan-Meier estimate
    (without times that were not observed: its ranks), in microseconds. Infinite: it is longer than was observed. None: there are
    too few. observed, at_least: histograms of times, and of times after which nothing is known."""
    steps = sorted([*((bin_, 0, n) for bin_, n in observed.items()), *((bin_, 1, n) for bin_, n in at_least.items())])
    total = sum(n for *_, n in steps)
    if total < FEWEST:
        return None
    left, variances, risks = _estimate(steps, total)

    def place(of: float) -> int:
        return next((i for i, one in enumerate(left) if one <= max(0.0, 1 - of) + TOLERANCE), -1)

    middle, variance = place(share), share * (1 - share) / total
    if middle >= 0 and left[middle] > 0:
        variance = max(variance, left[middle] ** 2 * variances[middle])
    low, high = (place(of) for of in (share - Z95 * math.sqrt(variance), share + Z95 * math.sqrt(variance) + 1 / total))
    if low < 0:  # at least as long as enough messages were observed
        low = sum(one >= FEWEST for one in risks) - 1
    at, first, last = (measures.middle(steps[one][0]) if one >= 0 else math.inf for one in (middle, low, high))
    return at, first, last


def _estimate(steps: Sequence[tuple[int, int, int]], total: int) -> tuple[list[float], list[float], list[int]]:
    """At each step (bin, whether it was not observed to end, messages): the share that is left, Greenwood's sum, and the messages
    at risk."""
    left, variances, risks, share, variance, at_risk = [], [], [], 1.0, 0.0, total
    for _, is_open, n in steps:
        risks.append(at_risk)
        if not is_open:
            share *= 1 - n / at_risk
            variance += n / (at_risk * (at_risk - n)) if at_risk > n else math.inf
        left.append(share)
        variances.append(variance)
        at_risk -= n
    return left, variances, risks


def histograms(rows: Sequence[Any]) -> dict[tuple[str, int], dict[str, dict[int, Counter[int]]]]:
    """By point and number, then by side and measure. rows: of the table "times" of jobs.reports.incidents."""
    found: dict[tuple[str, int], dict[str, dict[int, Counter[int]]]] = {}
    for row in rows:
        sides = found.setdefault((row.point, row.number), {})
        sides.setdefault(row.side, {})[row.measure] = Counter(dict(zip(row.bins, row.counts, strict=True)))
    return found


def _share(row: Any, part: str, whole: str) -> Band | None:
    count, of = (getattr(row, name) if row else 0 for name in (part, whole))
    return (count / of, *wilson(count, of)) if of >= FEWEST else None


def _time(microseconds: float) -> str:
    return brief(timedelta(microseconds=microseconds))
