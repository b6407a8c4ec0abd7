"""The lexer of the filter language: tokens with their positions (SB-F01)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from broker_core.common.errors import InvalidFilter
from broker_core.service_bus.rules.limits import STRICT

RESERVED = frozenset(["AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "IS", "NULL", "EXISTS", "TRUE", "FALSE", "SET", "REMOVE"])
END = "the end"

# The repetitions are possessive (*+), so that an unterminated string is not retried at each of its quotes.
_TOKEN = re.compile(
    r"""(?P<space>\s++)
      | (?P<number>(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?P<exponent>[eE][+-]?[0-9]++)?)
      | '(?P<text>(?:[^']|'')*+)'
      | \[(?P<bracketed>(?:[^\]]|\]\])*+)\]
      | "(?P<quoted>(?:[^"]|"")*+)"
      | @(?P<parameter>[^\W\d_]\w*+)
      | (?P<word>[^\W\d_]\w*+)
      | (?P<sign><>|!=|<=|>=|[-=<>+*/%(),;.])""",
    re.VERBOSE,
)
_DOUBLED = {"text": "''", "bracketed": "]]", "quoted": '""'}
_UNTERMINATED = {"'": "a closing '", "[": "a closing ]", '"': 'a closing "', "@": "the name of a parameter, such as @limit"}


class Token(NamedTuple):
    """A token.

    kind:  "integer", "double", "text", "name" (in brackets or quotes), "word" (a plain name), "reserved", "parameter", "sign",
           or END.
    value: a string without its quotes; reserved words in upper case; names and numbers as written.
    number: the value of a number.
    """

    kind: str
    value: str
    position: int
    source: str
    number: int | float = 0


def tokens(text: str, what: str) -> list[Token]:
    """The tokens of a filter or an action, followed by END. what: "filter" or "action", for errors. Raises InvalidFilter."""
    _check(text, what)
    return list(_tokens(text, what))


def _check(text: str, what: str) -> None:
    if not isinstance(text, str):
        raise InvalidFilter(what, "", 0, f"a {type(text).__name__}", "a text")
    limit = STRICT.filter_text
    if len(text) > limit:
        raise InvalidFilter(what, text, limit, f"{len(text):,} characters", f"at most {limit:,}")
    for position, character in enumerate(text):
        if character == "\x00" or "\ud800" <= character <= "\udfff":
            raise InvalidFilter(what, text, position, "a character that cannot be stored", "text without it")


def _tokens(text: str, what: str) -> Iterator[Token]:
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            character = text[position]
            expected = _UNTERMINATED.get(character, "a name, a constant or an operator")
            raise InvalidFilter(what, text, position, f"{character!r}", expected)
        if match.lastgroup != "space":
            yield _token(match.lastgroup, match, text, what)
        position = match.end()
    yield Token(END, "", len(text), END)


def _token(kind: str, match: re.Match, text: str, what: str) -> Token:
    if match["number"]:
        return _number(match, text, what)
    source, value = match.group(), match[kind]
    if kind in _DOUBLED:
        doubled = _DOUBLED[kind]
        value = value.replace(doubled, doubled[0])
        if kind != "text":
            kind = "name"
            if not value:
                raise InvalidFilter(what, text, match.start(), source, "a non-empty name")
    elif kind == "word" and value.upper() in RESERVED:
        kind, value = "reserved", value.upper()
    return Token(kind, value, match.start(), source)


def _number(match: re.Match, text: str, what: str) -> Token:
    """A double, or an integer up to 2^63, so that the smallest Int64 can be written with a minus."""
    source = match["number"]
    number: int | float
    if match["exponent"] is None and "." not in source:
        kind, number, fits = "integer", int(source), int(source) <= 2**63
    else:
        kind, number, fits = "double", float(source), float(source) != float("inf")
    if not fits:
        raise InvalidFilter(what, text, match.start(), source, "a number that a 64-bit integer or a double can hold")
    return Token(kind, source, match.start(), source, number)
