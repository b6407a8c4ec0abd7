"""The first line of a Service Bus message's page, and what the broker knows of the message. Pure."""

from __future__ import annotations

from django.urls import reverse

from broker_core.common.durations import format_iso, human
from broker_core.common.types import Actor, EntityAddress, EventKind, MessageState, SubQueue
from broker_core.reads import EntityRow, Explanation, MessageDetail, MessageRow
from broker_core.service_bus.rules.display_state import DisplayState
from broker_core.service_bus.rules.explaining import Code
from broker_core.service_bus.rules.messages import MAX_DELIVERY_COUNT_EXCEEDED
from explorer.frames.family import MessageRecord
from explorer.frames.presenters import actor_name, by_actor, filesize, is_neglected, time_of_day
from explorer.frames.values import Fact, StateLine

from .presenters import badge, deliveries

_DEAD = (Code.DEAD_LETTER, Code.TRANSFER_DEAD_LETTER, Code.NEXT, Code.BEHIND)


def state_line(detail: MessageDetail, explanation: Explanation | None, entity: EntityRow, actor: Actor) -> StateLine:
    """What the page says first."""
    row = detail.row
    state_badge = badge(row)
    if row.display_state == DisplayState.LOCKED and row.locked_until:
        holder = actor_name(row.locked_by, actor) or "a receiver"
        before, covers = f"Locked by {holder},", frozenset((Code.LOCKED, Code.LAST_DELIVERY, *_DEAD))
        return StateLine(state_badge, before, _locked(row), row.locked_until, row.last_received_at, "left", covers)
    if row.subqueue != SubQueue.MAIN:
        reason = row.dead_letter_reason or "by a receiver, without a reason"
        return StateLine(state_badge, f"Dead-lettered: {reason}", _dead(row), covers=frozenset(_DEAD))
    if row.state == MessageState.SCHEDULED and row.display_state == DisplayState.SCHEDULED and row.scheduled_enqueue_at:
        goes = "is copied to the topic's subscriptions" if not entity.holds_messages else "is added to the end of the queue"
        at = time_of_day(row.scheduled_enqueue_at, row.read_at)
        text = f"At {at} it {goes} with a new sequence number. It can be cancelled until then."
        return StateLine(
            state_badge, "Scheduled, due in", text, row.scheduled_enqueue_at, row.enqueued_at, covers=frozenset((Code.SCHEDULED,))
        )
    if row.display_state == DisplayState.DEFERRED:
        text = f"Only a receive by its sequence number, {row.sequence_number}, returns it."
        return StateLine(state_badge, "Deferred", text, covers=frozenset((Code.DEFERRED,)))
    if explanation and explanation.deliverable:
        return _active(state_badge, explanation, entity)
    return StateLine(
        state_badge, "Active, but not delivered" if row.display_state == DisplayState.AVAILABLE else state_badge.word.capitalize()
    )


def _locked(row: MessageRow) -> str:
    assert row.locked_until is not None
    text = f"Other receivers cannot get it before {time_of_day(row.locked_until, row.read_at)}. If the lock ends unsettled, "
    if row.subqueue != SubQueue.MAIN:
        return f"{text}it stays in the dead-letter queue."
    number = row.delivery_count + 1
    counts = f"delivery {number} of {row.max_delivery_count} counts as failed"
    return f"{text}{counts}{', and the message is dead-lettered' if number >= row.max_delivery_count else ''}."


def _dead(row: MessageRow) -> str:
    description = (row.dead_letter_description or "").strip()
    end = "" if description.endswith((".", "!", "?")) or not description else "."
    where = "transfer dead-letter queue" if row.subqueue == SubQueue.TRANSFER_DEAD_LETTER else "dead-letter queue"
    return f"{description}{end} It stays in the {where} until it is resubmitted, received there or deleted.".strip()


