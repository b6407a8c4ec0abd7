"""The syntax tree of filters and actions. `position`: the offset in the text, from 0."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant, or a parameter, whose value is known at compile time. None is NULL."""

    value: Any
    position: int


@dataclass(frozen=True, slots=True)
class UserProperty:
    """An application property. name: as written; it is case-insensitive (SB-F03)."""

    name: str
    position: int


@dataclass(frozen=True, slots=True)
class SystemProperty:
    """A system property. name: in lower case, one of view.SYSTEM."""

    name: str
    position: int


@dataclass(frozen=True, slots=True)
class NamedProperty:
    """property(x) or p(x): the property whose name is the value of x."""

    name: Value
    position: int


@dataclass(frozen=True, slots=True)
class NewId:
    position: int


@dataclass(frozen=True, slots=True)
class Sign:
    """A plus or minus before a value."""

    operator: str
    operand: Value
    position: int


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Operations of equal precedence, from left to right. steps: (operator, operand, position)."""

    first: Value
    steps: tuple[tuple[str, Value, int], ...]
    position: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """operator: = <> < <= > or >=."""

    operator: str
    left: Value
    right: Value
    position: int


@dataclass(frozen=True, slots=True)
class Like:
    text: Value
    pattern: Value
    escape: Value | None
    position: int


@dataclass(frozen=True, slots=True)
class In:
    value: Value
    items: tuple[Value, ...]
    position: int


@dataclass(frozen=True, slots=True)
class IsNull:
    property: Property
    position: int


@dataclass(frozen=True, slots=True)
class Exists:
    property: Property
    position: int


@dataclass(frozen=True, slots=True)
class Not:
    term: Predicate
    position: int


@dataclass(frozen=True, slots=True)
class And:
    terms: tuple[Predicate, ...]
    position: int


@dataclass(frozen=True, slots=True)
class Or:
    terms: tuple[Predicate, ...]
    position: int


Property = UserProperty | SystemProperty | NamedProperty
Value = Constant | Property | NewId | Sign | Arithmetic
Predicate = Comparison | Like | In | IsNull | Exists | Not | And | Or


@dataclass(frozen=True, slots=True)
class Set:
    property: UserProperty | SystemProperty
    value: Value


@dataclass(frozen=True, slots=True)
class Remove:
    property: UserProperty | SystemProperty


Statement = Set | Remove


def walk(tree: Any) -> Iterator[Any]:
    """A node and all its descendants."""
    if isinstance(tree, tuple):
        for part in tree:
            yield from walk(part)
    elif is_dataclass(tree):
        yield tree
        for part in fields(tree):
            yield from walk(getattr(tree, part.name))
