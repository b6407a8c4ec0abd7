"""How long messages wait for their first delivery, also those that were never received: the Kaplan-Meier estimate over bins.

A message that expired, was purged or is still in the queue without having been received has waited at least as long as it was
there. Leaving such messages out would make waiting look shorter than it is; the estimate counts each as long as it was there.
Pure: no query, no clock.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass

from .jobs.measures import lower_bound, middle

FEWEST = 30  # received messages; no estimate is given from fewer
Z95 = 1.959964
TOLERANCE = 1e-9  # of a share, for products
Band = tuple[float, float, float]  # a value, and the ends of its 95 % band


class CannotTell(Exception):
    """The history does not answer the question. The text says why."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """The share of messages that had not been received within some time. low, high: its 95 % confidence band."""

    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class _Step:
    """number: of the bin; until_us: its end; at_risk: messages that were there at its start."""

    number: int
    until_us: int
    share: float
    variance: float  # Greenwood's sum
    at_risk: int


class Curve:
    """The estimate from two histograms of microseconds (measures.bin_of): the waiting of messages that were received, and the
    time in the queue of those that were not."""

    def __init__(self, received: Mapping[int, int], not_received: Mapping[int, int]):
        self.received = sum(received.values())
        self.messages = self.received + sum(not_received.values())
        self._steps: list[_Step] = []
        share, variance, at_risk = 1.0, 0.0, self.messages
        for number in sorted({*received, *not_received}):
            deaths = received.get(number, 0)
            if deaths:
                share *= 1 - deaths / at_risk
                variance += deaths / (at_risk * (at_risk - deaths)) if at_risk > deaths else math.inf
            self._steps.append(_Step(number, lower_bound(number + 1), share if deaths < at_risk else 0.0, variance, at_risk))
            at_risk -= deaths + not_received.get(number, 0)

    @property
    def span_us(self) -> tuple[int, int]:
        """The ends of the first and the last bin with messages."""
        return (self._steps[0].until_us, self._steps[-1].until_us) if self._steps else (1, 1)

    def quantile(self, share: float) -> int | None:
        """The microseconds, to a bin's end, within which this share of the messages was received; None: it was not observed."""
        return next((step.until_us for step in self._steps if step.share <= 1 - share + 1e-12), None)

    def band(self, share: float) -> Band | None:
        """A quantile in microseconds with its 95 % band, by the shares that it has with this probability in the estimate (if all
        were received: its ranks). Infinite: it is longer than was observed. None: there are too few messages."""
        if self.messages < FEWEST:
            return None

        def place(of: float) -> int:
            left = max(0.0, 1 - of) + TOLERANCE
            return next((i for i, step in enumerate(self._steps) if step.share <= left), -1)

        at, variance = place(share), share * (1 - share) / self.messages
        if at >= 0 and (step := self._steps[at]).share > 0:
            variance = max(variance, step.share**2 * step.variance)
        spread = Z95 * math.sqrt(variance)
        low, high = place(share - spread), place(share + spread + 1 / self.messages)
        if low < 0:  # at least as long as enough messages were observed
            low = sum(step.at_risk >= FEWEST for step in self._steps) - 1
        value, least, most = (middle(self._steps[index].number) if index >= 0 else math.inf for index in (at, low, high))
        return value, least, most

    def at(self, microseconds: int) -> Estimate:
        """The share not received within this range; a bin counts only if all of it is below.

        Raises CannotTell if too few messages were received, or if none was observed for so long.
        """
        if self.received < FEWEST:
            raise CannotTell(f"Only {self.received:,} messages were received in this range; an estimate needs at least {FEWEST}.")
        last = self._steps[-1]
        if last.share > 0 and microseconds > last.until_us:
            raise CannotTell("No message of this time was in the queue for so long, so its history cannot tell.")
        step = self._step_at(microseconds)
        if step is None or step.share == 1:
            at_risk = self.messages if step is None else step.at_risk
            return Estimate(1.0, max(0.0, 1 - 3 / at_risk), 1.0)  # none ended: the rule of three
        if step.share <= 0:
            return Estimate(0.0, 0.0, min(1.0, 3 / self.messages))
        spread = Z95 * math.sqrt(step.variance) / abs(math.log(step.share))
        return Estimate(step.share, step.share ** math.exp(spread), step.share ** math.exp(-spread))

    def share_at(self, microseconds: int) -> float:
        """The share not received within this range, also from few messages and beyond what was observed: there it is that of the
        longest time that was. A bin counts only if all of it is below."""
        step = self._step_at(microseconds)
        return 1.0 if step is None else max(step.share, 0.0)

    def _step_at(self, microseconds: int) -> _Step | None:
        at = bisect_right(self._steps, microseconds, key=lambda step: step.until_us)
        return self._steps[at - 1] if at else None
