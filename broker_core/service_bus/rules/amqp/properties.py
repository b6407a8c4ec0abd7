"""Application properties: AMQP's simple types, stored losslessly in JSON.

A stored property is `[type, text]`. The text is canonical for its type, so equal values are stored equally and can be searched as
text. The text of a null is None; text with a NUL, which PostgreSQL's JSON cannot hold, is stored as `[type, [base64]]`.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from broker_core.common.arguments import is_storable
from broker_core.common.errors import InvalidArgument
from broker_core.common.typed import Typed

from .types import INTEGERS, decode, encode_as, kind_of, type_of

_TEXTS = ("string", "symbol", "uri", "char", "decimal32", "decimal64", "decimal128", "datetime-offset")
TYPES = ("null", "boolean", *INTEGERS, "float", "double", "timestamp", "uuid", "binary", "timespan", *_TEXTS, "described")
_CHECKED = frozenset({"char", "symbol", "decimal32", "decimal64", "decimal128", "datetime-offset"})  # have values that do not fit


def encode_properties(properties: Mapping[str, Any]) -> dict[str, list]:
    """Application properties as stored. Raises InvalidArgument naming the property that cannot be stored."""
    return {_name(name): encode_property(name, value) for name, value in properties.items()}


def decode_properties(stored: Mapping[str, list]) -> dict[str, Any]:
    """The inverse of encode_properties. A value of a type that Python lacks is returned as Typed, which behaves as the value."""
    return {name: decode_property(kind, text) for name, (kind, text) in stored.items()}


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidArgument("application property", f"a name must be a non-empty string, not {name!r}")
    if "\x00" in name:
        raise InvalidArgument("application property", f"the name {name!r} contains a NUL character, which cannot be stored")
    if not name.isascii() and not is_storable(name):
        raise InvalidArgument("application property", f"the name {name!r} contains an unpaired surrogate")
    return name


def encode_property(name: str, value: Any) -> list:
    """One application property as stored."""
    if value.__class__ is str and value.isascii() and "\x00" not in value:  # the most frequent ones, without the checks below
        return ["string", value]
    if value.__class__ is int and -(2**31) <= value < 2**31:
        return ["int", str(value)]
    kind, value = (value.type, value.value) if isinstance(value, Typed) else (type_of(name, value), value)
    try:
        text = _to_text(kind, value)
        if kind in _CHECKED:
            encode_as(kind, text)
    except (TypeError, ValueError, ArithmeticError, AttributeError) as exc:
        raise InvalidArgument(f"application property {name!r}", f"{value!r} is no {kind}") from exc
    if text is not None and "\x00" in text:
        return [kind, [base64.b64encode(text.encode()).decode()]]
    return [kind, text]


def _to_text(kind: str, value: Any) -> str | None:
    if kind in INTEGERS:
        number, (low, high) = int(value), INTEGERS[kind]
        if isinstance(value, float) or not low <= number <= high:
            raise ValueError(kind)
        return str(number)
    match kind:
        case "null":
            return None
        case "boolean":
            if not isinstance(value, bool):
                raise TypeError(kind)
            return "true" if value else "false"
        case "float":
            return repr(struct.unpack("f", struct.pack("f", value))[0])
        case "double":
            return repr(float(value))
        case "timestamp":
            if type(value) is int:  # milliseconds, for an instant outside the years 1 to 9999
                return str(value)
            if value.tzinfo is None:
                raise ValueError("a timestamp needs a time zone")
            return value.astimezone(UTC).isoformat()
        case "uuid":
            return str(UUID(str(value)))
        case "binary":
            return base64.b64encode(bytes(value)).decode()
        case "described":
            if kind_of(decode(bytes(value))) != kind:
                raise ValueError("no described value")
            return base64.b64encode(bytes(value)).decode()
        case "timespan":  # microseconds, with one decimal place if it needs one
            return str(value // timedelta(microseconds=1) if isinstance(value, timedelta) else Decimal(value))
        case "decimal32" | "decimal64" | "decimal128":
            return str(Decimal(str(value)))
        case _ if kind in _TEXTS:
            if not isinstance(value, str):
                raise TypeError(kind)
            value.encode()  # a lone surrogate cannot be stored
            return value
    raise ValueError(f"unknown type {kind}")


def text_of(text: Any) -> str | None:
    """The text of a stored property, in which it may be base64."""
    return base64.b64decode(text[0]).decode() if isinstance(text, list) else text


def decode_property(kind: str, text: Any) -> Any:
    """The inverse of encode_property."""
    text = text_of(text)
    if text is None:
        return None
    match kind:
        case "boolean":
            return text == "true"
        case "int":
            return int(text)
        case "long":
            # A long within the range of int would be encoded as an int again, so keep the type.
            low, high = INTEGERS["int"]
            return Typed("long", int(text)) if low <= int(text) <= high else int(text)
        case "double":
            return math.nan if text == "nan" else float(text)
        case "string":
            return text
        case "timestamp":
            return datetime.fromisoformat(text) if "T" in text else Typed("timestamp", int(text))
        case "uuid":
            return UUID(text)
        case "binary":
            return base64.b64decode(text)
        case "described":
            return Typed(kind, base64.b64decode(text))
        case "timespan":
            return Typed(kind, Decimal(text)) if "." in text else timedelta(microseconds=int(text))
        case "decimal128":
            return Decimal(text)
        case "decimal32" | "decimal64":
            return Typed(kind, Decimal(text))
        case "float":
            return Typed(kind, float(text))
        case _ if kind in INTEGERS:
            return Typed(kind, int(text))
        case _:
            return Typed(kind, text)


def plain(value: Any) -> Any:
    """The value without its AMQP type."""
    return value.value if isinstance(value, Typed) else value
