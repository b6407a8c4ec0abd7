"""Names that a form field suggests: all of them if they are few, else those that contain the typed text."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET

from broker_core import reads
from broker_core.common.types import Actor, EntityKind
from broker_core.service_bus.rules.entity_settings import FORWARDS
from explorer.frames.lists import MOST_LISTED
from explorer.frames.shell import page

__all__ = ["MOST_LISTED", "names", "targets", "topics"]


@page
@require_GET
def names(request: HttpRequest, of: str) -> HttpResponse:
    """Suggestions for a field. of: `topics`, or `targets` to forward to in `namespace` or in the namespace of `topic`.

    The parameter named as the field is the typed text. `but`: a name to leave out.
    """
    query = request.GET
    if of == "topics":
        suggestions = topics(query.get("topic", ""), reads.MOST_NAMES, request.actor)[0]
    elif of == "targets":
        part = next((query[name] for name in FORWARDS if name in query), "")
        namespace = query.get("namespace") or query.get("topic", "").partition("/")[0]
        suggestions = targets(part, namespace, reads.MOST_NAMES, request.actor, but=query.get("but"))
    else:
        raise Http404(f"There are no names of {of}")
    return render(request, "explorer/_names.html", {"names": suggestions})


def topics(part: str, limit: int, actor: Actor) -> tuple[list[str], bool]:
    """Topics as "namespace/path", and whether there are more."""
    names = reads.names(part.strip(), kinds=[EntityKind.TOPIC], limit=limit, actor=actor)
    return [str(name.address) for name in names.matches], names.more


def targets(part: str, namespace: str, limit: int, actor: Actor, *, but: str | None = None) -> list[str]:
    """Queues and topics of the namespace that an entity can forward to. but: the entity itself."""
    names = reads.names(part.strip(), namespace=namespace, kinds=[EntityKind.QUEUE, EntityKind.TOPIC], limit=limit, actor=actor)
    return [name.address.path for name in names.matches if name.address.path != but]
