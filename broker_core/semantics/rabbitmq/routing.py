"""How one kind of exchange matches: its bindings prepared once, asked for each publication (RMQ-301 to RMQ-304).

Every matcher has `add(destination, key, arguments)` and `match(keys, headers)`, which gives a set of destinations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from .table import encode, typed


class Destination(NamedTuple):
    """A queue, or else an exchange."""

    name: str
    is_queue: bool


class Matcher(Protocol):
    def add(self, destination: Destination, key: str, arguments: Mapping[str, Any]) -> None: ...

    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> set[Destination]: ...


class Direct:
    """The binding key equals the routing key (RMQ-301)."""

    def __init__(self) -> None:
        self._by_key: dict[str, set[Destination]] = {}

    def add(self, destination: Destination, key: str, arguments: Mapping[str, Any]) -> None:
        self._by_key.setdefault(key, set()).add(destination)

    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> set[Destination]:
        if len(keys) == 1:
            return self._by_key.get(keys[0], set())
        return set().union(*(self._by_key.get(key, ()) for key in keys))


class Fanout:
    """Every binding (RMQ-302)."""

    def __init__(self) -> None:
        self._all: set[Destination] = set()

    def add(self, destination: Destination, key: str, arguments: Mapping[str, Any]) -> None:
        self._all.add(destination)

    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> set[Destination]:
        return self._all


class Topic:
    """A trie of the binding keys' words (RMQ-303): a key costs what the bindings it could match cost, however many there are."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, destination: Destination, key: str, arguments: Mapping[str, Any]) -> None:
        node = self._root
        for word in words(key):
            node = node.next.setdefault(word, _Node())
        node.destinations.add(destination)

    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> set[Destination]:
        return set().union(*(self._match(words(key)) for key in keys))

    def _match(self, key: list[str]) -> set[Destination]:
        found: set[Destination] = set()
        seen: set[tuple[int, int]] = set()  # a place is visited once, however many ways `#` leads there
        todo = [(self._root, 0)]
        while todo:
            node, at = todo.pop()
            if (id(node), at) in seen:
                continue
            seen.add((id(node), at))
            if at == len(key):
                found |= node.destinations
            else:
                todo += [(node.next[word], at + 1) for word in {key[at], "*"} if word in node.next and word != "#"]
            if rest := node.next.get("#"):
                todo += [(rest, i) for i in range(at, len(key) + 1)]
        return found


@dataclass(slots=True)
class _Node:
    next: dict[str, _Node] = field(default_factory=dict)
    destinations: set[Destination] = field(default_factory=set)


def words(key: str) -> list[str]:
    """The words of a routing or binding key; the empty key has none."""
    return key.split(".") if key else []


class Headers:
    """Arguments compared with the message's headers, types included (RMQ-304)."""

    def __init__(self) -> None:
        self._specs: list[_Spec] = []
        self._names: set[str] = set()

    def add(self, destination: Destination, key: str, arguments: Mapping[str, Any]) -> None:
        _, mode = typed(arguments.get("x-match", "all"))
        with_x = mode.endswith("-with-x")
        stored = encode(arguments).items()
        compared = [(name, v) for name, v in stored if name != "x-match" and (with_x or not name.startswith("x-"))]
        self._specs.append(_Spec(mode.startswith("all"), tuple(compared), destination))
        self._names.update(name for name, _ in compared)

    def match(self, keys: Sequence[str], headers: Mapping[str, Any]) -> set[Destination]:
        asked = encode({name: headers[name] for name in self._names & headers.keys()})
        return {spec.destination for spec in self._specs if spec.matches(asked)}


@dataclass(frozen=True, slots=True)
class _Spec:
    """A binding's arguments, as stored; a void asks for presence only."""

    all: bool
    compared: tuple[tuple[str, list], ...]
    destination: Destination

    def matches(self, headers: Mapping[str, list]) -> bool:
        hits = (name in headers and (wanted[0] == "void" or headers[name] == wanted) for name, wanted in self.compared)
        return all(hits) if self.all else any(hits)


MATCHERS: dict[str, type[Matcher]] = {"direct": Direct, "fanout": Fanout, "topic": Topic, "headers": Headers}
