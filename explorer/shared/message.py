"""The page of a message, present or gone: properties, body, reasons for its state, timeline, actions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from broker_core import namespaces, reads
from broker_core.common.errors import InvalidArgument, MessageNotFound
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.reads import Event, MessageDetail
from explorer.live.page import Live, live, refresh_seconds

from . import bodies, timeline
from .family import MessagePage, pages_of
from .shell import Act, about, address_of, notify_error, page, show, wants_fragment

DOWNLOAD_CHUNK = 1024 * 1024
_MAIN_PROPERTIES = ("subject", "content_type", "correlation_id")


@live
@page
@require_http_methods(["GET", "POST"])
def message(request: HttpRequest, namespace: str, path: str, sequence_number: int) -> HttpResponse:
    address = address_of(namespace, path)
    if request.method != "POST":
        return _show(request, address, sequence_number)
    done = _act(request, address, sequence_number)
    if done.error is None:  # the message may have a new number or be gone, which the next page shows
        return _redirect(request, _after(address, sequence_number, done.result))
    if wants_fragment(request):
        return _show(request, address, sequence_number, done)
    notify_error(request, done.error)
    return HttpResponseRedirect(request.path)


def _show(request: HttpRequest, address: EntityAddress, number: int, done: Act = Act()) -> HttpResponse:
    entity = reads.entity(address, actor=request.actor)
    detail = reads.message(address, number, actor=request.actor)
    events = reads.timeline(entity.id, number, actor=request.actor)
    own = [e for e in events if (e.entity_id, e.sequence_number) == (entity.id, number)]
    if detail is None and not own:
        raise MessageGone(entity.address, number)
    first = own[0] if own else None
    of_family = pages_of(entity.family).message
    sent = detail.application_properties if detail else (first.application_properties if first else {})
    context = {
        **about(request, entity),
        "number": number,
        "detail": detail,
        "row": detail.row if detail else None,
        "first": first,
        "last": own[-1] if own else None,
        "entries": timeline.entries(events, entity.id, number, entity.family),
        "properties": properties(detail, first, of_family),
        "application_properties": sent,
        "anchors": of_family.anchors(sent),
        "actions": of_family.actions(detail, request.actor) if detail else [],
        "explanation": of_family.explain(address, number, request.actor) if detail else None,
        "is_held": detail is not None and of_family.is_held_by(detail.row, request.actor),
        "error": done.error,
        **_body(request, address, number, detail),
    }
    shown = Live(
        {"explorer/_message.html": 0.0, "explorer/_clock.html": 0.0},
        entities=[entity],
        number=number,
        refresh_seconds=refresh_seconds([entity]),
        personal=True,
    )
    return show(request, "message", context, status=done.status, live=shown)


class MessageGone(MessageNotFound):
    """There is neither the message nor any event of it: it never existed, or its history was removed."""

    def __init__(self, address: EntityAddress, number: int):
        super().__init__(str(address), [number], "message")


def _body(request: HttpRequest, address: EntityAddress, number: int, detail: MessageDetail | None) -> dict:
    """Context for the body: a large one is shown on demand only. Without the right to see bodies, none is shown."""
    if detail is None or Right.SEE_BODIES not in request.actor.rights:
        return {"body": None}
    wanted = request.GET.get("body") == "show"
    if detail.body_size > bodies.SHOWN_AT_ONCE and not wanted:
        return {"body": None, "body_is_large": True}
    found = reads.body(address, number, length=bodies.SHOWN_ON_DEMAND, actor=request.actor)
    return {"body": bodies.readable(found.content, found.total, found.content_type, found.kind) if found else None}


def properties(detail: MessageDetail | None, first: Event | None, of_family: MessagePage) -> list[tuple[str, str]]:
    """Properties by the family's names: those of the message, or of its first event if the message is gone."""
    stored = detail.broker_properties if detail else (first.properties if first else {})
    names = [*_MAIN_PROPERTIES, *(n for n in stored if n not in _MAIN_PROPERTIES)]
    return [(of_family.property_name(n), _listed(stored[n])) for n in names if stored.get(n) not in (None, "")]


def _listed(value: Any) -> Any:
    return ", ".join(value) if isinstance(value, list) else value


def _act(request: HttpRequest, address: EntityAddress, number: int) -> Act:
    action = request.POST.get("action", "")
    family = namespaces.get_namespace(address.namespace, actor=request.actor).family
    done = pages_of(family).message.carry_out(request, address, number, action)
    return Act(error=InvalidArgument("action", f"{action!r} is unknown")) if done is None else done


def _after(address: EntityAddress, number: int, result) -> str:
    """URL of the next page: of the new message after a resubmission, else of the same one."""
    if isinstance(result, dict) and number in result:
        number = result[number]
    return reverse("explorer:message", args=(address.namespace, address.path, number))


def _redirect(request: HttpRequest, url: str) -> HttpResponse:
    if wants_fragment(request):
        return HttpResponse(headers={"HX-Redirect": url})
    return HttpResponseRedirect(url)


@page
@require_GET
def body(request: HttpRequest, namespace: str, path: str, sequence_number: int) -> HttpResponse:
    """Download the body's original bytes, with a type that browsers do not interpret."""
    address = address_of(namespace, path)
    first = reads.body(address, sequence_number, length=DOWNLOAD_CHUNK, actor=request.actor)
    if first is None:
        raise Http404
    chunks: Any = _chunks(address, sequence_number, first, request.actor)
    if isinstance(request, ASGIRequest):  # otherwise Django collects the whole body before it sends the first byte
        chunks = _one_by_one(chunks)
    response = StreamingHttpResponse(chunks, content_type="application/octet-stream")
    response["Content-Length"] = first.total
    response["Content-Disposition"] = f'attachment; filename="{sequence_number}.{_extension(first.content_type)}"'
    response["X-Content-Type-Options"] = "nosniff"
    return response


def _chunks(address: EntityAddress, number: int, first: reads.Body, actor: Actor) -> Iterator[bytes]:
    """The whole body, one chunk per query. If the message is removed meanwhile, the download is shorter than Content-Length."""
    part: reads.Body | None = first
    offset = 0
    while part is not None and part.content:
        yield part.content
        offset += len(part.content)
        if offset >= first.total:
            return
        part = reads.body(address, number, offset=offset, length=DOWNLOAD_CHUNK, actor=actor)


async def _one_by_one(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (chunk := await sync_to_async(lambda: next(chunks, None))()) is not None:
        yield chunk


def _extension(content_type: str | None) -> str:
    known = {"application/json": "json", "text/plain": "txt", "application/xml": "xml", "text/xml": "xml", "text/csv": "csv"}
    return known.get((content_type or "").partition(";")[0].strip().lower(), "bin")
