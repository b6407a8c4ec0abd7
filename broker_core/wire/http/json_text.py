"""Read and write JSON. Pure functions. Each error names the location of the problem.

A location is a header's name or a JSON path, such as `BrokerProperties.TimeToLive` or `[3].UserProperties.colour`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from broker_core.common.errors import InvalidArgument


def read_json(text: str | bytes, where: str) -> Any:
    """Parse strict JSON (no NaN). Raises InvalidArgument with `where`, line and column."""
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as exc:
        raise InvalidArgument(where, f"is not valid JSON: {exc.msg} at line {exc.lineno}, column {exc.colno}") from exc
    except (ValueError, RecursionError) as exc:
        raise InvalidArgument(where, f"is not valid JSON: {exc}") from exc


def write_json(value: Any) -> str:
    """JSON in ASCII without control characters, so that it is valid in a header."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("\x7f", "\\u007f")


def require_text(value: Any, where: str) -> str:
    """Raise InvalidArgument unless the value is a string that can be stored."""
    if not isinstance(value, str):
        raise InvalidArgument(where, f"must be a string, not {describe(value)}")
    if "\x00" in value or any("\ud800" <= c <= "\udfff" for c in value):
        raise InvalidArgument(where, "contains a character that cannot be stored (NUL, or an unpaired surrogate)")
    return value


def require_object(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise InvalidArgument(where, f"must be a JSON object, not {describe(value)}")
    return value


def describe(value: Any) -> str:
    """A JSON value for an error text: its type, and the value if it is short."""
    match value:
        case dict():
            return "an object"
        case list():
            return "an array"
        case str():
            return f"the string {value[:40]!r}"
    return json.dumps(value)[:40]


def _refuse_constant(name: str):
    raise ValueError(f"{name} is not a JSON number")
