"""A row of a storage queue's list: why the message is invisible, since when and until when, and warnings. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from broker_core.common.explanations import Reason
from broker_core.queue_storage import CameFrom
from broker_core.queue_storage.rules.display_state import DisplayState
from broker_core.queue_storage.rules.explaining import Code, QueueFacts, explain
from broker_core.queue_storage.rules.names import REQUEUED, SPENT
from broker_core.reads import MessageRow
from explorer.frames.presenters import Deadline

_BECAUSE = {
    DisplayState.DELAYED: "put with a delay",
    DisplayState.RESCHEDULED: "updated before the first get",
    DisplayState.LEASED: "received",
    DisplayState.EXTENDED: "updated after a get",
}
_ENDS = {DisplayState.DELAYED: "visible in", DisplayState.RESCHEDULED: "visible in"}
_FLAGS = {
    Code.WILL_EXPIRE_FIRST: "expires first",
    Code.PARKED: "parked",
    Code.LAST_GET: "last dequeue",
    Code.SPENT: "spent",
}


@dataclass(frozen=True, slots=True)
class Flag:
    word: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of an invisibility between two instants. done: the share that has passed, from 0 to 1."""

    since: datetime
    until: datetime
    done: float


@dataclass(frozen=True, slots=True)
class RowView:
    """because: the reason why it is invisible or expired. by: the holder, if any. until: the next deadline."""

    because: str
    by: str | None
    since: datetime | None
    until: Deadline | None
    progress: Progress | None
    flags: tuple[Flag, ...]


def why_moved(origin: CameFrom) -> str:
    """The reason why a message was moved here, in words."""
    if origin.reason == REQUEUED:
        return "requeued by an operator"
    if origin.reason != SPENT:
        return origin.reason or "moved"
    of = f" of {origin.max_dequeue_count}" if origin.max_dequeue_count else ""
    return "dequeue count exceeded" + ("" if origin.dequeue_count is None else f": {origin.dequeue_count}{of}")


def row_view(row: MessageRow, queue: QueueFacts) -> RowView:
    """The row of a message in a queue with these options."""
    reasons: dict[StrEnum, Reason] = {reason.code: reason for reason in explain(row, queue, row.read_at)}
    flags = tuple(Flag(word, reasons[code].text) for code, word in _FLAGS.items() if code in reasons)
    display_state = row.display_state
    if display_state is DisplayState.EXPIRED:
        removed = _deadline("removed in", reasons[Code.EXPIRED].ends_at)
        return RowView("expired", None, row.expires_at, removed, None, flags)
    if display_state is DisplayState.VISIBLE:
        return RowView("", None, row.visible_at, _deadline("expires in", row.expires_at), None, flags)
    since = row.held_since or row.enqueued_at
    label, until = _ENDS.get(display_state, "lease ends in"), row.visible_at
    if Code.WILL_EXPIRE_FIRST in reasons:
        label, until = "expires in", row.expires_at
    progress = _progress(since, until, row.read_at)
    return RowView(_BECAUSE[display_state], row.locked_by, since, _deadline(label, until), progress, flags)


def _deadline(label: str, at: datetime | None) -> Deadline | None:
    return Deadline(label, at) if at else None


def _progress(since: datetime, until: datetime | None, now: datetime) -> Progress | None:
    if until is None:
        return None
    length = (until - since).total_seconds()
    if length <= 0:
        return None
    return Progress(since, until, min(1.0, max(0.0, (now - since).total_seconds() / length)))
