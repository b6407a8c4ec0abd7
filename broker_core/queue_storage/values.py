"""Messages as the use cases return them. expires_at None: never expires."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID


@dataclass(frozen=True, slots=True)
class PutMessage:
    """A message just put; its producer may update or delete it with the receipt (QS-015)."""

    message_id: str
    pop_receipt: UUID
    inserted_at: datetime
    expires_at: datetime | None
    visible_at: datetime
    sequence_number: int


@dataclass(frozen=True, slots=True)
class PeekedMessage:
    """A message as returned by a peek: without receipt and visible_at (QS-036)."""

    message_id: str
    inserted_at: datetime
    expires_at: datetime | None
    dequeue_count: int
    text: str
    sequence_number: int


@dataclass(frozen=True, slots=True)
class GotMessage:
    """A message as returned by a get. dequeue_count: including this get. visible_at: when it becomes visible again (QS-021)."""

    message_id: str
    pop_receipt: UUID
    inserted_at: datetime
    expires_at: datetime | None
    visible_at: datetime
    dequeue_count: int
    text: str
    sequence_number: int


class Updated(NamedTuple):
    """The result of an update (QS-045)."""

    pop_receipt: UUID
    visible_at: datetime


def put_message(row: Any) -> PutMessage:
    return PutMessage(row.message_id, row.lock_token, row.enqueued_at, row.expires_at, row.visible_at, row.sequence_number)


def peeked_message(row: Any) -> PeekedMessage:
    return PeekedMessage(
        row.message_id, row.enqueued_at, row.expires_at, row.delivery_count, _text(row.body), row.sequence_number
    )


def got_message(row: Any) -> GotMessage:
    return GotMessage(
        row.message_id,
        row.lock_token,
        row.enqueued_at,
        row.expires_at,
        row.visible_at,
        row.delivery_count,
        _text(row.body),
        row.sequence_number,
    )


def _text(body: bytes) -> str:
    return str(body, "utf-8", "replace")
