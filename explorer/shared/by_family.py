"""One address for pages that differ by family: an entity's own page, its settings, its receiver."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from broker_core import namespaces
from broker_core.common.errors import NotAllowed
from broker_core.common.family import definition_of
from broker_core.common.types import Family

from .shell import page

View = Callable[..., HttpResponse]


def by_family(*, service_bus: View | None = None, queue_storage: View | None = None, rabbitmq: View | None = None) -> View:
    """A view that hands over to that of the namespace's family. A family without one says so, as a refusal."""
    views = {Family.SERVICE_BUS: service_bus, Family.QUEUE_STORAGE: queue_storage, Family.RABBITMQ: rabbitmq}

    @page
    @require_http_methods(["GET", "POST"])
    def dispatched(request: HttpRequest, namespace: str, **parts) -> HttpResponse:
        family = namespaces.get_namespace(namespace, actor=request.actor).family
        view = views[family]
        if view is None:
            wanted = definition_of(family)
            raise NotAllowed(f"'{namespace}' is a {wanted.container_noun}; {wanted.title} has no such page.")
        return view(request, namespace=namespace, **parts)

    return dispatched
