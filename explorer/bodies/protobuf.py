"""Decodes protobuf without a schema: numbers of fields, and values as far as the wire format says what they are. Pure."""

from __future__ import annotations

import json
import struct
from typing import Any

SHORTEST = 4  # bytes; fewer of any kind are often protobuf by chance
MOST_DEPTH = 20
MOST_FIELDS = 5_000
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class _NotProtobuf(ValueError):
    pass


class _Reader:
    """Reads a message, and the messages in it. left: how many more fields all of them may have."""

    def __init__(self) -> None:
        self.left = MOST_FIELDS

    def message(self, content: bytes, depth: int) -> list[tuple[str, Any]]:
        """The fields in order, each with its number and wire type as a name. Raises _NotProtobuf."""
        if depth > MOST_DEPTH:
            raise _NotProtobuf
        fields: list[tuple[str, Any]] = []
        at = 0
        while at < len(content):
            self.left -= 1
            key, at = _varint(content, at)
            number, wire = key >> 3, key & 7
            if not number or number >= 1 << 29 or self.left < 0:
                raise _NotProtobuf
            if wire == _VARINT:
                value, at = _varint(content, at)
                fields.append((f"{number} varint", value))
            elif wire == _BYTES:
                size, at = _varint(content, at)
                inner, at = _slice(content, at, size), at + size
                fields.append(self._bytes(number, inner, depth))
            elif wire in (_FIXED32, _FIXED64):
                size, form = (4, "<fI") if wire == _FIXED32 else (8, "<dQ")
                inner, at = _slice(content, at, size), at + size
                [whole], [real] = struct.unpack(f"<{form[2]}", inner), struct.unpack(form[:2], inner)
                fields.append((f"{number} fixed{size * 8}", f"{whole} or {real:g}"))
            else:  # groups are no longer used
                raise _NotProtobuf
        return fields

    def _bytes(self, number: int, content: bytes, depth: int) -> tuple[str, Any]:
        """Text, a message, or bytes: whichever fits first."""
        try:
            if (text := content.decode()).replace("\n", "").replace("\r", "").replace("\t", "").isprintable():
                return f"{number} text", text
        except UnicodeDecodeError:
            pass
        left = self.left
        try:
            return f"{number} message", self.message(content, depth + 1)
        except _NotProtobuf:
            self.left = left
            return f"{number} bytes", f"0x{content.hex()}"


def as_json(content: bytes) -> str | None:
    """A message as indented JSON, in which a field that is repeated is a key that is repeated; None: it is none, or too large."""
    if len(content) < SHORTEST:
        return None
    try:
        fields = _Reader().message(content, 0)
    except _NotProtobuf:
        return None
    return _text(fields, "") if fields else None


def _text(fields: list[tuple[str, Any]], indent: str) -> str:
    inner = f"{indent}  "
    lines = (f"{inner}{json.dumps(name)}: {_value(value, inner)}" for name, value in fields)
    return "{\n" + ",\n".join(lines) + f"\n{indent}}}" if fields else "{}"


def _value(value: Any, indent: str) -> str:
    return _text(value, indent) if isinstance(value, list) else json.dumps(value, ensure_ascii=False)


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """The number at this place, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(content):
            raise _NotProtobuf
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 1 << 64:
                raise _NotProtobuf
            return value, at
    raise _NotProtobuf


def _slice(content: bytes, at: int, size: int) -> bytes:
    if size > len(content) - at:
        raise _NotProtobuf
    return content[at : at + size]
