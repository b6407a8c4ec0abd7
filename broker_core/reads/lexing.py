"""The words of a line of conditions: values, quotes and operators, each with its place. The language of message filters
(filters.py) and those of other lists are made of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Generic, TypeVar

from broker_core.common.errors import FilterError

from .conditions import Pattern

T = TypeVar("T")

MOST_CHARACTERS = 2_000
MOST_CONDITIONS = 20
OPERATOR = re.compile(r"!=|>=|<=|[:=<>]")
KEY = re.compile(r"([A-Za-z][\w-]*)(!=|>=|<=|[:=<>])")


@dataclass(frozen=True, slots=True)
class Value:
    """A value: its pattern, its place, and whether it was quoted."""

    pattern: Pattern
    start: int
    is_quoted: bool

    @property
    def text(self) -> str:
        """As written: what is no pattern has no wildcards."""
        return self.pattern.text


@dataclass(frozen=True, slots=True)
class Token(Generic[T]):
    """A condition and its place in the text."""

    condition: T
    start: int
    end: int


class Lexer(Generic[T]):
    """Reads conditions from left to right. at: the place of what comes next. A subclass says what a condition is."""

    def __init__(self, text: str):
        self.text, self.at = text, 0

    def condition(self, negated: bool) -> T:
        """The condition that comes next. negated: whether a minus precedes it."""
        raise NotImplementedError

    def tokens(self) -> list[Token[T]]:
        """All conditions of the text. Raises FilterError."""
        _require_searchable(self.text)
        tokens: list[Token[T]] = []
        while self._skip_spaces():
            start = self.at
            token = Token(self.condition(self._minus()), start, self.at)
            if len(tokens) == MOST_CONDITIONS:
                raise FilterError(start, f"A filter has at most {MOST_CONDITIONS} conditions.")
            tokens.append(token)
        return tokens

    def _skip_spaces(self) -> bool:
        """Go to the next word; False: there is none."""
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        return self.at < len(self.text)

    def _minus(self) -> bool:
        """Whether a minus before a condition negates it, which is passed."""
        negates = self.text[self.at] == "-" and self.at + 1 < len(self.text) and not self.text[self.at + 1].isspace()
        self.at += negates
        return negates

    def operator(self, negated: bool) -> tuple[int, str, bool]:
        """The operator's place, the operator, and whether the condition is negated. != is = negated."""
        match = OPERATOR.match(self.text, self.at)
        if match is None:
            raise FilterError(self.at, "Write a space before the next condition, or one of : = > < before a value.")
        self.at = match.end()
        return (match.start(), "=", not negated) if match[0] == "!=" else (match.start(), match[0], negated)

    def value(self, advice: str) -> Value:
        """The value that comes next. advice: said if there is none."""
        if self.at_end():
            raise FilterError(self.at, f"A value is missing. {advice}")
        if self.text[self.at] == '"':
            value = self.quoted()
            if not self.at_end():
                raise FilterError(self.at, "Write a space after the closing quote.")
            return value
        start, end = self.at, self.at
        while end < len(self.text) and not self.text[end].isspace():
            end += 2 if self.text[end] == "\\" and self.text[end + 1 : end + 2] in ('"', "\\", "*") else 1
        self.at = end
        return Value(pattern(self.text[start:end]), start, False)

    def quoted(self) -> Value:
        start = self.at
        match = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL).match(self.text, start)
        if match is None:
            raise FilterError(start, 'The quote is not closed. Add a " at the end of the text.')
        self.at = match.end()
        return Value(pattern(match[1]), start, True)

    def at_end(self) -> bool:
        return self.at >= len(self.text) or self.text[self.at].isspace()


def pattern(text: str) -> Pattern:
    """A text with escapes as a pattern. A backslash before any other character stands for itself."""
    parts = [""]
    for match in re.finditer(r'\\(["\\*])|(\*)|(.)', text, re.DOTALL):
        if match[2]:
            parts.append("")
        else:
            parts[-1] += match[1] or match[3]
    return Pattern(tuple(parts))


def _require_searchable(text: str) -> None:
    """Raises FilterError for a text that is too long, or has a character that no stored text has."""
    if len(text) > MOST_CHARACTERS:
        raise FilterError(MOST_CHARACTERS, f"A filter has at most {MOST_CHARACTERS:,} characters.")
    for position, character in enumerate(text):
        if character == "\0" or "\ud800" <= character <= "\udfff":
            raise FilterError(position, "This character cannot be searched for. Remove it.")
