"""A chart as data, in units of its view box: templates draw it as SVG, and the style sheet sets the colors. Pure.

Each chart of a page is made in two widths: for a card or a column, and for phones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .axis import Tick
from .series import Shape

WIDTHS = {"wide": 1060, "narrow": 340}  # of a chart that fills a card
COLUMN_WIDTHS = {"column": 520, "narrow": 340}  # of one that stands beside another
HEIGHT = 210
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 10, 26  # margins of the plot


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the plot in its full height: a hatched interval, of which the range covers only a part, or an invisible column
    with a tooltip."""

    x: float
    width: float
    title: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A vertical line at an instant. letter: its name in the legend, in a circle at y below the top."""

    x: float
    letter: str
    text: str
    y: float = 0.0


def placed_marks(marks: Iterable[tuple[float, str, str]], size: float = 17) -> tuple[Mark, ...]:
    """Marks from their positions; the circle of one that is close to the one before is below it."""
    placed: list[Mark] = []
    for x, letter, text in marks:
        is_close = bool(placed) and x - placed[-1].x < size
        placed.append(Mark(x, letter, text, placed[-1].y + size if is_close else 0.0))
    return tuple(placed)


@dataclass(frozen=True, slots=True)
class Chart:
    """left, right, top, bottom: of the plot. slot: the width of an interval, of which there are `buckets`. cells: of a heat map,
    from the plot's upper left corner, each `slot` wide and `down` high. before: the width of the time before its data began."""

    variant: str
    width: int
    height: int
    left: float
    right: float
    top: float
    bottom: float
    shapes: Sequence[Shape]
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    spots: Sequence[Span] = ()
    bands: Sequence[Span] = ()
    marks: Sequence[Mark] = ()
    cells: Sequence[Shape] = ()
    down: float = 0.0
    before: float = 0.0
    slot: float = 0.0
    buckets: int = 0

    @property
    def plot_height(self) -> float:
        return self.bottom - self.top
