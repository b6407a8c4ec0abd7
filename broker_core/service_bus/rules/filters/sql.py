"""SQL filters: a text, compiled once, asked for each message (section 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

from broker_core.common.errors import FilterEvaluationError
from broker_core.common.values import encode_properties

from . import syntax
from .evaluation import compile_predicate, compile_value
from .parser import parse_filter
from .view import MessageView

_OF_THE_MESSAGE = (syntax.UserProperty, syntax.SystemProperty, syntax.NamedProperty, syntax.NewId)


@dataclass(frozen=True, slots=True)
class Leading:
    """A comparison with a text that a filter begins with: where it is False the whole filter is, and nothing of it can fail.

    So of many filters that compare the same property only those have to be asked whose text the message has.
    """

    property: str
    text: str
    read: Callable[[MessageView], Any] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """Made by compile_filter.

    matches: of a MessageView: True, False, or None for Unknown, which is no match (SB-F12). Raises FilterEvaluationError.
    always:  what it says about every message, if it does not depend on the message.
    """

    text: str
    parameters: Mapping[str, Any]
    matches: Callable[[MessageView], bool | None] = field(compare=False, repr=False)
    always: bool | None = field(compare=False, repr=False)
    leading: Leading | None = field(compare=False, repr=False)

    @property
    def key(self) -> tuple:
        """Equal for filters that say the same in the same words."""
        stored = encode_properties(self.parameters).items()
        return self.text, tuple(sorted((name.lower(), *value) for name, value in stored))


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """Takes every message: `1=1` on the wire (section 1.4)."""

    text: ClassVar[str] = "1=1"
    always: ClassVar[bool] = True

    def matches(self, view: MessageView) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """Takes no message: `1=0` on the wire (section 1.4)."""

    text: ClassVar[str] = "1=0"
    always: ClassVar[bool] = False

    def matches(self, view: MessageView) -> bool:
        return False


def compile_filter(text: str, parameters: Mapping[str, Any] | None = None) -> SqlFilter:
    """A filter from its text (SB-F01). parameters: values by name, with or without the @.

    Raises InvalidFilter naming the column of what cannot be understood, and InvalidArgument naming a parameter of no use.
    """
    return _compile(text, parameters) if parameters or not isinstance(text, str) else _compile_once(text)


def _compile(text: str, parameters: Mapping[str, Any] | None = None) -> SqlFilter:
    tree = parse_filter(text, parameters)
    matches = compile_predicate(tree)
    return SqlFilter(text, dict(parameters or {}), matches, _always(tree, matches), _leading(tree))


_compile_once = lru_cache(maxsize=4096)(_compile)  # when one rule of a topic changes, all its rules are read again


def _always(tree: syntax.Predicate, matches: Callable) -> bool | None:
    if any(isinstance(node, _OF_THE_MESSAGE) for node in syntax.walk(tree)):
        return None
    try:
        return matches(None) is True
    except FilterEvaluationError:
        return None


def _leading(tree: syntax.Predicate) -> Leading | None:
    first = tree.terms[0] if isinstance(tree, syntax.And) else tree
    if not isinstance(first, syntax.Comparison) or first.operator != "=":
        return None
    sides = [first.left, first.right]
    constants = [side.value for side in sides if isinstance(side, syntax.Constant) and isinstance(side.value, str)]
    properties = [side for side in sides if isinstance(side, syntax.UserProperty | syntax.SystemProperty)]
    if len(constants) != 1 or len(properties) != 1:
        return None
    scope = "user" if isinstance(properties[0], syntax.UserProperty) else "sys"
    return Leading(f"{scope}.{properties[0].name.lower()}", constants[0], compile_value(properties[0]))
