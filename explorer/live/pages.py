"""Which watch a page has, by its name in the URL configuration."""

from __future__ import annotations

from urllib.parse import unquote

from django.http import QueryDict
from django.urls import Resolver404, ResolverMatch, resolve

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor

from .vhost_watches import ConnectionsWatch, QueuesWatch, VhostWatch
from .watches import AnyEntityWatch, AnyReceiverWatch, MessageWatch, OverviewWatch, Watch

KINDS: dict[str, type[Watch]] = {
    "explorer:overview": OverviewWatch,
    "explorer:namespace": OverviewWatch,
    "explorer:entity": AnyEntityWatch,
    "explorer:message": MessageWatch,
    "explorer:receiver": AnyReceiverWatch,
    "explorer:rabbitmq_vhost": VhostWatch,
    "explorer:rabbitmq_queues": QueuesWatch,
    "explorer:rabbitmq_connections": ConnectionsWatch,
}


def watch_for(page: str, actor: Actor) -> Watch:
    """The watch of a page. page: its address within the site as browsers write it, with its query.

    Raises InvalidArgument where there is nothing to watch, NotAuthorized at the first look.
    """
    path, _, query = page.partition("?")
    kind, match = _live_kind(unquote(path))
    return kind(page, actor, QueryDict(query), **match.kwargs)


def _live_kind(path: str) -> tuple[type[Watch], ResolverMatch]:
    try:
        match = resolve(path)
    except Resolver404 as exc:
        raise InvalidArgument("page", f"{path!r} is not a page of this site") from exc
    if match.view_name not in KINDS:
        raise InvalidArgument("page", f"{path!r} has no live updates")
    return KINDS[match.view_name], match
