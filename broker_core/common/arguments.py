"""Whether a call is given the kinds of things that its signature names: asked in one place, where every use case begins.

What a dataclass holds is looked at as well, unless the class says that it `checks_itself`; what a list holds, where that is of an
Enum. Kinds alone: what a text may say, how large a number may be and what other lists hold is the business of the rules, which
refuse it in their words. Texts that no database can hold are refused here too: with a NUL, or with half of a surrogate pair;
and instants without a time zone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum, IntEnum, StrEnum
from functools import cache, wraps
from types import NoneType, UnionType
from typing import Annotated, Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from .errors import InvalidArgument
from .types import EntityAddress, Message

P = ParamSpec("P")
T = TypeVar("T")
_WORDS: dict[type, str] = {
    str: "a string",
    bool: "true or false",
    datetime: "a datetime",
    timedelta: "a timedelta, such as timedelta(seconds=5)",
    Mapping: "a mapping of names to values",
    NoneType: "None",
    int: "a whole number",
    float: "a number",
    Message: "a Message",
    EntityAddress: "an EntityAddress, such as EntityAddress('namespace', 'queue')",
}
_PLURALS: dict[Any, str] = {Message: "messages", EntityAddress: "addresses", str: "strings", int: "whole numbers"}
_NOT_LOOKED_AT = {Any, Callable}
_HALF_PAIR = re.compile("[\ud800-\udfff]")
RuledText = Annotated[str, "rules check its content, including characters that the database cannot store"]


class Kinds:
    """What each parameter of a function, or each field of a dataclass, may be."""

    def __init__(self, of: Callable):
        hints = get_type_hints(of)
        hints.pop("return", None)
        # Bodies and receipts are refused by the rules about them, in their words; so is whatever may be one.
        unseen = set() if is_dataclass(of) else {bytes, UUID}
        self._by_name = {name: _classes(hint, _NOT_LOOKED_AT | unseen) for name, hint in hints.items()}
        kinds = {name: kind for name, classes in self._by_name.items() for kind in classes if issubclass(kind, StrEnum | IntEnum)}
        self._plain = {name: frozenset(kind) for name, kind in kinds.items()}
        self._wanted = {name: _wanted(name, hint) for name, hint in hints.items()}
        self._enums = {name: enum for name, hint in hints.items() if (enum := _listed_enum(hint))}
        extras = get_type_hints(of, include_extras=True)
        self._ruled = {name for name, hint in extras.items() if RuledText in (hint, *get_args(hint))}
        self._in_order = _names_in_order(of)

    def check(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Raises InvalidArgument naming an argument that is none of what it may be, or that no database can hold."""
        for name, value in zip(self._in_order, args, strict=False):
            self._check(name, value)
        for name, value in kwargs.items():
            self._check(name, value)

    def check_fields(self, value: Any) -> None:
        """Raises InvalidArgument naming a field of a dataclass that is none of what it may be; a choice may be its bare value."""
        for name in self._in_order:
            given = getattr(value, name)
            if type(given) not in (str, int) or given not in self._plain.get(name, ()):
                self._check(name, given)

    def _check(self, name: str, value: Any) -> None:
        if not (classes := self._by_name.get(name)):
            return
        if type(value) not in classes and not _is_one_of(classes, value):
            raise InvalidArgument(name, f"must be {self._wanted[name]}, not {repr(value)[:80]}")
        if isinstance(value, str) and name not in self._ruled:
            require_storable(name, value)
        elif isinstance(value, EntityAddress):
            require_storable(name, value.namespace)
            require_storable(name, value.path)
        elif isinstance(value, datetime) and value.tzinfo is None:
            raise InvalidArgument(name, f"needs a time zone, such as UTC: {value}")
        elif name in self._enums:
            _require_listed(name, self._enums[name], value)
        elif kinds := _kinds_of_fields(value.__class__):
            kinds.check_fields(value)


@cache
def _kinds_of_fields(kind: type) -> Kinds | None:
    looks = is_dataclass(kind) and not getattr(kind, "checks_itself", False)
    return Kinds(kind) if looks else None


def _names_in_order(of: Callable) -> Sequence[str]:
    if is_dataclass(of):
        return [field.name for field in fields(of) if field.init]
    code = getattr(of, "__wrapped__", of).__code__
    return code.co_varnames[: code.co_argcount]


def of_its_kinds(function: Callable[P, T]) -> Callable[P, T]:
    """A function or method that is no use case, and looks at what it is given as those do."""
    kinds = Kinds(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        kinds.check(args, kwargs)
        return function(*args, **kwargs)

    return call


def require_kind(name: str, value: Any, kind: Any) -> None:
    """Raise InvalidArgument unless the value is of the kind; for what is inside an argument."""
    if not _is_one_of((kind,), value):
        raise InvalidArgument(name, f"must be {_word(kind)}, not {repr(value)[:80]}")


def _require_listed(name: str, enum: type[Enum], values: Iterable[Any]) -> None:
    for value in () if isinstance(values, Iterator) else values:
        try:
            enum(value)
        except ValueError as exc:
            raise InvalidArgument(name, f"must be a list of {enum.__name__}, not with {repr(value)[:80]} in it") from exc


def is_storable(text: str) -> bool:
    """Whether a database can hold the text."""
    return "\x00" not in text and (text.isascii() or _HALF_PAIR.search(text) is None)


def require_storable(name: str, text: str) -> str:
    """The text, if a database can hold it. Raises InvalidArgument."""
    if not is_storable(text):
        what = "a NUL character, which cannot be stored" if "\x00" in text else "an unpaired surrogate"
        raise InvalidArgument(name, f"{text[:80]!r} contains {what}")
    return text


def _members(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _classes(hint: Any, not_looked_at: Set[Any]) -> tuple[type, ...]:
    """The classes a value may be of; none where that is not looked at."""
    found = tuple(Iterable if (origin := get_origin(member) or member) is Sequence else origin for member in _members(hint))
    is_plain = all(isinstance(kind, type) and kind not in not_looked_at for kind in found)
    has_own_words = len(found) > 1 and any(issubclass(kind, Enum) for kind in found if isinstance(kind, type))
    if not is_plain or has_own_words:
        return ()
    return (*found, int) if float in found else found


def _listed_enum(hint: Any) -> type[Enum] | None:
    """The Enum that a list is of. Something that is walked through but once, as an Iterable may be, is left alone."""
    members = get_args(hint) if get_origin(hint) is Sequence else ()
    return next((member for member in members if isinstance(member, type) and issubclass(member, Enum)), None)


def _is_one_of(classes: tuple[type, ...], value: Any) -> bool:
    if type(value) in (str, bytes):  # neither is a list
        return type(value) in classes
    return isinstance(value, classes) and (not isinstance(value, bool) or int not in classes or bool in classes)


def _wanted(name: str, hint: Any) -> str:
    """What may be given, in words."""
    words = " or ".join(dict.fromkeys(map(_word, _members(hint))))
    return f"{words} of seconds" if name.endswith("_seconds") else words


def _word(hint: Any) -> str:
    kind = get_origin(hint) or hint
    if kind in (Iterable, Sequence):
        member = next(iter(get_args(hint)), None)
        plural = _PLURALS.get(member) or (f"{member.__name__}s" if isinstance(member, type) else None)
        return f"a list of {plural}" if plural else "a list"
    if kind in _WORDS:
        return _WORDS[kind]
    if not isinstance(kind, type):
        return str(hint)
    if issubclass(kind, Enum):
        return f"one of {kind.__name__}"
    return f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}"


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
