"""Places the nodes of a graph in layers: senders, entities and exchanges in the order of their links, receivers. Pure.

The same graph always gets the same places: the first layer is in order of names, and each further node is as near as possible to
the middle of those that lead to it. An edge over several layers gets a place of its own in each layer that it crosses. Dead
letters are in the layer after their entity or, from the second layer on, below it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from .graph import Edge, Graph, Kind, Node

LEAST_WIDTH = 1016
MARGIN, SENDER_WIDTH, ENTITY_WIDTH, RECEIVER_WIDTH = 12, 150, 196, 160
DEAD_WIDTH = 136
LEAST_SPACE = 72  # between two layers
HEIGHTS = {Kind.ENTITY: 28, Kind.GROUP: 28, Kind.EXCHANGE: 22, Kind.SENDER: 20, Kind.RECEIVER: 20, Kind.NOBODY: 20, Kind.DEAD: 20}
CROSSING, GAP, BAND_GAP = 4, 4, 6  # with the gap, a node is a target of 24
HEAD, BAND_HEAD = 20, 20  # the titles of the columns, and of a band, above its senders
MOST_LAYERS = 6  # of entities and exchanges


@dataclass(frozen=True, slots=True)
class Box:
    """Where a node is."""

    node: Node
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Line:
    """Where an edge is. path: an SVG path. x, y: its middle, where its label is."""

    edge: Edge
    path: str
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Band:
    """A namespace's part of the map. y: its upper edge, with its name below it, above the senders."""

    name: str
    y: int

    @property
    def baseline(self) -> int:
        """Of its name."""
        return self.y + 14


@dataclass(frozen=True, slots=True)
class Drawing:
    """A placed graph. columns: the place of each column's title."""

    width: int
    height: int
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    bands: tuple[Band, ...]
    columns: tuple[tuple[int, str], ...]


def placed(graph: Graph) -> Drawing:
    """Place a graph."""
    layers = layers_of(graph)
    layers |= {edge.target: _layer_of_dead(layers[edge.source]) for edge in graph.edges.values() if _is_pill(edge, graph)}
    last = max((layer for key, layer in layers.items() if _is_inside(graph.nodes[key])), default=1) + 1
    layers |= {key: last for key, node in graph.nodes.items() if node.kind in (Kind.RECEIVER, Kind.NOBODY)}
    xs, widths, width = _columns(last)
    boxes: dict[str, Box] = {}
    crossings: dict[tuple[tuple[str, str], int], float] = {}
    bands, y = [], HEAD
    names = list(dict.fromkeys(node.band for node in graph.nodes.values()))
    for name in names:
        bands.append(Band(name, y))
        inside = [key for key, node in graph.nodes.items() if node.band == name]
        tops, crossed, height = _band(graph, layers, inside, last, BAND_HEAD if len(names) > 1 else 0)
        for key, top in tops.items():
            node, layer = graph.nodes[key], layers[key]
            boxes[key] = Box(node, xs[layer], round(y + top), _width(node, widths[layer]), HEIGHTS[node.kind])
        crossings |= {place: round(y + top) for place, top in crossed.items()}
        y += round(height) + BAND_GAP
    lines = tuple(_line(edge, boxes, crossings, layers, xs, widths) for edge in graph.edges.values())
    titles = [(xs[0], "Senders"), (xs[1], "Topics, exchanges, queues"), (xs[last], "Receivers")]
    titles += [(xs[2], "Subscriptions, bound queues, dead letters")] if last > 2 else []
    return Drawing(width, y - BAND_GAP + GAP, tuple(boxes.values()), lines, tuple(bands), tuple(sorted(titles)))


