"""How RabbitMQ prints a value in a refusal: as Erlang writes terms (reference, sections 1.4 and 4.2).

A text that came from a client is a binary, `<<"x">>`; one of the server's own is a list, `"x"`; names of types and reasons are
atoms, `value_zero`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class Atom(str):
    """A name without quotes."""

    __slots__ = ()


class Chars(str):
    """A text of the server's own."""

    __slots__ = ()


MAX_DEPTH = 20  # of what is in each other; the rest is left out, as `~P` does


def term(value: Any, depth: int = 0) -> str:
    """A value as `~p` prints it. Tuples are tuples, lists lists, dicts maps, plain texts binaries, None the atom undefined."""
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
