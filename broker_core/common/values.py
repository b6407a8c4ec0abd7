"""Application properties: AMQP's simple types, stored losslessly in JSON.

A stored property is `[type, text]`. The text is canonical for its type, so equal values are stored equally and can be searched as
text. The text of a null is None.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from .errors import InvalidArgument
from .typed import Typed

__all__ = ["TYPES", "Typed", "decode_properties", "encode_properties", "plain"]

_INTEGERS = {
    "ubyte": (0, 2**8 - 1),
    "ushort": (0, 2**16 - 1),
    "uint": (0, 2**32 - 1),
    "ulong": (0, 2**64 - 1),
    "byte": (-(2**7), 2**7 - 1),
    "short": (-(2**15), 2**15 - 1),
    "int": (-(2**31), 2**31 - 1),
    "long": (-(2**63), 2**63 - 1),
}
_TEXTS = ("string", "symbol", "uri", "char", "decimal32", "decimal64", "decimal128", "datetime-offset")
TYPES = ("null", "boolean", *_INTEGERS, "float", "double", "timestamp", "uuid", "binary", "timespan", *_TEXTS)


def encode_properties(properties: Mapping[str, Any]) -> dict[str, list]:
    """Application properties as stored. Raises InvalidArgument naming the property that cannot be stored."""
    return {_name(name): _encode(name, value) for name, value in properties.items()}


def decode_properties(stored: Mapping[str, list]) -> dict[str, Any]:
    """The inverse of encode_properties. A value of a type that Python lacks is returned as Typed, which behaves as the value."""
    return {name: _decode(kind, text) for name, (kind, text) in stored.items()}


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name:
        raise InvalidArgument("application property", f"a name must be a non-empty string, not {name!r}")
    if "\x00" in name:
        raise InvalidArgument("application property", f"the name {name!r} contains a NUL character, which cannot be stored")
    return name


def _encode(name: str, value: Any) -> list:
    kind, value = (value.type, value.value) if isinstance(value, Typed) else (_type_of(name, value), value)
    try:
        text = _to_text(kind, value)
    except (TypeError, ValueError, ArithmeticError, AttributeError) as exc:
        raise InvalidArgument(f"application property {name!r}", f"{value!r} is no {kind}") from exc
    if text is not None and "\x00" in text:
        raise InvalidArgument(
            f"application property {name!r}", "contains a NUL character, which cannot be stored; send it as bytes"
        )
    return [kind, text]


def _type_of(name: str, value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            low, high = _INTEGERS["int"]
            return "int" if low <= value <= high else "long"
        case float():
            return "double"
        case str():
            return "string"
        case bytes() | bytearray() | memoryview():
            return "binary"
        case datetime():
            return "timestamp"
        case timedelta():
            return "timespan"
        case UUID():
            return "uuid"
        case Decimal():
            return "decimal128"
    raise InvalidArgument(
        f"application property {name!r}",
        f"a {type(value).__name__} is not a simple type; use text, numbers, bool, bytes, datetime, timedelta, UUID or None",
    )


def _to_text(kind: str, value: Any) -> str | None:
    if kind in _INTEGERS:
        number, (low, high) = int(value), _INTEGERS[kind]
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
        case "float" | "double":
            return repr(float(value))
        case "timestamp":
            if value.tzinfo is None:
                raise ValueError("a timestamp needs a time zone")
            return value.astimezone(UTC).isoformat()
        case "uuid":
            return str(UUID(str(value)))
        case "binary":
            return base64.b64encode(bytes(value)).decode()
        case "timespan":
            return str(value // timedelta(microseconds=1))
        case "decimal32" | "decimal64" | "decimal128":
            return str(Decimal(str(value)))
        case _ if kind in _TEXTS:
            if not isinstance(value, str):
                raise TypeError(kind)
            value.encode()  # a lone surrogate cannot be stored
            return value
    raise ValueError(f"unknown type {kind}")


def _decode(kind: str, text: str | None) -> Any:
    if text is None:
        return None
    match kind:
        case "boolean":
            return text == "true"
        case "int":
            return int(text)
        case "long":
            # A long within the range of int would be encoded as an int again, so keep the type.
            low, high = _INTEGERS["int"]
            return Typed("long", int(text)) if low <= int(text) <= high else int(text)
        case "double":
            return math.nan if text == "nan" else float(text)
        case "string":
            return text
        case "timestamp":
            return datetime.fromisoformat(text)
        case "uuid":
            return UUID(text)
        case "binary":
            return base64.b64decode(text)
        case "timespan":
            return timedelta(microseconds=int(text))
        case "decimal128":
            return Decimal(text)
        case "decimal32" | "decimal64":
            return Typed(kind, Decimal(text))
        case "float":
            return Typed(kind, float(text))
        case _ if kind in _INTEGERS:
            return Typed(kind, int(text))
        case _:
            return Typed(kind, text)


def plain(value: Any) -> Any:
    """The value without its AMQP type."""
    return value.value if isinstance(value, Typed) else value
