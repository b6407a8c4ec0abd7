"""The history of an entity: the messages that left it, by outcome, message id and actor."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, QueryDict

from broker_core import reads
from broker_core.common.types import TERMINAL_KINDS, Actor, EventKind
from broker_core.reads import DeletedEntity, EntityRow, Event, EventFilter, Page

from .forms.queries import HistoryQuery
from .vocabularies import HISTORY, kinds_of
from .vocabulary import Terms, field_of, terms_in


def history(request: HttpRequest, entity: EntityRow | DeletedEntity, cursor: str) -> dict[str, Any]:
    """Context of `_history.html`: a page of the history, as the field of conditions narrows it."""
    field = field_of(request, HISTORY)
    context = {"filter": field, "filtered": bool(field)}
    return context if field.problem else context | {"events": _events(entity, field.terms, cursor, request.actor)}


def beside(query: QueryDict, entity: EntityRow, number: int, actor: Actor) -> tuple[int | None, int | None]:
    """The numbers before and after a message on the page of the history that the query selects; None: it has none."""
    form, terms = HistoryQuery(query), terms_in(query, HISTORY)
    if terms is None or not form.is_valid():
        return None, None
    events = _events(entity, terms, form.cleaned_data["cursor"], actor)
    numbers = list(dict.fromkeys(event.sequence_number for event in events.rows))
    if number not in numbers:
        return None, None
    at = numbers.index(number)
    return numbers[at - 1] if at else None, numbers[at + 1] if at + 1 < len(numbers) else None


def _events(entity: EntityRow | DeletedEntity, terms: Terms, cursor: str, actor: Actor) -> Page[Event]:
    """The last events of messages that left. A word is a whole message id."""
    outcome, message_id, by = terms.get("outcome"), " ".join(terms.words) or None, terms.get("by")
    kinds = kinds_of(outcome) if outcome else tuple(EventKind(kind) for kind in TERMINAL_KINDS)
    if isinstance(entity, DeletedEntity):
        of_deleted = EventFilter(entity_id=entity.id, kinds=kinds, message_id=message_id, actor=by)
        return reads.events(of_deleted, cursor=cursor or None, actor=actor)
    return reads.gone(entity.address, kinds=kinds, message_id=message_id, by=by, cursor=cursor or None, actor=actor)
