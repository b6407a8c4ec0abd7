"""The overview page of a virtual host, with warnings; creating and deleting one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_GET, require_http_methods

from broker_core import rabbitmq, reads
from broker_core.common.durations import human
from broker_core.common.types import Actor, Right
from broker_core.rabbitmq.messages import browsing
from broker_core.reads import EntityRow
from explorer.frames.forms.typed_name import TypedNameForm
from explorer.frames.presenters import rate
from explorer.frames.shell import act, page, show_form
from explorer.live.page import FOLLOW_SECONDS, Live, live
from explorer.rabbitmq.forms.topology import VhostForm

from . import presenters
from .policy_effects import Ruling, rulings, targets_of
from .queues import CONSUMERS_SECONDS
from .shared import draw, link, vhost_of

SHOWN = 8
MOST_WARNINGS = 5


@dataclass(frozen=True, slots=True)
class Surprise:
    """A warning about unexpected behaviour. subject: a name; page: the kind of page of that name; text: the warning."""

    subject: str
    page: str
    text: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of the virtual host. name: suffix of its element's id."""

    name: str
    word: str
    text: str


@live
@page
@require_GET
def vhost(request: HttpRequest, namespace: str) -> HttpResponse:
    host = vhost_of(namespace, request.actor)
    queues = reads.overview(host.name, include_hidden=True, actor=request.actor)
    exchanges = rabbitmq.list_exchanges(host.name, actor=request.actor)
    judged = rulings(rabbitmq.list_policies(host.name, actor=request.actor), targets_of(queues, exchanges))
    fullest = busiest(queues)[:SHOWN]
    used = [exchange for exchange in exchanges if exchange.bindings or not is_system(exchange.name)]
    context = {
        "counts": browsing.vhost_counts(host.name, actor=request.actor),
        "figures": figures(host.name, queues, request.actor),
        "queues": fullest,
        "queue_count": len(queues),
        "exchanges": [(exchange, presenters.exchange_features(exchange)) for exchange in used[:SHOWN]],
        "rulings": judged[:SHOWN],
        "connections": browsing.connections(host.name, actor=request.actor)[:SHOWN],
        "surprises": surprises(queues, judged),
    }
    live_parts = Live(
        {"explorer/rabbitmq/_vhost.html#numbers": 0.5, "explorer/rabbitmq/_fullest.html": FOLLOW_SECONDS},
        entities=queues,
        refresh_seconds=CONSUMERS_SECONDS,
    )
    return draw(request, "vhost", host, context, place="vhost", fragment="_fullest", live=live_parts)


def figures(vhost: str, queues: Sequence[EntityRow], actor: Actor) -> list[Figure]:
    """Counts and rates of the virtual host."""
    counts = browsing.vhost_counts(vhost, actor=actor)
    ready = sum(queue.counts.active - queue.counts.locked for queue in queues)
    unacked = sum(queue.counts.locked for queue in queues)
    numbers = [
        ("ready", "ready", ready), ("unacked", "unacked", unacked),
        ("in", "in", rate(sum(queue.sent_rate for queue in queues))),
        ("out", "out", rate(sum(queue.completed_rate for queue in queues))),
        ("queue", "queues", len(queues)), ("exchange", "exchanges", counts.exchanges), ("binding", "bindings", counts.bindings),
        ("policy", "policies", counts.policies), ("connection", "connections", counts.connections),
        ("consumer", "consumers", counts.consumers),
    ]  # fmt: skip
    return [
        Figure(plural, singular if n == 1 else plural, n if isinstance(n, str) else f"{n:,}") for singular, plural, n in numbers
    ]


def busiest(queues: Sequence[EntityRow]) -> list[EntityRow]:
    """The queues, those with the most messages first."""
    return sorted(queues, key=lambda queue: (-queue.counts.active, queue.address.path))


def is_system(name: str) -> bool:
    """Whether the exchange is one that every virtual host has."""
    return not name or name.startswith("amq.")


def surprises(queues: Iterable[EntityRow], judged: Iterable[Ruling]) -> list[Surprise]:
    """Queues that expire together with their messages (RMQ-905), and policies with equal priority (RMQ-917)."""
    expiring = [
        Surprise(
            queue.address.path, "queue",
            f"is deleted with its {queue.counts.active:,} messages when it is unused for "
            f"{human(timedelta(milliseconds=queue.effective['expires']))}. Publishing does not count as use.",
        )
        for queue in queues if queue.effective.get("expires") and queue.counts.active
    ]  # fmt: skip
    tied = [
        Surprise(
            ruling.policy.name, "policy",
            f"matches {ruling.ties[0].target.name} with the same priority as {ruling.ties[0].winner}, which wins because of its "
            "lower name. In RabbitMQ, the winner is undefined.",
        )
        for ruling in judged if ruling.ties
    ]  # fmt: skip
    return [*expiring[:MOST_WARNINGS], *tied[:MOST_WARNINGS]]


@page
@require_http_methods(["GET", "POST"])
def create(request: HttpRequest) -> HttpResponse:
    request.actor.require(Right.MANAGE, "virtual hosts")
    form = VhostForm(request.POST if request.method == "POST" else None)
    if not form.is_valid():
        return show_form(request, "rabbitmq/vhost_new", form)
    name, description = form.cleaned_data["name"], form.cleaned_data["description"]
    done = act(
        request, "create virtual host", None, lambda: rabbitmq.create_vhost(name, description, actor=request.actor),
        target=name, says=lambda row: f"Created the virtual host {row.name} with its seven exchanges.",
    )  # fmt: skip
    if done.error:
        return show_form(request, "rabbitmq/vhost_new", form, done=done)
    return HttpResponseRedirect(link("vhost", done.result.name))


@page
@require_http_methods(["GET", "POST"])
def delete(request: HttpRequest, namespace: str) -> HttpResponse:
    """The user types the name to confirm; the page shows what is deleted with it."""
    host = vhost_of(namespace, request.actor)
    request.actor.require(Right.MANAGE, host.name)
    form = TypedNameForm(request.POST if request.method == "POST" else None, expected=host.name)
    context = {"form": form, "contents": rabbitmq.preview_delete_vhost(host.name, actor=request.actor)}
    if not form.is_valid():
        return draw(request, "vhost_delete", host, context, page_title="delete")
    done = act(
        request, "delete virtual host", None, lambda: rabbitmq.delete_vhost(host.name, actor=request.actor),
        target=host.name,
        says=lambda deleted: f"Deleted the virtual host {host.name}: {deleted.queues:,} queues, {deleted.messages:,} messages.",
    )  # fmt: skip
    if done.error:
        return draw(request, "vhost_delete", host, context, page_title="delete", done=done)
    return HttpResponseRedirect(reverse("explorer:entities"))
