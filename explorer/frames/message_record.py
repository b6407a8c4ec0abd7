"""Everything that the page and the pane of a message show: both are rendered from this one context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.http import HttpRequest

from broker_core import reads
from broker_core.common.errors import BrokerError, EntityNotFound, InvalidArgument, MessageNotFound
from broker_core.common.types import Actor, EntityAddress, EventKind, Right
from broker_core.reads import DeletedEntity, EntityRow, Event, KeptMessage, MessageDetail, MessageRow
from explorer.bodies import display

from . import connections, history, related, timeline
from .family import MessagePage, MessageRecord, pages_of
from .forms.queries import HISTORY
from .kept import entity_of
from .presenters import actor_name, typed_text
from .shell import May, about
from .values import Act, Badge, Fact, StateLine

_MAIN_PROPERTIES = ("subject", "content_type", "correlation_id")


class MessageGone(MessageNotFound):
    """There is neither the message nor any event of it: it never existed, or its history was removed."""

    def __init__(self, address: EntityAddress, number: int):
        super().__init__(str(address), [number], "message")


def _connection(row: MessageRow | None, viewer: Actor) -> list[Fact]:
    """The connection of the client that holds a message, if it is known."""
    if row is None or not row.locked_by:
        return []
    until = row.locked_until or row.visible_at
    if until is None or until <= row.read_at:
        return []
    url = connections.urls_of_holders([row.locked_by], viewer).get(row.locked_by)
    return [Fact("Connection", "Show connection", url=url)] if url else []


def context_of(request: HttpRequest, address: EntityAddress, number: int, done: Act = Act()) -> dict[str, Any]:
    """The context of a message. Raises EntityNotFound or MessageGone if nothing is known of it."""
    entity, deleted = entity_of(request, address)
    actor = request.actor
    detail = reads.message(entity.address, number, actor=actor) if isinstance(entity, EntityRow) else None
    events = reads.timeline(entity.id, number, actor=actor)
    in_entity = [event for event in events if (event.entity_id, event.sequence_number) == (entity.id, number)]
    own = [event for event in in_entity if event.kind != EventKind.SETTLE_REFUSED]  # those that changed it
    if detail is None and not own:
        raise MessageGone(entity.address, number)
    record = MessageRecord(entity.address, number, detail, own)
    kept = None if detail else reads.kept_message(entity.id, number, events=events, actor=actor)
    whole = kept or detail
    of_family = pages_of(entity.family).message
    explanation = of_family.explain(entity.address, number, actor) if detail else None
    line = (
        of_family.state_line(detail, explanation, entity, actor) if detail and isinstance(entity, EntityRow)
        else gone_line(own[-1], entity, of_family, actor)
    )  # fmt: skip
    application_properties = whole.application_properties if whole else last_properties(own)
    stored = whole.broker_properties if whole else stored_properties(record)
    message_id = record.row.message_id if record.row else own[0].message_id
    facts = [*of_family.facts(record), *_connection(record.row, actor), *properties(stored, of_family)]
    return {
        **about(request, entity),  # type: ignore[arg-type]
        "may": May(actor.rights & ~(Right.SEND | Right.LISTEN | Right.OPERATE | Right.MANAGE)) if deleted else May(actor.rights),
        "deleted": deleted,
        "number": number,
        "detail": whole,
        "kept": kept,
        "row": record.row,
        "first": record.first,
        "last": record.last,
        "message_id": message_id,
        "gone_at": None if detail else deleted.deleted_at if deleted and not gone_before(own[-1]) else own[-1].at,
        "state": line,
        "reasons": [reason for reason in explanation.reasons if reason.code not in line.covers] if explanation else [],
        "explanation": explanation,
        "entries": timeline.entries(events, entity.id, number, entity.family),
        "late": late_settlement(in_entity, actor),
        "now": timeline.present(own, record.row, entity.family) if record.row else [],
        "facts": facts,
        "properties": [*_identity(number, message_id), *facts],
        "application_properties": [(name, kind, *_shown(kind, text)) for name, (kind, text) in application_properties.items()],
        "stored_headers": application_properties,
        "anchors": of_family.anchors(application_properties),
        "related": [
            *related.lineage(events, entity.id, number),
            *related.by_properties(stored, message_id, entity.address, _exists(request), _session_id(record)),
        ],
        "actions": of_family.actions(detail, actor) if detail else [],
        "may_edit": detail is not None
        and Right.OPERATE | Right.SEE_BODIES in actor.rights
        and not pages_of(entity.family).edits.why_not(detail.row),
        "is_held": detail is not None and of_family.is_held_by(detail.row, actor),
        "error": done.error,
        **_body(request, entity, number, whole),
    }  # fmt: skip


def last_properties(own: Sequence[Event]) -> Mapping[str, tuple[str, Any]]:
    """The sender's properties of a message that is gone, as last edited."""
    edits = (event.details.get("properties") for event in reversed(own) if event.kind == EventKind.EDITED)
    found = next((properties for properties in edits if properties is not None), None)
    return own[0].application_properties if found is None else {name: (kind, text) for name, (kind, text) in found.items()}


