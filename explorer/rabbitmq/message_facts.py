"""The first line of a RabbitMQ message's page, and what the broker knows of the message. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from broker_core.common.durations import human
from broker_core.common.types import Actor
from broker_core.rabbitmq.rules.display_state import DisplayState
from broker_core.rabbitmq.rules.explaining import Code
from broker_core.reads import EntityRow, Explanation, MessageDetail, MessageRow
from explorer.frames.family import MessageRecord
from explorer.frames.presenters import actor_name, by_actor, filesize, plural, time_of_day
from explorer.frames.values import Fact, StateLine

from .states import badge

_DELIVERY_MODES = {"1": "transient", "2": "persistent"}


def state_line(detail: MessageDetail, explanation: Explanation | None, entity: EntityRow, actor: Actor) -> StateLine:
    """What the page says first."""
    row, state_badge = detail.row, badge(detail.row)
    if row.display_state is DisplayState.UNACKED:
        holder = actor_name(row.locked_by, actor) or "a connection"
        since = f" Delivered at {time_of_day(row.last_received_at, row.read_at)}." if row.last_received_at else ""
        text = f"No other consumer gets it until it is requeued, which also happens when its channel or connection closes.{since}"
        return StateLine(state_badge, f"Unacknowledged, held by {holder}", text, covers=frozenset((Code.UNACKED,)))
    if row.display_state is DisplayState.EXPIRED:
        return StateLine(state_badge, "Expired, not yet removed")
    reasons = {reason.code: reason for reason in explanation.reasons} if explanation else {}
    place = reasons.get(Code.NEXT) or reasons.get(Code.BEHIND)
    before = f"Ready: {place.text[0].lower()}{place.text[1:].rstrip('.')}" if place else "Ready"
    return StateLine(state_badge, before, _ready(row), covers=frozenset((Code.NEXT, Code.BEHIND)))


def _ready(row: MessageRow) -> str:
    """Reasons of the explanation say when it expires, if it does."""
    return "" if row.expires_at else "It never expires."


def facts(record: MessageRecord) -> list[Fact]:
    """What the broker knows of the message."""
    return _present(record, record.detail) if record.detail else _gone(record)


def _present(record: MessageRecord, detail: MessageDetail) -> list[Fact]:
    row = detail.row
    again = "the next delivery is marked redelivered" if row.first_received_at else ""
    facts = [Fact("Returned", plural(row.delivery_count, "time"), again)]
    if row.owner_id:
        facts.append(by_actor("Unacknowledged by", row.locked_by) if row.locked_by else Fact("Unacknowledged by", "unknown"))
        if row.last_received_at:
            facts.append(Fact("Delivered", at=row.last_received_at))
    facts.append(Fact("Enqueued", at=row.enqueued_at))
    by = "from the queue's time-to-live" if row.expires_by_default else ""
    facts.append(Fact("Expires", at=row.expires_at, note=by) if row.expires_at else Fact("Expires", "never"))
    if row.priority is not None:
        facts.append(Fact("Priority in the queue", str(row.priority)))
    return [*facts, Fact("Size", filesize(row.size), "of body")]


def _gone(record: MessageRecord) -> list[Fact]:
    first, last = record.first, record.last
    if first is None or last is None:
        return []
    facts = [Fact("Enqueued", at=last.enqueued_at)] if last.enqueued_at else []
    if first.size:
        facts.append(Fact("Size", filesize(first.size), "of body"))
    return [*facts, Fact("Removed", at=last.at)]


def property_text(name: str, value: Any) -> tuple[str, str]:
    """A property for people: an expiration in milliseconds as a duration, a delivery mode by its name."""
    text = str(value)
    if name == "expiration" and text.isdecimal() and len(text) < 16:
        return human(timedelta(milliseconds=int(text))), f"{text} ms"
    if name == "delivery_mode" and text in _DELIVERY_MODES:
        return _DELIVERY_MODES[text], text
    return text, ""
