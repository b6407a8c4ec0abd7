"""The live map: a picture of how messages flow, on the page Now and on a page of its own, with a table of the same ways."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode
from django.utils.safestring import mark_safe
from django.views.decorators.http import require_GET

from broker_core import reads
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import Actor, EntityAddress
from broker_core.reads import Counted, Flow, NamespaceRow
from broker_core.runtime.caches import BoundedCache
from broker_core.store import connections
from explorer import sandbox_names
from explorer.demo.menu import MENU, MENU_SECONDS, faults_of_programs
from explorer.frames import figures, presenters
from explorer.frames.family import pages_of
from explorer.frames.forms.queries import Names, ScopeQuery
from explorer.frames.shell import cleaned, draws, page, show, wants_fragment
from explorer.lessons import faults as faults_of_sandboxes
from explorer.live.page import Live, LiveRequest, live

from .graph import Edge, Graph, Kind
from .layout import ENTITY_WIDTH, Band, Box, Drawing, Line, placed
from .menu import actor_menu, menu_url, opened_from
from .spots import MOST, MapEntry, Spots, find

MAP, NUMBERS, TABLE = "explorer/_map.html", "explorer/_map_numbers.html", "explorer/_map_table.html"
FRAGMENTS = {MAP: 5.0, NUMBERS: 2.0}  # seconds between two drawings
FRAMES_SECONDS = 0.5  # between two frames with dots
STEPS = (0, 6, 60, 600, 6_000)  # messages a minute from which an edge is wider
FULL_BAR, BAR_WIDTH = 100_000, 72  # the bar is logarithmic
_BASELINES = {Kind.ENTITY: 13, Kind.GROUP: 13, Kind.EXCHANGE: 15}  # of names; of the others: 14
NAME_LENGTH = {Kind.ENTITY: 17, Kind.GROUP: 14, Kind.EXCHANGE: 17, Kind.SENDER: 16, Kind.RECEIVER: 17}
BAND_NAME_LENGTH = 20
NAME_X, LETTER, NOTE_SPACE, NOTE_LETTER = 12, 6.9, 8, 6.2  # where a sender's or receiver's name begins; widths of its letters
ICON_NAME_X = 28  # where a name begins beside an icon

_last_on_now = BoundedCache(100)  # namespace, or None for all -> Picture


class MapQuery(ScopeQuery):
    """open: groups that are open, as "namespace/prefix". view: "table" instead of the picture. actor: those of a sender or
    receiver whose menu is open."""

    open = Names(required=False, max_length=330)
    actor = Names(required=False, max_length=200)
    view = forms.ChoiceField(required=False, choices=[("", "picture"), ("table", "table")])


@dataclass(frozen=True, slots=True)
class ShownNode:
    """A node as the template draws it. name, title: clipped and whole. tip: what the page says of it when it is pointed at. note:
    the tag behind the name. rate, depth: texts. locked, available: widths of the parts of its bar.
    css: what stands out. has_menu: whether its URL is that of its menu."""

    box: Box
    name: str
    title: str
    tip: str
    url: str
    icon: str
    note: str = ""
    rate: str = ""
    depth: str = ""
    locked: float = 0
    available: float = 0
    css: str = ""
    has_menu: bool = False

    @property
    def id(self) -> str:
        return self.box.node.id

    @property
    def kind(self) -> Kind:
        return self.box.node.kind

    @property
    def word(self) -> str:
        """What the node stands for, where its name alone does not say so."""
        if self.kind in (Kind.DEAD, Kind.NOBODY):
            return ""
        return self.tip.partition(" ")[0] if self.kind is Kind.ENTITY else str(self.kind)

    @property
    def is_counted(self) -> bool:
        return self.kind in (Kind.ENTITY, Kind.GROUP)

    def at(self, x: float, y: float) -> str:
        """Attributes of a place in the box, from its upper left corner."""
        return mark_safe(f'x="{x:g}" y="{y:g}"')

    @property
    def at_icon(self) -> str:
        return self.at(8, 7 if self.is_counted else 4)

    @property
    def at_name(self) -> str:
        x = 24 if self.kind is Kind.DEAD else ICON_NAME_X if self.icon else NAME_X
        return self.at(x, _BASELINES.get(self.kind, 14))

    @property
    def at_rate(self) -> str:
        return self.at(ENTITY_WIDTH - 8, 12)

    @property
    def at_depth(self) -> str:
        return self.at(ENTITY_WIDTH - 8, 24)

    @property
    def at_bar(self) -> str:
        return self.at(28, 19)

    @property
    def at_available(self) -> str:
        return self.at(28 + self.locked, 19)


@dataclass(frozen=True, slots=True)
class ShownEdge:
    """An edge as the template draws it. step: 0 (no recent messages) to 5. rate: text."""

    line: Line
    source: ShownNode
    target: ShownNode
    step: int
    rate: str
    url: str

    @property
    def id(self) -> str:
        return self.line.edge.id

    @property
    def text(self) -> str:
        return " · ".join(filter(None, (self.rate, self.line.edge.label)))


@dataclass(frozen=True, slots=True)
class Picture:
    """The map. spots: what it stands for. namespaces: by name. minutes: what the rates of edges are based on."""

    drawing: Drawing
    nodes: tuple[ShownNode, ...]
    edges: tuple[ShownEdge, ...]
    spots: Spots
    seconds: float
    graph: Graph
    namespaces: Mapping[str, NamespaceRow]

    @property
    def minutes(self) -> str:
        return presenters.age(timedelta(seconds=round(self.seconds)))

    @property
    def bands(self) -> list[tuple[Band, str, NamespaceRow]]:
        """The namespaces, each with its name as it fits above the senders; none where only one is shown."""
        if len(self.drawing.bands) < 2:
            return []
        return [(band, _clipped(band.name, BAND_NAME_LENGTH), self.namespaces[band.name]) for band in self.drawing.bands]

    def ways(self, database: connections.Database, flow: Flow) -> Iterable[str]:
        """The ids of the edges on which the feed shows a message."""
        return [edge.id for edge in self.graph.ways(database, flow)]


@live
@page
@require_GET
def live_map(request: HttpRequest) -> HttpResponse:
    query = cleaned(MapQuery(request.GET))
    address: EntityAddress | None = query["entity"]
    namespace = address.namespace if address else query["namespace"] or None
    visible = (namespace_row for namespace_row in reads.namespaces(actor=request.actor) if not namespace_row.is_system)
    namespaces = sandbox_names.without(visible, keep=namespace or "")
    selected = next((row for row in namespaces if namespace and row.name.lower() == namespace.lower()), None)
    if namespace and selected is None:
        raise EntityNotFound(namespace, "namespace")
    if address:
        reads.entity(address, actor=request.actor)
    name = selected.name if selected else None
    context = {"section": "now", "namespace": name, "selected": selected, "around": address, "view": query["view"]}
    if query["actor"]:
        context |= {"menu": actor_menu(request, selected, query["actor"]), "now": timezone.now(), "next": opened_from(request)}
        if wants_fragment(request):
            return show(request, "map", context, fragment="_map_menu")
    picture = draw(namespaces, name, request.actor, opened=query["open"], around=address)
    context |= {"map": picture, "namespaces": namespaces, "map_url": _page_url(name, address)}
    fragments = ({TABLE: 2.0} if query["view"] else FRAGMENTS) | {MENU: MENU_SECONDS}
    return show(request, "map", context, fragment="_map", live=live_part(picture, fragments, name))


def live_part(picture: Picture, fragments: dict[str, float], namespace: str | None) -> Live:
    """What is live about a page with the map. Only its owner sees the faults of a sandbox."""
    return Live(
        fragments, entities=picture.spots.names, least_seconds=FRAMES_SECONDS, ways=picture.ways,
        personal=sandbox_names.may_be_one(namespace),
    )  # fmt: skip


def on_now(request: HttpRequest, namespace: str | None) -> dict:
    """The context of the map on Now. With more than MOST entities the page comes without it, and the feed sends it at once. A
    live update of other parts of the page uses the last picture for the messages that move."""
    is_live = isinstance(request, LiveRequest)
    is_due = not is_live or any(draws(request, template) for template in FRAGMENTS)
    picture: Picture | None = None if is_due else _last_on_now.get(namespace)
    if picture is None:
        namespaces = reads.namespaces(actor=request.actor)
        if is_live or _entities(namespaces, namespace) <= MOST:
            picture = _last_on_now.keep(namespace, draw(namespaces, namespace, request.actor))
    return {"map": picture, "map_url": _page_url(namespace, None), "around": None}


def _entities(namespaces: Iterable[NamespaceRow], namespace: str | None) -> int:
    return sum(row.entities for row in namespaces if not row.is_system and namespace in (None, row.name))


def draw(
    namespaces: Iterable[NamespaceRow], namespace: str | None, actor: Actor, *, opened: Sequence[str] = (),
    around: EntityAddress | None = None,
) -> Picture:  # fmt: skip
    """Read and place the map of a namespace, or of all. opened: groups whose entities are shown. around: only what is connected
    with this entity."""
    known = {row.name: row for row in namespaces}
    entities = _entities(known.values(), namespace)
    flows = reads.flows(namespace, actor=actor)
    matching = find(namespace, flows, actor, entities=entities, opened=opened)
    # A namespace that was created since `namespaces` were read is shown by the next reading.
    spots = replace(matching, entries=tuple(entry for entry in matching.entries if entry.spot.namespace in known))
    links = [link for link in reads.links(namespace, actor=actor) if link.namespace in known]
    graph = Graph((entry.spot for entry in spots.entries), [(connections.database_of(link.namespace), link) for link in links])
    for (name, flow), count in flows.counts.items():
        graph.count(connections.database_of(name), flow, count)
    graph.settle()
    if around is not None:
        graph.around(_key_of(around, graph))
    drawing = placed(graph)
    entries = {entry.spot.key: entry for entry in spots.entries}
    faults = _program_faults(known.get(namespace or ""), actor)
    nodes = tuple(_node(box, entries, known[box.node.band], faults) for box in drawing.boxes)
    by_key = {node.box.node.key: node for node in nodes}
    edges = tuple(_edge(line, graph, by_key, flows.seconds) for line in drawing.lines)
    return Picture(drawing, nodes, edges, spots, flows.seconds, graph, known)


def _program_faults(namespace: NamespaceRow | None, actor: Actor) -> Mapping[str, str]:
    """The receivers of one's own sandbox, or the programs of the demo, each with the kind of its fault; empty: it has none."""
    if namespace and (kinds := faults_of_sandboxes.kinds_by_receiver(namespace.name, actor.name, namespace.clock.now)):
        return kinds
    return faults_of_programs()


