"""The live tail: the newest events of an entity, of a namespace, or of all, as they happen."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from broker_core import reads
from broker_core.common.errors import EntityNotFound, InvalidArgument
from broker_core.common.types import EntityAddress
from broker_core.reads import EntityRow, EventFilter, NamespaceRow
from broker_core.store import connections
from explorer import sandbox_names
from explorer.frames.shell import page, show
from explorer.frames.vocabularies import TAIL, kinds_of
from explorer.frames.vocabulary import Terms, canonical, field_of
from explorer.live.page import Live, live

ROWS = 100  # a tail keeps so many lines
SECONDS = 0.5  # between two drawings
REFRESH_SECONDS = 1.0  # of a tail of many entities, which no single one of them makes due


@live
@page
@require_GET
def tail(request: HttpRequest) -> HttpResponse:
    if redirect := canonical(request, TAIL):
        return redirect
    field = field_of(request, TAIL)
    context: dict[str, Any] = {"section": "entities", "filter": field, "most": ROWS}
    if field.problem:
        return show(request, "tail", context, fragment="_tail_list", status=field.status, live=Live({}))
    address = _address(field.terms.get("entity"))
    name = address.namespace if address else field.terms.get("namespace")
    namespaces = [n for n in reads.namespaces(actor=request.actor) if not n.is_system or n.name == name]
    namespaces = sandbox_names.without(namespaces, keep=name or "")
    namespace = next((n for n in namespaces if n.name.lower() == name.lower()), None) if name else None
    if name and namespace is None:
        raise EntityNotFound(name, "namespace")
    with connections.of(namespace.name if namespace else None):
        entity: EntityRow | None = reads.entity(address, actor=request.actor) if address else None
        events = reads.events(_filter(request, field.terms, namespace, entity), limit=ROWS, actor=request.actor)
    families = {n.name: n.family for n in namespaces}
    context |= {
        "current_namespace": namespace,
        "entity": entity,
        "clock": entity.clock if entity else None,
        "rows": [(event, families.get(event.address.namespace) if event.address else None) for event in events.rows],
    }
    live_parts = Live(
        {"explorer/_tail.html": SECONDS if entity else REFRESH_SECONDS},
        entities=[entity] if entity else (),
        refresh_seconds=REFRESH_SECONDS,
    )
    return show(request, "tail", context, fragment="_tail_list", live=live_parts)


def _address(text: str | None) -> EntityAddress | None:
    """The entity that is named. Raises EntityNotFound for a text that is no address."""
    try:
        return EntityAddress.parse(text) if text else None
    except InvalidArgument as exc:
        raise EntityNotFound(str(text)) from exc


def _filter(request: HttpRequest, terms: Terms, namespace: NamespaceRow | None, entity: EntityRow | None) -> EventFilter:
    event = terms.get("event")
    return EventFilter(
        entity_id=entity.id if entity else None,
        namespace=namespace.name if namespace and not entity else None,
        kinds=kinds_of(event) if event else (),
        actor=terms.get("by"),
        message_id=" ".join(terms.words) or None,
        except_namespaces=() if namespace else sandbox_names.hidden_sandboxes(request.user, request.actor, own=False),
    )
