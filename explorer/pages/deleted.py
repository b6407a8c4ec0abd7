"""The page of an entity that was deleted: a record of it, with its history and its last settings. Nothing can be changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from broker_core import operations, reads
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import BROKER, EntityAddress, Right
from broker_core.operations import Kind
from broker_core.reads import DeletedEntity
from explorer.frames.filtering import status_of
from explorer.frames.forms.queries import DeletedQuery
from explorer.frames.history import history
from explorer.frames.lists import TabView
from explorer.frames.shell import May, address_of, cleaned, page, show
from explorer.live.page import LiveRequest
from explorer.operations.presenters import Line

HISTORY, SETTINGS = "history", "settings"


def or_record(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """The view of an entity's page, which shows the record of a deleted entity where the view finds none. The query's `of` is the
    id of the entity that is meant, as another one may have its name."""

    def view_or_record(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
        if isinstance(request, LiveRequest) or request.method != "GET":
            return view(request, namespace=namespace, path=path)
        if "of" in request.GET:
            response = record(request, namespace=namespace, path=path)
            return view(request, namespace=namespace, path=path) if response.status_code == 404 else response
        answer = view(request, namespace=namespace, path=path)
        if answer.status_code != 404:
            return answer
        response = record(request, namespace=namespace, path=path)
        return answer if response.status_code == 404 else response

    view_or_record.is_live = getattr(view, "is_live", False)  # type: ignore[attr-defined]
    return view_or_record


@page
@require_GET
def record(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    address = address_of(namespace, path)
    query = cleaned(DeletedQuery(request.GET))
    deleted = reads.deleted_entity(address, entity_id=query["of"], actor=request.actor)
    if deleted is None:
        return HttpResponse(status=404)
    tab = query["tab"] if query["tab"] in (HISTORY, SETTINGS) else HISTORY
    context: dict[str, Any] = {
        "section": "entities",
        "may": May(request.actor.rights & ~(Right.SEND | Right.LISTEN | Right.OPERATE | Right.MANAGE)),
        "entity": deleted,
        "deleted": deleted,
        "address": deleted.address,
        "clock": deleted.clock,
        "broker": BROKER,
        "replaced": _exists(deleted.address, request),
        "restorable": _restorable(request, deleted),
        "tab": tab,
        "tabs": [TabView(slug, slug, icon, None, slug == tab) for slug, icon in ((HISTORY, "gone"), (SETTINGS, "gear"))],
        "settings": _settings(deleted),
    }
    if tab == HISTORY:
        context |= history(request, deleted, query["cursor"])
    return show(request, "deleted_entity", context, status=status_of(context))


def _restorable(request: HttpRequest, deleted: DeletedEntity) -> Line | None:
    """The deletion, if it can be undone, and by this user."""
    if Right.MANAGE not in request.actor.rights:
        return None
    found = operations.newest(entity_id=deleted.id, kind=Kind.DELETE, undoable=True, limit=1)
    return Line(found[0]) if found else None


def _settings(deleted: DeletedEntity) -> list[tuple[str, Any]]:
    return [(name.replace("_", " ").replace("-", " ").capitalize(), value) for name, value in deleted.settings.items()]


def _exists(address: EntityAddress, request: HttpRequest) -> bool:
    """Whether another entity has the name now."""
    try:
        reads.entity(address, actor=request.actor)
    except EntityNotFound:
        return False
    return True