def _key_of(address: EntityAddress, graph: Graph) -> str:
    prefix = f"{address.namespace}/{address.path}".lower()
    key = next((name for name in graph.nodes if name.lower() == prefix), None)
    if key is None:  # it is part of a group
        key = next((name for name in graph.nodes if name.endswith("*") and prefix.startswith(name[:-1].lower())), prefix)
    return key


def _page_url(namespace: str | None, around: EntityAddress | None) -> str:
    query = {"entity": str(around)} if around else {"namespace": namespace} if namespace else {}
    return reverse("explorer:map") + (f"?{urlencode(query)}" if query else "")


def _node(box: Box, entries: dict[str, MapEntry], namespace: NamespaceRow, faults: Mapping[str, str]) -> ShownNode:
    node = box.node
    name = _clipped(node.label, NAME_LENGTH.get(node.kind, 40))
    if entry := entries.get(node.key):
        return _counted(box, name, entry, namespace.clock.now)
    if node.kind is Kind.DEAD:
        return _dead(box, entries[node.key.removesuffix(" dead")])
    if node.kind is Kind.EXCHANGE:
        url = pages_of(namespace.family).exchange_url(node.band, node.label)
        return ShownNode(box, name, node.label, f"exchange {node.label}", url, "exchange", note="exchange")
    if node.kind is Kind.NOBODY:
        return ShownNode(box, "no receiver", "no receiver", "no receiver: messages are waiting", "", "", css="warn")
    return _people(box, faults)


