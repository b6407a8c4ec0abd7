"""Whether a call is given the kinds of things that its signature names: asked in one place, where every use case begins.

Kinds alone: what a text may say, how large a number may be and what a list holds is the business of the rules, which refuse it in
words of their own. Texts that no database can hold are refused here too: with a NUL, or with half of a surrogate pair.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from .errors import InvalidArgument
from .types import EntityAddress

_WORDS: dict[type, str] = {
    str: "a text",
    bool: "true or false",
    datetime: "a datetime",
    Mapping: "a mapping of names to values",
    Iterable: "a list",
    NoneType: "None",
    int: "a whole number",
}
# Numbers, durations and receipts are refused by the rules about them, in their words; so is whatever may be one.
_NOT_LOOKED_AT = {Any, Callable, int, float, bytes, timedelta, UUID}
_HALF_PAIR = re.compile("[\ud800-\udfff]")
RuledText = Annotated[str, "rules say what it may have in it, and refuse in their words what no database could hold, too"]


class Kinds:
    """What each parameter of a function may be."""

    def __init__(self, function: Callable):
        hints = get_type_hints(function)
        hints.pop("return", None)
        self._by_name = {name: _classes(hint, is_id=name.endswith(("_id", "number"))) for name, hint in hints.items()}
        extras = get_type_hints(function, include_extras=True)
        self._ruled = {name for name, hint in extras.items() if RuledText in (hint, *get_args(hint))}
        code = getattr(function, "__wrapped__", function).__code__
        self._in_order = code.co_varnames[: code.co_argcount]

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raises InvalidArgument naming an argument that is none of what it may be, or that no database can hold."""
        for name, value in zip(self._in_order, args, strict=False):
            self._check(name, value)
        for name, value in kwargs.items():
            self._check(name, value)

    def _check(self, name: str, value: Any) -> None:
        if not (classes := self._by_name.get(name)):
            return
        if type(value) not in classes and not _is_one_of(classes, value):
            allowed = " or ".join(dict.fromkeys(map(_word, classes)))
            raise InvalidArgument(name, f"must be {allowed}, not {repr(value)[:80]}")
        if isinstance(value, str) and name not in self._ruled:
            require_storable(name, value)
        elif isinstance(value, EntityAddress):
            require_storable(name, value.namespace)
            require_storable(name, value.path)


def is_storable(text: str) -> bool:
    """Whether a database can hold the text."""
    return "\x00" not in text and (text.isascii() or _HALF_PAIR.search(text) is None)


def require_storable(name: str, text: str) -> str:
    """The text, if a database can hold it. Raises InvalidArgument."""
    if not is_storable(text):
        what = "a NUL character, which cannot be stored" if "\x00" in text else "half of a surrogate pair, which is no text"
        raise InvalidArgument(name, f"{text[:80]!r} has {what}")
    return text


def _classes(hint: Any, *, is_id: bool) -> tuple[type, ...]:
    """The classes a value may be of; none where that is not looked at. is_id: it is a number that the broker gave."""
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    found = tuple(Iterable if (origin := get_origin(member) or member) is Sequence else origin for member in members)
    passed_by = _NOT_LOOKED_AT - {int} if is_id else _NOT_LOOKED_AT
    is_plain = all(isinstance(kind, type) and kind not in passed_by for kind in found)
    has_own_words = len(found) > 1 and any(issubclass(kind, Enum) for kind in found if isinstance(kind, type))
    return found if is_plain and not has_own_words else ()


def _is_one_of(classes: tuple[type, ...], value: Any) -> bool:
    if type(value) in (str, bytes):  # neither is a list
        return type(value) in classes
    return isinstance(value, classes) and (not isinstance(value, bool) or int not in classes)


def _word(kind: type) -> str:
    if kind in _WORDS:
        return _WORDS[kind]
    if issubclass(kind, Enum):
        return f"one of {kind.__name__}"
    return f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"
