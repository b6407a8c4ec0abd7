"""Form rows of application properties and parameters of a filter: a name, an AMQP type and a text each."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from broker_core.common.durations import parse_human_or_iso
from broker_core.common.errors import InvalidArgument
from broker_core.common.typed import Typed
from broker_core.service_bus.rules.amqp.properties import TYPES, decode_property, encode_properties
from explorer.frames.forms.typed import Row, TypedRows


class PropertyRows(TypedRows):
    """Rows of values with AMQP types."""

    types = TYPES

    def value(self, name: str, kind: str, text: str) -> Typed:
        return typed_value(name, kind, text, self.noun)


def rows_of(values: Mapping[str, Any]) -> list[Row]:
    """Stored values as rows."""
    return [(name, kind, text or "") for name, (kind, text) in encode_properties(values).items()]


def typed_value(name: str, kind: str, text: str, noun: str = "application property") -> Typed:
    """The typed text as a value of the chosen AMQP type. Raises InvalidArgument."""
    if kind not in TYPES:
        raise InvalidArgument(name or noun, f"the type {kind!r} must be one of {', '.join(TYPES)}")
    readers: dict[str, Callable[[str], Any]] = {
        "null": lambda t: None, "boolean": _boolean, "timestamp": _timestamp, "binary": _binary, "uuid": UUID,
        "timespan": lambda t: _timespan(t, name), "float": float, "double": float, "described": _binary,
    }  # fmt: skip
    is_integer = "int" in kind or kind in ("long", "ulong", "short", "ushort", "byte", "ubyte")
    try:
        value = Typed(kind, int(text) if is_integer else readers.get(kind, str)(text))
    except (ValueError, binascii.Error) as exc:
        raise InvalidArgument(f"{noun} {name!r}", f"{text!r} is not a valid {kind}") from exc
    encode_properties({name: value})
    return value


def _boolean(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(text)
    return text.strip().lower() == "true"


def _timespan(text: str, name: str) -> timedelta | Decimal | None:
    """A duration as people write it, or as stored: microseconds, with one decimal place if they need it."""
    stored = text.strip().lstrip("-").replace(".", "", 1).isdigit()
    return decode_property("timespan", text.strip()) if stored else parse_human_or_iso(text, name)


def _timestamp(text: str) -> datetime | int:
    if text.strip().lstrip("-").isdigit() and len(text.strip()) > 8:
        return int(text)  # as stored: milliseconds, outside the years 1 to 9999
    at = datetime.fromisoformat(text.strip())
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _binary(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
