"""The overview: all entities, or those of a namespace, in one table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.views.decorators.http import require_GET

from broker_core import reads
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import Actor
from broker_core.reads import EntityFilter, EntityRow, Tally
from broker_core.store import connections
from broker_core.store.connections import Database
from explorer import sandbox_names
from explorer.frames import entity_conditions, figures, last_namespace, presenters, view_menu
from explorer.frames.forms.queries import OverviewQuery
from explorer.frames.query import with_changes
from explorer.frames.recent import LARGE, CacheByKey
from explorer.frames.shell import cleaned, draws, page, show, targets, wants_fragment
from explorer.frames.values import Figure
from explorer.frames.view_menu import Choice, ColumnOption, ViewMenu
from explorer.frames.vocabularies import ENTITIES
from explorer.frames.vocabulary import Terms, canonical, field_of
from explorer.lessons import sandboxes
from explorer.live.page import FOLLOW_SECONDS, Live, LiveRequest, live
from explorer.people.preferences import ONE_YEAR

from . import ready

TABLE_SECONDS = 1.0  # between two drawings of the table
ROWS = 100  # items of a page, and entities of an open group: rendering a row takes longer than reading it
OLDEST_BELOW = 2_000  # groups show their oldest message if there are at most so many entities
COOKIE = "vitrine_entities"


@dataclass(frozen=True, slots=True)
class Column:
    """A column. href: this page sorted by it, in reverse if it already is; empty: it cannot be sorted. figure: of its counts."""

    name: str
    title: str
    hint: str
    css: str
    href: str = ""
    direction: str = ""
    figure: Figure | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """A row of the table: a namespace, a group, or an entity.

    level: its depth. item: of a group. toggle: the link that opens or closes it. more: how many entities of an open group are
    left out. beneath: a subscription below its topic.
    """

    level: int
    namespace: reads.NamespaceRow | None = None
    item: reads.Item | None = None
    entity: EntityRow | None = None
    parts: tuple[Tally, ...] = ()
    toggle: str = ""
    more: int = 0
    beneath: bool = False
    prefix: str = ""
    recent: reads.Recent | None = None


_NAME = ("name", "Name", "Namespace and name; subscriptions are listed below their topic", "name-column")
_TREND = ("trend", "Last 30 min", "Messages in (line) and out (dashed) in each of the last 30 minutes", "trend narrow-hide")
_AFTER = (
    ("sent", "In/min", "Sent in the last minute", "num rate"),
    ("completed", "Out/min", "Completed in the last minute", "num rate"),
    ("oldest", "Oldest", "Age of the oldest message", "num"),
    ("receivers", "Receivers", "Who receives", "nowrap"),
    ("received", "Last receive", "When a receiver last asked for a message", "num"),
    ("stored", "Stored", "Bytes of all messages, including dead letters", "num"),
)
_UNSORTED = ("trend", "receivers", "received", "stored")
_HIDDEN_AT_FIRST = ("deferred", "extended", "rescheduled", "total", "received", "stored")


@live
@page
@require_GET
def overview(request: HttpRequest, namespace: str | None = None) -> HttpResponse:
    vocabulary = ENTITIES.without("namespace") if namespace else ENTITIES
    if redirect := canonical(request, vocabulary):
        return redirect
    query = cleaned(OverviewQuery(request.GET))
    if "remember" in request.GET and not isinstance(request, LiveRequest):
        return _remember(request)
    if (remembered := _remembered(request)) is not None:
        return HttpResponseRedirect(f"?{remembered}")
    namespaces = reads.namespaces(actor=request.actor)
    current = next((n for n in namespaces if namespace and n.name.lower() == namespace.lower()), None)
    if namespace and current is None:
        raise EntityNotFound(namespace, "namespace")
    if current:
        last_namespace.remember(request, current.name)
    field = field_of(request, vocabulary)
    context: dict[str, Any] = {
        "section": "entities",
        "namespace": namespace,
        "current_namespace": current,
        "heading": (sandboxes.title(request.user, current.name) or current.name) if current else "All entities",
        "clock": current.clock if current else None,
        "filter": field,
    }
    watched = Live({})
    if current is None and draws(request, "explorer/_ready.html"):
        context |= {"ready": ready.ready(request, namespaces), "open_to_others": ready.open_to_others(namespaces)}
    if not field.problem:
        context |= _table(request, query, field.terms, namespaces, current)
        personal = _is_personal(request, query, current)
        watched = _watched(context["entities"], context["sort"], current, personal=personal)
    fragment = "_overview_table" if targets(request, "overview") else "_entities"
    return show(request, "overview", context, fragment=fragment, status=field.status, live=watched)


def _table(
    request: HttpRequest,
    query: Mapping[str, Any],
    terms: Terms,
    namespaces: Sequence[reads.NamespaceRow],
    current: reads.NamespaceRow | None,
) -> dict[str, Any]:
    """The context of the table. entities: those on the page."""
    hidden = sandbox_names.hidden_sandboxes(request.user, request.actor, own=True) if query["all"] and current is None else ()
    entity_filter = filter_of(query, terms, current, hidden)
    sort = query["sort"] or "name"
    first = ((query["page"] or 1) - 1) * ROWS
    tree, age = _tree(request.actor, query, entity_filter, sort, first, sum(n.entities for n in namespaces))
    lines = lines_of(tree, {n.name: n for n in namespaces}, current, request.GET, request.actor)
    every = columns(request.GET, sort, figures_of(current, tree.totals.rows))
    unfiltered = filter_of(query, Terms(), current, hidden)
    return {
        "lines": lines,
        "entities": [line.entity for line in lines if line.entity],
        "any_entity": lines or reads.list_entities(unfiltered, limit=1, actor=request.actor),
        "counted": presenters.age_in_words(age) if age is not None else "",
        "sort": sort,
        "columns": shown_columns(every, query["columns"]),
        "entity_count": tree.totals.entities,
        "view": _view(request.GET, query, sort, every),
        **_cut(tree, first),
    }


def _view(params: QueryDict, query: Mapping[str, Any], sort: str, every: Sequence[Column]) -> ViewMenu:
    shown = shown_columns(every, query["columns"])
    options = [ColumnOption(column.name, column.title, column in shown, column.hint) for column in every[1:]]
    return ViewMenu(
        target="entities",
        orders=[
            Choice(word, with_changes(params, sort=name, remember=1), sort == name)
            for name, word in (("name", "by name"), ("-attention", "needs attention first"))
        ],
        columns=view_menu.column_menu(params, "columns", options, reset=with_changes(params, columns=None, remember=1)),
        hidden=view_menu.hidden(params, is_shown=query["all"]),
    )


def _cut(tree: reads.Tree, first: int) -> dict[str, Any]:
    """Which rows of all are on the page, and the pages beside it."""
    return {
        "row_count": tree.count,
        "first": first + 1,
        "last": min(tree.count, first + ROWS),
        "page_before": first // ROWS,
        "page_after": first // ROWS + 2 if tree.count > first + ROWS else None,
    }


def _is_personal(request: HttpRequest, query: Mapping[str, Any], current: reads.NamespaceRow | None) -> bool:
    return bool(query["all"] and current is None and sandbox_names.hides_others(request.user, request.actor))


def _watched(on_page: Sequence[EntityRow], sort: str, current: reads.NamespaceRow | None, *, personal: bool) -> Live:
    """The live parts. The sums of entities on other pages follow after REFRESH_SECONDS."""
    fragments = {"explorer/_overview_table.html": TABLE_SECONDS if sort in ("name", "-name") else FOLLOW_SECONDS}
    if current:
        fragments["explorer/overview.html#clock"] = 0.0
    return Live(fragments, entities=on_page, personal=personal)


def _remembered(request: HttpRequest) -> str | None:
    """The query of the order and columns that this person chose last, if the link says nothing of them; else None."""
    named = {"sort", "columns"} & request.GET.keys()
    if isinstance(request, LiveRequest) or wants_fragment(request) or named or COOKIE not in request.COOKIES:
        return None
    chosen = QueryDict(request.COOKIES[COOKIE])
    if not chosen or not OverviewQuery(chosen).is_valid():
        return None
    query = request.GET.copy()
    for name in ("sort", "columns"):
        if name in chosen:
            query.setlist(name, chosen.getlist(name))
    return query.urlencode()


def _remember(request: HttpRequest) -> HttpResponse:
    """Store the order and the columns of this link for the next time, and go to the page without `remember`."""
    query = request.GET.copy()
    query.pop("remember", None)
    chosen = QueryDict(mutable=True)
    for name in ("sort", "columns"):
        if name in query:
            chosen.setlist(name, query.getlist(name))
    response = HttpResponseRedirect(f"?{query.urlencode()}")
    response.set_cookie(COOKIE, chosen.urlencode(), max_age=ONE_YEAR, samesite="Lax", httponly=True, secure=request.is_secure())
    return response


trees: CacheByKey[reads.Tree] = CacheByKey()


def _tree(
    actor: Actor, query: Mapping[str, Any], entity_filter: EntityFilter, sort: str, first: int, entities: int
) -> tuple[reads.Tree, timedelta | None]:
    """The page of items, and its age if it was kept. Of several databases, each gives its first ones, and the page is cut from
    all. entities: how many there are in all namespaces."""
    several = connections.are_several() and entity_filter.namespace is None
    grouped, toggled = not (entity_filter.parts or entity_filter.counts), tuple(query["toggle"])

    def read() -> reads.Tree:
        tree = reads.tree(
            entity_filter,
            sort=sort,
            grouped=grouped,
            toggled=toggled,
            open_below=ROWS,
            first=0 if several else first,
            limit=first + ROWS if several else ROWS,
            max_children=ROWS,
            with_oldest=entities <= OLDEST_BELOW,
            actor=actor,
        )
        return replace(tree, items=tree.items[first : first + ROWS]) if several else tree

    return trees.get((entity_filter, sort, grouped, toggled, first), read) if entities > LARGE else (read(), None)


def lines_of(
    tree: reads.Tree,
    namespaces: Mapping[str, reads.NamespaceRow],
    current: reads.NamespaceRow | None,
    params: QueryDict,
    actor: Actor,
) -> list[Line]:
    """The rows of the table: in the order of names below a row of their namespace, unless only one is shown."""
    ids: dict[Database, list[int]] = {}
    for item in tree.items:
        of_database = ids.setdefault(connections.database_of(item.namespace), [])
        of_database += item.children if item.prefix is not None else [item.id or 0]
    rows: dict[tuple[str, int], EntityRow] = {}
    recent: dict[tuple[str, int], reads.Recent] = {}
    for database, of_database in ids.items():
        with connections.using(database):
            rows |= {(database.alias, row.id): row for row in reads.entities_by_id(of_database, actor=actor)}
            recent |= {(database.alias, key): value for key, value in reads.recent_traffic(of_database, actor=actor).items()}
    has_heads = current is None and len(tree.namespaces) > 1
    lines: list[Line] = []
    level, last = 0, None
    for item in tree.items:
        if has_heads and item.namespace != last and item.namespace in namespaces:
            lines.append(Line(0, namespace=namespaces[item.namespace], parts=tree.namespaces.get(item.namespace, ())))
            level, last = 1, item.namespace
        alias = connections.database_of(item.namespace).alias
        if item.prefix is None:
            lines += _entity_lines([item.id or 0], alias, rows, recent, level, "", lines)
            continue
        lines.append(Line(level, item=item, parts=item.parts, toggle=_toggled(params, f"{item.namespace}/{item.prefix}")))
        if item.is_open:
            lines += _entity_lines(item.children, alias, rows, recent, level + 1, item.prefix, lines)
            if item.entities > len(item.children):
                lines.append(Line(level + 1, item=item, more=item.entities - len(item.children)))
    return lines


def _toggled(params: QueryDict, group: str) -> str:
    """This page with a group opened, or closed if it is open."""
    query = params.copy()
    groups = query.getlist("toggle")
    query.setlist("toggle", [name for name in groups if name != group] if group in groups else [*groups, group])
    return f"?{query.urlencode()}"


def _entity_lines(
    ids: Iterable[int],
    alias: str,
    rows: Mapping[tuple[str, int], EntityRow],
    recent: Mapping[tuple[str, int], reads.Recent],
    level: int,
    prefix: str,
    before: Sequence[Line],
) -> list[Line]:
    """The lines of these entities. A subscription right below its topic, or below another one of it, shows its own name only."""
    lines: list[Line] = []
    last = before[-1] if before else None
    for number in ids:
        entity = rows.get((alias, number))
        if entity is None:  # deleted meanwhile
            continue
        beneath = last is not None and last.entity is not None and _is_beneath(entity, last.entity, last.beneath)
        last = Line(level, entity=entity, beneath=beneath, prefix=prefix, recent=recent.get((alias, number), reads.Recent()))
        lines.append(last)
    return lines


def _is_beneath(entity: EntityRow, above: EntityRow, above_is_beneath: bool) -> bool:
    if entity.topic_id is None:
        return False
    return entity.topic_id == above.id or (above_is_beneath and entity.topic_id == above.topic_id)


def shown_columns(every: Sequence[Column], chosen: Sequence[str]) -> list[Column]:
    """The chosen columns, or those that are shown at first; the name always."""
    selected = [column for column in every[1:] if column.name in chosen] or [
        column for column in every[1:] if column.name not in _HIDDEN_AT_FIRST
    ]
    return [every[0], *selected]


def filter_of(
    query: Mapping[str, Any], terms: Terms, current: reads.NamespaceRow | None, hidden: tuple[str, ...] = ()
) -> EntityFilter:
    """Vitrine's own entities and those of sandboxes are left out, unless their namespace is shown."""
    namespace = current.name if current else terms.get("namespace")
    return entity_conditions.filter_of(
        terms,
        namespace=namespace,
        include_hidden=query["all"] or sandbox_names.may_be_one(namespace),
        include_system=query["all"] or (current is not None and current.is_system),
        except_namespaces=hidden,
    )


