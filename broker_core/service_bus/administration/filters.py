"""Filters, actions and their typed parameters in XML (SB, section 7.5). Pure functions.

Readers raise InvalidXml with line and column, InvalidFilter with the column in an expression, and InvalidArgument.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from broker_core.common.durations import format_iso, parse_iso
from broker_core.common.errors import InvalidArgument
from broker_core.common.typed import Typed
from broker_core.service_bus.rules.amqp.properties import encode_property, text_of
from broker_core.service_bus.rules.amqp.types import INTEGERS
from broker_core.service_bus.rules.filters import (
    ELEMENTS,
    Action,
    CorrelationFilter,
    FalseFilter,
    Filter,
    SqlFilter,
    TrueFilter,
    compile_action,
    compile_filter,
)
from broker_core.wire.xml import Element, element

from .elements import SCHEMA, SERVICE_BUS, children_of, instant, type_of

_PAIR = "KeyValueOfstringanyType"
_WHOLE = re.compile("[-+]?[0-9]{1,20}")
_LEVEL = element("CompatibilityLevel", "20")


# Filters and actions


def read_filter(found: Element) -> Filter:
    """Its i:type says which filter it is."""
    kind = type_of(found)
    if kind not in _FILTERS:
        given = f"the i:type {kind[:40]!r}" if kind else "no i:type"
        found.refuse(f"{found.name} has {given}; it must be one of {', '.join(_FILTERS)}")
    return _FILTERS[kind](found)


def write_filter(rule_filter: Filter) -> str:
    match rule_filter:
        case CorrelationFilter():
            texts = [
                element(name, text) for name, field in ELEMENTS.items() if (text := rule_filter.texts.get(field)) is not None
            ]
            parts = [*texts, *_pairs("Properties", rule_filter.properties)]
        case SqlFilter():
            parts = [element("SqlExpression", rule_filter.text), _LEVEL, *_pairs("Parameters", rule_filter.parameters)]
        case TrueFilter() | FalseFilter():
            parts = [element("SqlExpression", rule_filter.text), _LEVEL]
    return element("Filter", parts, **{"i:type": type(rule_filter).__name__})


def read_action(found: Element) -> Action | None:
    """None: there is none."""
    match type_of(found):
        case "SqlRuleAction":
            return compile_action(_expression(found), _parameters(found))
        case "" if not found.children:
            return None
        case "EmptyRuleAction":
            return None
    return found.refuse(f"{found.name} has the i:type {type_of(found)[:40]!r}; it must be SqlRuleAction or EmptyRuleAction")


def write_action(action: Action | None) -> str:
    if action is None:
        return element("Action", None, **{"i:type": "EmptyRuleAction"})
    parts = [element("SqlExpression", action.text), _LEVEL, *_pairs("Parameters", action.parameters)]
    return element("Action", parts, **{"i:type": "SqlRuleAction"})


def _expression(found: Element) -> str:
    expression = children_of(found, ("SqlExpression",)).get("SqlExpression")
    if expression is None:
        found.refuse(f"{found.name} has no element SqlExpression")
    return expression.text


def _parameters(found: Element) -> dict[str, Any]:
    parameters = children_of(found, ("Parameters",)).get("Parameters")
    return {} if parameters is None else _read_pairs(parameters)


def _correlation(found: Element) -> CorrelationFilter:
    parts = children_of(found, (*ELEMENTS, "Properties"))
    texts = {field: parts[name].text for name, field in ELEMENTS.items() if name in parts}
    properties = _read_pairs(parts["Properties"]) if "Properties" in parts else {}
    if not texts and not properties:
        found.refuse(f"{found.name} has no conditions; it needs at least one of {', '.join(ELEMENTS)} or a property")
    return CorrelationFilter(**texts, properties=properties)


_FILTERS: dict[str, Callable[[Element], Filter]] = {
    "SqlFilter": lambda found: compile_filter(_expression(found), _parameters(found)),
    "TrueFilter": lambda found: TrueFilter(),
    "FalseFilter": lambda found: FalseFilter(),
    "CorrelationFilter": _correlation,
}


# Typed values


def _read_pairs(parent: Element) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for pair in parent.children:
        if (pair.namespace, pair.name) != (SERVICE_BUS, _PAIR):
            continue
        parts = children_of(pair, ("Key", "Value"))
        if "Key" not in parts or "Value" not in parts:
            pair.refuse(f"{_PAIR} needs an element Key and an element Value")
        key = parts["Key"].text
        if key in values:
            pair.refuse(f"the key {key[:80]!r} is given twice")
        values[key] = _read_value(parts["Value"])
    return values


def _read_value(found: Element) -> Any:
    kind, text = type_of(found), found.text
    if kind not in _READ:
        found.refuse(f"Value has {f'the i:type {kind[:40]!r}' if kind else 'no i:type'}; it must be one of {', '.join(_READ)}")
    try:
        return _READ[kind](text if kind == "string" else text.strip())
    except (ValueError, OverflowError, InvalidArgument):
        return found.refuse(f"{text[:80]!r} is no {kind}")


def _integer(kind: str) -> Callable[[str], Any]:
    low, high = INTEGERS[kind]

    def read(text: str) -> Any:
        if not _WHOLE.fullmatch(text) or not low <= int(text) <= high:
            raise ValueError(text)
        return Typed(kind, int(text)) if kind == "long" else int(text)

    return read


def _double(text: str) -> float:
    if "_" in text or not text.isascii():
        raise ValueError(text)
    return float(text)


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise ValueError(text)
    return text.lower() in ("true", "1")


def _instant(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)


def _duration(text: str) -> timedelta:
    duration = parse_iso(text)
    if duration is None:
        raise ValueError(text)
    return duration


_READ: dict[str, Callable[[str], Any]] = {
    "string": str,
    "int": _integer("int"),
    "long": _integer("long"),
    "double": _double,
    "boolean": _boolean,
    "dateTime": _instant,
    "duration": _duration,
}
# The names of AMQP's types, in which values are stored. Those that other front ends can store become the nearest one.
_WRITTEN_AS = {
    **dict.fromkeys(("int", "short", "byte", "ushort", "ubyte"), "int"),
    **dict.fromkeys(("long", "uint", "ulong"), "long"),
    **dict.fromkeys(("double", "float", "decimal32", "decimal64", "decimal128"), "double"),
    "boolean": "boolean",
    "timestamp": "dateTime",
    "timespan": "duration",
}


def _pairs(name: str, values: Mapping[str, Any]) -> list[str]:
    """No element for no values, which is what clients expect."""
    pairs = [element(_PAIR, [element("Key", key), _value(key, value)]) for key, value in values.items()]
    return [element(name, pairs)] if pairs else []


def _value(key: str, value: Any) -> str:
    """JavaScript's client expects the prefixes `i` and one of four characters."""
    stored_as, text = encode_property(key, value)
    kind = _WRITTEN_AS.get(stored_as, "string")
    return element("Value", _text(kind, value, text_of(text) or ""), **{"i:type": f"d6p1:{kind}", "xmlns:d6p1": SCHEMA})


def _text(kind: str, value: Any, stored: str) -> str:
    if kind == "double":
        number = float(value)
        return repr(number) if math.isfinite(number) else "NaN" if math.isnan(number) else "INF" if number > 0 else "-INF"
    if kind == "dateTime" and isinstance(value, datetime):
        return instant(value)
    if kind == "duration" and isinstance(value, timedelta):
        return format_iso(value)
    return stored
