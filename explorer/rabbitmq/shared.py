"""Shared by the pages of a virtual host: the host, its navigation, rendering with errors, and links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from broker_core import reads
from broker_core.common.errors import EntityNotFound, NotAllowed
from broker_core.common.types import Actor, Family, Right
from broker_core.reads import NamespaceRow
from explorer.frames.filtering import status_of
from explorer.frames.shell import Act, show
from explorer.live.page import Live

DEFAULT_EXCHANGE = "amq.default"  # the default exchange in URLs, as in RabbitMQ's management UI


@dataclass(frozen=True, slots=True)
class VhostLink:
    """A page of the virtual host's navigation."""

    name: str
    word: str
    icon: str
    url: str
    selected: bool


_PLACES = (
    ("rabbitmq_vhost", "overview", "case"),
    ("rabbitmq_queues", "queues", "queue"),
    ("rabbitmq_exchanges", "exchanges", "topic"),
    ("rabbitmq_policies", "policies", "rules"),
    ("rabbitmq_connections", "connections", "connection"),
    ("rabbitmq_definitions", "definitions", "audit"),
)


def vhost_of(name: str, actor: Actor) -> NamespaceRow:
    """The virtual host of this name. Raises EntityNotFound, or NotAllowed for a namespace of another family."""
    actor.require(Right.BROWSE, name)
    namespace = next((row for row in reads.namespaces(actor=actor) if row.name.lower() == name.lower()), None)
    if namespace is None:
        raise EntityNotFound(name, "virtual host")
    if namespace.family is not Family.RABBITMQ:
        raise NotAllowed(f"'{namespace.name}' is not a virtual host; its family is {namespace.family.replace('_', ' ')}.")
    return namespace


def places(vhost: str, selected: str) -> list[VhostLink]:
    return [
        VhostLink(name, word, icon, reverse(f"explorer:{name}", args=[vhost]), name == selected) for name, word, icon in _PLACES
    ]


def draw(
    request: HttpRequest,
    template: str,
    vhost: NamespaceRow,
    context: Mapping[str, Any],
    *,
    place: str = "",
    parent: tuple[str, str] | None = None,
    page_title: str = "",
    fragment: str = "",
    done: Act = Act(),
    live: Live | None = None,
) -> HttpResponse:
    """Render a page of a virtual host around `_template`.html; for htmx only that part, or the given fragment. A template that
    begins with a slash is one of those that all families share.

    place: the selected item of the navigation. parent: name and URL of the parent page. page_title: the name of this page.
    done: the result of an action; an error is shown with advice. The status is 400 for an invalid `form` in the context.
    live: what keeps the page up to date.
    """
    part = f"explorer/_{template[1:]}.html" if template.startswith("/") else f"explorer/rabbitmq/_{template}.html"
    items = places(vhost.name, f"rabbitmq_{place}")
    whole = {
        "section": "entities",
        "namespace": vhost.name,
        "vhost": vhost,
        "clock": vhost.clock,
        "places": items,
        "place": next((item for item in items if item.selected and item.name != "rabbitmq_vhost"), None),
        "parent": parent,
        "page_title": page_title,
        "part": part,
        "is_live": live is not None,
        "error": done.error,
        **context,
    }
    form = context.get("form")
    is_bad = form is not None and form.is_bound and bool(form.errors)
    status = done.status if done.error else 400 if is_bad else status_of(context)
    fragment = f"rabbitmq/{fragment or f'_{template}'}"
    return show(request, "rabbitmq/page", whole, fragment=fragment, status=status, live=live)


def link(page: str, *args: Any) -> str:
    return reverse(f"explorer:rabbitmq_{page}", args=args)


def queue_link(vhost: str, name: str) -> str:
    """URL of a queue's page, which is the same for entities of all families."""
    return reverse("explorer:entity", args=(vhost, name))


def exchange_slug(name: str) -> str:
    """An exchange's name in URLs."""
    return name or DEFAULT_EXCHANGE


def exchange_name(slug: str) -> str:
    return "" if slug == DEFAULT_EXCHANGE else slug