def gone_before(last: Event) -> bool:
    """Whether the message had left its entity before that was deleted."""
    return last.kind.is_terminal and last.kind != EventKind.DELETED


def late_settlement(events: Sequence[Event], actor: Any) -> str:
    """The last settlement of a message that was refused, explained; empty: none was."""
    refused = next((event for event in reversed(events) if event.kind == EventKind.SETTLE_REFUSED), None)
    if refused is None:
        return ""
    autopsy = timeline.autopsy(refused, events)
    who = actor_name(refused.actor, actor) or "a receiver"
    history = f" The lock was {autopsy.history}." if autopsy.history else ""
    return f"{autopsy.title}, {who} at {refused.at:%H:%M:%S} UTC.{history}"


def gone_line(last: Event, entity: EntityRow | DeletedEntity, of_family: MessagePage, actor: Any) -> StateLine:
    """The state line of a message that is gone, from its last event."""
    words = timeline.words(last.kind, entity.family, last.reason)
    who = actor_name(last.actor, actor)
    by = f" by {who}" if who else ""
    badge = Badge(words.word, "gone", words.icon)
    if last.kind == EventKind.PUBLISHED:
        return StateLine(
            badge, f"Published{by}", "Topics do not store messages: each matching subscription has a copy of its own."
        )
    if isinstance(entity, DeletedEntity):
        ended, name = gone_before(last), actor_name(entity.deleted_by, actor)
        deleter = f" by {name}" if name else ""
        title = f"{words.word.capitalize()}{by}" if ended else f"Deleted with its {entity.kind}{deleter}"
        return StateLine(badge, title, f"The {entity.kind} was deleted. This is the record of the message.")
    if not last.kind.is_terminal:
        return StateLine(badge, "No longer here", f"The last known event is: {words.word}{by}.")
    text = f"No longer in the {entity.kind}. This is the message's record."
    return StateLine(badge, f"{words.word.capitalize()}{by}", text)


def stored_properties(record: MessageRecord) -> Mapping[str, Any]:
    """The properties as stored: of the message, or of its first event if the message is gone."""
    if record.detail:
        return record.detail.broker_properties
    return record.first.properties if record.first else {}


def properties(stored: Mapping[str, Any], of_family: MessagePage) -> list[Fact]:
    """Properties by the family's names."""
    names = [*_MAIN_PROPERTIES, *(n for n in stored if n not in _MAIN_PROPERTIES)]
    pairs = [(name, stored[name]) for name in names if stored.get(name) not in (None, "")]
    name_of, text_of = of_family.property_name, of_family.property_text
    return [Fact(name_of(name), *text_of(name, _listed(value)), is_code=True) for name, value in pairs]


def _identity(number: int, message_id: str | None) -> list[Fact]:
    return [Fact("Sequence number", str(number)), *([Fact("Message ID", message_id, is_code=True)] if message_id else [])]


def _session_id(record: MessageRecord) -> str | None:
    return record.row.session_id if record.row else record.first.session_id if record.first else None


def _listed(value: Any) -> Any:
    return ", ".join(value) if isinstance(value, list) else value


def _shown(kind: str, text: Any) -> tuple[Any, str]:
    return typed_text(kind, text) if isinstance(text, str) else (text, "")


def _exists(request: HttpRequest) -> Any:
    def exists(address: EntityAddress) -> bool:
        try:
            reads.counts(address, actor=request.actor)
        except (EntityNotFound, InvalidArgument):
            return False
        return True

    return exists


def _body(
    request: HttpRequest, entity: EntityRow | DeletedEntity, number: int, message: MessageDetail | KeptMessage | None
) -> dict[str, Any]:
    """Context for the body: a large one is shown on demand only. Without the right to see bodies, none is shown."""
    if message is None or Right.SEE_BODIES not in request.actor.rights:
        return {"body": None}
    mode = request.GET.get("body", "")
    if message.body_size > display.SHOWN_AT_ONCE and mode not in ("show", "raw", "hex"):
        return {"body": None, "body_is_large": True}
    part: dict[str, Any] = {"length": display.SHOWN_ON_DEMAND, "actor": request.actor}
    if isinstance(message, KeptMessage):
        body = reads.kept_body(message, **part)
    else:
        body = reads.body(entity.address, number, **part)
    if body is None:
        return {"body": None}
    read_sections = pages_of(entity.family).message.read_sections
    return {"body": display.view(body, mode if mode in display.MODES else "", read_sections), "body_modes": display.MODES}


def neighbours(request: HttpRequest, context: Mapping[str, Any]) -> dict[str, int | None]:
    """The numbers of the previous and the next message in the list and filter that the query names."""
    if context["deleted"]:
        return {}
    if request.GET.get("tab") == HISTORY:
        previous, following = history.beside(request.GET, context["entity"], context["number"], request.actor)
        return {"previous_number": previous, "next_number": following}
    record = MessageRecord(context["address"], context["number"], None if context["kept"] else context["detail"], ())
    beside = pages_of(context["entity"].family).message.beside
    try:
        return {f"{side}_number": beside(request.GET, record, side, request.actor) for side in ("previous", "next")}
    except BrokerError:  # the query is none of this list, or not for this user
        return {}
