"""Named values with a chosen AMQP type: application properties, parameters of a filter."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from django.http import QueryDict

from broker_core.common.durations import parse_human_or_iso
from broker_core.common.errors import InvalidArgument
from broker_core.common.values import TYPES, Typed, decode_property, encode_properties

EMPTY_ROWS = 3
Row = tuple[str, str, str]  # name, type, text


class TypedRows:
    """The rows of a form with the fields prefix_name, prefix_type and prefix_value, each once per row.

    what: the noun for a row, for labels and errors. least: the minimum number of rows shown.
    """

    types = TYPES

    def __init__(self, prefix: str, what: str, data: QueryDict | None, initial: Sequence[Row] = (), *, least: int = EMPTY_ROWS):
        self.prefix, self.what, self._least = prefix, what, least
        self.given = list(initial) if data is None else _given(data, prefix)
        self.errors: list[str] = []

    @property
    def rows(self) -> list[Row]:
        """The rows as typed, followed by empty ones."""
        return self.given + [("", "string", "")] * max(1, self._least - len(self.given))

    def values(self) -> dict[str, Typed]:
        """The values by name; those that are invalid are reported in `errors`."""
        self.errors, found = [], {}
        for name, kind, text in self.given:
            try:
                found[name.strip()] = typed_value(name.strip(), kind, text, self.what)
            except InvalidArgument as exc:
                self.errors.append(str(exc))
        return found


def rows_of(values: Mapping[str, Any]) -> list[Row]:
    """Stored values as rows."""
    return [(name, kind, text or "") for name, (kind, text) in encode_properties(values).items()]


def _given(data: QueryDict, prefix: str) -> list[Row]:
    columns = (data.getlist(f"{prefix}_{part}") for part in ("name", "type", "value"))
    return [row for row in zip(*columns, strict=False) if row[0].strip() or row[2].strip()]


def typed_value(name: str, kind: str, text: str, what: str = "application property") -> Typed:
    """The typed text as a value of the chosen AMQP type. Raises InvalidArgument."""
    if kind not in TYPES:
        raise InvalidArgument(name or what, f"the type {kind!r} must be one of {', '.join(TYPES)}")
    readers: dict[str, Callable[[str], Any]] = {
        "null": lambda t: None, "boolean": _boolean, "timestamp": _timestamp, "binary": _binary, "uuid": UUID,
        "timespan": lambda t: _timespan(t, name), "float": float, "double": float, "described": _binary,
    }  # fmt: skip
    is_integer = "int" in kind or kind in ("long", "ulong", "short", "ushort", "byte", "ubyte")
    try:
        value = Typed(kind, int(text) if is_integer else readers.get(kind, str)(text))
    except (ValueError, binascii.Error) as exc:
        raise InvalidArgument(f"{what} {name!r}", f"{text!r} is not a valid {kind}") from exc
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
