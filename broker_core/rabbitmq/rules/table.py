"""Field tables: AMQP 0-9-1 headers and arguments, stored losslessly in JSON.

A stored value is `[type, text]` with the canonical text of its type, so that equal values are stored equally; a void has no
text; an array is `["array", [stored, ...]]`, a table `["table", {name: stored}]`. A longstr that PostgreSQL's JSON cannot
store as text, because it contains a NUL or is not UTF-8, is stored as `["longstr", [base64]]`. Types are named as in
RabbitMQ's error texts. These Python types need no `Typed`: int (signedint, or long if it does not fit), str, bytes (binary),
float, bool, None, Decimal, datetime (whole seconds), list, dict.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from broker_core.common.errors import InvalidArgument
from broker_core.common.typed import Typed

__all__ = ["INTEGERS", "MAX_DEPTH", "MAX_NAME", "Typed", "decode", "encode", "plain", "typed"]

INTEGERS = {
    "byte": (-(2**7), 2**7 - 1),
    "unsignedbyte": (0, 2**8 - 1),
    "short": (-(2**15), 2**15 - 1),
    "unsignedshort": (0, 2**16 - 1),
    "signedint": (-(2**31), 2**31 - 1),
    "unsignedint": (0, 2**32 - 1),
    "long": (-(2**63), 2**63 - 1),
}
MAX_NAME = 255  # bytes: a name is a short string
MAX_DEPTH = 100  # nesting of tables and arrays, limited to protect the stack

_DECIMAL = (-(2**31), 2**31 - 1)  # unscaled


def encode(table: Mapping[str, Any], what: str = "header") -> dict[str, list]:
    """A table as stored. Raises InvalidArgument for a value that cannot be stored; `what` names it in the error text."""
    return {_name(name, what): _encode(f"{what} {name!r}", value, 0) for name, value in table.items()}


def decode(stored: Mapping[str, list]) -> dict[str, Any]:
    """The inverse of `encode`; types that Python lacks become Typed, which behaves as the value."""
    return {name: _decode(kind, content) for name, (kind, content) in stored.items()}


def typed(value: Any) -> tuple[str, Any]:
    """The type of a value, and the value without it."""
    return (value.type, value.value) if isinstance(value, Typed) else (_type_of("value", value), value)


def plain(value: Any) -> Any:
    """The value without its types, recursively."""
    match value:
        case Typed():
            return plain(value.value)
        case Mapping():
            return {name: plain(v) for name, v in value.items()}
        case list() | tuple():
            return [plain(v) for v in value]
    return value


def _name(name: Any, what: str) -> str:
    if not isinstance(name, str):
        raise InvalidArgument(what, f"a name must be a string, not {name!r}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as exc:
        raise InvalidArgument(what, f"the name {name!r} is not valid UTF-8") from exc
    if size > MAX_NAME or "\x00" in name:
        raise InvalidArgument(what, f"the name {name[:80]!r} must have at most {MAX_NAME} bytes and no NUL character")
    return name


def _encode(what: str, value: Any, depth: int) -> list:
    if depth > MAX_DEPTH:
        raise InvalidArgument(what, f"tables and arrays are nested more than {MAX_DEPTH} deep")
    kind, value = (value.type, value.value) if isinstance(value, Typed) else (_type_of(what, value), value)
    try:
        content = _content(what, kind, value, depth)
    except (TypeError, ValueError, ArithmeticError, AttributeError) as exc:
        raise InvalidArgument(what, f"{value!r} is no {kind}") from exc
    return [kind, content]


def _type_of(what: str, value: Any) -> str:
    match value:
        case None:
            return "void"
        case bool():
            return "bool"
        case int():
            low, high = INTEGERS["signedint"]
            return "signedint" if low <= value <= high else "long"
        case float():
            return "double"
        case str():
            return "longstr"
        case bytes() | bytearray() | memoryview():
            return "binary"
        case datetime():
            return "timestamp"
        case Decimal():
            return "decimal"
        case Mapping():
            return "table"
        case list() | tuple():
            return "array"
    raise InvalidArgument(
        what,
        f"a {type(value).__name__} has no type in a field table; use text, numbers, bool, bytes, datetime, Decimal, None, "
        "lists or dicts",
    )


def _content(what: str, kind: str, value: Any, depth: int) -> Any:
    if kind in INTEGERS:
        low, high = INTEGERS[kind]
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(kind)
        return str(value)
    match kind:
        case "void":
            return None
        case "bool":
            if not isinstance(value, bool):
                raise TypeError(kind)
            return "true" if value else "false"
        case "float":
            return repr(struct.unpack("f", struct.pack("f", value))[0])
        case "double":
            return repr(float(value))
        case "decimal":
            return _decimal(value)
        case "timestamp":
            return str(_seconds(value))
        case "binary":
            return base64.b64encode(bytes(value)).decode()
        case "longstr":
            return _longstr(value)
        case "array":
            return [_encode(what, item, depth + 1) for item in value]
        case "table":
            return {_name(name, what): _encode(f"{what}.{name}", item, depth + 1) for name, item in value.items()}
    raise ValueError(f"unknown type {kind}")


def _longstr(value: Any) -> str | list[str]:
    data = value.encode() if isinstance(value, str) else bytes(value) if isinstance(value, bytes) else None
    if data is None:
        raise TypeError("longstr")
    text = _text_of(data)
    return text if text is not None and "\x00" not in text else [base64.b64encode(data).decode()]


def _undecoded(data: bytes) -> str | Typed:
    text = _text_of(data)
    return Typed("longstr", data) if text is None else text


def _text_of(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None


def _decimal(value: Any) -> str:
    """A decimal is a 32-bit integer with a scale."""
    value = Decimal(str(value))
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or exponent < -255 or not _DECIMAL[0] <= value.scaleb(-min(exponent, 0)) <= _DECIMAL[1]:
        raise ValueError("decimal")
    return format(value, "f")


def _seconds(value: Any) -> int:
    if isinstance(value, datetime):
        if value.tzinfo is None or value.microsecond:
            raise ValueError("a timestamp needs a time zone, and has whole seconds")
        value = int(value.timestamp())
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**64:
        raise ValueError("timestamp")
    return value


def _decode(kind: str, content: Any) -> Any:
    match kind:
        case "void":
            return None
        case "bool":
            return content == "true"
        case "signedint":
            return int(content)
        case "long":
            # A long within signedint's range would be encoded as signedint: keep the type.
            low, high = INTEGERS["signedint"]
            return Typed("long", int(content)) if low <= int(content) <= high else int(content)
        case "double":
            return math.nan if content == "nan" else float(content)
        case "float":
            return Typed(kind, float(content))
        case "longstr":
            return content if isinstance(content, str) else _undecoded(base64.b64decode(content[0]))
        case "decimal":
            return Decimal(content)
        case "timestamp":
            return _instant(int(content))
        case "binary":
            return base64.b64decode(content)
        case "array":
            return [_decode(k, c) for k, c in content]
        case "table":
            return decode(content)
        case _:
            return Typed(kind, int(content))


def _instant(seconds: int) -> Any:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):  # some clients send milliseconds
        return Typed("timestamp", seconds)
