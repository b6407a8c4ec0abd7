"""The exchanges of a virtual host, and the page of one: bindings are added and removed, the exchange is deleted."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_GET, require_http_methods

from broker_core import rabbitmq
from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import Right
from broker_core.rabbitmq import RoutingDraft
from broker_core.rabbitmq.rules.exchanges import BindingDef
from broker_core.rabbitmq.topology.catalog import StoredBinding, StoredExchange
from explorer.frames.forms.typed_name import TypedNameForm
from explorer.frames.routes import ShownReplay
from explorer.frames.shell import Act, May, act, notify_error, page, targets
from explorer.frames.vocabulary import canonical, field_of
from explorer.rabbitmq.forms.keys import EXCHANGE_TYPES
from explorer.rabbitmq.forms.topology import BindingForm, DeleteForm, ExchangeForm, UnbindForm

from . import presenters
from .head import exchange_head
from .presenters import Argument, Tag
from .routes import replay
from .shared import DEFAULT_EXCHANGE, draw, exchange_name, exchange_slug, link, vhost_of
from .vhost import is_system
from .vocabularies import EXCHANGES, is_met

MOST_OFFERED = 500  # names that a field suggests
_NO_BINDING = InvalidArgument("binding", "no longer exists; reload the page")
_DESTINATION_FIELD = {"others": "destinations", "other_label": "Queue or exchange"}


@dataclass(frozen=True, slots=True)
class ExchangeLine:
    """An exchange in the list. incoming, outgoing: numbers of bindings; outgoing None: bound to every queue."""

    exchange: StoredExchange
    slug: str
    features: list[Tag]
    incoming: int
    outgoing: int | None


@dataclass(frozen=True, slots=True)
class BindingLine:
    """A binding in a list."""

    binding: StoredBinding
    arguments: list[Argument]

    @property
    def key(self) -> str:
        """Identifies the binding in forms (RMQ-350)."""
        binding = self.binding
        identity = [binding.source, binding.destination_type, binding.destination, binding.routing_key, binding.arguments_hash]
        return json.dumps(identity, ensure_ascii=False, separators=(",", ":"))

    @property
    def source_slug(self) -> str:
        return exchange_slug(self.binding.source)

    @property
    def words(self) -> str:
        binding = self.binding
        return f"{binding.source or DEFAULT_EXCHANGE} to {binding.destination}" + (
            f", key {binding.routing_key}" if binding.routing_key else ""
        )


@page
@require_GET
def exchanges(request: HttpRequest, namespace: str) -> HttpResponse:
    if redirect := canonical(request, EXCHANGES):
        return redirect
    host, field = vhost_of(namespace, request.actor), field_of(request, EXCHANGES)
    all_exchanges = rabbitmq.list_exchanges(host.name, actor=request.actor)
    bindings = rabbitmq.list_bindings(host.name, actor=request.actor)
    incoming = Counter(binding.destination for binding in bindings if binding.destination_type == "exchange")
    lines = [
        ExchangeLine(
            exchange,
            exchange_slug(exchange.name),
            presenters.exchange_features(exchange),
            incoming[exchange.name],
            exchange.bindings,
        )
        for exchange in all_exchanges
        if is_met(field.terms, exchange_slug(exchange.name), exchange.type, (exchange.effective.get("policy"),), {})
    ]
    context = {"filter": field, "lines": lines, "legend": presenters.legend(line.features for line in lines)}
    fragment = "_exchanges_table" if targets(request, "exchanges-table") else "_exchange_list"
    return draw(request, "exchanges", host, context, place="exchanges", fragment=fragment)


@page
@require_http_methods(["GET", "POST"])
def create(request: HttpRequest, namespace: str) -> HttpResponse:
    host = vhost_of(namespace, request.actor)
    request.actor.require(Right.MANAGE, host.name)
    form = ExchangeForm(request.POST if request.method == "POST" else None)
    names = [exchange.name for exchange in rabbitmq.list_exchanges(host.name, actor=request.actor) if exchange.name]
    context = {"form": form, "exchange_names": names[:MOST_OFFERED]}
    if not form.is_valid():
        return draw(
            request,
            "exchange_new",
            host,
            context,
            page_title="new exchange",
            place="exchanges",
        )
    values = form.cleaned_data
    flags = {name: values[name] for name in ("type", "durable", "auto_delete", "internal", "arguments")}
    done = act(
        request, "declare exchange", None,
        lambda: rabbitmq.declare_exchange(host.name, values["name"], **flags, actor=request.actor),
        target=f"{host.name}: exchange {values['name']}", says=lambda _: f"Declared the exchange {values['name']}.",
    )  # fmt: skip
    if done.error:
        return draw(request, "exchange_new", host, context, page_title="new exchange", place="exchanges", done=done)
    return HttpResponseRedirect(link("exchange", host.name, values["name"]))


@page
@require_http_methods(["GET", "POST"])
def exchange(request: HttpRequest, namespace: str, exchange: str) -> HttpResponse:
    """GET shows the exchange; POST adds or removes a binding, or replays the last hour with it (`replay`) or without."""
    host = vhost_of(namespace, request.actor)
    name = exchange_name(exchange)
    stored = rabbitmq.get_exchange(host.name, name, actor=request.actor)
    if request.method != "POST":
        return _show(request, host, stored)
    request.actor.require(Right.MANAGE, host.name)
    if request.POST.get("action") == "replay":
        return _replay_without(request, host, stored)
    if request.POST.get("action") == "unbind":
        done = unbind(request, host.name, bindings_of(request, host.name, stored))
        if done.error:
            notify_error(request, done.error)
        return HttpResponseRedirect(request.path)
    return _bind(request, host, stored)


def _bind(request: HttpRequest, host, exchange: StoredExchange) -> HttpResponse:
    form = BindingForm(request.POST, **_DESTINATION_FIELD)
    if not form.is_valid():
        return _show(request, host, exchange, form=form)
    values = form.cleaned_data
    if "replay" in request.POST:
        binding = BindingDef(exchange.name, values["other"], values["to"] == "queue", values["routing_key"], values["arguments"])
        return _replayed(request, host, exchange, RoutingDraft(added=(binding,)), form)
    bind = rabbitmq.bind_queue if values["to"] == "queue" else rabbitmq.bind_exchange
    done = act(
        request, "bind", None,
        lambda: bind(host.name, values["other"], exchange.name, values["routing_key"], values["arguments"], actor=request.actor),
        target=f"{host.name}: {exchange_slug(exchange.name)} to {values['to']} {values['other']}, key {values['routing_key']!r}",
        says=lambda is_new: bound(is_new, exchange.name, values["other"]),
    )  # fmt: skip
    return _show(request, host, exchange, form=form, done=done) if done.error else HttpResponseRedirect(request.path)


def _replay_without(request: HttpRequest, host, exchange: StoredExchange) -> HttpResponse:
    chosen = _chosen(request, bindings_of(request, host.name, exchange))
    if chosen is None:
        notify_error(request, _NO_BINDING)
        return HttpResponseRedirect(request.path)
    return _replayed(request, host, exchange, RoutingDraft(removed=(chosen.binding.definition,)))


def _replayed(
    request: HttpRequest, host, exchange: StoredExchange, draft: RoutingDraft, form: BindingForm | None = None
) -> HttpResponse:
    try:
        return _show(request, host, exchange, form=form, replayed=replay(host.name, draft, request.actor))
    except BrokerError as exc:
        return _show(request, host, exchange, form=form, done=Act(error=exc))


def bound(is_new: bool, source: str, destination: str) -> str:
    binding = f"{exchange_slug(source)} to {destination}"
    return f"Bound {binding}." if is_new else f"The binding {binding} already exists; nothing was changed."


def unbind(request: HttpRequest, vhost: str, lines: list[BindingLine]) -> Act:
    """Remove the binding that the posted form identifies. Removing it twice is not an error."""
    chosen = _chosen(request, lines)
    if chosen is None:
        return Act(error=_NO_BINDING)
    binding = chosen.binding
    remove = rabbitmq.unbind_queue if binding.destination_type == "queue" else rabbitmq.unbind_exchange
    return act(
        request, "unbind", None,
        lambda: remove(vhost, binding.destination, binding.source, binding.routing_key, binding.arguments, actor=request.actor),
        target=f"{vhost}: {chosen.words}", says=lambda _: f"Removed the binding {chosen.words}.",
    )  # fmt: skip


def _chosen(request: HttpRequest, lines: list[BindingLine]) -> BindingLine | None:
    """The binding that the posted form identifies; None: it no longer exists."""
    form = UnbindForm(request.POST)
    return next((line for line in lines if form.is_valid() and line.key == form.cleaned_data["binding"]), None)


def bindings_of(request: HttpRequest, vhost: str, exchange: StoredExchange) -> list[BindingLine]:
    """The bindings from the exchange, then those to it."""
    outgoing = rabbitmq.list_bindings(vhost, source=exchange.name, actor=request.actor)
    incoming = rabbitmq.list_bindings(vhost, exchange=exchange.name, actor=request.actor)
    return lines_of([*outgoing, *incoming])


def lines_of(bindings: list[StoredBinding]) -> list[BindingLine]:
    return [BindingLine(binding, presenters.arguments(binding.arguments)) for binding in bindings]


def _show(
    request: HttpRequest,
    host,
    exchange: StoredExchange,
    *,
    form: BindingForm | None = None,
    done: Act = Act(),
    replayed: ShownReplay | None = None,
) -> HttpResponse:
    lines = bindings_of(request, host.name, exchange)
    queues = rabbitmq.list_queues(host.name, actor=request.actor) if Right.MANAGE in request.actor.rights else []
    others = [row.name for row in rabbitmq.list_exchanges(host.name, actor=request.actor) if row.name]
    effective = rabbitmq.effective_of_exchange(host.name, exchange.name, actor=request.actor) if exchange.name else None
    context = {
        "exchange": exchange,
        "replay": replayed,
        "slug": exchange_slug(exchange.name),
        "is_default": not exchange.name,
        "head": exchange_head(
            exchange,
            host.name,
            May(request.actor.rights),
            meaning=EXCHANGE_TYPES.get(exchange.type, ""),
            is_system=is_system(exchange.name),
            effective=effective,
        ),
        "arguments": presenters.arguments(exchange.arguments),
        "effective": effective,
        "outgoing": [line for line in lines if line.binding.source == exchange.name],
        "incoming": [
            line for line in lines if line.binding.destination == exchange.name and line.binding.destination_type == "exchange"
        ],
        "form": form or BindingForm(**_DESTINATION_FIELD),
        "destinations": [queue.name for queue in queues][:MOST_OFFERED] + others[:MOST_OFFERED],
    }
    return draw(request, "exchange", host, context, page_title=exchange_slug(exchange.name), place="exchanges", done=done)


@page
@require_http_methods(["GET", "POST"])
def delete(request: HttpRequest, namespace: str, exchange: str) -> HttpResponse:
    host = vhost_of(namespace, request.actor)
    request.actor.require(Right.MANAGE, host.name)
    stored = rabbitmq.get_exchange(host.name, exchange_name(exchange), actor=request.actor)
    form = TypedNameForm(request.POST if request.method == "POST" else None, expected=exchange_slug(stored.name))
    conditions = DeleteForm(request.POST if request.method == "POST" else None)
    context = {
        "exchange": stored, "slug": exchange_slug(stored.name), "form": form, "conditions": conditions,
        "count": len(bindings_of(request, host.name, stored)),
    }  # fmt: skip
    if not (form.is_valid() and conditions.is_valid()):
        return draw(
            request,
            "exchange_delete",
            host,
            context,
            parent=exchange_crumb(host.name, stored),
            page_title="delete",
            place="exchanges",
        )
    done = act(
        request, "delete exchange", None,
        lambda: rabbitmq.delete_exchange(host.name, stored.name, conditions.cleaned_data["if_unused"], actor=request.actor),
        target=f"{host.name}: exchange {stored.name}", says=lambda _: f"Deleted the exchange {stored.name} with its bindings.",
    )  # fmt: skip
    if done.error:
        return draw(
            request,
            "exchange_delete",
            host,
            context,
            parent=exchange_crumb(host.name, stored),
            page_title="delete",
            place="exchanges",
            done=done,
        )
    return HttpResponseRedirect(link("exchanges", host.name))


def exchange_crumb(vhost: str, exchange: StoredExchange) -> tuple[str, str]:
    """Name and URL of the exchange's page, as the parent in breadcrumbs."""
    return exchange_slug(exchange.name), link("exchange", vhost, exchange_slug(exchange.name))
