"""What the pages of a virtual host share: which host, its own navigation, a refusal with what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from broker_core import reads
from broker_core.reads import NamespaceRow
from broker_core.semantics.errors import BrokerError, EntityNotFound, NotAllowed
from broker_core.semantics.types import Actor, Family, Right
from explorer.pages.rabbitmq.advice import advice
from explorer.pages.shell import Act, show, wants_fragment

DEFAULT_EXCHANGE = "amq.default"  # how addresses name the exchange without a name, as RabbitMQ's own do


@dataclass(frozen=True, slots=True)
class Place:
    """A page of the virtual host's navigation."""

    name: str
    word: str
    icon: str
    url: str
    selected: bool


_PLACES = (
    ("rabbitmq_vhost", "at a glance", "case"),
    ("rabbitmq_queues", "queues", "queue"),
    ("rabbitmq_exchanges", "exchanges", "topic"),
    ("rabbitmq_policies", "policies", "rules"),
    ("rabbitmq_connections", "connections", "link"),
    ("rabbitmq_definitions", "definitions", "audit"),
)


def vhost_of(name: str, actor: Actor) -> NamespaceRow:
    """The virtual host of this name. Raises EntityNotFound; NotAllowed where it is of another family."""
    actor.require(Right.BROWSE, name)
    found = next((row for row in reads.namespaces(actor=actor) if row.name.lower() == name.lower()), None)
    if found is None:
        raise EntityNotFound(name)
    if found.family is not Family.RABBITMQ:
        raise NotAllowed(f"'{found.name}' is no virtual host: its family is {found.family.replace('_', ' ')}.")
    return found


def places(vhost: str, selected: str) -> list[Place]:
    return [Place(name, word, icon, reverse(f"explorer:{name}", args=[vhost]), name == selected) for name, word, icon in _PLACES]


def draw(
    request: HttpRequest,
    template: str,
    vhost: NamespaceRow,
    context: Mapping[str, Any],
    *,
    place: str,
    fragment: str | None = None,
    done: Act = Act(),
    status: int | None = None,
) -> HttpResponse:
    """Render a page of a virtual host, or for htmx its fragment; with what was refused, and what to do about it."""
    whole = {
        "section": "overview",
        "vhost": vhost,
        "clock": vhost.clock,
        "places": places(vhost.name, place),
        "error": done.error,
        "advice": advice(done.error),
        **context,
    }
    return show(
        request, f"rabbitmq/{template}", whole, fragment=f"rabbitmq/{fragment or '_' + template}", status=status or done.status
    )


def refused(error: BrokerError | None) -> Act:
    return Act(error=error)


def go(request: HttpRequest, url: str) -> HttpResponse:
    """To another page, also where htmx asked."""
    return HttpResponse(headers={"HX-Redirect": url}) if wants_fragment(request) else HttpResponseRedirect(url)


def link(page: str, *args: Any) -> str:
    return reverse(f"explorer:rabbitmq_{page}", args=args)


def exchange_slug(name: str) -> str:
    """An exchange's name in addresses."""
    return name or DEFAULT_EXCHANGE


def exchange_name(slug: str) -> str:
    return "" if slug == DEFAULT_EXCHANGE else slug


def matching(rows: list, part: str, name) -> list:
    """Those whose name contains a part, or all."""
    part = part.strip().lower()
    return [row for row in rows if part in name(row).lower()]
