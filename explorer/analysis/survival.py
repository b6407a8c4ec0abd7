"""How long messages wait for their first delivery, also those that were never received: the Kaplan-Meier estimate over bins.

A message that expired, was purged or is still in the queue without having been received has waited at least as long as it was
there. Leaving such messages out would make waiting look shorter than it is; the estimate counts each as long as it was there.
Pure: no query, no clock.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from .jobs.measures import lower_bound

FEWEST = 30  # received messages; no estimate is given from fewer
Z95 = 1.959964


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
    """until_us: the bin's end; at_risk: messages that were there at its start."""

    until_us: int
    share: float
    variance: float  # Greenwood's sum
    at_risk: int


class Curve:
    """The estimate from two histograms of microseconds (measures.bin_of): the waiting of messages that were received, and the
    time in the queue of those that were not."""

    def __init__(self, received: Mapping[int, int], not_received: Mapping[int, int]):
        self.received, self.not_received = sum(received.values()), sum(not_received.values())
        self.messages = self.received + self.not_received
        self._steps: list[_Step] = []
        share, variance, at_risk = 1.0, 0.0, self.messages
        for number in sorted({*received, *not_received}):
            deaths = received.get(number, 0)
            if deaths:
                share *= 1 - deaths / at_risk
                variance += deaths / (at_risk * (at_risk - deaths)) if at_risk > deaths else math.inf
            self._steps.append(_Step(lower_bound(number + 1), share if deaths < at_risk else 0.0, variance, at_risk))
            at_risk -= deaths + not_received.get(number, 0)

    @property
    def span_us(self) -> tuple[int, int]:
        """The ends of the first and the last bin with messages."""
        return (self._steps[0].until_us, self._steps[-1].until_us) if self._steps else (1, 1)

    def quantile(self, share: float) -> int | None:
        """The microseconds, to a bin's end, within which this share of the messages was received; None: it was not observed."""
        return next((step.until_us for step in self._steps if step.share <= 1 - share + 1e-12), None)

    def at(self, microseconds: int) -> Estimate:
        """The share not received within this time; a bin counts only if all of it is below.

        Raises CannotTell if too few messages were received, or if none was observed for so long.
        """
        if self.received < FEWEST:
            raise CannotTell(f"Only {self.received:,} messages were received in this time; an estimate needs at least {FEWEST}.")
        below = [step for step in self._steps if step.until_us <= microseconds]
        last = self._steps[-1]
        if len(below) == len(self._steps) and last.share > 0 and microseconds > last.until_us:
            raise CannotTell("No message of this time was in the queue for so long, so its history cannot tell.")
        if not below or below[-1].share == 1:
            return Estimate(1.0, max(0.0, 1 - 3 / self.messages), 1.0)  # no delivery observed: the rule of three
        step = below[-1]
        if step.share <= 0:
            return Estimate(0.0, 0.0, min(1.0, 3 / self.messages))
        spread = Z95 * math.sqrt(step.variance) / abs(math.log(step.share))
        return Estimate(step.share, step.share ** math.exp(spread), step.share ** math.exp(-spread))
