"""The graph of the live map: who sends to which entities, how these are linked, and who receives. Pure.

A node is an entity, a group of entities whose names begin alike, an exchange, the dead letters of an entity, or people and
programs that sent or received recently. An edge is a route that messages can take, or took.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from broker_core.reads import Flow, Link, LinkKind, Way
from broker_core.store.connections import Database
from explorer.frames.actors import ShownActor, shown_actor

BROKER = "process:broker"
Place = tuple[Database, int]  # a database and an entity's id in it: ids are unique within a database only
_NUMBERED = re.compile(r"[-_. ]?\d+$")


class Kind(StrEnum):
    """What a node stands for."""

    SENDER = "sender"
    ENTITY = "entity"
    GROUP = "group"
    EXCHANGE = "exchange"
    DEAD = "dead"
    RECEIVER = "receiver"
    NOBODY = "nobody"  # in place of a receiver, where messages wait without a receiver


@dataclass(slots=True)
class Node:
    """A node. key: unique, and the same on each visit. band: the namespace in whose part of the map it is. actors: the people
    and programs that it stands for. label: the name of a single one, or what the names of several begin with. place: of an
    entity."""

    key: str
    kind: Kind
    band: str
    label: str
    actors: set[ShownActor] = field(default_factory=set)
    place: Place | None = None

    @property
    def id(self) -> str:
        return f"n-{_short(self.key)}"


@dataclass(slots=True)
class Edge:
    """A route from one node to another. is_dead: for dead letters. messages: that took it recently. label: a routing key, or the
    number of bindings."""

    source: str
    target: str
    is_dead: bool = False
    messages: int = 0
    label: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.source, self.target

    @property
    def id(self) -> str:
        return f"w-{_short(f'{self.source}>{self.target}')}"


@dataclass(frozen=True, slots=True)
class Spot:
    """An entity, or a group of entities, that the map shows. members: the entities it stands for. has_dead: whether to show its
    dead letters as a node. is_neglected: messages wait in it, and no receiver has asked for them recently."""

    key: str
    namespace: str
    label: str
    members: tuple[Place, ...]
    is_group: bool = False
    has_dead: bool = False
    is_neglected: bool = False


class Graph:
    """The nodes and edges by key, in the order in which they were added."""

    def __init__(self, spots: Iterable[Spot], links: Iterable[tuple[Database, Link]]):
        """links: with the database of each one's namespace."""
        self.nodes: dict[str, Node] = {}
        self.edges: dict[tuple[str, str], Edge] = {}
        self._spot_of: dict[Place, str] = {}
        self._bindings: dict[str, set[str]] = defaultdict(set)
        for spot in spots:
            kind = Kind.GROUP if spot.is_group else Kind.ENTITY
            only = spot.members[0] if not spot.is_group else None
            self.nodes[spot.key] = Node(spot.key, kind, spot.namespace, spot.label, place=only)
            self._spot_of.update(dict.fromkeys(spot.members, spot.key))
            if spot.has_dead:
                self._link(spot.key, self._dead_letters(spot.key).key, is_dead=True)
            if spot.is_neglected:
                self._link(spot.key, self._add(Kind.NOBODY, spot.namespace, f"{spot.key} nobody", "no receiver"))
        for database, link in links:
            self._add_link(database, link)

    def count(self, database: Database, flow: Flow, messages: int) -> None:
        """Add messages that took a way."""
        for edge in self.ways(database, flow):
            edge.messages += messages

    def ways(self, database: Database, flow: Flow) -> list[Edge]:
        """The edges that a message of this flow takes, which are added if they are missing."""
        spot_key = self._spot_of.get((database, flow.entity_id), "")
        if spot_key not in self.nodes:
            return []
        namespace = self.nodes[spot_key].band
        if flow.way is Way.DEAD:
            return self._chain([spot_key, self._dead_letters(spot_key).key], dead_from=0)
        if flow.way is Way.OUT:
            return self._chain([spot_key, self._person(Kind.RECEIVER, namespace, flow.actor)]) if flow.actor else []
        middle = self._route(self._exchange(namespace, flow.exchange), spot_key) if flow.exchange else [spot_key]
        if flow.origin_id is not None:
            origin = self._spot_of.get((database, flow.origin_id), "")
            known = self.edges.get((origin, middle[0]))
            is_dead = known is not None and known.is_dead
            return self._chain([origin, *middle], dead_from=0 if is_dead else None) if origin in self.nodes else []
        if flow.actor in (None, BROKER):  # an activation: the message was there before
            return []
        return self._chain([self._person(Kind.SENDER, namespace, flow.actor or ""), *middle])

    def _chain(self, keys: list[str], *, dead_from: int | None = None) -> list[Edge]:
        steps = [(a, b) for a, b in pairwise(keys) if a != b]
        return [self.edges.get(step) or self._link(*step, is_dead=i == dead_from) for i, step in enumerate(steps)]

    def _link(self, source: str, target: str, *, is_dead: bool = False, label: str = "") -> Edge:
        """The edge, which is for dead letters only if all that it stands for is."""
        edge = self.edges.setdefault((source, target), Edge(source, target, is_dead))
        edge.is_dead = edge.is_dead and is_dead
        edge.label = max(edge.label, label)
        return edge

    def _add_link(self, database: Database, link: Link) -> None:
        source, target = (
            self._exchange(link.namespace, end) if isinstance(end, str) else self._spot_of.get((database, end))
            for end in (link.source, link.target)
        )
        if source is None or target is None or source == target:
            return
        if link.kind is LinkKind.BINDING:
            self._bindings[source].add(target)
        self._link(source, target, is_dead=link.kind in (LinkKind.DEAD, LinkKind.ALTERNATE), label=_label(link))

    def _route(self, exchange: str, target: str) -> list[str]:
        """The shortest way over bindings from an exchange to an entity; without one, the straight way."""
        came_from: dict[str, str] = {exchange: ""}
        reached = [exchange]
        for node in reached:
            if node == target:
                break
            for after in sorted(self._bindings[node] - came_from.keys()):
                came_from[after] = node
                reached.append(after)
        route = [target]
        while came_from.get(route[0]):
            route.insert(0, came_from[route[0]])
        return route if route[0] == exchange else [exchange, target]

    def _exchange(self, namespace: str, name: str | None) -> str:
        return self._add(Kind.EXCHANGE, namespace, f"{namespace} exchange {name}", name or "")

    def _dead_letters(self, spot: str) -> Node:
        return self.nodes[self._add(Kind.DEAD, self.nodes[spot].band, f"{spot} dead", "dead letters")]

    def _person(self, kind: Kind, namespace: str, actor: str) -> str:
        group = group_of(actor)
        key = self._add(kind, namespace, f"{namespace} {kind} {group}", group)
        node = self.nodes[key]
        node.actors.add(shown_actor(actor))
        node.label = group if len(node.actors) > 1 else shown_actor(actor).name
        return key

    def _add(self, kind: Kind, band: str, key: str, label: str) -> str:
        self.nodes.setdefault(key, Node(key, kind, band, label))
        return key

    def settle(self) -> None:
        """Once all flows are counted: where somebody receives, nobody is missing; and the same order on each visit."""
        received = {edge.source for edge in self.edges.values() if self.nodes[edge.target].kind is Kind.RECEIVER}
        missing = {edge.target: edge.source for edge in self.edges.values() if self.nodes[edge.target].kind is Kind.NOBODY}
        for key, source in missing.items():
            if source in received:
                del self.nodes[key], self.edges[source, key]
        self.nodes = dict(sorted(self.nodes.items(), key=lambda item: (item[1].band.lower(), item[1].label.lower(), item[0])))
        self.edges = dict(sorted(self.edges.items()))

    def around(self, key: str) -> None:
        """Keep only what is connected with a node: what its messages may have come through, and where they may go."""
        reached = _reached(key, self.edges, lambda edge: edge) | _reached(key, self.edges, lambda edge: edge[::-1])
        self.nodes = {name: node for name, node in self.nodes.items() if name in reached}
        self.edges = {ends: edge for ends, edge in self.edges.items() if reached.issuperset(ends)}


