"""Messages as JSON Lines: what an export writes of a message, and how an import reads it."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from broker_core import reads
from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import Actor, BodyKind
from broker_core.operations import Batch, Places, Selection, Skip
from broker_core.reads import MessageDetail
from broker_core.store.driver import Steps
from explorer.frames.csv_file import csv_line
from explorer.frames.family import FamilyOperations

from .selecting import matching_part

PAGE = 500
CHUNK = 4 * 2**20  # of bodies that an export reads at once
MOST_MESSAGES = 50_000  # of an import
PREVIEWED = 3
MOST_ERRORS = 20
COLUMNS = (
    "number", "enqueued_at", "message_id", "session_id", "body_kind", "properties", "application_properties", "time_to_live",
    "scheduled_enqueue_at", "dead_letter_reason", "dead_letter_description", "encoded", "body", "body_base64",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Record:
    """A message of a file, checked. properties: the broker's. stored_properties: the sender's, [type, text] by name, and encoded:
    sections as sent; the family checks both."""

    body: bytes
    body_kind: BodyKind
    message_id: str | None
    session_id: str | None
    properties: Mapping[str, Any]
    stored_properties: Mapping[str, Any]
    time_to_live: timedelta | None
    scheduled_enqueue_at: datetime | None
    encoded: bytes | None

    @property
    def text(self) -> str:
        """The beginning of the body for a preview."""
        return self.body[:1_000].decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The messages of a file. lines: as written, by number. errors: (line, what is wrong)."""

    lines: Mapping[int, str]
    first: tuple[Record, ...]
    errors: tuple[tuple[int, str], ...]


def messages_of(chosen: Selection, actor: Actor) -> Iterator[dict[str, Any]]:
    """The messages of a selection, lowest number first. One that leaves the list meanwhile is left out."""
    position, at_end = 0, False
    while not at_end:
        numbers, position, at_end = matching_part(chosen, position, PAGE, actor)
        while numbers:
            found = reads.contents(chosen.address, numbers, max_bytes=CHUNK, actor=actor)
            for detail, body in found:
                yield exported(detail, body)
            last = found[-1][0].row.sequence_number if found else numbers[-1]
            numbers = [number for number in numbers if number > last]


def json_line(detail: MessageDetail, body: bytes) -> str:
    return _line(exported(detail, body))


