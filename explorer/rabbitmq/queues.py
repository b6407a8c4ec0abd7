"""The queues of a virtual host: list, declare, delete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_GET, require_http_methods

from broker_core import operations, rabbitmq, reads
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.rabbitmq.messages import browsing
from broker_core.reads import EntityRow
from explorer.frames import presenters as presenters_of_all
from explorer.frames.forms.typed_name import TypedNameForm
from explorer.frames.settings_page import restore_url
from explorer.frames.shell import act, cleaned, page, show_form, targets
from explorer.frames.vocabulary import Terms, canonical, field_of
from explorer.frames.well_known import used_first
from explorer.live.page import FOLLOW_SECONDS, Live, live
from explorer.rabbitmq.forms.topology import DeleteForm, ListQuery, QueueForm, WhereForm

from . import presenters
from .presenters import Tag
from .shared import draw, link, queue_link, vhost_of
from .vocabularies import QUEUES, is_met

ROWS = 100
CONSUMERS_SECONDS = 2.0  # consumers come and go without an event


@dataclass(frozen=True, slots=True)
class QueueLine:
    """A queue in the list. consumers: how many it has."""

    queue: EntityRow
    features: list[Tag]
    consumers: int

    @property
    def ready(self) -> int:
        return self.queue.counts.active - self.queue.counts.locked

    @property
    def is_neglected(self) -> bool:
        return is_neglected(self.queue, self.consumers)


@dataclass(frozen=True, slots=True)
class Column:
    """A sortable column. href: the list sorted by it, in reverse if it already is."""

    name: str
    title: str
    css: str
    href: str
    direction: str


def is_neglected(queue: EntityRow, consumers: int) -> bool:
    """Whether messages wait without a consumer. Queues with a message TTL are exempt: they may be used to delay messages."""
    return not consumers and "message_ttl" not in queue.effective and presenters_of_all.is_neglected(queue)


_KEYS: dict[str, Callable[[QueueLine], Any]] = {
    "name": lambda line: line.queue.address.path,
    "type": lambda line: line.queue.options.get("type", ""),
    "ready": lambda line: line.ready,
    "unacked": lambda line: line.queue.counts.locked,
    "total": lambda line: line.queue.counts.active,
    "bytes": lambda line: line.queue.size_bytes,
    "consumers": lambda line: line.consumers,
    "in": lambda line: line.queue.sent_rate,
    "out": lambda line: line.queue.completed_rate,
}
SORTS = tuple(_KEYS)
_COLUMNS = (
    ("name", "Name", "grow"), ("type", "Type", "narrow-hide"), ("", "Features", "narrow-hide"), ("ready", "Ready", "num"),
    ("unacked", "Unacked", "num"), ("total", "Total", "num opt"), ("bytes", "Bytes", "num opt"),
    ("consumers", "Consumers", "num"), ("in", "In", "num rate narrow-hide"), ("out", "Out", "num rate narrow-hide"),
)  # fmt: skip


@live
@page
@require_GET
def queues(request: HttpRequest, namespace: str) -> HttpResponse:
    if redirect := canonical(request, QUEUES):
        return redirect
    host, field = vhost_of(namespace, request.actor), field_of(request, QUEUES)
    query = cleaned(ListQuery(request.GET, sorts=SORTS))
    lines = lines_of(host.name, request.actor)
    matched = arrange([line for line in lines if _is_met(field.terms, line)], query["sort"])
    number = query["page"] or 1
    on_page = matched[(number - 1) * ROWS : number * ROWS]
    context = {
        "filter": field,
        "columns": columns(request.GET, query["sort"]),
        "lines": on_page,
        "legend": presenters.legend(line.features for line in on_page),
        "found": len(matched),
        "first": (number - 1) * ROWS + 1,
        "last": min(len(matched), number * ROWS),
        "page_before": number - 1,
        "page_after": number + 1 if len(matched) > number * ROWS else None,
        "any": bool(lines),
    }
    is_steady = query["sort"].removeprefix("-") in ("", "name", "type")
    table = {} if field.problem else {"explorer/rabbitmq/_queues_table.html": 0.5 if is_steady else FOLLOW_SECONDS}
    live_parts = Live(
        {**table, "explorer/_clock.html": 0.0},
        entities=[line.queue for line in lines],
        refresh_seconds=CONSUMERS_SECONDS,
    )
    fragment = "_queues_table" if targets(request, "queues") else "_queue_list"
    return draw(request, "queues", host, context, place="queues", fragment=fragment, live=live_parts)


def _is_met(terms: Terms, line: QueueLine) -> bool:
    queue = line.queue
    counts = {
        "ready": line.ready, "unacked": queue.counts.locked, "total": queue.counts.active, "consumers": line.consumers,
    }  # fmt: skip
    policies = (queue.effective.get("policy"), queue.effective.get("operator_policy"))
    return is_met(terms, queue.address.path, queue.options.get("type", ""), policies, counts)


def lines_of(vhost: str, actor: Actor) -> list[QueueLine]:
    """All queues of a virtual host, by name."""
    rows = reads.overview(vhost, include_hidden=True, actor=actor)
    consumers = Counter(consumer.queue.path for consumer in browsing.consumers(vhost, actor=actor))
    return [QueueLine(row, presenters.queue_features(row.options, row.effective), consumers[row.address.path]) for row in rows]


def arrange(lines: list[QueueLine], sort: str) -> list[QueueLine]:
    """Sort by a column of _KEYS; "-ready" sorts in descending order."""
    return sorted(lines, key=_KEYS[sort.removeprefix("-")], reverse=sort.startswith("-")) if sort else lines


def columns(params: Any, sort: str) -> Sequence[Column]:
    """The table's columns. A first click sorts numbers in descending and names in ascending order."""
    table_columns = []
    for name, title, css in _COLUMNS:
        first, second = (name, f"-{name}") if name in ("name", "type") else (f"-{name}", name)
        query = params.copy()
        query.pop("page", None)
        query["sort"] = second if sort == first else first
        direction = "" if sort.removeprefix("-") != name else "descending" if sort.startswith("-") else "ascending"
        table_columns.append(Column(name, title, css, f"?{query.urlencode()}" if name else "", direction if name else ""))
    return table_columns