def layers_of(graph: Graph) -> dict[str, int]:
    """The layer of each sender (0), entity and exchange: after all those from which its messages come. Dead letters on their way
    to an exchange do not count, since its other messages come earlier; neither does an edge that would close a circle."""
    following: dict[str, set[str]] = defaultdict(set)
    inside = {key for key, node in graph.nodes.items() if _is_inside(node)}
    for edge in sorted(graph.edges.values(), key=lambda edge: edge.is_dead):
        if edge.is_dead and graph.nodes[edge.target].kind is Kind.EXCHANGE:
            continue
        if {edge.source, edge.target} <= inside and not _leads_to(edge.target, edge.source, following):
            following[edge.source].add(edge.target)
    layers = dict.fromkeys((key for key in graph.nodes if key in inside), 1)
    for _ in range(MOST_LAYERS - 1):  # each round moves what follows behind what it follows
        for source, targets in following.items():
            for target in targets:
                layers[target] = max(layers[target], min(layers[source] + 1, MOST_LAYERS))
    return layers | {key: 0 for key, node in graph.nodes.items() if node.kind is Kind.SENDER}


def spread(
    preferred: Sequence[float], heights: Sequence[float], gap: float, *, first: float = 0, bottom: float | None = None
) -> list[float]:
    """Tops for boxes in this order, without overlaps and not above `first`, so that the squares of their distances from the
    preferred middles are least: boxes that would overlap move as a block around the mean of what they want. bottom: none ends
    below it, if there is room for all of them above it."""
    blocks: list[list[float]] = []  # the preferred top of a block, its boxes, its height with gaps
    for middle, height in zip(preferred, heights, strict=True):
        blocks.append([middle - height / 2, 1, height + gap])
        while len(blocks) > 1 and blocks[-2][0] + blocks[-2][2] > blocks[-1][0]:
            top, boxes, tall = blocks.pop()
            before = blocks[-1]
            before[0] = (before[0] * before[1] + (top - before[2]) * boxes) / (before[1] + boxes)
            before[1] += boxes
            before[2] += tall
    room = None if bottom is None else max(bottom + gap, first + sum(heights) + gap * len(heights))
    tops, at, sizes = [], first, iter(heights)
    for i, (top, boxes, _) in enumerate(blocks):
        lowest = top if room is None else room - sum(block[2] for block in blocks[i:])
        at = max(at, min(top, lowest))
        for _ in range(int(boxes)):
            tops.append(at)
            at += next(sizes) + gap
    return tops


def _is_inside(node: Node) -> bool:
    return node.kind in (Kind.ENTITY, Kind.GROUP, Kind.EXCHANGE, Kind.DEAD)


def _is_pill(edge: Edge, graph: Graph) -> bool:
    return graph.nodes[edge.target].kind is Kind.DEAD


def _layer_of_dead(layer: int) -> int:
    return max(2, layer)


def _leads_to(start: str, end: str, following: Mapping[str, Iterable[str]]) -> bool:
    ahead, seen = [start], {start}
    while ahead:
        node = ahead.pop()
        if node == end:
            return True
        new = set(following.get(node, ())) - seen
        seen |= new
        ahead += new
    return False


def _columns(last: int) -> tuple[list[int], list[int], int]:
    widths = [SENDER_WIDTH, *[ENTITY_WIDTH] * (last - 1), RECEIVER_WIDTH]
    space = max(LEAST_SPACE, (LEAST_WIDTH - 2 * MARGIN - sum(widths)) / last)
    xs = [MARGIN + sum(widths[:i]) + i * space for i in range(len(widths))]
    return [round(x) for x in xs], widths, round(xs[-1] + widths[-1] + MARGIN)


def _width(node: Node, column: int) -> int:
    return DEAD_WIDTH if node.kind is Kind.DEAD else column


