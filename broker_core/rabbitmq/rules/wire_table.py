"""Header tables as AMQP 0-9-1 encodes them: bytes to values and back, in RabbitMQ's dialect.

A stored message has its headers as JSON (table.py), for routing, dead-lettering, search and pages, and beside it the table as
its publisher encoded it, if the JSON is not complete: the order of the headers, an empty table, a choice of encoding. The JSON
decides: `merged` writes the current headers, and unchanged ones as they were published. A table comes without its own length.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, NamedTuple

from broker_core.common.errors import InvalidArgument

from . import table
from .table import MAX_DEPTH, Typed, typed

_FIXED = {
    "b": ("byte", struct.Struct(">b")),
    "B": ("unsignedbyte", struct.Struct(">B")),
    "s": ("short", struct.Struct(">h")),
    "u": ("unsignedshort", struct.Struct(">H")),
    "I": ("signedint", struct.Struct(">i")),
    "i": ("unsignedint", struct.Struct(">I")),
    "l": ("long", struct.Struct(">q")),
    "L": ("long", struct.Struct(">q")),
    "f": ("float", struct.Struct(">f")),
    "d": ("double", struct.Struct(">d")),
    "T": ("timestamp", struct.Struct(">Q")),
}
_CODES = {kind: (code.encode(), format) for code, (kind, format) in _FIXED.items() if code != "L"}
_U32, _DECIMAL = struct.Struct(">I"), struct.Struct(">Bi")


class _Entry(NamedTuple):
    """A header: its name, its value, and both as they are encoded."""

    name: str
    value: Any
    raw: bytes


class _Bad(ValueError):
    """The bytes are no table; the text says why."""


def decode(encoded: bytes) -> dict[str, Any]:
    """The headers of an encoded table, as `table` has them; of a name that appears twice, the first. Raises InvalidArgument."""
    return _by_name(_entries(encoded))


def to_store(encoded: bytes | None, stored: Mapping[str, list] | None) -> bytes | None:
    """What is stored beside the JSON of the headers; None: nothing. encoded: the table that they were decoded from."""
    return None if merged(None, stored) == encoded else encoded


def merged(encoded: bytes | None, stored: Mapping[str, list] | None) -> bytes | None:
    """The table to deliver; None: the message has none. stored: the headers as they are now."""
    if encoded is None:
        return None if stored is None else _table(table.decode(stored))
    entries = _entries(encoded)
    if table.encode(_by_name(entries)) == (stored or {}):
        return encoded
    left, parts = dict(stored or {}), []
    for entry in entries:
        present = left.pop(entry.name, None)
        if present is not None:
            is_same = table.encode({entry.name: entry.value}) == {entry.name: present}
            parts.append(entry.raw if is_same else _pair(entry.name, table.decode({"": present})[""]))
    return b"".join(parts) + _table(table.decode(left))


# Reading


def _entries(encoded: bytes) -> list[_Entry]:
    try:
        return _read_table(encoded, 0, len(encoded), 0)
    except _Bad as exc:
        raise InvalidArgument("headers", f"are no valid table of AMQP 0-9-1: {exc}") from exc


def _by_name(entries: list[_Entry]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for entry in entries:
        values.setdefault(entry.name, entry.value)
    return values


def _read_table(data: bytes, at: int, end: int, depth: int) -> list[_Entry]:
    entries = []
    while at < end:
        begin = at
        size = data[at]
        _require(at + 1 + size, end)
        try:
            name = data[at + 1 : at + 1 + size].decode()
        except UnicodeDecodeError as exc:
            raise _Bad(f"the name at byte {at} is not valid UTF-8") from exc
        if "\x00" in name:
            raise _Bad(f"the name at byte {at} contains a NUL character, which cannot be stored")
        value, at = _read(data, at + 1 + size, end, depth)
        entries.append(_Entry(name, value, data[begin:at]))
    return entries


def _read(data: bytes, at: int, end: int, depth: int) -> tuple[Any, int]:
    """The value whose type is at a byte, and where it ends."""
    if depth > MAX_DEPTH:
        raise _Bad(f"tables and arrays are nested more than {MAX_DEPTH} deep")
    _require(at + 1, end)
    code, at = chr(data[at]), at + 1
    if code in _FIXED:
        kind, format = _FIXED[code]
        _require(at + format.size, end)
        return _as_python(kind, format.unpack_from(data, at)[0]), at + format.size
    match code:
        case "V":
            return None, at
        case "t":
            _require(at + 1, end)
            return data[at] != 0, at + 1
        case "D":
            _require(at + _DECIMAL.size, end)
            scale, unscaled = _DECIMAL.unpack_from(data, at)
            return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale)), at + _DECIMAL.size
    if code not in "SxAF":
        raise _Bad(f"{code!r} at byte {at - 1} is no type of a field")
    _require(at + 4, end)
    (size,), at = _U32.unpack_from(data, at), at + 4
    _require(at + size, end)
    match code:
        case "S":
            return _as_python("longstr", data[at : at + size]), at + size
        case "x":
            return data[at : at + size], at + size
        case "F":
            return _by_name(_read_table(data, at, at + size, depth + 1)), at + size
    items, stop = [], at + size
    while at < stop:
        item, at = _read(data, at, stop, depth + 1)
        items.append(item)
    return items, stop


def _as_python(kind: str, content: Any) -> Any:
    """A value as `table` returns it: without its type where Python has one."""
    return table.decode(table.encode({"": Typed(kind, content)}))[""]


def _require(at: int, end: int) -> None:
    if at > end:
        raise _Bad(f"it ends at byte {end} within a value")


# Writing


def _table(headers: Mapping[str, Any]) -> bytes:
    """A table in the order that PostgreSQL gives to JSON."""
    ordered = sorted(headers.items(), key=lambda pair: (len(pair[0].encode()), pair[0].encode()))
    return b"".join(_pair(name, value) for name, value in ordered)


def _pair(name: str, value: Any) -> bytes:
    encoded = name.encode()
    return bytes((len(encoded),)) + encoded + _value(value)


def _value(value: Any) -> bytes:
    kind, content = typed(value)
    if kind in _CODES:
        code, format = _CODES[kind]
        return code + format.pack(int(content.timestamp()) if hasattr(content, "timestamp") else content)
    match kind:
        case "void":
            return b"V"
        case "bool":
            return b"t\x01" if content else b"t\x00"
        case "decimal":
            scale = max(0, -int(Decimal(content).as_tuple().exponent))
            return b"D" + _DECIMAL.pack(scale, int(Decimal(content).scaleb(scale)))
        case "longstr":
            return b"S" + _sized(content.encode() if isinstance(content, str) else content)
        case "binary":
            return b"x" + _sized(bytes(content))
        case "array":
            return b"A" + _sized(b"".join(map(_value, content)))
    return b"F" + _sized(_table(content))


def _sized(content: bytes) -> bytes:
    return _U32.pack(len(content)) + content
