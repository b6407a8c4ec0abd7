"""The overview: all entities, or those of a namespace, in one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from broker_core import reads
from broker_core.common.errors import EntityNotFound
from broker_core.common.family import installed
from broker_core.common.types import Actor, EntityAddress, EntityKind, Family
from broker_core.reads import Counted, EntityFilter, EntityRow, Tallies, Tally
from broker_core.store import connections
from broker_core.store.connections import Database
from explorer.demo import pages
from explorer.live.page import FOLLOW_SECONDS, Live, LiveRequest, live
from explorer.shared.forms.queries import KINDS, OverviewQuery

from . import figures, presenters
from .shell import cleaned, page, show
from .values import Figure

TABLE_SECONDS = 1.0  # between two drawings of the table
ROWS = 100  # per page: rendering a row takes longer than reading it
_LATE = datetime.max.replace(tzinfo=UTC)
_UNFILTERED = {"q": "", "kind": "", "family": ""}
_KEYS = {
    "sent": lambda e: e.sent_rate,
    "completed": lambda e: e.completed_rate,
    "oldest": lambda e: e.oldest_active_at or _LATE,
}
_KIND_WORDS = {EntityKind.QUEUE: "queue", EntityKind.TOPIC: "topic", EntityKind.SUBSCRIPTION: "subscription"}


@dataclass(frozen=True, slots=True)
class Column:
    """A sortable column. href: this page sorted by it, in reverse if it already is. css: may hide it on narrow screens."""

    name: str
    title: str
    hint: str
    css: str
    href: str
    direction: str


@dataclass(frozen=True, slots=True)
class Sum:
    """A total. name: suffix of its element's id. css: a colour for a number that needs attention."""

    name: str
    word: str
    text: str
    css: str = ""


_BEFORE = (("name", "Name", "Namespace and name; subscriptions are listed below their topic", "grow"),)
_AFTER = (
    ("sent", "In", "Sent in the last minute", "num rate narrow-hide"),
    ("completed", "Out", "Completed in the last minute", "num rate narrow-hide"),
    ("oldest", "Oldest", "Age of the oldest message", "num opt"),
)


@live
@page
@require_GET
def overview(request: HttpRequest, namespace: str | None = None) -> HttpResponse:
    query = cleaned(OverviewQuery(request.GET))
    namespaces = reads.namespaces(actor=request.actor)
    here = next((n for n in namespaces if namespace and n.name.lower() == namespace.lower()), None)
    if namespace and here is None:
        raise EntityNotFound(namespace, "namespace")
    wanted = filter_of(query, here)
    is_steady = query["sort"].removeprefix("-") in ("", "name")
    found = reads.tallies(wanted, each=not is_steady, actor=request.actor)
    first = ((query["page"] or 1) - 1) * ROWS
    on_page = rows_on_page(wanted, found, query["sort"], first, request.actor)
    counted = figures_of(here, found.rows)
    context = {
        "section": "entities",
        "namespace": namespace,
        "namespaces": [n for n in namespaces if query["all"] or not n.is_system],
        "here": here,
        "clock": here.clock if here else None,
        "query": query,
        "columns": columns(request.GET, query["sort"], counted),
        "figures": counted,
        "kinds": KINDS,
        "families": families_among(namespaces),
        "entities": on_page,
        "beneath": beneath(on_page, query["sort"]),
        "matching": found.entities,
        "first": first + 1,
        "last": min(found.entities, first + ROWS),
        "page_before": first // ROWS,
        "page_after": first // ROWS + 2 if found.entities > first + ROWS else None,
        "totals": totals(found.rows, counted),
        "any_entity": on_page or reads.list_entities(filter_of(query | _UNFILTERED, here), limit=1, actor=request.actor),
        "found": found,
    }
    fragments = {"explorer/_overview_table.html": TABLE_SECONDS if is_steady else FOLLOW_SECONDS}
    if here:
        fragments["explorer/overview.html#clock"] = 0.0
    shown_live = Live(fragments, entities=on_page)  # the sums of entities on other pages follow after REFRESH_SECONDS
    if not isinstance(request, LiveRequest):
        context["demonstration"] = pages.shown() if namespace in (None, "demo") else None
    return show(request, "overview", context, fragment="_overview_table", live=shown_live)