def _active(state_badge, explanation: Explanation, entity: EntityRow) -> StateLine:
    reasons = {reason.code: reason for reason in explanation.reasons}
    place = reasons.get(Code.NEXT) or reasons.get(Code.BEHIND)
    before = f"Active: {place.text[0].lower()}{place.text[1:].rstrip('.')}" if place else "Active"
    row = explanation.message
    text = "No active receivers." if is_neglected(entity) else "The next receive that reaches it gets it."
    if row.expires_at:
        text += f" It expires at {time_of_day(row.expires_at, row.read_at)}."
    return StateLine(state_badge, before, text, covers=frozenset((Code.NEXT, Code.BEHIND)))


def facts(record: MessageRecord) -> list[Fact]:
    """What the broker knows of the message."""
    return _present(record, record.detail) if record.detail else _gone(record)


def _present(record: MessageRecord, detail: MessageDetail) -> list[Fact]:
    row, address = detail.row, record.address
    facts = [_delivery_count(record, row)]
    if row.locked_by and row.display_state == DisplayState.LOCKED:
        facts += [by_actor("Locked by", row.locked_by), Fact("Locked until", at=row.locked_until)]
    facts.append(Fact("Enqueued", at=row.enqueued_at))
    if row.dead_lettered_at:
        facts.append(Fact("Dead-lettered", at=row.dead_lettered_at))
    if detail.dead_letter_source:
        facts.append(Fact("Dead-letter source", detail.dead_letter_source))
    if row.session_id is not None:
        facts.append(Fact("Session ID", row.session_id, is_code=True))
    if detail.transfer.get("hops"):
        facts.append(Fact("Forwarded", f"{detail.transfer['hops']} times"))
    if row.scheduled_enqueue_at:
        facts.append(Fact("Scheduled for", at=row.scheduled_enqueue_at))
    if detail.time_to_live:
        facts.append(Fact("Time-to-live", human(detail.time_to_live), format_iso(detail.time_to_live)))
    if row.expires_at:
        facts.append(Fact("Expires", at=row.expires_at, note="from the default" if row.expires_by_default else ""))
    elif row.subqueue == SubQueue.MAIN and row.state != MessageState.SCHEDULED:
        facts.append(Fact("Expires", "never"))
    facts.append(Fact("Size", filesize(row.size), "with properties"))
    if detail.came_from_elsewhere:
        facts.append(_enqueued_number(detail, address))
    return facts


def _delivery_count(record: MessageRecord, row: MessageRow) -> Fact:
    """Of a dead letter: how often it had failed, as its event says. The stored count begins at 0 in the dead-letter queue
    (SB-103)."""
    if row.subqueue == SubQueue.MAIN:
        return Fact("Delivery count", f"{deliveries(row)} failed")
    dead_lettered = next((event for event in reversed(record.events) if event.kind is EventKind.DEAD_LETTERED), None)
    if dead_lettered is None:
        return Fact("Delivery count", str(row.delivery_count), "counted anew in the dead-letter queue")
    failed = dead_lettered.delivery_count or 0
    of_limit = f" of {failed}" if row.dead_letter_reason == MAX_DELIVERY_COUNT_EXCEEDED else ""
    return Fact("Delivery count", f"{failed}{of_limit} failed", "before it was dead-lettered")


def _enqueued_number(detail: MessageDetail, address: EntityAddress) -> Fact:
    """The number that the message had where it was sent; a forwarded one has no entity to link to."""
    number = detail.enqueued_sequence_number
    if detail.transfer.get("hops"):
        return Fact("Enqueued sequence number", str(number), "in the entity it was sent to")
    place = address.topic or address
    url = reverse("explorer:message", args=(place.namespace, place.path, number))
    return Fact("Enqueued sequence number", str(number), f"in {place.path}" if address.topic else "", url=url)


def _gone(record: MessageRecord) -> list[Fact]:
    first, last = record.first, record.last
    if first is None or last is None:
        return []
    facts = [Fact("Enqueued", at=last.enqueued_at)] if last.enqueued_at else []
    if first.size:
        facts.append(Fact("Size", filesize(first.size), "with properties"))
    if first.time_to_live:
        facts.append(Fact("Time-to-live", human(first.time_to_live), format_iso(first.time_to_live)))
    if first.session_id:
        facts.append(Fact("Session ID", first.session_id, is_code=True))
    return [*facts, Fact("Removed", at=last.at)]
