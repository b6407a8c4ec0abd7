"""Erlang terms as RabbitMQ prints them in error texts (RMQ-333).

A string received from a client is a binary, `<<"x">>`; a string of the server is a list, `"x"`; names of types and reasons are
atoms, `value_zero`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Atom(str):
    """An Erlang atom."""

    __slots__ = ()


class Chars(str):
    """A string of the server."""

    __slots__ = ()


MAX_DEPTH = 20  # nesting; deeper values are abbreviated, as by `~P`


def term(value: Any, depth: int = 0) -> str:
    """A value as `~p` prints it: str as binary, Chars as string, dict as map, None as the atom undefined."""
    if depth > MAX_DEPTH:
        return "..."
    match value:
        case Atom():
            return str.__str__(value)
        case Chars():
            return _chars(value)
        case str():
            return _binary(value)
        case bytes():
            return "<<" + ",".join(str(byte) for byte in value) + ">>"
        case bool():
            return "true" if value else "false"
        case None:
            return "undefined"
        case int() | float():
            return repr(value)
        case tuple():
            return "{" + ",".join(term(v, depth + 1) for v in value) + "}"
        case Mapping():
            return "#{" + ",".join(f"{term(k)} => {term(v, depth + 1)}" for k, v in value.items()) + "}"
        case Sequence():
            return "[" + ",".join(term(v, depth + 1) for v in value) + "]"
    return str(value)


def _binary(text: str) -> str:
    if text == "":
        return "<<>>"
    if not text.isprintable():
        return term(text.encode(errors="surrogatepass"))
    return f"<<{_quoted(text)}{'/utf8' if not text.isascii() else ''}>>"


def _chars(text: str) -> str:
    if text == "":
        return "[]"
    return _quoted(text) if text.isprintable() else "[" + ",".join(str(ord(c)) for c in text) + "]"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
