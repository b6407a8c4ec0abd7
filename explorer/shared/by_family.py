"""One address for pages that differ by family: an entity's own page, its settings, its receiver."""

from __future__ import annotations

from collections.abc import Container

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from broker_core import namespaces
from broker_core.common.errors import NotAllowed
from broker_core.common.types import Family
from explorer.live.page import live

from .family import View, installed, pages_of
from .shell import page


def by_family(name: str) -> View:
    """A view that hands over to the one that the namespace's family registered under a name. A family without one refuses."""
    views = {one.family: one.views[name] for one in installed() if name in one.views}

    @page
    @require_http_methods(["GET", "POST"])
    def dispatched(request: HttpRequest, namespace: str, **parts) -> HttpResponse:
        family = namespaces.get_namespace(namespace, actor=request.actor).family
        _check(family, views, namespace)
        return views[family](request, namespace=namespace, **parts)

    return live(dispatched) if any(getattr(one, "is_live", False) for one in views.values()) else dispatched


def only_of(family: Family, view: View) -> View:
    """A view of a page that one family alone has. A namespace of another family refuses."""

    @page
    @require_http_methods(["GET", "POST"])
    def checked(request: HttpRequest, namespace: str, **parts) -> HttpResponse:
        _check(namespaces.get_namespace(namespace, actor=request.actor).family, [family], namespace)
        return view(request, namespace=namespace, **parts)

    return checked


def _check(family: Family, has_it: Container[Family], namespace: str) -> None:
    if family not in has_it:
        wanted = pages_of(family)
        raise NotAllowed(f"'{namespace}' is a {wanted.container_noun}; {wanted.title} has no such page.")
