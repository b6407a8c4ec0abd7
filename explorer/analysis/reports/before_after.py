"""Figures on both sides of an instant, with their bands: quantiles of times, and shares. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from explorer.charts.labels import brief

from ..survival import FEWEST, Band, Curve
from .attempts import wilson
from .report import percent
from .times import Times


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
        ends = [percent(bound) if not self.is_duration else _time(bound) if math.isfinite(bound) else "?" for bound in side[1:]]
        return f"{self.value(side)} ({ends[0]} – {ends[1]})"

    @property
    def words(self) -> str:
        return f"{self.name} {self.differs} ({self.value(self.before)} → {self.value(self.after)})"


def metrics(times: Sequence[Times], shares: Sequence[Any]) -> list[Metric]:
    """What is compared: the times before and after, and the rows of counts. None: there is no such row."""
    curves = {"waiting": [entry.curve for entry in times], "processing": [Curve(entry.work, {}) for entry in times]}
    all_metrics = [
        Metric(f"{name}, {words}", True, *(curve.band(share) for curve in sides))
        for name, sides in curves.items()
        for words, share in (("median", 0.5), ("95\xa0%", 0.95))
    ]
    for name, part, whole in (
        ("failed deliveries", "failed", "deliveries"),
        ("lost locks", "lock_lost", "deliveries"),
        ("lost messages", "lost", "left"),
    ):
        all_metrics.append(Metric(name, False, *(_share(row, part, whole) for row in shares)))
    return all_metrics


def _share(row: Any, part: str, whole: str) -> Band | None:
    count, of = (getattr(row, name) if row else 0 for name in (part, whole))
    return (count / of, *wilson(count, of)) if of >= FEWEST else None


def _time(microseconds: float) -> str:
    return brief(timedelta(microseconds=microseconds))
