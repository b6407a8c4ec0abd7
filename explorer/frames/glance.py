"""The facts at the top of an entity's page: its most important settings, and the traffic of the last minutes. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from broker_core.reads import TrafficPoint

TRAFFIC_MINUTES = 30
WIDTH, HEIGHT = 220, 38  # of the chart's plot, in units of its SVG
_STEPS = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Glance:
    """A setting in words. name: its name in the family's documentation. is_default: whether nobody has set it."""

    name: str
    word: str
    value: str
    source: str
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class Spark:
    """A small chart of messages per minute: points of two SVG polylines in a plot of `WIDTH` by `HEIGHT` units.

    top: the value at the upper edge of the plot. words: a description. both: whether there are outgoing messages.
    """

    sent: str
    completed: str
    top: int
    words: str
    both: bool


def spark(
    points: Sequence[TrafficPoint], *, completes: bool = True, words: tuple[str, str] = ("sent", "completed")
) -> Spark | None:
    """The traffic as two lines with a common scale; None without traffic.

    completes: False for an entity that completes no messages. words: the verbs for incoming and outgoing messages.
    """
    sent, completed = by_minute(points, lambda p: p.sent), by_minute(points, lambda p: p.completed)
    highest = max([*sent, *completed], default=0)
    if not highest:
        return None
    top = rounded_up(highest)
    described = f"{sum(sent):,} {words[0]} and {sum(completed):,} {words[1]}" if completes else f"{sum(sent):,} published"
    return Spark(
        _line(sent, top), _line(completed, top), top, f"{described} in the last {TRAFFIC_MINUTES} minutes", completes
    )  # fmt: skip


def by_minute(points: Sequence[TrafficPoint], count) -> list[int]:
    """The counts added up by minute, oldest first. The last minute ends with the last point."""
    if not points:
        return []
    size = max(1, 60 // points[0].seconds)
    counts = [count(point) for point in points]
    first = len(counts) % size
    starts = [0, *range(first, len(counts), size)] if first else [*range(0, len(counts), size)]
    return [sum(counts[begin:end]) for begin, end in zip(starts, [*starts[1:], len(counts)], strict=True)]


def rounded_up(highest: int) -> int:
    """The next number of the form 1, 2 or 5 times a power of ten, as the upper end of an axis."""
    power = 10 ** (len(str(highest)) - 1)
    return next(step * power for step in (*_STEPS, 10) if step * power >= highest)


def _line(values: Sequence[int], top: int) -> str:
    step = WIDTH / max(1, len(values) - 1)
    return " ".join(f"{i * step:.0f},{HEIGHT - HEIGHT * value / top:.1f}" for i, value in enumerate(values))
