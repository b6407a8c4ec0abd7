"""Publishes messages manually, and previews where a message would be routed."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from broker_core import rabbitmq, reads
from broker_core.common.errors import BrokerError
from broker_core.common.types import EntityAddress, Family, Right
from broker_core.rabbitmq.messages.publishing import Properties, Publication, Published
from broker_core.rabbitmq.topology.catalog import StoredExchange
from explorer.frames.copying import as_typed, body_to_copy, original_of
from explorer.frames.forms.placeholders import filler
from explorer.frames.routes import ShownStep
from explorer.frames.shell import Act, act, page
from explorer.pages import message_templates
from explorer.pages.message_templates import Sender
from explorer.rabbitmq.forms.table import rows_of
from explorer.rabbitmq.forms.topology import PublishForm

from . import presenters
from .exchanges import exchange_crumb
from .routes import names_of_queues, shown_route
from .shared import draw, exchange_name, exchange_slug, vhost_of

FILLED = ("message_id", "correlation_id", "type")  # the properties in which placeholders are filled

CONTENT_TYPES = ("application/json", "text/plain", "application/xml", "application/octet-stream")


@page
@require_http_methods(["GET", "POST"])
def publish(request: HttpRequest, namespace: str, exchange: str) -> HttpResponse:
    """`?routing_key=` fills the form; `?like=12&of=queue` fills it from a message, `?template=3` from a template. POST with
    `dry` only shows the route; so does GET, for what the form is filled with."""
    host = vhost_of(namespace, request.actor)
    stored = rabbitmq.get_exchange(host.name, exchange_name(exchange), actor=request.actor)
    sender = _sender(host, stored)
    if request.method != "POST":
        initial = _from_template(request, sender) or _initial(request, host.name)
        form = PublishForm(initial=initial)
        if "dry" not in request.GET:
            request.actor.require(Right.SEND, f"{host.name}/{exchange_slug(stored.name)}")
            return _show(request, host, stored, form)
        return _ask(request, host, stored, form, initial.get("routing_key", ""), form.headers.values())
    form = PublishForm(request.POST)
    answer = message_templates.saving(request, sender, form, lambda form, done: _show(request, host, stored, form, done=done))
    if answer:
        return answer
    if not form.is_valid():
        return _show(request, host, stored, form)
    if "dry" in request.POST:
        values = form.cleaned_data
        return _ask(request, host, stored, form, values["routing_key"], values["headers"], len(form.payload(str)))
    done = act(
        request, "publish", None, lambda: _publish(request, host, stored.name, form),
        target=f"{host.name}: {exchange_slug(stored.name)}, key {form.cleaned_data['routing_key']!r}", says=published,
    )  # fmt: skip
    return _show(request, host, stored, form, done=done, results=done.result or ())


def _publish(request: HttpRequest, host: reads.NamespaceRow, exchange: str, form: PublishForm) -> list[Published]:
    values, now = form.cleaned_data, host.clock.now
    properties = form.properties()
    publications = []
    for number in range(1, values["copies"] + 1):
        fill = filler(number, now, fills=values["fill"])
        filled = Properties(**properties | {name: fill(properties[name]) for name in FILLED if name in properties})
        publications.append(Publication(form.payload(fill), exchange, fill(values["routing_key"]), filled, mandatory=True))
    return rabbitmq.publish(host.name, publications, actor=request.actor)


def published(results: list[Published]) -> str:
    """The result of publishing, in words."""
    count = len(results)
    text = "Published 1 message" if count == 1 else f"Published {count:,} messages"
    if all(result.unroutable for result in results):
        return f"{text}, but no queue matched: dropped."
    queues = sorted({path for result in results for path, _ in result.queues})
    refused = " Rejected by a full queue." if any(result.refused for result in results) else ""
    return f"{text} to {', '.join(queues) or 'no queue'}.{refused}"


def _ask(
    request: HttpRequest,
    host: reads.NamespaceRow,
    exchange: StoredExchange,
    form: PublishForm,
    routing_key: str,
    headers: Mapping[str, Any],
    size: int = 0,
) -> HttpResponse:
    """Show the route of the message. Nothing is stored, so nothing is audited."""
    try:
        steps = rabbitmq.route(host.name, exchange.name, routing_key, headers, size=size, actor=request.actor)
    except BrokerError as exc:
        return _show(request, host, exchange, form, done=Act(error=exc))
    return _show(request, host, exchange, form, steps=shown_route(host.name, steps))


def _show(
    request: HttpRequest,
    host: reads.NamespaceRow,
    exchange: StoredExchange,
    form: PublishForm,
    *,
    done: Act = Act(),
    results: Any = (),
    steps: Sequence[ShownStep] = (),
) -> HttpResponse:
    queues = rabbitmq.list_queues(host.name, actor=request.actor) if not exchange.name else []
    if queues:
        form.fields["routing_key"].widget.attrs["list"] = "queue-names"
    context = {
        "exchange": exchange,
        "slug": exchange_slug(exchange.name),
        "is_default": not exchange.name,
        "form": form,
        "panel": message_templates.panel(request, _sender(host, exchange)),
        "content_types": CONTENT_TYPES,
        "queue_names": [queue.name for queue in queues][:500],
        "results": results[:20],
        "more_results": max(0, len(results) - 20),
        "steps": steps,
        "queues": names_of_queues(steps),
        "published": rabbitmq.published_groups(host.name, exchange=exchange.name, actor=request.actor),
        "why_not": "" if Right.SEND in request.actor.rights else "Publishing requires the operator role.",
    }
    return draw(
        request,
        "publish",
        host,
        context,
        parent=exchange_crumb(host.name, exchange),
        page_title="publish",
        place="exchanges",
        done=done,
    )


def _sender(host: reads.NamespaceRow, exchange: StoredExchange) -> Sender:
    return Sender(Family.RABBITMQ, host.name, exchange_slug(exchange.name))


def _from_template(request: HttpRequest, sender: Sender) -> dict[str, Any]:
    """Initial form values from a template; the query's routing key, if the template has none."""
    values = message_templates.initial(request, sender)
    return values and values | {"routing_key": values.get("routing_key") or request.GET.get("routing_key", "")[:255]}


def _initial(request: HttpRequest, vhost: str) -> dict[str, Any]:
    """Initial form values from the query: a routing key, or a message to duplicate."""
    initial: dict[str, Any] = {"routing_key": request.GET.get("routing_key", "")[:255]}
    queue = request.GET.get("of", "")
    address = EntityAddress(vhost, queue)
    original = original_of(request, address) if queue else None
    if original is None:
        return initial
    names = (
        "routing_key",
        "expiration",
        "delivery_mode",
        "priority",
        *(name for name in PublishForm.MORE if name != "timestamp"),
    )
    initial |= {name: original.properties[name] for name in names if name in original.properties}
    initial["message_id"] = original.message_id or ""
    initial["headers"] = rows_of(presenters.published_headers(original.application_properties))
    content = body_to_copy(request, address, original)
    text = as_typed(content)
    if text is None:
        return initial | {"encoding": "base64", "body": base64.b64encode(content).decode()}
    return initial | {"body": text}
