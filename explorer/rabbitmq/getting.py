"""Gets messages manually: settled at once, or held unacknowledged on the user's own connection (manual_consuming.py).

The message list shows messages without changing them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_http_methods

from broker_core import rabbitmq, reads
from broker_core.common.types import BodyKind, EntityAddress, Right
from broker_core.rabbitmq.rules import table
from broker_core.reads import Body, EntityRow, NamespaceRow
from explorer.bodies import display
from explorer.frames.shell import Act, act, page, wants_fragment
from explorer.rabbitmq.forms.topology import ACK_MODES, HOLD, ConsumeForm, GetForm

from . import manual_consuming, presenters
from .presenters import Argument, Death
from .queues import queue_crumb
from .shared import draw, vhost_of

PREVIEW_BYTES = 4096
_DONE = {
    "requeue": "requeued and marked as redelivered",
    "ack": "acknowledged and removed from the queue",
    "reject-requeue": "rejected and requeued",
    "reject": "rejected: dead-lettered, or dropped if there is no dead-letter exchange",
}


@dataclass(frozen=True, slots=True)
class DeliveryView:
    """A delivery for the page. body: None without the right to see it."""

    number: int
    exchange: str
    routing_key: str
    redelivered: bool
    properties: list[tuple[str, str]]
    headers: list[Argument]
    deaths: list[Death]
    body: display.Readable | None


@page
@require_http_methods(["GET", "POST"])
def get(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """GET shows the page, with `?part=manual-consumer` only the messages held. POST gets, consumes or settles messages."""
    host = vhost_of(namespace, request.actor)
    default = GetForm(initial={"mode": HOLD} if manual_consuming.is_open(request, host.name) else None)
    queue = reads.entity(EntityAddress(host.name, path), actor=request.actor)
    if request.method != "POST":
        part = "_manual_consumer" if request.GET.get("part") == "manual-consumer" else ""
        return _show(request, host, path, default, fragment=part)
    action = request.POST.get("action", "get")
    form, consume_form = GetForm(request.POST) if action == "get" else default, ConsumeForm()
    if action == "get":
        if not form.is_valid():
            return _show(request, host, path, form)
        count, mode = form.cleaned_data["count"], form.cleaned_data["mode"]
        if mode != HOLD:
            return _get_and_settle(request, host, queue, form)
        done = manual_consuming.hold(request, queue, count)
    elif action == "consume":
        consume_form = ConsumeForm(request.POST)
        done = manual_consuming.consume(request, queue, consume_form)
    else:
        done = manual_consuming.carry_out(request, queue, action)
    if wants_fragment(request) or done.error:
        return _show(request, host, path, form, consume_form=consume_form, done=done)
    return HttpResponseRedirect(request.path)


def _get_and_settle(request: HttpRequest, host: NamespaceRow, queue: EntityRow, form: GetForm) -> HttpResponse:
    """Get messages, settle them as chosen, and show them. They cannot be shown again."""
    count, mode = form.cleaned_data["count"], form.cleaned_data["mode"]
    done = act(
        request, f"get ({mode})", queue.address, lambda: _get(request, host.name, queue.address.path, count, mode),
        target=f"up to {count}", says=lambda deliveries: _summary(deliveries, mode),
    )  # fmt: skip
    deliveries = [_delivery_view(delivery, request) for delivery in done.result or ()]
    return _show(
        request, host, queue.address.path, form, done=done, deliveries=deliveries, outcome=_DONE[mode], mode=ACK_MODES[mode]
    )


def _show(
    request: HttpRequest,
    host: NamespaceRow,
    path: str,
    form: GetForm,
    *,
    consume_form: ConsumeForm | None = None,
    done: Act = Act(),
    fragment: str = "",
    **more: Any,
) -> HttpResponse:
    """Render the page with the queue's current state."""
    queue = reads.entity(EntityAddress(host.name, path), actor=request.actor)
    consumer_context = manual_consuming.context_of(request, queue, lambda delivery: _delivery_view(delivery, request))
    if request.method != "POST" and not consumer_context["notices"]:  # notices say first why the connection was closed
        request.actor.require(Right.LISTEN, queue.address)
    context = {
        "address": queue.address,
        "queue": queue, "form": form, "consume_form": consume_form or ConsumeForm(),
        "available": queue.counts.active - queue.counts.locked - queue.expired_pending.value,
        **consumer_context,
        **more,
    }  # fmt: skip
    return draw(
        request, "get", host, context, parent=queue_crumb(queue), page_title="get", place="queues", fragment=fragment, done=done
    )


def _get(request: HttpRequest, vhost: str, queue: str, count: int, mode: str) -> list[Any]:
    """Get up to `count` messages over a temporary connection, then settle all of them. mode: a key of _DONE."""
    with rabbitmq.connect(vhost, f"explorer: {request.actor.name}"[:255], actor=request.actor) as connection:
        channel = connection.channel()
        deliveries: list[Any] = []
        while len(deliveries) < count and (delivery := channel.get(queue)) is not None:
            deliveries.append(delivery)
        for delivery in deliveries:
            match mode:
                case "ack":
                    channel.ack(delivery.delivery_tag)
                case "requeue":
                    channel.nack(delivery.delivery_tag, requeue=True)
                case _:
                    channel.reject(delivery.delivery_tag, requeue=mode == "reject-requeue")
    return deliveries


def _summary(deliveries: list[Any], mode: str) -> str:
    if not deliveries:
        return "No messages are ready."
    count = "1 message" if len(deliveries) == 1 else f"{len(deliveries)} messages, each"
    return f"Got {count}: {_DONE[mode]}."


def _delivery_view(delivery: Any, request: HttpRequest) -> DeliveryView:
    properties = delivery.properties
    headers = table.encode(properties.headers or {})
    visible = Right.SEE_BODIES in request.actor.rights
    beginning = Body(bytes(delivery.body[:PREVIEW_BYTES]), 0, len(delivery.body), BodyKind.DATA, properties.content_type)
    return DeliveryView(
        number=delivery.number,
        exchange=delivery.exchange,
        routing_key=delivery.routing_key,
        redelivered=delivery.redelivered,
        properties=presenters.properties(properties),
        headers=presenters.headers(headers),
        deaths=presenters.deaths(headers.get("x-death")),
        body=display.readable(beginning) if visible else None,
    )
