"""A message as a line: with all that is stored of it, or as a sender gives it. Exact, without a database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from broker_core.common.types import BodyKind, MessageState, SubQueue

from .lines import Fields, duration, in_base64, instant, json_text, line

MESSAGE = "message"  # the kind of line

# Columns of a message that only some families use; the families' transfer modules read and write them.
FAMILY_COLUMNS = ("lock_token", "locked_by", "visible_at", "hold_kind", "held_since", "renewals", "priority")


@dataclass(frozen=True, slots=True)
class Sent:
    """What the sender of a message gave. properties: the broker's. application_properties: as the family stores them. encoded:
    sections as sent."""

    body: bytes
    body_kind: BodyKind
    message_id: str | None
    session_id: str | None
    properties: Mapping[str, Any] | None
    application_properties: Mapping[str, Any] | None
    time_to_live: timedelta | None
    scheduled_enqueue_at: datetime | None
    encoded: bytes | None


def message_line(row: Any, part: Any) -> str:
    """The line of a stored message. part: the transfer module of its family."""
    return line(MESSAGE, message(row, part))


def message(row: Any, part: Any) -> dict[str, Any]:
    """The content of a message's line. A delivery count of 0 and the body kind DATA are omitted; a body that is text is text."""
    body: dict[str, str | None]
    try:
        body = {"body": bytes(row.body).decode()}
    except UnicodeDecodeError:
        body = {"body_base64": in_base64(row.body)}
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
        "deliveries_before": row.deliveries_before,
        "enqueued_sequence_number": row.enqueued_sequence_number,
        "resubmitted_from": row.resubmitted_from,
        "transfer": row.transfer,
        "encoded": in_base64(row.encoded),
        **body,
        **part.message_fields(row),
    }


def read_sent(content: Fields, part: Any = None, *, version: int) -> Sent:
    """Read what the sender gave. part: a reader of the family (part.Reader) that checks the properties; None: they are checked
    when the message is sent. version: of the file."""
    if version < 3:
        content.rename("body", "body_base64")
    return Sent(
        body=content.body(),
        body_kind=content.member("body_kind", BodyKind, default=BodyKind.DATA),
        message_id=content.text("message_id", optional=True),
        session_id=content.text("session_id", optional=True),
        properties=content.stored("properties", *([part.holds_properties] if part else [])),
        application_properties=content.stored("application_properties", *([part.holds_application_properties] if part else [])),
        time_to_live=content.duration("time_to_live", optional=True),
        scheduled_enqueue_at=content.instant("scheduled_enqueue_at", optional=True),
        encoded=content.bytes_("encoded", optional=True),
    )


def read_message(content: Fields, part: Any, *, version: int) -> dict[str, Any]:
    """The inverse of `message`: columns by name, for a statement. Refuses what a constraint of the table would refuse.

    part: the reader of the message's family (part.Reader).
    """
    sent = read_sent(content, part, version=version)
    columns = {
        "subqueue": int(content.member("list", SubQueue)),
        "state": int(content.member("state", MessageState)),
        "sequence_number": content.whole("sequence_number", least=0),
        "delivery_count": content.whole("delivery_count", optional=True, least=0, most=2**31 - 1) or 0,
        "size": content.whole("size", least=0, most=2**31 - 1),
        "body_kind": int(sent.body_kind),
        "enqueued_at": content.instant("enqueued_at"),
        "expires_at": content.instant("expires_at", optional=True),
        "time_to_live": sent.time_to_live,
        "scheduled_enqueue_at": sent.scheduled_enqueue_at,
        "first_received_at": content.instant("first_received_at", optional=True),
        "last_received_at": content.instant("last_received_at", optional=True),
        "message_id": sent.message_id,
        "session_id": sent.session_id,
        "properties": json_text(sent.properties),
        "application_properties": json_text(sent.application_properties),
        "dead_letter_reason": content.text("dead_letter_reason", optional=True),
        "dead_letter_description": content.text("dead_letter_description", optional=True),
        "dead_letter_source": content.text("dead_letter_source", optional=True),
        "dead_lettered_at": content.instant("dead_lettered_at", optional=True),
        "deliveries_before": content.whole("deliveries_before", optional=True, least=0),
        "enqueued_sequence_number": content.whole("enqueued_sequence_number", optional=True, least=0),
        "resubmitted_from": content.json_text("resubmitted_from"),
        "transfer": content.json_text("transfer"),
        "encoded": sent.encoded,
        "body": sent.body,
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
