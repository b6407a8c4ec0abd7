"""Insights: traffic, backlog, times and failures of an entity, a namespace or all of them, over 5 minutes to 90 days."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_GET

from broker_core import reads
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import Actor
from broker_core.reads import EntityRow, TrafficPoint
from broker_core.store import connections
from explorer import sandbox_names
from explorer.charts import changes, traffic
from explorer.demo.state import demo_state
from explorer.frames import last_namespace, questions
from explorer.frames.csv_file import csv_file
from explorer.frames.forms.queries import ScopeQuery
from explorer.frames.shell import cleaned, page, show
from explorer.frames.well_known import without_unused
from explorer.live.page import Live, live


@dataclass(frozen=True, slots=True)
class Range:
    """A choice of range. refresh_seconds: between two live drawings; 0: the page is not live."""

    name: str
    title: str
    minutes: int
    refresh_seconds: float = 0.0


RANGES = (
    Range("5m", "5 min", 5, 5.0),
    Range("1h", "1 hour", 60, 20.0),
    Range("1d", "1 day", 1440),
    Range("7d", "7 days", 7 * 1440),
    Range("90d", "90 days", 90 * 1440),
)
DEFAULT = RANGES[1]
DEMO = "demo"  # the namespace of the demo whose history is generated


class InsightsQuery(ScopeQuery):
    range = forms.ChoiceField(required=False, choices=[(period.name, period.title) for period in RANGES])
    format = forms.ChoiceField(required=False, choices=[("", "page"), ("csv", "CSV")])


@live
@page
@require_GET
def insights(request: HttpRequest) -> HttpResponse:
    query = cleaned(InsightsQuery(request.GET))
    period = next((candidate for candidate in RANGES if candidate.name == query["range"]), DEFAULT)
    every = reads.namespaces(actor=request.actor)
    namespaces = [n for n in every if not n.is_system or n.name == query["namespace"]]
    kept = query["entity"].namespace if query["entity"] else query["namespace"]
    namespaces = without_unused(sandbox_names.without(namespaces, keep=kept), keep=kept)
    if unnamed := _redirected(request, query, [row.name for row in namespaces]):
        return unnamed
    entity, namespace = _scope(query, namespaces, request.actor)
    if namespace:
        last_namespace.remember(request, namespace)
    points = _points(entity, namespace, period, request.actor)
    if query["format"] == "csv":
        return csv_file(f"vitrine-traffic-{period.name}.csv", traffic.csv_rows(points))
    beginning = _beginning(namespace, every, points[0].at)
    records = changes.latest(points[0].at, namespace=namespace, entity=entity.address if entity else None)
    marks = traffic.marked(records, beginning)
    context = {
        "section": "insights",
        "ranges": RANGES,
        "period": period,
        "entity": entity,
        "clock": entity.clock if entity else None,
        "scope_namespace": namespace,
        "namespaces": namespaces,
        "panels": traffic.panels(
            points, marks, holds_messages=entity is None or entity.holds_messages, since=beginning.at if beginning else None
        ),
        "marks": marks,
        "rows": traffic.rows(points),
        "columns": traffic.COLUMNS,
        "seconds": points[0].seconds,
        "questions": _questions(entity, next((row for row in every if row.name == namespace), None), period),
    }
    if not period.refresh_seconds:
        return show(request, "insights", context)
    fragments = {"explorer/_insights.html": period.refresh_seconds}
    live_parts = Live(fragments, entities=[entity] if entity else (), refresh_seconds=period.refresh_seconds)
    return show(request, "insights", context, live=live_parts)


def _redirected(request: HttpRequest, query: Mapping[str, Any], names: list[str]) -> HttpResponse | None:
    """To the namespace that was looked at last, if the address names none. All namespaces: an empty name."""
    if query["entity"] or query["format"] or "namespace" in request.GET:
        return None
    name = last_namespace.last_of(request, names)
    return HttpResponseRedirect(f"{request.path}?{urlencode({**request.GET.dict(), 'namespace': name})}") if name else None


def _questions(entity: EntityRow | None, namespace: reads.NamespaceRow | None, period: Range) -> list[tuple[str, str]]:
    """The questions about what the charts show, in the same range: titles and addresses. About all namespaces there are none."""
    if namespace is None or namespace.is_system:
        return []
    chosen = questions.range_of(timedelta(minutes=period.minutes), namespace.clock.now)

    def url(slug: str) -> str:
        if entity:
            return questions.question_about(entity, slug, **chosen)
        return questions.question_url(slug, namespace=namespace.name, **chosen)

    return [(title, url(slug)) for slug, title in questions.TITLES.items()]


def _beginning(namespace: str | None, every: list[reads.NamespaceRow], since: datetime) -> traffic.Beginning | None:
    """When what the charts show began, if that is in their range: the demo, whose traffic of before was generated, the namespace,
    or the first one of all."""
    demo = demo_state() if namespace in (None, DEMO) else None
    if demo and since < demo.set_up_at:
        return traffic.Beginning(demo.set_up_at, "demo started", f"earlier traffic of {DEMO} was generated")
    created = min((row.created_at for row in every if namespace in (None, row.name)), default=since)
    words = f"{namespace} created" if namespace else "first namespace created"
    return traffic.Beginning(created, words) if since < created else None


def _scope(query: Mapping[str, Any], namespaces: list[reads.NamespaceRow], actor: Actor) -> tuple[EntityRow | None, str | None]:
    """The entity, if one is given, and the namespace; None: all. Raises EntityNotFound."""
    if address := query["entity"]:
        with connections.of(address.namespace):
            entity = reads.entity(address, actor=actor)
        return entity, entity.address.namespace
    if not query["namespace"]:
        return None, None
    namespace = next((n.name for n in namespaces if n.name.lower() == query["namespace"].lower()), None)
    if namespace is None:
        raise EntityNotFound(query["namespace"], "namespace")
    return None, namespace


def _points(entity: EntityRow | None, namespace: str | None, period: Range, actor: Actor) -> list[TrafficPoint]:
    if entity:
        with connections.of(entity.address.namespace):
            return reads.traffic(entity.address, period.minutes, actor=actor)
    return reads.namespace_traffic(namespace, period.minutes, actor=actor)
