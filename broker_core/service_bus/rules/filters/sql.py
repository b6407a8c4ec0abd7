"""SQL filters, compiled once and evaluated for each message (SB-F01)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar

from broker_core.common.errors import FilterEvaluationError
from broker_core.service_bus.rules.amqp.properties import encode_properties

from . import syntax
from .evaluation import compile_predicate, compile_value
from .parser import parse_filter
from .view import MessageView

_MESSAGE_DEPENDENT = (syntax.UserProperty, syntax.SystemProperty, syntax.NamedProperty, syntax.NewId)


@dataclass(frozen=True, slots=True)
class Leading:
    """A comparison with a string that a filter starts with. If it is False, so is the filter, and no other part of it can fail.

    So of many filters that compare the same property, only those with the message's value have to be evaluated.
    """

    property: str
    text: str
    read: Callable[[MessageView], Any] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """A compiled filter, from compile_filter.

    matches: takes a MessageView; returns True, False, or None for Unknown, which is no match (SB-F12). Raises
             FilterEvaluationError.
    always:  the constant result of a filter that does not depend on the message, otherwise None.
    """

    text: str
    parameters: Mapping[str, Any]
    matches: Callable[[MessageView], bool | None] = field(compare=False, repr=False)
    always: bool | None = field(compare=False, repr=False)
    leading: Leading | None = field(compare=False, repr=False)

    @property
    def key(self) -> tuple:
        """Equal for filters with the same text and parameters."""
        stored = encode_properties(self.parameters).items()
        return self.text, tuple(sorted((name.lower(), *value) for name, value in stored))


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """Matches every message: `1=1` in the service."""

    text: ClassVar[str] = "1=1"
    always: ClassVar[bool] = True

    def matches(self, view: MessageView) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """Matches no message: `1=0` in the service."""

    text: ClassVar[str] = "1=0"
    always: ClassVar[bool] = False

    def matches(self, view: MessageView) -> bool:
        return False


def compile_filter(text: str, parameters: Mapping[str, Any] | None = None) -> SqlFilter:
    """Compile a filter (SB-F01). parameters: values by name, with or without the @.

    Raises InvalidFilter with the column of a syntax error, and InvalidArgument for an invalid parameter.
    """
    return _compile(text, parameters) if parameters or not isinstance(text, str) else _compile_once(text)


def _compile(text: str, parameters: Mapping[str, Any] | None = None) -> SqlFilter:
    tree = parse_filter(text, parameters)
    matches = compile_predicate(tree)
    return SqlFilter(text, dict(parameters or {}), matches, _always(tree, matches), _leading(tree))


_compile_once = lru_cache(maxsize=4096)(_compile)  # when one rule of a topic changes, all its rules are compiled again


def _always(tree: syntax.Predicate, matches: Callable) -> bool | None:
    if any(isinstance(node, _MESSAGE_DEPENDENT) for node in syntax.walk(tree)):
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
