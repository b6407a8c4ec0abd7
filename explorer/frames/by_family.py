"""Dispatches shared URLs, such as an entity's page, to the view of the namespace's family."""

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
    """A view that calls the one that the namespace's family registered under a name. Raises NotAllowed if it has none."""
    views = {family_pages.family: family_pages.views[name] for family_pages in installed() if name in family_pages.views}

    @page
    @require_http_methods(["GET", "POST"])
    def dispatched(request: HttpRequest, namespace: str, **parts) -> HttpResponse:
        family = namespaces.get_namespace(namespace, actor=request.actor).family
        _require(family, views, namespace)
        return views[family](request, namespace=namespace, **parts)

    return live(dispatched) if any(getattr(view, "is_live", False) for view in views.values()) else dispatched


def only_of(family: Family, view: View) -> View:
    """A view of a page that only one family has. Raises NotAllowed for a namespace of another family."""

    @page
    @require_http_methods(["GET", "POST"])
    def checked(request: HttpRequest, namespace: str, **parts) -> HttpResponse:
        _require(namespaces.get_namespace(namespace, actor=request.actor).family, [family], namespace)
        return view(request, namespace=namespace, **parts)

    return checked


def _require(family: Family, supported: Container[Family], namespace: str) -> None:
    if family not in supported:
        family_pages = pages_of(family)
        raise NotAllowed(f"'{namespace}' is a {family_pages.container_noun}; {family_pages.title} has no such page.")
