"""Application properties as JSON values, both ways. Pure functions. Each error names the location of the problem."""

from __future__ import annotations

import base64
import math
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from broker_core.common.durations import format_iso
from broker_core.common.errors import InvalidArgument
from broker_core.service_bus.rules.amqp.properties import plain
from broker_core.wire.http.dates import write_rfc1123
from broker_core.wire.http.json_text import describe, require_text

_LONG = range(-(2**63), 2**63)


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