def json_lines(messages: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    return map(_line, messages)


def _line(message: Mapping[str, Any]) -> str:
    return json.dumps(message, ensure_ascii=False) + "\n"


def csv_lines(messages: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """For spreadsheets: a column for each member; objects are JSON."""
    yield csv_line(COLUMNS)
    for one in messages:
        yield csv_line([_cell(one.get(name)) for name in COLUMNS])


def _cell(value: Any) -> Any:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else "" if value is None else value


def exported(detail: MessageDetail, body: bytes) -> dict[str, Any]:
    """A message as a JSON object with the members COLUMNS; those without a value are left out."""
    row = detail.row
    found = {
        "number": row.sequence_number,
        "enqueued_at": row.enqueued_at.isoformat(),
        "message_id": row.message_id,
        "session_id": row.session_id,
        "body_kind": None if detail.body_kind is BodyKind.DATA else detail.body_kind.name.lower(),
        "properties": dict(detail.broker_properties),
        "application_properties": {name: list(pair) for name, pair in detail.application_properties.items()},
        "time_to_live": detail.time_to_live and detail.time_to_live.total_seconds(),
        "scheduled_enqueue_at": row.scheduled_enqueue_at and row.scheduled_enqueue_at.isoformat(),
        "dead_letter_reason": row.dead_letter_reason,
        "dead_letter_description": row.dead_letter_description,
        "encoded": base64.b64encode(detail.encoded).decode() if detail.encoded is not None else None,
    }
    try:
        content = {"body": body.decode()}
    except UnicodeDecodeError:
        content = {"body_base64": base64.b64encode(body).decode()}
    return {name: value for name, value in found.items() if value not in (None, {})} | content


def parsed(text: str, family: FamilyOperations) -> Parsed:
    """Check each line of a file. Raises InvalidArgument for a file with no messages, or too many."""
    lines: dict[int, str] = {}
    first: list[Record] = []
    errors: list[tuple[int, str]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        if len(lines) == MOST_MESSAGES:
            raise InvalidArgument("file", f"has more than {MOST_MESSAGES:,} messages; divide it")
        try:
            record = _record(line)
            family.read_record(record)
            lines[number] = line
            if len(first) < PREVIEWED:
                first.append(record)
        except BrokerError as problem:
            errors.append((number, str(problem)))
            if len(errors) == MOST_ERRORS:
                break
    if not lines and not errors:
        raise InvalidArgument("file", "has no messages")
    return Parsed(lines, tuple(first), tuple(errors))


def send(batch: Batch, family: FamilyOperations, lines: Mapping[int, str]) -> Steps[dict[int, Places | Skip]]:
    """Send the messages of these lines: where each is now, or why it was not sent."""
    messages: dict[int, Any] = {}
    results: dict[int, Places | Skip] = {}
    for number, line in lines.items():
        try:
            messages[number] = family.read_record(_record(line))
        except BrokerError as problem:
            results[number] = Skip(str(problem), failed=True)
    if messages:
        sent = yield from family.send_records(batch, list(messages.values()))
        results |= dict(zip(messages, sent, strict=True))
    return results


def _record(line: str) -> Record:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise InvalidArgument("line", f"is not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise InvalidArgument("line", 'must be a JSON object, such as {"body": "text"}')
    return Record(
        body=_body(found),
        body_kind=_body_kind(found),
        message_id=_member(found, "message_id", str),
        session_id=_member(found, "session_id", str),
        properties=_member(found, "properties", dict) or {},
        stored_properties=_member(found, "application_properties", dict) or {},
        time_to_live=_seconds(found),
        scheduled_enqueue_at=_instant(found),
        encoded=_base64(found, "encoded"),
    )


def _member(found: Mapping[str, Any], name: str, kind: type) -> Any:
    value = found.get(name)
    if value is not None and not isinstance(value, kind):
        raise InvalidArgument(name, f"must be {'text' if kind is str else 'an object'}")
    return value


def _body(found: Mapping[str, Any]) -> bytes:
    text = _member(found, "body", str)
    raw = _base64(found, "body_base64")
    if (text is None) == (raw is None):
        raise InvalidArgument("body", "is required: text as body, or bytes as body_base64, not both")
    try:
        return raw or b"" if text is None else text.encode()
    except UnicodeEncodeError:
        raise InvalidArgument("body", "has an unpaired surrogate") from None


def _base64(found: Mapping[str, Any], name: str) -> bytes | None:
    text = _member(found, name, str)
    try:
        return None if text is None else base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgument(name, "is not base64") from None


def _body_kind(found: Mapping[str, Any]) -> BodyKind:
    name = (_member(found, "body_kind", str) or "data").upper()
    if name not in BodyKind.__members__:
        raise InvalidArgument("body_kind", f"must be one of {', '.join(one.lower() for one in BodyKind.__members__)}")
    return BodyKind[name]


def _seconds(found: Mapping[str, Any]) -> timedelta | None:
    value = found.get("time_to_live")
    try:
        return None if value is None else timedelta(seconds=value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument("time_to_live", "must be a number of seconds") from None


def _instant(found: Mapping[str, Any]) -> datetime | None:
    text = _member(found, "scheduled_enqueue_at", str)
    try:
        at = None if text is None else datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument("scheduled_enqueue_at", "is not a time in ISO 8601") from None
    if at is not None and at.tzinfo is None:
        raise InvalidArgument("scheduled_enqueue_at", "needs a time zone")
    return at