def figures_of(namespace: reads.NamespaceRow | None, rows: Iterable[Tally]) -> tuple[Figure, ...]:
    """The columns of counts: for the namespace's family, or the families among the rows."""
    return figures.for_families({namespace.family} if namespace else {e.family for e in rows})


def columns(params: QueryDict, sort: str, counted: Iterable[Figure]) -> list[Column]:
    """All columns of the table. A first click sorts numbers in descending and names in ascending order."""
    table_columns = []
    definitions = [
        (_NAME, None), *(((f.name, f.title, f.hint, _always(f.css)), f) for f in counted), (_TREND, None),
        *((definition, None) for definition in _AFTER),
    ]  # fmt: skip
    for (name, title, hint, css), figure in definitions:
        if name in _UNSORTED:
            table_columns.append(Column(name, title, hint, css))
            continue
        first, second = (name, f"-{name}") if name in ("name", "oldest") else (f"-{name}", name)
        query = params.copy()
        query.pop("page", None)
        query["sort"] = second if sort == first else first
        query["remember"] = "1"
        direction = "" if sort.removeprefix("-") != name else "descending" if sort.startswith("-") else "ascending"
        table_columns.append(Column(name, title, hint, css, f"?{query.urlencode()}", direction, figure))
    return table_columns


def _always(css: str) -> str:
    """Without the classes that hide a column on narrow screens, since people choose their columns."""
    return " ".join(word for word in css.split() if word not in ("opt", "narrow-hide"))
