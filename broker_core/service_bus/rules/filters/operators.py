"""Comparison and arithmetic of values in filters and actions.

None stands for Unknown; an operation with an Unknown operand is Unknown (SB-F11). An invalid operation raises
FilterEvaluationError (SB-218).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from broker_core.common.errors import FilterEvaluationError
from broker_core.service_bus.rules.limits import STRICT

TEXT, NUMBER, BOOLEAN, INSTANT, DURATION = "a string", "a number", "a boolean", "a timestamp", "a duration"
_KINDS = {
    str: TEXT,
    bool: BOOLEAN,
    int: NUMBER,
    float: NUMBER,
    datetime: INSTANT,
    timedelta: DURATION,
    UUID: "a UUID",
    bytes: "binary data",
}
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ORDERED = frozenset({TEXT, NUMBER, INSTANT, DURATION})


def kind_of(value: Any) -> str:
    """The kind of a value, as named in errors; two values are comparable if they are of the same kind (SB-F05)."""
    kind = _KINDS.get(value.__class__)
    if kind is None:
        kind = next((kind for of, kind in _KINDS.items() if isinstance(value, of)), f"a {type(value).__name__}")
    return kind


def failure(position: int, problem: str) -> FilterEvaluationError:
    return FilterEvaluationError(f"column {position + 1}: {problem}")


def compare(symbol: str, left: Any, right: Any, position: int) -> bool | None:
    """left symbol right. Strings are compared case-sensitively (SB-922); numbers by value, of any types (SB-F05)."""
    if left is None or right is None:
        return None
    kind, other = kind_of(left), kind_of(right)
    if kind != other:
        raise failure(position, f"{kind} cannot be compared with {other}")
    if kind not in ORDERED and symbol not in ("=", "<>"):
        raise failure(position, f"{kind} has no order; compare it with = or <>")
    try:
        return COMPARISONS[symbol](left, right)
    except TypeError as exc:  # an instant without a time zone
        raise failure(position, str(exc)) from exc


def calculate(symbol: str, left: Any, right: Any, position: int) -> Any:
    """left symbol right, as in C#: integer division truncates towards zero; + concatenates strings (SB-F06, SB-F07)."""
    if left is None or right is None:
        return None
    kinds = kind_of(left), kind_of(right)
    try:
        if kinds == (NUMBER, NUMBER):
            return _in_range(_NUMBERS[symbol](left, right), position)
        if symbol == "+" and TEXT in kinds:
            return _joined(as_text(left, position), as_text(right, position), position)
        if (symbol, *kinds) in _TIMES:
            return _NUMBERS[symbol](left, right)
    except ZeroDivisionError as exc:
        raise failure(position, "division by zero") from exc
    except (OverflowError, TypeError) as exc:
        raise failure(position, str(exc)) from exc
    raise failure(position, f"{kinds[0]} {symbol} {kinds[1]} is not defined")


def signed(symbol: str, value: Any, position: int) -> Any:
    """+value or -value."""
    if value is None:
        return None
    if kind_of(value) not in (NUMBER, DURATION):
        raise failure(position, f"{kind_of(value)} cannot be negated")
    if symbol == "+":
        return value
    try:
        return _in_range(-value, position)
    except OverflowError as exc:
        raise failure(position, str(exc)) from exc


def as_text(value: Any, position: int) -> str:
    """A string, number, boolean or UUID as C# formats it."""
    match value:
        case str():
            return value
        case bool() | int() | UUID():
            return str(value)
        case float():
            return repr(value).removesuffix(".0")
    raise failure(position, f"{kind_of(value)} cannot be converted to a string")


def _joined(left: str, right: str, position: int) -> str:
    """The concatenation, with a limit, since the statements of an action could double a string repeatedly (SB-F07)."""
    if len(left) + len(right) > STRICT.one_property:
        raise failure(position, f"the string would exceed {STRICT.one_property:,} characters")
    return left + right


def _in_range(result: Any, position: int) -> Any:
    if result.__class__ is int and not -(2**63) <= result < 2**63:
        raise failure(position, "the result exceeds 64 bits")
    return result


def _divide(left: Any, right: Any) -> Any:
    if isinstance(left, float) or isinstance(right, float):
        return left / right
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _remainder(left: Any, right: Any) -> Any:
    if not isinstance(left, float) and not isinstance(right, float):
        return left - right * _divide(left, right)
    if right == 0:
        raise ZeroDivisionError
    return math.nan if math.isinf(left) else math.fmod(left, right)


_NUMBERS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": _divide, "%": _remainder}
_TIMES = frozenset(
    {
        ("+", INSTANT, DURATION),
        ("-", INSTANT, DURATION),
        ("-", INSTANT, INSTANT),
        ("+", DURATION, DURATION),
        ("-", DURATION, DURATION),
    }
)
