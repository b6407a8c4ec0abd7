"""Messages as JSON Lines: what an export writes of a message, and how an import reads it."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from broker_core import reads
from broker_core.common.amqp_sections import AmqpSections
from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import Actor, BodyKind
from broker_core.operations import Selection
from broker_core.reads import MessageDetail
from explorer.shared.family import FamilyOperations

from .selecting import matching_part

PAGE = 100
CHUNK = 4 * 2**20
MOST_MESSAGES = 5_000  # of an import; all are sent in one transaction
MOST_ERRORS = 20


@dataclass(frozen=True, slots=True)
class Record:
    """A message of a file, checked. properties: the broker's. stored_properties: the sender's, [type, text] by
    name, which the family checks."""

    body: bytes
    body_kind: BodyKind
    message_id: str | None
    session_id: str | None
    properties: Mapping[str, Any]
    stored_properties: Mapping[str, Any]
    time_to_live: timedelta | None
    scheduled_enqueue_at: datetime | None
    amqp: AmqpSections | None

    @property
    def text(self) -> str:
        """The beginning of the body for a preview."""
        return self.body[:1_000].decode(errors="replace")


@dataclass(frozen=True, slots=True)
class Parsed:
    """The messages of a file, as the family sends them, with their lines as written. errors: (line, what is wrong)."""

    messages: tuple[Any, ...]
    first: tuple[Record, ...]
    errors: tuple[tuple[int, str], ...]


def lines_of(chosen: Selection, actor: Actor) -> Iterator[str]:
    """The messages of a selection, a line each, lowest number first. One that leaves the list meanwhile is left out."""
    position, at_end = 0, False
    while not at_end:
        numbers, position, at_end = matching_part(chosen, position, PAGE, actor)
        for number in numbers:
            detail = reads.message(chosen.address, number, actor=actor)
            body = _whole_body(chosen, detail, actor) if detail else None
            if detail is not None and body is not None:
                yield json.dumps(exported(detail, body), ensure_ascii=False) + "\n"


def _whole_body(chosen: Selection, detail: MessageDetail, actor: Actor) -> bytes | None:
    parts = []
    for offset in range(0, max(1, detail.body_size), CHUNK):
        part = reads.body(chosen.address, detail.row.sequence_number, offset=offset, length=CHUNK, actor=actor)
        if part is None:
            return None
        parts.append(part.content)
    return b"".join(parts)


def exported(detail: MessageDetail, body: bytes) -> dict[str, Any]:
    """A message as a JSON object; members without a value are left out."""
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
    messages: list[Any] = []
    first: list[Record] = []
    errors: list[tuple[int, str]] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        if len(messages) == MOST_MESSAGES:
            raise InvalidArgument("file", f"has more than {MOST_MESSAGES:,} messages; divide it")
        try:
            record = _record(line)
            messages.append(family.read_record(record))
            if len(first) < 3:
                first.append(record)
        except BrokerError as problem:
            errors.append((number, str(problem)))
            if len(errors) == MOST_ERRORS:
                break
    if not messages and not errors:
        raise InvalidArgument("file", "has no messages")
    return Parsed(tuple(messages), tuple(first), tuple(errors))


def _record(line: str) -> Record:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as problem:
        raise InvalidArgument("line", f"is not JSON: {problem}") from None
    if not isinstance(found, dict):
        raise InvalidArgument("line", 'must be a JSON object, such as {"body": "text"}')
    encoded = _base64(found, "encoded")
    return Record(
        body=_body(found),
        body_kind=_body_kind(found),
        message_id=_member(found, "message_id", str),
        session_id=_member(found, "session_id", str),
        properties=_member(found, "properties", dict) or {},
        stored_properties=_member(found, "application_properties", dict) or {},
        time_to_live=_seconds(found),
        scheduled_enqueue_at=_instant(found),
        amqp=None if encoded is None else AmqpSections.parse(encoded),
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
