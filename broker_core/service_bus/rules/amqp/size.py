"""The length of a plain message encoded in AMQP, without encoding it: `len(amqp_messages.encode_message(message))` (SB-007)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from .properties import decode_property
from .types import encode

# What each type takes, with its code.
_WIDTHS = {
    "null": 1, "boolean": 1, "ubyte": 2, "byte": 2, "ushort": 3, "short": 3, "float": 5, "double": 9, "char": 5, "timestamp": 9,
    "uuid": 17, "decimal32": 5, "decimal64": 9, "decimal128": 17,
}  # fmt: skip
_HEAD = 3  # the descriptor of a section
_SCHEDULED, _PARTITION_KEY, _VIA_PARTITION_KEY = 30, 21, 25  # the names of annotations
# The texts of the properties section, by their names in Message, and their places in it.
TEXTS = ("message_id", "to", "subject", "reply_to", "correlation_id", "content_type", "session_id", "reply_to_session_id")
_PLACES = (0, 2, 3, 4, 5, 6, 10, 12)


def of_text(text: str) -> int:
    """A string or symbol."""
    size = len(text) if text.isascii() else len(text.encode())
    return size + 2 if size < 256 else size + 5


def of_data(body_size: int) -> int:
    """A data section."""
    return _HEAD + body_size + (2 if body_size < 256 else 5)


def of_properties(texts: Sequence[str | None]) -> int:
    """The properties section. texts: as in TEXTS; what follows is ignored."""
    size = last = present = 0
    for text, place in zip(texts, _PLACES, strict=False):
        if text is not None:
            size += of_text(text)
            last, present = place, present + 1
    return _of_items(size + last + 1 - present) if present else 0


def of_application_properties(stored: Mapping[str, list]) -> int:
    size = 0
    for name, (kind, text) in stored.items():
        size += of_text(name) + (of_text(text) if kind == "string" and text.__class__ is str else _of_value(kind, text))
    return _of_items(size) if stored else 0


def of_header(time_to_live: timedelta | None) -> int:
    if time_to_live is None:
        return 0
    milliseconds = time_to_live // timedelta(milliseconds=1)
    return _of_items(2 + (1 if not milliseconds else 2 if milliseconds < 256 else 5))


def of_annotations(partition_key: str | None = None, via_partition_key: str | None = None, *, is_scheduled: bool = False) -> int:
    size = _SCHEDULED + _WIDTHS["timestamp"] if is_scheduled else 0
    size += 0 if partition_key is None else _PARTITION_KEY + of_text(partition_key)
    size += 0 if via_partition_key is None else _VIA_PARTITION_KEY + of_text(via_partition_key)
    return _of_items(size) if size else 0


def _of_items(size: int) -> int:
    return size + _HEAD + (3 if size < 255 else 9)


def _of_value(kind: str, text: Any) -> int:
    if kind == "int":
        return 2 if -128 <= int(text) <= 127 else 5
    return _WIDTHS.get(kind) or len(encode(decode_property(kind, text)))