def _band(graph: Graph, layers: Mapping[str, int], inside: Sequence[str], last: int, head: float):
    """The tops of a band's nodes and of the crossings of its edges, from the band's upper edge, and its height. No column is
    higher than that of the first entities if there is room for it. head: the height of the name above the senders."""
    edges = [edge for edge in graph.edges.values() if edge.source in set(inside)]
    columns: list[list] = [[key for key in inside if layers[key] == layer] for layer in range(last + 1)]
    before: dict = defaultdict(list)  # what leads to a node or crossing
    beside: dict[str, str] = {}  # the entity above dead letters in its layer
    for edge in edges:
        if layers[edge.source] == layers[edge.target]:
            beside[edge.target] = edge.source
            continue
        steps = range(layers[edge.source] + 1, layers[edge.target])
        way = [edge.source, *[(edge.key, layer) for layer in steps if layer > 1], edge.target]
        for layer in steps:
            if layer > 1:  # what goes past the first layer of entities has room above or below them
                columns[layer].append((edge.key, layer))
        for a, b in pairwise(way):
            before[b].append(a)

    def height(key) -> float:
        return CROSSING if isinstance(key, tuple) else HEIGHTS[graph.nodes[key].kind]

    tops: dict = {}
    middles: dict = {}

    def place(column: list, preferred: Mapping, highest: float = 0) -> None:
        ordered = sorted(column, key=lambda key: preferred.get(key, 1e9))  # stable: in order of names where none is preferred
        heights = [height(key) for key in ordered]
        new_tops = spread([preferred.get(key, 1e9) for key in ordered], heights, GAP, first=highest, bottom=at - GAP)
        for key, top in zip(ordered, new_tops, strict=True):
            tops[key], middles[key] = top, top + height(key) / 2

    first, at = columns[1], 0.0
    for key in first:
        tops[key], middles[key] = at, at + height(key) / 2
        at += height(key) + GAP
    for layer in range(2, last + 1):
        preferred = _means(columns[layer], before, middles, at)
        place(columns[layer], preferred | {key: preferred[above] + 0.01 for key, above in beside.items() if above in preferred})
    after: dict = defaultdict(list)
    for key, sources in before.items():
        for source in sources:
            after[source].append(key)
    place(columns[0], _means(columns[0], after, middles, at), head)
    bottom = max((top + height(key) for key, top in tops.items()), default=0)
    return (
        {key: top for key, top in tops.items() if not isinstance(key, tuple)},
        {key: middles[key] for key in tops if isinstance(key, tuple)},
        bottom,
    )


def _means(keys: Iterable, near: Mapping, middles: Mapping, otherwise: float) -> dict:
    """The mean of the middles of what each key is connected with."""
    means = {}
    for key in keys:
        known = [middles[other] for other in near.get(key, ()) if other in middles]
        means[key] = sum(known) / len(known) if known else otherwise
    return means


def _line(edge: Edge, boxes, crossings, layers, xs, widths) -> Line:
    source, target = boxes[edge.source], boxes[edge.target]
    if layers[edge.target] <= layers[edge.source]:
        return _line_back(edge, source, target)
    points = [(source.x + source.width, source.y + source.height // 2)]
    for layer in range(layers[edge.source] + 1, layers[edge.target]):
        if (y := crossings.get((edge.key, layer))) is not None:
            points += [(xs[layer], y), (xs[layer] + widths[layer], y)]
    points.append((target.x, target.y + target.height // 2))
    path = f"M{points[0][0]} {points[0][1]}"
    for (x1, y1), (x2, y2) in pairwise(points):
        if y1 == y2 and x2 > x1:
            path += f"H{x2}"
        else:
            bend = max(abs(x2 - x1) // 2, 40)
            path += f"C{x1 + bend} {y1} {x2 - bend} {y2} {x2} {y2}"
    middle = len(points) // 2
    (x1, y1), (x2, y2) = points[middle - 1], points[middle]
    return Line(edge, path, (x1 + x2) // 2, (y1 + y2) // 2)


def _line_back(edge: Edge, source: Box, target: Box) -> Line:
    """A line to an earlier layer, through the space between the two, or to the same one, around the space after it."""
    if source.x == target.x and target.node.kind is Kind.DEAD:
        x, y = source.x + 14, target.y
        return Line(edge, f"M{x} {source.y + source.height}V{y}", x, y)
    is_beside = source.x == target.x
    x1, y1 = source.x + source.width * is_beside, source.y + source.height * 3 // 4
    x2, y2 = target.x + target.width, target.y + target.height * 3 // 4
    bend = 48 if is_beside else -48
    return Line(edge, f"M{x1} {y1}C{x1 + bend} {y1} {x2 + 48} {y2} {x2} {y2}", (x1 + x2) // 2, (y1 + y2) // 2)
