"""Connect a client: the connection strings of a namespace, and programs that use it or an entity. Keys are shown by right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from broker_core import namespaces, reads
from broker_core.common.connection_strings import ConnectionString
from broker_core.common.family import FamilyDefinition, definition_of
from broker_core.common.types import Right
from broker_core.reads import EntityRow
from explorer.frames.family import pages_of
from explorer.frames.shell import act, address_of, page, show, site_url
from explorer.snippets import of
from explorer.snippets.code import Program

from .ready import is_closed, open_ports

SHOW_KEYS = "show keys"  # as the audit has it


@never_cache
@page
@require_http_methods(["GET", "POST"])
def connect(request: HttpRequest, namespace: str, path: str | None = None) -> HttpResponse:
    """GET has a placeholder instead of the key, unless that is published. POST has the key: it requires MANAGE and is audited."""
    entity = reads.entity(address_of(namespace, path), actor=request.actor) if path else None
    stored = namespaces.get_namespace(namespace, actor=request.actor)
    definition, may_show = definition_of(stored.family), Right.MANAGE in request.actor.rights
    shown = definition.connection_strings(stored.name, is_hidden=True, actor=request.actor)
    is_hidden = bool(definition.well_known.key)
    if request.method == "POST":
        request.actor.require(Right.MANAGE, "keys")
        done = act(
            request, SHOW_KEYS, entity.address if entity else None,
            lambda: definition.connection_strings(stored.name, actor=request.actor), target=stored.name,
        )  # fmt: skip
        if done.error:
            raise done.error
        shown, is_hidden = done.result, False
    elif may_show and (known := _published(definition, stored.name, request)):
        shown, is_hidden = known, False
    return show(request, "connect", _context(request, stored, entity, shown) | {"is_hidden": is_hidden, "may_show": may_show})


def _published(definition: FamilyDefinition, namespace: str, request: HttpRequest) -> list[ConnectionString]:
    """The connection strings of a namespace whose key everybody knows; none of another one."""
    if not definition.well_known.key or namespace != definition.well_known.name:
        return []
    strings = definition.connection_strings(namespace, actor=request.actor)
    return strings if any(definition.well_known.key in string.text for string in strings) else []


def _context(
    request: HttpRequest, stored: namespaces.Namespace, entity: EntityRow | None, shown: Sequence[ConnectionString]
) -> dict[str, Any]:
    opened = open_ports(request.actor)
    served = [string for string in shown if not string.why_not]
    place = (stored.name, entity.address.path) if entity else (stored.name,)
    return {
        "section": "entities",
        "place": str(entity.address) if entity else stored.name,
        "title": pages_of(stored.family).title,
        "entity": entity,
        "strings": served,
        "closed": sorted({string.port for string in served if is_closed(string, opened)}),
        "others": [string for string in shown if string.why_not],
        "programs": _programs(request, stored, entity, served),
        "back": reverse("explorer:entity" if entity else "explorer:namespace", args=place),
    }


def _programs(
    request: HttpRequest, stored: namespaces.Namespace, entity: EntityRow | None, served: Sequence[ConnectionString]
) -> Sequence[Program]:
    if not served:
        return ()
    return of.for_clients(entity, served, site_url(request)) if entity else of.for_namespace(stored.family, served)