def group_of(actor: str) -> str:
    """The name that stands for an actor and those that differ from it by a number or host only: "orders" for process:orders-2."""
    name = shown_actor(actor).name
    name = name.partition("@")[0] or name  # without the host
    return _NUMBERED.sub("", name) or name


def _label(link: Link) -> str:
    if link.kind is LinkKind.ALTERNATE:
        return "unroutable messages"
    if link.kind is LinkKind.COPY:
        return "by 1 rule" if link.parts == 1 else f"by {link.parts} rules"
    if link.kind is LinkKind.BINDING and link.parts > 1:
        return f"by {link.parts} bindings"
    return f"routing key {link.routing_key}" if link.routing_key else ""


def _reached(
    start: str, edges: Mapping[tuple[str, str], Edge], direction: Callable[[tuple[str, str]], tuple[str, ...]]
) -> set[str]:
    following: dict[str, list[str]] = defaultdict(list)
    for edge in edges:
        source, target = direction(edge)
        following[source].append(target)
    reached, ahead = {start}, [start]
    while ahead:
        for key in following[ahead.pop()]:
            if key not in reached:
                reached.add(key)
                ahead.append(key)
    return reached


def _short(text: str) -> str:
    return hashlib.blake2s(text.encode(), digest_size=4).hexdigest()
