"""The first line of a storage queue message's page, and what the broker knows of the message. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from django.urls import reverse

from broker_core.common.types import Actor
from broker_core.queue_storage import CameFrom
from broker_core.queue_storage.rules.display_state import DisplayState
from broker_core.queue_storage.rules.explaining import Code
from broker_core.reads import EntityRow, Explanation, MessageDetail
from explorer.frames.family import MessageRecord
from explorer.frames.presenters import absolute, actor_name, by_actor, filesize, plural, time_of_day
from explorer.frames.values import Fact, StateLine

from .presenters import badge
from .rows import why_moved

_HIDDEN = {
    DisplayState.DELAYED: ("Delayed, visible in", "", "It was put with a visibility timeout. No get returns it before {at}."),
    DisplayState.RESCHEDULED: (
        "Rescheduled, visible in",
        "",
        "It was updated before its first get. No get returns it before {at}.",
    ),
    DisplayState.LEASED: ("Leased{by},", "left", "No get returns it before {at}; then it is visible again."),
    DisplayState.EXTENDED: ("Lease extended{by},", "left", "No get returns it before {at}; then it is visible again."),
}
_HIDDEN_CODES = frozenset((Code.DELAYED, Code.RESCHEDULED, Code.LEASED, Code.EXTENDED))


def state_line(detail: MessageDetail, explanation: Explanation | None, entity: EntityRow, actor: Actor) -> StateLine:
    """What the page says first."""
    row, state_badge = detail.row, badge(detail.row)
    hidden = _HIDDEN.get(row.display_state)
    if hidden and row.visible_at:
        before, after, text = hidden
        holder = actor_name(row.locked_by, actor)
        since = row.held_since or row.enqueued_at
        sentence = text.format(at=time_of_day(row.visible_at, row.read_at))
        return StateLine(
            state_badge,
            before.format(by=f" by {holder}" if holder else ""),
            sentence,
            row.visible_at,
            since,
            after,
            _HIDDEN_CODES,
        )
    if row.display_state is DisplayState.EXPIRED:
        return StateLine(state_badge, "Expired, not yet removed")
    reasons = {reason.code: reason for reason in explanation.reasons} if explanation else {}
    if explanation and not explanation.deliverable:
        return StateLine(state_badge, "Visible, but not returned by a get")
    place = reasons.get(Code.NEXT) or reasons.get(Code.BEHIND)
    before = f"Visible: {place.text[0].lower()}{place.text[1:].rstrip('.')}" if place else "Visible"
    text = f"It expires at {time_of_day(row.expires_at, row.read_at)}." if row.expires_at else "It never expires."
    return StateLine(state_badge, before, text, covers=frozenset((Code.NEXT, Code.BEHIND)))


def facts(record: MessageRecord) -> list[Fact]:
    """What the broker knows of the message."""
    return _present(record, record.detail) if record.detail else _gone(record)


def _present(record: MessageRecord, detail: MessageDetail) -> list[Fact]:
    row = detail.row
    updates = f"{plural(row.renewals, 'update')} since the last get" if row.renewals else ""
    facts = [Fact("Dequeue count", plural(row.delivery_count, "get"), updates)]
    if row.visible_at:
        facts.append(Fact("Visible" if row.visible_at <= row.read_at else "Visible again", at=row.visible_at))
    if row.locked_by and row.display_state not in (DisplayState.DELAYED, DisplayState.RESCHEDULED):
        leased = row.visible_at is not None and row.visible_at > row.read_at
        facts.append(by_actor("Leased by" if leased else "Last leased by", row.locked_by))
    if row.held_since:
        facts.append(Fact("Invisible since", at=row.held_since))
    facts.append(Fact("Inserted", at=row.enqueued_at))
    facts.append(Fact("Expires", at=row.expires_at) if row.expires_at else Fact("Expires", "never"))
    if row.first_received_at:
        facts.append(Fact("First get", at=row.first_received_at))
    return [*facts, Fact("Size", filesize(row.size), "of text"), *_origin(detail.resubmitted_from, record)]


def _gone(record: MessageRecord) -> list[Fact]:
    first, last = record.first, record.last
    if first is None or last is None:
        return []
    facts = [Fact("Inserted", at=last.enqueued_at)] if last.enqueued_at else []
    if first.size:
        facts.append(Fact("Size", filesize(first.size), "of text"))
    return [*facts, Fact("Removed", at=last.at), *_origin(first.details.get("from"), record)]


def _origin(stored: Mapping | None, record: MessageRecord) -> list[Fact]:
    if not stored:
        return []
    came = CameFrom.of(record.address.namespace, stored)
    url = reverse("explorer:message", args=(came.address.namespace, came.address.path, came.sequence_number))
    times = f", {came.times} times so far" if came.times > 1 else ""
    at = came.at or (record.first.at if record.first else None)
    moved = f"; moved at {absolute(at)}" if at else ""
    return [Fact("Origin", f"message {came.sequence_number} of {came.address.path}", f"{why_moved(came)}{moved}{times}", url=url)]
