"""The page of a message, present or gone: properties, body, reasons for its state, timeline, actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from broker_core import namespaces, reads
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import EntityAddress, Right
from explorer.frames import message_record, split
from explorer.frames.download import download
from explorer.frames.family import pages_of
from explorer.frames.kept import body_reader
from explorer.frames.shell import Act, address_of, draws, notify_error, page, show, wants_fragment
from explorer.live.page import Live, live, refresh_seconds

DOWNLOAD_CHUNK = 1024 * 1024
NAVIGATION = "explorer/message.html#navigation"


@live
@page
@require_http_methods(["GET", "POST"])
def message(request: HttpRequest, namespace: str, path: str, sequence_number: int) -> HttpResponse:
    address = address_of(namespace, path)
    if request.method != "POST":
        return _show(request, address, sequence_number)
    done = _act(request, address, sequence_number)
    if split.is_for_pane(request):
        return _show(request, address, sequence_number, done)
    if done.error is None and (back := split.list_to_return_to(request)):
        return HttpResponseRedirect(back)
    if done.error is None:  # the message may have a new number or be gone, which the next page shows
        return _redirect(request, _after(address, sequence_number, done.result))
    if wants_fragment(request):
        return _show(request, address, sequence_number, done)
    notify_error(request, done.error)
    return HttpResponseRedirect(split.list_to_return_to(request) or request.path)


def _show(request: HttpRequest, address: EntityAddress, number: int, done: Act = Act()) -> HttpResponse:
    context = message_record.context_of(request, address, number, done)
    if split.is_for_pane(request):
        return render(request, split.PANE, {"pane": context, "may": context["may"]}, status=done.status)
    if draws(request, NAVIGATION):
        context |= message_record.neighbours(request, context)
    return show(request, "message", context, status=done.status, live=_live(context))


def _live(context: dict[str, Any]) -> Live | None:
    """A deleted entity has no events any more, so its messages are not live."""
    entity = context["entity"]
    if context["deleted"]:
        return None
    fragments = {"explorer/_message.html": 0.0, "explorer/_clock.html": 0.0}
    return Live(
        fragments, entities=[entity], number=context["number"], refresh_seconds=refresh_seconds([entity]), personal=True
    )  # fmt: skip


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
    request.actor.require(Right.BROWSE | Right.SEE_BODIES, address)
    read = body_reader(request, address, sequence_number)
    first = read(0, DOWNLOAD_CHUNK)
    if first is None:
        raise Http404
    name = f"{sequence_number}.{_extension(first.content_type)}"
    response = download(request, _chunks(read, first), "application/octet-stream", name)
    response["Content-Length"] = first.total
    return response


def _chunks(read: Callable[[int, int], reads.Body | None], first: reads.Body) -> Iterator[bytes]:
    """The whole body, one chunk per query. If it can no longer be read meanwhile, the download is shorter than Content-Length."""
    part: reads.Body | None = first
    offset = 0
    while part is not None and part.content:
        yield part.content
        offset += len(part.content)
        if offset >= first.total:
            return
        part = read(offset, DOWNLOAD_CHUNK)


def _extension(content_type: str | None) -> str:
    known = {"application/json": "json", "text/plain": "txt", "application/xml": "xml", "text/xml": "xml", "text/csv": "csv"}
    return known.get((content_type or "").partition(";")[0].strip().lower(), "bin")
