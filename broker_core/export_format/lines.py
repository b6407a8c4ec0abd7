"""The lines of an export: exact conversion of values to JSON and back, without a database.

Instants are ISO 8601 in UTC with microseconds, durations ISO 8601, bytes base64; missing values are omitted. Errors name the line
and the field. Unknown fields are refused.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, BinaryIO, Literal, NoReturn, overload
from uuid import UUID

from broker_core.common.durations import format_iso
from broker_core.common.errors import InvalidArgument

FORMAT = "vitrine-export"
VERSION = 3
READABLE = (1, 2, VERSION)  # version 1 had Service Bus only; before 3, all bodies were in base64 and named "body"
LONGEST_LINE = 256 * 2**20  # bytes; a message of 100 MB has 134 MB in base64

_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,6}))?S)?)?")
_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z")


def line(kind: str, content: Mapping[str, Any]) -> str:
    """One line of the file. Keys are sorted, so that equal content gives equal text."""
    values = {name: value for name, value in content.items() if value is not None}
    return json.dumps({kind: values}, sort_keys=True, ensure_ascii=False, separators=(",", ":")) + "\n"


def instant(value: datetime | None) -> str | None:
    return None if value is None else value.astimezone(UTC).isoformat().replace("+00:00", "Z")


def duration(value: timedelta | None) -> str | None:
    return None if value is None else format_iso(value)


def in_base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its number from 1, kind and content."""

    number: int
    kind: str
    content: Fields


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of an open file, cut off just above LONGEST_LINE."""
    return iter(lambda: file.readline(LONGEST_LINE + 1), b"")


def read_lines(source: Iterable[str | bytes]) -> Iterator[Line]:
    """Parse the lines of a file, without checking their content; skips empty ones. Raises InvalidArgument with the line."""
    for number, text in enumerate(source, start=1):
        if not isinstance(text, str | bytes):
            raise InvalidArgument(f"line {number}", f"must be a string or bytes, not {repr(text)[:80]}")
        if text.strip():
            yield read_line(number, text)


def read_line(number: int, text: str | bytes) -> Line:
    """Parse a line that is not empty, as read_lines does."""
    where = f"line {number}"
    if len(text) > LONGEST_LINE:
        raise InvalidArgument(where, f"is longer than {LONGEST_LINE:,} bytes")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidArgument(where, f"is not valid JSON: {exc}") from exc
    if not isinstance(value, dict) or len(value) != 1 or not isinstance(next(iter(value.values())), dict):
        raise InvalidArgument(where, 'must be an object with one member, such as {"message": {...}}')
    [(kind, content)] = value.items()
    return Line(number, kind, Fields(f"{where}: {kind}", content))


def read_header(line: Line | None) -> int:
    """The version of the file. Raises InvalidArgument if it is none that can be read."""
    if line is None or line.kind != FORMAT:
        raise InvalidArgument("line 1", f"is not the header of a Vitrine export, {{'{FORMAT}': ...}}")
    version = line.content.whole("version")
    if version not in READABLE:
        line.content.refuse("version", f"{version} must be one of {', '.join(map(str, READABLE))}")
    return version


class Fields:
    """The content of a line, read field by field; `done` refuses fields that were not read."""

    def __init__(self, where: str, content: dict[str, Any]):
        self.where, self._left = where, dict(content)

    def refuse(self, name: str, problem: str) -> NoReturn:
        raise InvalidArgument(f"{self.where}.{name}", problem)

    def copy(self) -> Fields:
        """The fields that were not read yet, to be read independently."""
        return Fields(self.where, self._left)

    def rename(self, name: str, to: str) -> None:
        """Read a field by another name."""
        if name in self._left:
            self._left[to] = self._left.pop(name)

    def done(self) -> None:
        if self._left:
            self.refuse(next(iter(self._left)), "is not a known field")

    @overload
    def text(self, name: str, *, optional: Literal[False] = False) -> str: ...
    @overload
    def text(self, name: str, *, optional: Literal[True]) -> str | None: ...
    def text(self, name: str, *, optional: bool = False) -> str | None:
        def check(value: Any) -> bool:
            return isinstance(value, str) and _is_storable_text(value)

        return self._take(name, check, "must be text that can be stored", optional)

    @overload
    def whole(self, name: str, *, optional: Literal[False] = False, least: int = ..., most: int = ...) -> int: ...
    @overload
    def whole(self, name: str, *, optional: Literal[True], least: int = ..., most: int = ...) -> int | None: ...
    def whole(self, name: str, *, optional: bool = False, least: int = -(2**63), most: int = 2**63 - 1) -> int | None:
        def check(value: Any) -> bool:
            return type(value) is int and least <= value <= most

        return self._take(name, check, f"must be a whole number from {least} to {most}", optional)

    def number(self, name: str, *, least: float = 0) -> float:
        def check(value):
            return type(value) in (int, float) and least <= value <= 1e9

        return float(self._take(name, check, f"must be a number from {least:g}", False))

    def one_of(self, name: str, allowed: Sequence[str]) -> str:
        return self._take(name, lambda value: value in allowed, f"must be one of {', '.join(allowed)}", False)

    def flag(self, name: str, *, optional: bool = False) -> bool:
        """If it is optional and missing, it is false."""
        return bool(self._take(name, lambda value: isinstance(value, bool), "must be true or false", optional))

    def mapping(self, name: str) -> dict[str, Any]:
        return self._take(name, lambda value: isinstance(value, dict), "must be an object", False)

    def inner(self, name: str) -> Fields:
        """An object with fields of its own; call `done` on it too."""
        return Fields(f"{self.where}.{name}", self.mapping(name))

    def inner_list(self, name: str) -> list[Fields]:
        """A list of objects."""
        found = self._take(
            name,
            lambda value: isinstance(value, list) and all(isinstance(one, dict) for one in value),
            "must be a list of objects",
            False,
        )
        return [Fields(f"{self.where}.{name}[{place}]", one) for place, one in enumerate(found)]

    def value(self, name: str) -> Any:
        return self._left.pop(name, None)

    @overload
    def instant(self, name: str, *, optional: Literal[False] = False) -> datetime: ...
    @overload
    def instant(self, name: str, *, optional: Literal[True]) -> datetime | None: ...
    def instant(self, name: str, *, optional: bool = False) -> datetime | None:
        text = self._take(name, _matches(_INSTANT), "must be a timestamp such as 2026-01-31T12:00:00.123456Z", optional)
        try:
            return None if text is None else datetime.fromisoformat(text)
        except ValueError as exc:
            self.refuse(name, f"is not a valid timestamp: {exc}")

    def duration(self, name: str, *, optional: bool = False) -> timedelta | None:
        return parse_duration(self._take(name, lambda value: value is not None, "is missing", optional), f"{self.where}.{name}")

    @overload
    def bytes_(self, name: str, *, optional: Literal[False] = False) -> bytes: ...
    @overload
    def bytes_(self, name: str, *, optional: Literal[True]) -> bytes | None: ...
    def bytes_(self, name: str, *, optional: bool = False) -> bytes | None:
        text = self._take(name, lambda value: isinstance(value, str), "must be base64", optional)
        try:
            return None if text is None else base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as exc:
            self.refuse(name, f"is not valid base64: {exc}")

    def uuid(self, name: str) -> UUID:
        text = self._take(name, lambda value: isinstance(value, str), "must be a UUID", False)
        try:
            return UUID(text)
        except ValueError as exc:
            self.refuse(name, f"is not a valid UUID: {exc}")

    def member(self, name: str, enum: Any, default: Any = None, *, optional: bool = False) -> Any:
        names = {member.name.lower(): member for member in enum}
        chosen = self._take(
            name,
            lambda value: isinstance(value, str) and value in names,
            f"must be one of {', '.join(names)}",
            optional or default is not None,
        )
        return default if chosen is None else names[chosen]

    def body(self) -> bytes:
        """The body of a message, as text or in base64."""
        text = self._take("body", lambda value: isinstance(value, str), "must be text", True)
        raw = self.bytes_("body_base64", optional=True)
        if text is None and raw is None:
            self.refuse("body", "is missing: give text as body, or bytes as body_base64")
        if text is not None and raw is not None:
            self.refuse("body", "must be missing beside body_base64")
        try:
            return raw or b"" if text is None else text.encode()
        except UnicodeEncodeError:
            self.refuse("body", "has an unpaired surrogate")

    def stored(self, name: str, check: Callable[[Any], bool] = lambda value: True) -> dict[str, Any] | None:
        """An object that the database can store."""

        def holds(value):
            return isinstance(value, dict) and check(value) and _storable(value)

        return self._take(name, holds, "must be an object as written by an export", True)

    def json_text(self, name: str) -> str | None:
        """Such an object as JSON text."""
        return json_text(self.stored(name))

    def _take(self, name: str, check: Callable[[Any], bool], problem: str, optional: bool) -> Any:
        value = self._left.pop(name, None)
        if value is None and optional:
            return None
        if value is None:
            self.refuse(name, "is missing")
        if not check(value):
            self.refuse(name, f"{_formatted(value)} {problem}")
        return value


def json_text(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else json.dumps(value)


def parse_duration(text: Any, name: str) -> timedelta | None:
    """The exact inverse of format_iso for durations that are not negative."""
    if text is None:
        return None
    match = _DURATION.fullmatch(text) if isinstance(text, str) and len(text) > 2 else None
    if not match:
        raise InvalidArgument(name, f"{_formatted(text)} must be a duration such as PT1M30S or P14D")
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups()[:4])
    try:
        return timedelta(days, seconds, int((match[5] or "").ljust(6, "0")), 0, minutes, hours)
    except OverflowError as exc:
        raise InvalidArgument(name, f"{_formatted(text)} is too long") from exc


def _matches(pattern: re.Pattern) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and bool(pattern.fullmatch(value))


def is_texts(value: dict) -> bool:
    return all(isinstance(text, str) for text in value.values())


def _storable(value: Any) -> bool:
    """Whether the database can store all text in it, including names."""
    if isinstance(value, dict):
        return all(map(_storable, [*value, *value.values()]))
    if isinstance(value, list):
        return all(map(_storable, value))
    if isinstance(value, float):
        return math.isfinite(value)
    return not isinstance(value, str) or _is_storable_text(value)


def _is_storable_text(text: str) -> bool:
    return "\x00" not in text and not any("\ud800" <= c <= "\udfff" for c in text)


def _formatted(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
