"""All entities, or those of a namespace, as one health table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from broker_core import reads
from broker_core.reads import EntityRow
from broker_core.semantics.errors import EntityNotFound
from broker_core.semantics.types import EntityKind
from explorer.forms.queries import KINDS, OverviewQuery
from explorer.pages import demonstration, presenters
from explorer.pages.shell import cleaned, page, show

ROWS = 100  # on a page: drawing a row takes longer than reading it
_LATE = datetime.max.replace(tzinfo=UTC)
_KEYS = {
    "name": lambda e: (e.address.namespace.lower(), presenters.shown_path(e.address).lower()),
    "active": lambda e: e.counts.active,
    "locked": lambda e: e.counts.locked,
    "scheduled": lambda e: e.counts.scheduled,
    "deferred": lambda e: e.counts.deferred,
    "expired": lambda e: e.expired_pending.value,
    "dead": lambda e: e.counts.dead_letter,
    "sent": lambda e: e.sent_rate,
    "completed": lambda e: e.completed_rate,
    "oldest": lambda e: e.oldest_active_at or _LATE,
    "size": lambda e: e.size_bytes,
}


@dataclass(frozen=True, slots=True)
class Column:
    """A sortable column. href: this page sorted by it, the other way round if it is already. css: hides it where it is narrow."""

    name: str
    title: str
    hint: str
    css: str
    href: str
    direction: str


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums of what is shown. sent_rate: of what is stored, so that a topic's messages do not count beside its copies of them."""

    queues: int
    topics: int
    subscriptions: int
    active: int
    locked: int
    scheduled: int
    deferred: int
    dead: int
    sent_rate: float
    completed_rate: float


_COLUMNS = (
    ("name", "Name", "Namespace and name; a subscription follows its topic", "grow"),
    ("active", "Active", "Waiting to be received, locked ones included", "num"),
    ("locked", "Locked", "Held by a receiver now", "num narrow-hide"),
    ("scheduled", "Scheduled", "Waiting for their time", "num opt"),
    ("deferred", "Deferred", "Set aside; received only by number", "num opt"),
    ("expired", "Expired", "Their life has ended, not taken away yet", "num opt"),
    ("dead", "Dead", "In the dead-letter queue", "num"),
    ("sent", "In", "Sent, over the last minute", "num rate narrow-hide"),
    ("completed", "Out", "Completed, over the last minute", "num rate narrow-hide"),
    ("oldest", "Oldest", "Age of the oldest active message", "num opt"),
)


@page
@require_GET
def overview(request: HttpRequest, namespace: str | None = None) -> HttpResponse:
    query = cleaned(OverviewQuery(request.GET))
    namespaces = reads.namespaces(actor=request.actor)
    if namespace and namespace.lower() not in {n.name.lower() for n in namespaces}:
        raise EntityNotFound(namespace)
    everything = reads.overview(namespace, include_hidden=query["all"], actor=request.actor)
    rows = everything if query["all"] else without_system(everything, namespaces, namespace)
    shown = arrange(rows, query["q"], query["kind"], query["sort"])
    number = query["page"] or 1
    here = shown[(number - 1) * ROWS : number * ROWS]
    context = {
        "section": "overview",
        "namespace": namespace,
        "namespaces": [n for n in namespaces if query["all"] or not n.is_system],
        "clock": next((n.clock for n in namespaces if namespace and n.name.lower() == namespace.lower()), None),
        "query": query,
        "columns": columns(request.GET, query["sort"]),
        "kinds": KINDS,
        "entities": here,
        "beneath": beneath(here, query["sort"]),
        "matching": len(shown),
        "first": (number - 1) * ROWS + 1,
        "page_before": number - 1,
        "page_after": number + 1 if len(shown) > number * ROWS else None,
        "totals": totals(shown),
        "any_entity": bool(rows),
        "neglected": [e for e in shown if presenters.is_neglected(e)],
        "demonstration": demonstration.shown() if namespace in (None, "demo") else None,
    }
    return show(request, "overview", context, fragment="_overview_table")


def without_system(rows: list[EntityRow], namespaces: Iterable[reads.NamespaceRow], namespace: str | None) -> list[EntityRow]:
    """Vitrine's own entities only where they were asked for, by their namespace."""
    own = {n.name for n in namespaces if n.is_system}
    return rows if namespace in own else [e for e in rows if e.address.namespace not in own]


def arrange(rows: list[EntityRow], part: str, kind: str, sort: str) -> list[EntityRow]:
    """Those of a kind, or of all, whose address contains `part`, sorted by a column of _KEYS; "-dead" has the largest first."""
    part = part.strip().lower().replace("/subscriptions/", "/")
    found = [
        e for e in rows if kind in ("", e.kind) and part in f"{e.address.namespace}/{presenters.shown_path(e.address)}".lower()
    ]
    if sort:
        found.sort(key=_KEYS[sort.removeprefix("-")], reverse=sort.startswith("-"))
    return found


def beneath(rows: list[EntityRow], sort: str) -> set[int]:
    """The ids of subscriptions that stand below their topic, so that their name alone says what they are."""
    ids = {e.id for e in rows}
    return {e.id for e in rows if e.topic_id in ids} if sort in ("", "name") else set()


def totals(rows: list[EntityRow]) -> Totals:
    counts = [e.counts for e in rows]
    summed = {name: sum(getattr(c, name) for c in counts) for name in ("active", "locked", "scheduled", "deferred")}
    kinds = [e.kind for e in rows]
    return Totals(
        queues=kinds.count(EntityKind.QUEUE), topics=kinds.count(EntityKind.TOPIC),
        subscriptions=kinds.count(EntityKind.SUBSCRIPTION), dead=sum(c.dead_letter for c in counts), **summed,
        sent_rate=sum(e.sent_rate for e in rows if e.kind != EntityKind.TOPIC),
        completed_rate=sum(e.completed_rate for e in rows),
    )  # fmt: skip


def columns(params, sort: str) -> list[Column]:
    """The table's columns; numbers sort largest first, names from A."""
    made = []
    for name, title, hint, css in _COLUMNS:
        first, second = (name, f"-{name}") if name in ("name", "oldest") else (f"-{name}", name)
        query = params.copy()
        query.pop("page", None)
        query["sort"] = second if sort == first else first
        direction = "" if sort.removeprefix("-") != name else "descending" if sort.startswith("-") else "ascending"
        made.append(Column(name, title, hint, css, f"?{query.urlencode()}", direction))
    return made
