"""Decodes bodies for display: base64, gzip and MessagePack, recognised by their bytes. Bounded, so that a small hostile body
cannot become a large one. Pure."""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import msgpack

MOST_LAYERS = 3
_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]+={0,2}\s*")
_SHORTEST_BASE64 = 12
_GZIP = b"\x1f\x8b\x08"
_MSGPACK_MAP_OR_LIST = frozenset((*range(0x81, 0xA0), 0xDC, 0xDD, 0xDE, 0xDF)) - {0x90}


@dataclass(frozen=True, slots=True)
class Decoded:
    """content: what the layers contained. layers: their names, outermost first. cut: content was longer than the limit."""

    content: bytes
    layers: tuple[str, ...] = ()
    cut: bool = False


def decoded(content: bytes, limit: int) -> Decoded:
    """Remove the layers of base64 and gzip around a body, at most MOST_LAYERS. content: complete."""
    layers: list[str] = []
    for _ in range(MOST_LAYERS):
        if (inner := _gunzipped(content, limit)) is not None:
            layers.append("gzip")
            content, cut = inner
            if cut:
                return Decoded(content, tuple(layers), cut=True)
        elif (plain := _from_base64(content)) is not None:
            layers.append("base64")
            content = plain
        else:
            break
    return Decoded(content, tuple(layers))


def _gunzipped(content: bytes, limit: int) -> tuple[bytes, bool] | None:
    """The content of a gzip stream, at most `limit` bytes, and whether there is more; None: it is none."""
    if not content.startswith(_GZIP):
        return None
    stream = zlib.decompressobj(wbits=31)
    try:
        plain = stream.decompress(content, limit)
    except zlib.error:
        return None
    return plain, not stream.eof


def _from_base64(content: bytes) -> bytes | None:
    """The content of base64 text that is plainly meant as such: it contains text, gzip or MessagePack."""
    if len(content) < _SHORTEST_BASE64 or not _BASE64.fullmatch(content):
        return None
    text = content.strip().translate(bytes.maketrans(b"-_", b"+/"))
    if len(text) % 4:
        return None
    try:
        plain = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return plain if _is_text(plain) or plain.startswith(_GZIP) or msgpack_as_json(plain) is not None else None


def _is_text(content: bytes) -> bool:
    try:
        return content.decode().replace("\n", "").replace("\r", "").replace("\t", "").isprintable()
    except UnicodeDecodeError:
        return False


def msgpack_as_json(content: bytes) -> str | None:
    """A MessagePack map or list as indented JSON, in which types that JSON lacks are named; None: it is none."""
    if not content or content[0] not in _MSGPACK_MAP_OR_LIST:
        return None
    try:
        value = msgpack.unpackb(content, strict_map_key=False, timestamp=3, object_pairs_hook=_Pairs)
        return json.dumps(_as_json(value), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError, OverflowError, msgpack.UnpackException):
        return None


class _Pairs(list):
    """The pairs of a map, whose keys may be of any type and repeated."""


def _as_json(value: Any) -> Any:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if value - value == 0 else f"float {value}"
        case _Pairs():
            return {key if isinstance(key, str) else _as_key(key): _as_json(item) for key, item in value}
        case list():
            return [_as_json(item) for item in value]
        case bytes():
            return f"binary 0x{value.hex()}"
        case msgpack.ExtType():
            return f"extension {value.code} 0x{value.data.hex()}"
    return f"timestamp {value.astimezone(UTC).isoformat()}"


def _as_key(key: Any) -> str:
    encoded = _as_json(key)
    return encoded if isinstance(encoded, str) else json.dumps(encoded, ensure_ascii=False)
