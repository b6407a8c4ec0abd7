"""Argument checks for values that would otherwise be stored or interpreted incorrectly. Errors name the argument.

Other arguments are only annotated. The parameters of a statement are also checked against the types in its SQL
(store/statements.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from .errors import InvalidArgument
from .types import EntityAddress

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
    EntityAddress: "an EntityAddress, such as EntityAddress('namespace', 'queue')",
}
MAX_REASON = 500
_UNSTORABLE = re.compile("\x00|[\ud800-\udfff]")


def require_kind(name: str, value: Any, kind: Any) -> None:
    """Raise InvalidArgument unless the value is of this class."""
    if not isinstance(value, kind):
        raise wrong_kind(name, value, kind)


def wrong_kind(name: str, value: Any, kind: Any) -> InvalidArgument:
    """The error for a value that is not of this class."""
    word = _WORDS.get(kind) or f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"
    return InvalidArgument(name, f"must be {word}, not {repr(value)[:80]}")


def storage_problem(text: str) -> str | None:
    """Why the database cannot store the text; None if it can."""
    match = None if text.isascii() and "\x00" not in text else _UNSTORABLE.search(text)
    if match is None:
        return None
    what = "a NUL character, which cannot be stored" if match[0] == "\x00" else "an unpaired surrogate, which must be a string"
    return f"{text[:80]!r} contains {what}"


def is_storable(text: str) -> bool:
    """Whether the database can store the text."""
    return storage_problem(text) is None


def require_storable(name: str, text: str) -> str:
    """Return the text. Raises InvalidArgument if the database cannot store it."""
    if problem := storage_problem(text):
        raise InvalidArgument(name, problem)
    return text


def require_reason(reason: str | None) -> None:
    """Raise InvalidArgument unless an operator's reason is None, or a text that can be stored and is not too long."""
    if reason is None:
        return
    require_kind("reason", reason, str)
    if len(require_storable("reason", reason)) > MAX_REASON:
        raise InvalidArgument("reason", f"has {len(reason):,} characters; at most {MAX_REASON} are allowed")


def whole_numbers(values: Iterable[int], name: str = "sequence_number") -> list[int]:
    """The numbers without duplicates, in the order given. Raises InvalidArgument."""
    if not isinstance(values, Iterable):
        raise InvalidArgument(name, f"{values!r} must be a list of numbers")
    numbers = list(values)
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 2**63:
            raise InvalidArgument(name, f"{number!r} must be a whole number from 0 to 2^63 - 1")
    return list(dict.fromkeys(numbers))


def require_count(name: str, count: int) -> None:
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count < 2**63:
        raise InvalidArgument(name, f"{count!r} must be a whole number from 1 to 2^63 - 1")