@page
@require_GET
def where(request: HttpRequest) -> HttpResponse:
    """Choose the virtual host of a new queue; `?namespace=` is the choice."""
    hosts = [row.name for row in used_first(reads.namespaces(actor=request.actor)) if row.family is Family.RABBITMQ]
    request.actor.require(Right.MANAGE, ", ".join(hosts) or "virtual hosts")
    form = WhereForm(request.GET or None, hosts=hosts)
    if form.is_valid():
        return HttpResponseRedirect(link("queue_new", form.cleaned_data["namespace"]))
    return show_form(request, "rabbitmq/queue_new_where", form)


@page
@require_http_methods(["GET", "POST"])
def create(request: HttpRequest, namespace: str) -> HttpResponse:
    """Declare a queue. An equivalent existing queue is not an error: the page says so."""
    host = vhost_of(namespace, request.actor)
    request.actor.require(Right.MANAGE, host.name)
    form = QueueForm(request.POST if request.method == "POST" else None)
    exchanges = [exchange.name for exchange in rabbitmq.list_exchanges(host.name, actor=request.actor) if exchange.name]
    context = {"form": form, "exchange_names": exchanges}
    if not form.is_valid():
        return draw(request, "queue_new", host, context, page_title="new queue", place="queues")
    values = form.cleaned_data
    address = EntityAddress(host.name, values["name"])
    flags = {name: values[name] for name in ("type", "durable", "auto_delete", "arguments")}
    done = act(
        request, "declare queue", address if address.path else None,
        lambda: rabbitmq.declare_queue(address, **flags, actor=request.actor), target=values["type"], says=declared,
    )  # fmt: skip
    if done.error:
        return draw(request, "queue_new", host, context, page_title="new queue", place="queues", done=done)
    return HttpResponseRedirect(queue_link(host.name, done.result.address.path))


def declared(queue: Any) -> str:
    if queue.created:
        return f"Declared the queue {queue.address.path}."
    return f"The queue {queue.address.path} already exists with the same settings; nothing was changed."


@page
@require_http_methods(["GET", "POST"])
def delete(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    host, queue = _host_and_queue(request, namespace, path, Right.MANAGE)
    name = TypedNameForm(request.POST if request.method == "POST" else None, expected=queue.address.path)
    conditions = DeleteForm(request.POST if request.method == "POST" else None)
    undoable = operations.newest(entity_id=queue.id, undoable=True)
    context = {"queue": queue, "form": name, "conditions": conditions, "count": queue.counts.active, "undoable": undoable}
    if not (name.is_valid() and conditions.is_valid()):
        return draw(
            request,
            "queue_delete",
            host,
            context,
            parent=queue_crumb(queue),
            page_title="delete",
            place="queues",
        )
    number = operations.new_number()
    done = act(
        request, "delete queue", queue.address,
        lambda: rabbitmq.delete_queue(queue.address, **conditions.cleaned_data, operation_id=number, actor=request.actor),
        says=lambda ready: f"Deleted the queue {queue.address.path} with {ready:,} ready messages; none was dead-lettered.",
        undo=lambda _: restore_url(number, queue.address) if operations.find(number) else "",
    )  # fmt: skip
    if done.error:
        return draw(
            request, "queue_delete", host, context, parent=queue_crumb(queue), page_title="delete", place="queues", done=done
        )
    return HttpResponseRedirect(link("queues", host.name))


def _host_and_queue(request: HttpRequest, namespace: str, path: str, right: Right) -> tuple[reads.NamespaceRow, EntityRow]:
    host = vhost_of(namespace, request.actor)
    queue = reads.entity(EntityAddress(host.name, path), actor=request.actor)
    request.actor.require(right, queue.address)
    return host, queue


def queue_crumb(queue: EntityRow) -> tuple[str, str]:
    """Name and URL of the queue's page, as the parent in breadcrumbs."""
    return queue.address.path, queue_link(queue.address.namespace, queue.address.path)
