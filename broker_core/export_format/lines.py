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
from broker_core.common.types import BodyKind, MessageState, SubQueue

FORMAT = "vitrine-export"
VERSION = 2
READABLE = (1, 2)  # version 1 had Service Bus only
LONGEST_LINE = 256 * 2**20  # bytes; a message of 100 MB has 134 MB in base64

# Columns of a message that only some families use; the families' transfer modules read and write them.
FAMILY_COLUMNS = ("lock_token", "locked_by", "visible_at", "hold_kind", "held_since", "renewals", "priority")

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


def message(row: Any) -> dict[str, Any]:
    """The content of a message's line. A delivery count of 0 and the body kind DATA are omitted."""
    return {
        "list": SubQueue(row.subqueue).name.lower(),
        "state": MessageState(row.state).name.lower(),
        "sequence_number": row.sequence_number,
        "delivery_count": row.delivery_count or None,
        "size": row.size,
        "body_kind": BodyKind(row.body_kind).name.lower() if row.body_kind else None,
        "enqueued_at": instant(row.enqueued_at),
        "expires_at": instant(row.expires_at),
        "time_to_live": duration(row.time_to_live),
        "scheduled_enqueue_at": instant(row.scheduled_enqueue_at),
        "first_received_at": instant(row.first_received_at),
        "last_received_at": instant(row.last_received_at),
        "message_id": row.message_id,
        "session_id": row.session_id,
        "properties": row.properties,
        "application_properties": row.application_properties,
        "dead_letter_reason": row.dead_letter_reason,
        "dead_letter_description": row.dead_letter_description,
        "dead_letter_source": row.dead_letter_source,
        "dead_lettered_at": instant(row.dead_lettered_at),
        "enqueued_sequence_number": row.enqueued_sequence_number,
        "resubmitted_from": row.resubmitted_from,
        "transfer": row.transfer,
        "encoded": in_base64(row.encoded),
        "body": in_base64(row.body),
    }


def read_message(content: Fields, part: Any) -> dict[str, Any]:
    """The inverse of `message`: columns by name, for a statement. Refuses what a constraint of the table would refuse.

    part: the reader of the message's family (part.Reader).
    """
    columns = {
        "subqueue": int(content.member("list", SubQueue)),
        "state": int(content.member("state", MessageState)),
        "sequence_number": content.whole("sequence_number", least=0),
        "delivery_count": content.whole("delivery_count", optional=True, least=0, most=2**31 - 1) or 0,
        "size": content.whole("size", least=0, most=2**31 - 1),
        "body_kind": int(content.member("body_kind", BodyKind, default=BodyKind.DATA)),
        "enqueued_at": content.instant("enqueued_at"),
        "expires_at": content.instant("expires_at", optional=True),
        "time_to_live": content.duration("time_to_live", optional=True),
        "scheduled_enqueue_at": content.instant("scheduled_enqueue_at", optional=True),
        "first_received_at": content.instant("first_received_at", optional=True),
        "last_received_at": content.instant("last_received_at", optional=True),
        "message_id": content.text("message_id", optional=True),
        "session_id": content.text("session_id", optional=True),
        "properties": content.json_text("properties", part.holds_properties),
        "application_properties": content.json_text("application_properties", part.holds_application_properties),
        "dead_letter_reason": content.text("dead_letter_reason", optional=True),
        "dead_letter_description": content.text("dead_letter_description", optional=True),
        "dead_letter_source": content.text("dead_letter_source", optional=True),
        "dead_lettered_at": content.instant("dead_lettered_at", optional=True),
        "enqueued_sequence_number": content.whole("enqueued_sequence_number", optional=True, least=0),
        "resubmitted_from": content.json_text("resubmitted_from"),
        "transfer": content.json_text("transfer"),
        "encoded": content.bytes_("encoded", optional=True),
        "body": content.bytes_("body"),
        **dict.fromkeys(FAMILY_COLUMNS),
        **part.message(content),
    }
    content.done()
    part.check_encoded(columns, content)
    if columns["state"] == MessageState.SCHEDULED and columns["scheduled_enqueue_at"] is None:
        content.refuse("scheduled_enqueue_at", "is required for a scheduled message")
    if columns["subqueue"] == SubQueue.DEAD_LETTER and columns["dead_lettered_at"] is None:
        content.refuse("dead_lettered_at", "is required for a dead letter")
    expires_at, enqueued_at = columns["expires_at"], columns["enqueued_at"]
    if expires_at is not None and (expires_at < enqueued_at or (expires_at == enqueued_at and not part.may_expire_at_once)):
        content.refuse("expires_at", "must come after enqueued_at")
    return columns


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
        where = f"line {number}"
        if not isinstance(text, str | bytes):
            raise InvalidArgument(where, f"must be a string or bytes, not {repr(text)[:80]}")
        if not text.strip():
            continue
        if len(text) > LONGEST_LINE:
            raise InvalidArgument(where, f"is longer than {LONGEST_LINE:,} bytes")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as exc:
            raise InvalidArgument(where, f"is not valid JSON: {exc}") from exc
        if not isinstance(value, dict) or len(value) != 1 or not isinstance(next(iter(value.values())), dict):
            raise InvalidArgument(where, 'must be an object with one member, such as {"message": {...}}')
        [(kind, content)] = value.items()
        yield Line(number, kind, Fields(f"{where}: {kind}", content))


class Fields:
    """The content of a line, read field by field; `done` refuses fields that were not read."""

    def __init__(self, where: str, content: dict[str, Any]):
        self.where, self._left = where, dict(content)

    def refuse(self, name: str, problem: str) -> NoReturn:
        raise InvalidArgument(f"{self.where}.{name}", problem)

    def copy(self) -> Fields:
        """The fields that were not read yet, to be read independently."""
        return Fields(self.where, self._left)

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

    def json_text(self, name: str, check: Callable[[Any], bool] = lambda value: True) -> str | None:
        """An object as JSON text."""

        def holds(value):
            return isinstance(value, dict) and check(value) and _storable(value)

        json_value = self._take(name, holds, "must be an object as written by an export", True)
        return None if json_value is None else json.dumps(json_value)

    def _take(self, name: str, check: Callable[[Any], bool], problem: str, optional: bool) -> Any:
        value = self._left.pop(name, None)
        if value is None and optional:
            return None
        if value is None:
            self.refuse(name, "is missing")
        if not check(value):
            self.refuse(name, f"{_formatted(value)} {problem}")
        return value


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
