"""Series as the data of SVG paths: lines, areas, bars, and the cells of heat maps. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

Point = tuple[float, float]
LEVELS = 5  # of a heat map


@dataclass(frozen=True, slots=True)
class Shape:
    """A series, or a part of one. name: its CSS class. title: its tooltip."""

    name: str
    path: str
    title: str = ""


def line(points: Iterable[Point | None], *, dash: float = 0.0, is_stepped: bool = False) -> str:
    """Through the points; None interrupts it. dash: of a lone point to both sides. is_stepped: each value lasts to the next."""
    return "".join(
        f"M{run[0][0] - dash:.1f} {run[0][1]:.1f}H{run[0][0] + dash:.1f}" if dash and len(run) == 1 else _joined(run, is_stepped)
        for run in _runs(points)
    )


def area(points: Iterable[Point | None], bottom: float, *, is_stepped: bool = False) -> str:
    """From the bottom to such a line."""
    return "".join(f"{_joined(run, is_stepped)}V{bottom:.1f}H{run[0][0]:.1f}z" for run in _runs(points))


def bar(left: float, right: float, low: float, high: float) -> str:
    """A bar from one height to another."""
    return f"M{left:.1f} {low:.1f}V{high:.1f}H{right:.1f}V{low:.1f}z"


def _runs(points: Iterable[Point | None]) -> list[list[Point]]:
    """The points between interruptions."""
    groups = groupby(points, key=lambda point: point is None)
    return [[point for point in group if point] for is_gap, group in groups if not is_gap]


def _joined(run: Sequence[Point], is_stepped: bool) -> str:
    (x, y), *others = run
    return f"M{x:.1f} {y:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" if is_stepped else f"L{x:.1f} {y:.1f}" for x, y in others)


def cells(values: Mapping[tuple[int, int], float], *, is_linear: bool = False) -> list[Shape]:
    """The cells (column, row) of a heat map by level, from few to many on a logarithmic scale (or by share), in units of a column
    and a row. Runs of equal neighbours are one line."""
    most = max(values.values(), default=1)

    def level(value: float) -> int:
        share = value if is_linear else math.log(value) / math.log(most) if most > 1 else 1.0
        return min(LEVELS - 1, int(share * LEVELS))

    paths = [""] * LEVELS
    by_row = sorted((row, column, level(value)) for (column, row), value in values.items())
    for (row, at, _), run in groupby(enumerate(by_row), key=lambda item: (item[1][0], item[1][2], item[1][1] - item[0])):
        columns = [column for _, (_, column, _) in run]
        paths[at] += f"M{columns[0]} {row + 0.5}h{len(columns)}"
    return [Shape(f"heat-{i}", path) for i, path in enumerate(paths) if path]