def filter_of(query: Mapping[str, Any], here: reads.NamespaceRow | None) -> EntityFilter:
    """Vitrine's own entities are left out, unless their namespace is shown."""
    return EntityFilter(
        namespace=here.name if here else None,
        kind=EntityKind(query["kind"]) if query["kind"] else None,
        family=Family(query["family"]) if query["family"] else None,
        part=query["q"].strip().lower().replace("/subscriptions/", "/"),
        include_hidden=query["all"],
        include_system=query["all"] or (here is not None and here.is_system),
    )


def rows_on_page(wanted: EntityFilter, found: Tallies, sort: str, first: int, actor: Actor) -> list[EntityRow]:
    """The rows from place `first` on, sorted by a column; "-dead" is descending."""
    name, limit = sort.removeprefix("-"), max(0, min(ROWS, found.entities - first))
    if name not in ("", "name"):
        ordered = sorted(found.rows, key=key_of(name), reverse=sort.startswith("-"))
        return _whole_rows([row for row in ordered[first : first + limit] if row.id is not None], actor)
    if sort == "-name":
        return reads.list_entities(wanted, first=max(0, found.entities - first - limit), limit=limit, actor=actor)[::-1]
    return reads.list_entities(wanted, first=first, limit=limit, actor=actor)


def _whole_rows(shown: Sequence[Tally], actor: Actor) -> list[EntityRow]:
    """The rows of these entities. An id is looked up in the database of its namespace."""
    ids: dict[Database, list[int]] = {}
    for row in shown:
        ids.setdefault(connections.database_of(row.address.namespace), []).append(row.id or 0)
    found: dict[EntityAddress, EntityRow] = {}
    for database, of_database in ids.items():
        with connections.using(database):
            found |= {row.address: row for row in reads.entities_by_id(of_database, actor=actor)}
    return [found[row.address] for row in shown if row.address in found]


def key_of(name: str) -> Callable[[Counted], Any]:
    figure = figures.by_name().get(name)
    return _KEYS[name] if figure is None else lambda e: -1 if (count := figure.of(e)) is None else count


def figures_of(namespace: reads.NamespaceRow | None, rows: Iterable[Tally]) -> tuple[Figure, ...]:
    """The columns of counts: for the namespace's family, or the families among the rows."""
    return figures.for_families({namespace.family} if namespace else {e.family for e in rows})


def families_among(namespaces: Iterable[reads.NamespaceRow]) -> list[tuple[str, str]]:
    """The choices of the family filter; empty if there is only one family."""
    found = {n.family for n in namespaces}
    return [("", "all"), *((str(f.family), f.title) for f in installed() if f.family in found)] if len(found) > 1 else []


def beneath(rows: list[EntityRow], sort: str) -> set[int]:
    """The ids of subscriptions that are listed below their topic, so that only their own name is shown."""
    ids = {e.id for e in rows}
    return {e.id for e in rows if e.topic_id in ids} if sort in ("", "name") else set()


def totals(rows: Sequence[Tally], counted: Iterable[Figure]) -> list[Sum]:
    """The totals. The rate of topics is left out, since the copies of their messages are counted."""
    kinds = [
        Sum(f"{kind}s", presenters.plural(count, word).partition(" ")[2], f"{count:,}")
        for (kind, count), word in zip(figures.count_of_kind(rows).items(), _KIND_WORDS.values(), strict=True)
        if count or kind == EntityKind.QUEUE
    ]
    numbers = [
        Sum(figure.name, figure.word, f"{count:,}", figure.hue if count else "") for figure, count in figures.sums(counted, rows)
    ]
    sent = sum(e.sent_rate for e in rows if e.kind != EntityKind.TOPIC)
    rates = [
        Sum("sent", "in", presenters.rate(sent)),
        Sum("completed", "out", presenters.rate(sum(e.completed_rate for e in rows))),
    ]
    return [*kinds, *numbers, *rates]


def columns(params, sort: str, counted: Iterable[Figure]) -> list[Column]:
    """The table's columns. A first click sorts numbers in descending and names in ascending order."""
    made = []
    for name, title, hint, css in (*_BEFORE, *((f.name, f.title, f.hint, f.css) for f in counted), *_AFTER):
        first, second = (name, f"-{name}") if name in ("name", "oldest") else (f"-{name}", name)
        query = params.copy()
        query.pop("page", None)
        query["sort"] = second if sort == first else first
        direction = "" if sort.removeprefix("-") != name else "descending" if sort.startswith("-") else "ascending"
        made.append(Column(name, title, hint, css, f"?{query.urlencode()}", direction))
    return made
