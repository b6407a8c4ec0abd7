"""Matching of bindings by exchange type (RMQ-301 to RMQ-304). Bindings are indexed once and matched for each publication.

Every matcher has `add(destination, key, arguments)` and `match(keys, headers)`, which returns distinct destinations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, Self

from .table import encode, typed


class Destination(NamedTuple):
    """A queue or an exchange."""

    name: str
    is_queue: bool


class Matcher(Protocol):
    """`copy` returns a matcher that can be changed independently and shares unchanged parts with the original."""

    def copy(self) -> Matcher: ...

    def add(self, destination: Destination, key: str, arguments: Mapping[str, Any]) -> None: ...

    def remove(self, destination: Destination, key: str, arguments: Mapping[str, Any]) -> None: ...

    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> Collection[Destination]: ...


@dataclass(slots=True)
class _Node:
    """maker: the tree that may modify this node; others modify a copy. destinations: with the number of bindings to each."""

    maker: object = field(compare=False)
    next: dict[str, _Node] = field(default_factory=dict)
    destinations: dict[Destination, int] = field(default_factory=dict)

    def of(self, maker: object) -> _Node:
        return self if self.maker is maker else _Node(maker, dict(self.next), dict(self.destinations))


class _Tree:
    """Bindings in a tree by key. A change copies the nodes on its path, which other trees may share."""

    def __init__(self, root: _Node | None = None) -> None:
        self._maker = object()
        self._root = root or _Node(self._maker)

    def copy(self) -> Self:
        return type(self)(self._root)

    def add(self, destination: Destination, key: str, arguments: Mapping[str, Any]) -> None:
        node = self._root = self._root.of(self._maker)
        for step in self._way(key):
            following = node.next.get(step)
            node.next[step] = _Node(self._maker) if following is None else following.of(self._maker)
            node = node.next[step]
        node.destinations[destination] = node.destinations.get(destination, 0) + 1

    def remove(self, destination: Destination, key: str, arguments: Mapping[str, Any]) -> None:
        node = self._root = self._root.of(self._maker)
        passed = []
        for step in self._way(key):
            passed.append((node, step))
            node.next[step] = node.next[step].of(self._maker)
            node = node.next[step]
        _decrement(node.destinations, destination)
        while passed and not node.next and not node.destinations:
            node, step = passed.pop()
            del node.next[step]

    def _way(self, key: str) -> Sequence[str]:
        raise NotImplementedError


class Direct(_Tree):
    """The binding key equals the routing key (RMQ-301)."""

    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> Collection[Destination]:
        if len(keys) == 1:
            return self._match(keys[0])
        return set().union(*map(self._match, keys))

    def _match(self, key: str) -> Collection[Destination]:
        node = self._root.next.get(key)
        return () if node is None else node.destinations

    def _way(self, key: str) -> Sequence[str]:
        return (key,)


class Fanout(_Tree):
    """All bindings match (RMQ-302)."""

    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> Collection[Destination]:
        return self._root.destinations

    def _way(self, key: str) -> Sequence[str]:
        return ()


class Topic(_Tree):
    """A trie of the words of binding keys (RMQ-303): the cost depends on the bindings that could match, not on their total
    number."""

    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> Collection[Destination]:
        return set().union(*(self._match(words(key)) for key in keys))

    def _match(self, key: list[str]) -> set[Destination]:
        destinations: set[Destination] = set()
        seen: set[tuple[int, int]] = set()  # each state is visited once, although `#` can reach it repeatedly
        todo = [(self._root, 0)]
        while todo:
            node, at = todo.pop()
            if (id(node), at) in seen:
                continue
            seen.add((id(node), at))
            if at == len(key):
                destinations |= node.destinations.keys()
            else:
                todo += [(node.next[word], at + 1) for word in {key[at], "*"} if word in node.next and word != "#"]
            if rest := node.next.get("#"):
                todo += [(rest, i) for i in range(at, len(key) + 1)]
        return destinations

    def _way(self, key: str) -> Sequence[str]:
        return words(key)


def words(key: str) -> list[str]:
    """The words of a routing or binding key; the empty key has none."""
    return key.split(".") if key else []


class Headers:
    """Binding arguments compared with the message's headers, including types (RMQ-304)."""

    def __init__(self, specs: Iterable[_Spec] = (), names: Mapping[str, int] = MappingProxyType({})) -> None:
        self._specs = list(specs)
        self._names = dict(names)  # compared headers, with the number of bindings that compare each

    def copy(self) -> Headers:
        return Headers(self._specs, self._names)

    def add(self, destination: Destination, key: str, arguments: Mapping[str, Any]) -> None:
        spec = _spec(destination, arguments)
        self._specs.append(spec)
        for name, _ in spec.compared:
            self._names[name] = self._names.get(name, 0) + 1

    def remove(self, destination: Destination, key: str, arguments: Mapping[str, Any]) -> None:
        spec = _spec(destination, arguments)
        self._specs.remove(spec)
        for name, _ in spec.compared:
            _decrement(self._names, name)

    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> Collection[Destination]:
        asked = encode({name: headers[name] for name in self._names.keys() & headers.keys()})
        return {spec.destination for spec in self._specs if spec.matches(asked)}


@dataclass(frozen=True, slots=True)
class _Spec:
    """A binding's arguments, as stored; a void only requires the header to be present."""

    all: bool
    compared: tuple[tuple[str, list], ...]
    destination: Destination

    def matches(self, headers: Mapping[str, list]) -> bool:
        hits = (name in headers and (expected[0] == "void" or headers[name] == expected) for name, expected in self.compared)
        return all(hits) if self.all else any(hits)


def _spec(destination: Destination, arguments: Mapping[str, Any]) -> _Spec:
    _, mode = typed(arguments.get("x-match", "all"))
    with_x = mode.endswith("-with-x")
    stored = encode(arguments).items()
    compared = [(name, v) for name, v in stored if name != "x-match" and (with_x or not name.startswith("x-"))]
    return _Spec(mode.startswith("all"), tuple(compared), destination)


def _decrement(counts: dict[Any, int], what: Any) -> None:
    counts[what] -= 1
    if not counts[what]:
        del counts[what]


MATCHERS: dict[str, type[Matcher]] = {"direct": Direct, "fanout": Fanout, "topic": Topic, "headers": Headers}
