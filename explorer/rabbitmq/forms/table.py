"""Form rows of arguments and headers: a name, a type and a text each."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from broker_core.common.errors import InvalidArgument
from explorer.frames.forms.typed import Row, TypedRows

TYPES = ("string", "number", "boolean", "list", "table", "timestamp", "void")


class TableRows(TypedRows):
    """Rows of a field table. A list or table is typed as JSON; void has no text (in a headers binding: present is enough)."""

    types = TYPES

    def check_name(self, name: str, values: dict[str, Any]) -> None:
        if not name:
            raise InvalidArgument(self.noun, "a value has no name; enter a name or clear the row")
        if name in values:
            raise InvalidArgument(self.noun, f"{name!r} is given twice")

    def value(self, name: str, kind: str, text: str) -> Any:
        return table_value(name, kind, text, self.noun)


def table_value(name: str, kind: str, text: str, noun: str = "argument") -> Any:
    """The typed text as a value of the chosen type. Raises InvalidArgument."""
    readers: dict[str, Callable[[str], Any]] = {
        "string": str, "number": _number, "boolean": _boolean, "list": _list, "table": _table, "timestamp": _timestamp,
        "void": lambda text: None,
    }  # fmt: skip
    if kind not in readers:
        raise InvalidArgument(f"{noun} {name!r}", f"the type {kind!r} must be one of {', '.join(TYPES)}")
    try:
        return readers[kind](text)
    except ValueError as exc:
        raise InvalidArgument(f"{noun} {name!r}", f"{text!r} is not a valid {kind}") from exc


def rows_of(values: Mapping[str, Any]) -> list[Row]:
    """Plain values as form rows."""
    return [(name, *_row(value)) for name, value in values.items()]


def _row(value: Any) -> tuple[str, str]:
    match value:
        case None:
            return "void", ""
        case bool():
            return "boolean", str(value).lower()
        case int() | float():
            return "number", str(value)
        case datetime():
            return "timestamp", value.isoformat()
        case list() | tuple():
            return "list", json.dumps(list(value), ensure_ascii=False, default=str)
        case dict():
            return "table", json.dumps(value, ensure_ascii=False, default=str)
    return "string", str(value)


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return _finite(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _boolean(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(text)
    return text.strip().lower() == "true"


def _timestamp(text: str) -> datetime:
    at = datetime.fromisoformat(text.strip())
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).replace(microsecond=0)


def _list(text: str) -> list:
    return _json(text, list)


def _table(text: str) -> dict:
    return _json(text, dict)


def _json(text: str, kind: type) -> Any:
    try:
        parsed = json.loads(text, parse_float=_finite, parse_constant=_no_constant)
    except RecursionError as exc:
        raise ValueError("nested too deeply") from exc
    if not isinstance(parsed, kind):
        raise ValueError(text)
    return parsed


def _no_constant(text: str):
    raise ValueError(text)