def _people(box: Box, faults: Mapping[str, str]) -> ShownNode:
    """A sender or receiver, or several."""
    node, actors = box.node, sorted(box.node.actors, key=lambda actor: actor.name)
    names = [actor.name for actor in actors]
    programs = [name for name in names if name in faults]
    having = [kind for program in programs if (kind := faults[program])]
    failing = sorted(set(having))
    note = f"× {len(names)}" if len(names) > 1 else ""
    if failing:
        kind = failing[0] if len(failing) == 1 else "faults"
        note = f"{len(having)}/{len(names)} {kind}" if len(names) > 1 else kind
    icon = actors[0].icon if len({actor.kind for actor in actors}) == 1 and not failing else ""
    free = box.width - (ICON_NAME_X if icon else NAME_X) - NAME_X - (NOTE_SPACE + NOTE_LETTER * len(note) if note else 0)
    name = _clipped(node.label, max(2, min(NAME_LENGTH[node.kind], int(free / LETTER))))
    has_menu = bool(programs) or len(actors) > 1
    url = menu_url(node.band, actors) if has_menu else actors[0].url
    tip = f"{node.kind} {', '.join(names)}" + (f": {', '.join(failing)}" if failing else "")
    css = "warn" if failing else ""
    return ShownNode(box, name, node.label, tip, url, icon, note=note, css=css, has_menu=has_menu)


