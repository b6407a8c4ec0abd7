"""Checks of values that would otherwise be stored wrongly, or understood wrongly; each refuses with the argument's name.

Annotations say what else a call takes. What reaches a statement is checked once more, against the types written in it
(store/statements.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from .errors import InvalidArgument
from .types import EntityAddress, Message

_WORDS: dict[Any, str] = {
    str: "a string",
    bool: "true or false",
    bytes: "bytes",
    int: "a whole number",
    float: "a number",
    datetime: "a datetime with a time zone",
    timedelta: "a timedelta, such as timedelta(seconds=5)",
    list: "a list",
    Mapping: "a mapping of names to values",
    Message: "a Message",
    EntityAddress: "an EntityAddress, such as EntityAddress('namespace', 'queue')",
}
_UNSTORABLE = re.compile("\x00|[\ud800-\udfff]")


def require_kind(name: str, value: Any, kind: Any) -> None:
    """Raise InvalidArgument unless the value is of the kind."""
    if not isinstance(value, kind):
        raise wrong_kind(name, value, kind)


def wrong_kind(name: str, value: Any, kind: Any) -> InvalidArgument:
    """The refusal of a value that is not of the kind."""
    word = _WORDS.get(kind) or f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"
    return InvalidArgument(name, f"must be {word}, not {repr(value)[:80]}")


def storage_problem(text: str) -> str | None:
    """Why no database can hold the text; None: it can."""
    found = None if text.isascii() and "\x00" not in text else _UNSTORABLE.search(text)
    if found is None:
        return None
    what = "a NUL character, which cannot be stored" if found[0] == "\x00" else "an unpaired surrogate, which must be a string"
    return f"{text[:80]!r} contains {what}"


def is_storable(text: str) -> bool:
    """Whether a database can hold the text."""
    return storage_problem(text) is None


def require_storable(name: str, text: str) -> str:
    """The text, if a database can hold it. Raises InvalidArgument."""
    if problem := storage_problem(text):
        raise InvalidArgument(name, problem)
    return text


def whole_numbers(given: Iterable[int], name: str = "sequence_number") -> list[int]:
    """Each number once, in the order given. Raises InvalidArgument."""
    if not isinstance(given, Iterable):
        raise InvalidArgument(name, f"{given!r} must be a list of numbers")
    numbers = list(given)
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**63:
            raise InvalidArgument(name, f"{number!r} must be a whole number from 0 to 2^63 - 1")
    return list(dict.fromkeys(numbers))


def require_count(name: str, count: int) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count < 2**63:
        raise InvalidArgument(name, f"{count!r} must be a whole number from 1 to 2^63 - 1")
