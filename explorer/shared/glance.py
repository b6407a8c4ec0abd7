"""The head of an entity's page: its most important settings, and the traffic of the last minutes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker_core.reads import TrafficPoint

TRAFFIC_MINUTES = 30


@dataclass(frozen=True, slots=True)
class Glance:
    """A setting in words. name: its Azure name."""

    name: str
    word: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Spark:
    """A small chart: points of two SVG polylines in `width` by 40 units, and a description."""

    sent: str
    completed: str
    width: int
    words: str


def spark(
    points: Sequence[TrafficPoint], width: int = 600, *, completes: bool = True, words: tuple[str, str] = ("sent", "completed")
) -> Spark | None:
    """The traffic as two lines with a common scale; None without traffic.

    completes: False for an entity that completes no messages. words: the verbs for incoming and outgoing messages.
    """
    highest = max((max(p.sent, p.completed) for p in points), default=0)
    if not highest:
        return None
    step = width / max(1, len(points) - 1)

    def line(values: Sequence[int]) -> str:
        return " ".join(f"{i * step:.1f},{38 - 36 * v / highest:.1f}" for i, v in enumerate(values))

    sent, completed = [p.sent for p in points], [p.completed for p in points]
    both = f"{sum(sent):,} {words[0]} and {sum(completed):,} {words[1]}" if completes else f"{sum(sent):,} published"
    return Spark(line(sent), line(completed), width, f"{both} in the last {TRAFFIC_MINUTES} minutes")
