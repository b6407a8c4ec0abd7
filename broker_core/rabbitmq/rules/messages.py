"""Validation of publications, and the keys they are routed by (RMQ-361, RMQ-366, RMQ-367)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import errors
from .erlang import Atom, Chars
from .expiration import parse
from .table import typed

Headers = Mapping[str, Any]

CC, BCC = "CC", "BCC"
PERSISTENT = 2
MAX_BODY = 128 * 2**20  # bytes (RMQ-369)


def keys_of(routing_key: str, headers: Headers | None) -> tuple[tuple[str, ...], dict[str, Any]]:
    """The routing keys of a publication, its own first, and its headers as stored: without BCC (RMQ-366).

    headers: decoded. Raises AmqpError (406) if CC or BCC is not an array; elements that are not strings are ignored (RMQ-367).
    """
    headers = dict(headers or {})
    keys = [routing_key, *_keys(headers, CC), *_keys(headers, BCC)]
    headers.pop(BCC, None)
    return tuple(dict.fromkeys(keys)), headers


def carbon_copies(headers: Headers, name: str = CC) -> list[str]:
    """The well-formed keys of CC or BCC."""
    kind, value = typed(headers.get(name))
    return _texts(value) if kind == "array" else []


def check_properties(properties: Mapping[str, Any]) -> int | None:
    """Validate the properties of a publication, named as in `Properties`. Returns its expiration in milliseconds.

    Raises AmqpError (406) for an invalid expiration (RMQ-006) and an unknown delivery mode (RMQ-361).
    """
    mode = properties.get("delivery_mode")
    if mode is not None and mode not in (1, PERSISTENT):
        raise errors.unknown_delivery_mode(mode)
    return parse(properties.get("expiration"))


def check_body(body: bytes, limit: int = MAX_BODY) -> None:
    """Raises AmqpError (406) for a body over the limit (RMQ-369)."""
    if len(body) > limit:
        raise errors.message_too_large(len(body), limit)


def _keys(headers: Headers, name: str) -> list[str]:
    if name not in headers:
        return []
    kind, value = typed(headers[name])
    if kind != "array":
        raise errors.invalid_message((Atom("unacceptable_type_in_header"), Chars(name), Atom(kind)))
    return _texts(value)


def _texts(array: Any) -> list[str]:
    return [value for kind, value in map(typed, array) if kind == "longstr" and isinstance(value, str)]