def _counted(box: Box, name: str, entry: MapEntry, now: datetime) -> ShownNode:
    parts, node = entry.parts, box.node
    sent = sum(part.sent_rate for part in parts)
    available, locked = _sum(parts, figures.at_hand), _sum(parts, lambda part: pages_of(part.family).counts.locked(part))
    waiting = available + locked
    oldest = min((part.oldest_active_at for part in parts if part.oldest_active_at), default=None)
    age = presenters.age(now - oldest) if oldest else ""
    kind = (
        f"{entry.spot.label}: {len(entry.spot.members):,} entities" if entry.spot.is_group else f"{parts[0].kind} {_path(entry)}"
    )
    tip = f"{kind}: {presenters.per_minute(sent)}/min in, {available:,} available, {locked:,} locked" + (
        f", oldest {age}" if age else ""
    )
    full = math.log1p(min(waiting, FULL_BAR)) / math.log1p(FULL_BAR) * BAR_WIDTH
    share = locked / waiting if waiting else 0
    is_collecting = entry.address is not None and pages_of(parts[0].family).needs_a_person(parts[0])
    css = "warn" if entry.spot.is_neglected else "dead" if is_collecting and waiting else ""
    if entry.address:
        url = reverse("explorer:entity", args=(entry.address.namespace, entry.address.path))
    else:
        url = f"{reverse('explorer:map')}?{urlencode({'namespace': node.band, 'open': entry.spot.key.removesuffix('*')})}"
    note = f"{len(entry.spot.members):,}" if entry.spot.is_group else ""
    icon = "fold" if entry.spot.is_group else str(parts[0].kind)
    return ShownNode(
        box, name, _path(entry), tip, url, icon, note, rate=f"{presenters.per_minute(sent)}/min" if sent > 0 else "",
        depth="" if not waiting else presenters.plural(waiting, "message") if waiting < 10_000 else f"{waiting:,}",
        locked=round(full * share, 1), available=round(full * (1 - share), 1), css=css,
    )  # fmt: skip


def _path(entry: MapEntry) -> str:
    return presenters.shown_path(entry.address) if entry.address else entry.spot.label


def _dead(box: Box, entry: MapEntry) -> ShownNode:
    count = sum(figures.DEAD.of(part) or 0 for part in entry.parts)
    place = str(entry.address) if entry.address else entry.spot.key.removesuffix("*")
    url = f"{reverse('explorer:dead_letters')}?{urlencode({'q': place})}"
    words = f"{count:,} dead letter{'' if count == 1 else 's'}"
    return ShownNode(box, words, "dead letters", f"{words} of {_path(entry)}", url, "dead")


def _edge(line: Line, graph: Graph, nodes: dict[str, ShownNode], seconds: float) -> ShownEdge:
    edge = line.edge
    per_minute = edge.messages * 60 / seconds
    step = sum(per_minute > least for least in STEPS)
    rate = f"{presenters.per_minute(per_minute / 60)}/min" if edge.messages else "no recent messages"
    return ShownEdge(line, nodes[edge.source], nodes[edge.target], step, rate, _edge_url(edge, graph))


def _edge_url(edge: Edge, graph: Graph) -> str:
    """The newest events that took the edge."""
    source, target = graph.nodes[edge.source], graph.nodes[edge.target]
    person = next((node for node in (source, target) if node.actors), None)
    place = target if target.place else source
    query = {"entity": place.key} if place.place else {"namespace": source.band}
    if target.kind in (Kind.DEAD, Kind.EXCHANGE) and source.place:
        query["kinds"] = "failures"
    else:
        query["kinds"] = "arrivals" if place is target or not place.place else "receives"
    if person and len(person.actors) == 1:
        query["actor"] = next(iter(person.actors)).stored
    return f"{reverse('explorer:tail')}?{urlencode(query)}"


def _sum(parts: Iterable[Counted], of: Callable[[Counted], int]) -> int:
    return sum(of(part) for part in parts if part.holds_messages)


def _clipped(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
