"""The live tail: the newest events of an entity, of a namespace, or of all, as they happen."""

from __future__ import annotations

from django import forms
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from broker_core import reads
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import EventKind
from broker_core.reads import EntityRow, EventFilter
from broker_core.store import connections
from explorer import sandbox_names
from explorer.frames.forms.queries import ScopeQuery
from explorer.frames.shell import cleaned, page, show
from explorer.live.page import Live, live

ROWS = 100  # a tail keeps so many lines
SECONDS = 0.5  # between two drawings
REFRESH_SECONDS = 1.0  # of a tail of many entities, which no single one of them makes due
KINDS = {
    "arrivals": ("Arrivals", (EventKind.SENT, EventKind.SCHEDULED, EventKind.PUBLISHED)),
    "receives": ("Receives", (EventKind.RECEIVED, EventKind.RECEIVED_AND_DELETED)),
    "ends": ("Completed", (EventKind.COMPLETED, EventKind.RECEIVED_AND_DELETED)),
    "failures": (
        "Failures",
        (
            EventKind.DEAD_LETTERED,
            EventKind.EXPIRED,
            EventKind.ABANDONED,
            EventKind.LOCK_LOST,
            EventKind.MOVED,
            EventKind.DROPPED,
        ),
    ),
}


class TailQuery(ScopeQuery):
    """kinds: a group of events; empty: all. actor: exact. id: a message id."""

    kinds = forms.ChoiceField(required=False, choices=[("", "all"), *((name, title) for name, (title, _) in KINDS.items())])
    actor = forms.CharField(required=False, max_length=200)
    id = forms.CharField(required=False, max_length=128)


@live
@page
@require_GET
def tail(request: HttpRequest) -> HttpResponse:
    query = cleaned(TailQuery(request.GET))
    namespaces = [n for n in reads.namespaces(actor=request.actor) if not n.is_system or n.name == query["namespace"]]
    namespaces = sandbox_names.without(namespaces, keep=query["entity"].namespace if query["entity"] else query["namespace"])
    name = query["entity"].namespace if query["entity"] else query["namespace"]
    namespace = next((n for n in namespaces if n.name.lower() == name.lower()), None) if name else None
    if name and namespace is None:
        raise EntityNotFound(name, "namespace")
    with connections.of(namespace.name if namespace else None):
        entity: EntityRow | None = reads.entity(query["entity"], actor=request.actor) if query["entity"] else None
        event_filter = EventFilter(
            entity_id=entity.id if entity else None,
            namespace=namespace.name if namespace and not entity else None,
            kinds=KINDS[query["kinds"]][1] if query["kinds"] else (),
            actor=query["actor"] or None,
            message_id=query["id"] or None,
            except_namespaces=() if namespace else sandbox_names.hidden_sandboxes(request.user, request.actor, own=False),
        )
        events = reads.events(event_filter, limit=ROWS, actor=request.actor)
    families = {n.name: n.family for n in namespaces}
    context = {
        "section": "entities",
        "query": query,
        "current_namespace": namespace,
        "entity": entity,
        "clock": entity.clock if entity else None,
        "namespaces": namespaces,
        "kinds": [("", "All events"), *((name, title) for name, (title, _) in KINDS.items())],
        "rows": [(event, families.get(event.address.namespace) if event.address else None) for event in events.rows],
        "most": ROWS,
    }
    live_parts = Live(
        {"explorer/_tail.html": SECONDS if entity else REFRESH_SECONDS},
        entities=[entity] if entity else (),
        refresh_seconds=REFRESH_SECONDS,
    )
    return show(request, "tail", context, live=live_parts)
