"""Getting messages by hand: as a consumer would, with what a get does to them. To look without touching there is the list."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from broker_core import rabbitmq, reads
from broker_core.semantics.rabbitmq import table
from broker_core.semantics.types import EntityAddress, Right
from explorer.forms.rabbitmq import ACK_MODES, GetForm
from explorer.pages import bodies
from explorer.pages.rabbitmq import presenters
from explorer.pages.rabbitmq.presenters import Argument, Death
from explorer.pages.rabbitmq.queues import above
from explorer.pages.rabbitmq.shared import draw, vhost_of
from explorer.pages.shell import act, page

PREVIEW_BYTES = 4096
_DONE = {
    "requeue": "put back in its place, marked as redelivered",
    "ack": "acknowledged, so it is gone",
    "reject-requeue": "rejected and put back in its place",
    "reject": "rejected, so dead-lettered, or dropped where there is no dead-letter exchange",
}


@dataclass(frozen=True, slots=True)
class Got:
    """A delivery as the page shows it. body: None without the right to see it."""

    number: int
    exchange: str
    routing_key: str
    redelivered: bool
    properties: list[tuple[str, str]]
    headers: list[Argument]
    deaths: list[Death]
    body: bodies.Readable | None


@page
@require_http_methods(["GET", "POST"])
def get(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    host = vhost_of(namespace, request.actor)
    queue = reads.entity(EntityAddress(host.name, path), actor=request.actor)
    form = GetForm(request.POST if request.method == "POST" else None)
    context = {
        "queue": queue, "form": form, "available": queue.counts.active - queue.counts.locked - queue.expired_pending.value,
        "why_not": "" if Right.LISTEN in request.actor.rights else "Getting messages needs the role operator.",
    }  # fmt: skip
    if not form.is_valid():
        return draw(
            request,
            "get",
            host,
            context,
            parent=above(queue),
            here="get",
            place="queues",
        )
    count, mode = form.cleaned_data["count"], form.cleaned_data["mode"]
    done = act(
        request, f"get ({mode})", queue.address, lambda: _get(request, host.name, queue.address.path, count, mode),
        target=f"up to {count}", says=lambda got: _said(got, mode),
    )  # fmt: skip
    context |= {"got": [_shown(one, request) for one in done.result or ()], "fate": _DONE[mode], "mode": ACK_MODES[mode]}
    return draw(request, "get", host, context, parent=above(queue), here="get", place="queues", done=done)


def _get(request: HttpRequest, vhost: str, queue: str, count: int, mode: str) -> list[Any]:
    """Get up to so many over a connection of its own, then do with all of them what was chosen."""
    with rabbitmq.connect(vhost, f"explorer: {request.actor.name}"[:255], actor=request.actor) as connection:
        channel = connection.channel()
        got: list[Any] = []
        while len(got) < count and (delivery := channel.get(queue)) is not None:
            got.append(delivery)
        for delivery in got:
            match mode:
                case "ack":
                    channel.ack(delivery.delivery_tag)
                case "requeue":
                    channel.nack(delivery.delivery_tag, requeue=True)
                case _:
                    channel.reject(delivery.delivery_tag, requeue=mode == "reject-requeue")
    return got


def _said(got: list[Any], mode: str) -> str:
    if not got:
        return "Nothing to get: no message is ready now."
    count = "1 message" if len(got) == 1 else f"{len(got)} messages, each"
    return f"Got {count}: {_DONE[mode]}."


def _shown(delivery: Any, request: HttpRequest) -> Got:
    properties = delivery.properties
    headers = table.encode(properties.headers or {})
    visible = Right.SEE_BODIES in request.actor.rights
    body = delivery.body
    return Got(
        number=delivery.number,
        exchange=delivery.exchange,
        routing_key=delivery.routing_key,
        redelivered=delivery.redelivered,
        properties=presenters.properties(properties),
        headers=presenters.headers(headers),
        deaths=presenters.deaths(headers.get("x-death")),
        body=bodies.readable(bytes(body[:PREVIEW_BYTES]), len(body), properties.content_type) if visible else None,
    )
