"""Read and write the texts of the REST API: JSON, dates, scalars. Pure functions. Each error names the location of the problem.

A location is a header's name or a JSON path, such as `BrokerProperties.TimeToLive` or `[3].UserProperties.colour`.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from broker_core.common.durations import format_iso
from broker_core.common.errors import InvalidArgument
from broker_core.service_bus.rules.amqp.properties import plain

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_RFC1123 = re.compile(
    rf"(?:{'|'.join(_DAYS)}), (?P<day>[0-9]{{2}}) (?P<month>{'|'.join(_MONTHS)}) (?P<year>[0-9]{{4}}) "
    r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2}) GMT"
)
_LONG = range(-(2**63), 2**63)


def read_rfc1123(text: str) -> datetime | None:
    """`Sun, 06 Nov 1994 08:49:37 GMT` as aware UTC, None for anything else. The weekday is not checked."""
    match = _RFC1123.fullmatch(text)
    if not match:
        return None
    month = _MONTHS.index(match["month"]) + 1
    try:
        day, hour, minute, second = (int(match[name]) for name in ("day", "hour", "minute", "second"))
        return datetime(int(match["year"]), month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None


def write_rfc1123(instant: datetime) -> str:
    """An RFC 1123 date, in English for any locale; fractions of a second are truncated."""
    t = instant.astimezone(UTC)
    return f"{_DAYS[t.weekday()]}, {t.day:02} {_MONTHS[t.month - 1]} {t.year:04} {t.hour:02}:{t.minute:02}:{t.second:02} GMT"


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


def read_scalar(value: Any, where: str) -> str | bool | int | float | None:
    """A JSON value as an application property: a string, a number, true, false or null."""
    if isinstance(value, str):
        return require_text(value, where)
    if isinstance(value, (dict, list)):
        raise InvalidArgument(where, f"must be a string, a number, true, false or null, not {describe(value)}")
    too_large = math.isinf(value) if isinstance(value, float) else isinstance(value, int) and value not in _LONG
    if too_large:
        raise InvalidArgument(where, "is out of range: whole numbers have 64 bits, others are doubles")
    return value


def write_scalar(value: Any) -> str | bool | int | float | None:
    """An application property as a JSON value; types that JSON does not have become strings (RFC 1123 dates, base64 ...)."""
    value = plain(value)
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case Decimal():
            return float(value) if value.is_finite() and Decimal(float(value)) == value else str(value)
    return _as_text(value)


def _as_text(value: Any) -> str:
    match value:
        case datetime():
            return write_rfc1123(value)
        case timedelta():
            return format_iso(value)
        case bytes():
            return base64.b64encode(value).decode()
    return str(value)


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
