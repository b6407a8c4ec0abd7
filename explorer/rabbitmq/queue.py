"""The page of a queue: its effective settings, messages, consumers and bindings. Showing it changes nothing (RMQ-906)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_http_methods

from broker_core import rabbitmq, reads
from broker_core.common.types import EntityAddress, EventKind, Family, Right
from broker_core.rabbitmq.messages import browsing
from broker_core.rabbitmq.messages.browsing import ConsumerRow, MessageFacts, QueueHead
from broker_core.rabbitmq.topology.catalog import StoredQueue
from broker_core.rabbitmq.transfer import ARGUMENT, DEFINITION
from broker_core.reads import EXPIRED, EntityRow, MessageRow, Tab
from explorer.charts.sparklines import SPARK_MINUTES, spark
from explorer.frames import timeline
from explorer.frames.deploys import recent_deploys
from explorer.frames.filtering import filter_of, list_context
from explorer.frames.head import HEAD
from explorer.frames.history import history
from explorer.frames.lists import TabView, folded
from explorer.frames.shell import Act, May, act, cleaned, draws, notify_error, page
from explorer.live.page import live
from explorer.operations.presenters import offers
from explorer.pages import entity_page
from explorer.rabbitmq.forms.keys import APPLY_TO, BY_ARGUMENT, BY_EFFECTIVE, BY_POLICY, value_text
from explorer.rabbitmq.forms.topology import ORDERS, BindingForm, OptionsForm, QueueQuery

from . import presenters
from .exchanges import MOST_OFFERED, bound, lines_of, unbind
from .head import queue_head
from .presenters import Death
from .shared import draw, vhost_of

LISTS = "explorer/rabbitmq/_queue_lists.html"
KINDS = ("argument", "policy", "operator policy")  # the columns of the effective settings
LIST_SECONDS = 1.0  # between two updates of a live list
UNACKED = 10  # in MessageFilter.holds
HOLDS = {"messages": None, "ready": (0,), "unacked": (UNACKED,), "expired": (EXPIRED,)}
_TABS = (
    ("messages", "in the queue", "list"), ("ready", "ready", "active"), ("unacked", "unacked", "locked"),
    ("expired", "expired", "expired"), ("consumers", "consumers", "hand"), ("bindings", "bindings", "rules"),
    ("settings", "settings", "gear"), ("history", "history", "gone"),
)  # fmt: skip
_ASIDE = ("consumers", "bindings", "settings", "history")


@dataclass(frozen=True, slots=True)
class MessageLine:
    """A message in the list. facts None: it left the queue while the page was read. is_fixed: it cannot be selected."""

    row: MessageRow
    facts: MessageFacts | None
    deaths: list[Death]
    is_fixed: bool

    @property
    def died(self) -> int:
        """How often it was dead-lettered before it arrived here."""
        return sum(death.count for death in self.deaths)


@dataclass(frozen=True, slots=True)
class ConsumerLine:
    """A consumer. active: whether messages are delivered to it now."""

    consumer: ConsumerRow
    active: bool
    arguments: list[presenters.Argument]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A source of a setting's value. kind: "argument", "policy", "operator policy" or "default"; policy: its name."""

    kind: str
    policy: str
    value: str
    wins: bool


@dataclass(frozen=True, slots=True)
class EffectiveSetting:
    """An effective setting with all candidates for its value."""

    label: str
    meaning: str
    key: str
    value: str
    candidates: list[Candidate]
    rule: str


@live
@page
@require_http_methods(["GET", "POST"])
def queue(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """GET shows one of the queue's lists; POST changes options, or adds or removes a binding."""
    host = vhost_of(namespace, request.actor)
    address = EntityAddress(host.name, path)
    form = QueueQuery(request.GET)
    values = cleaned(form)
    stored = rabbitmq.get_queue(address, actor=request.actor)
    if request.method != "POST":
        return _show(request, host, stored, form, values)
    request.actor.require(Right.MANAGE, address)
    if request.POST.get("action") == "options":
        return _set_options(request, stored)
    if request.POST.get("action") == "unbind":
        done = unbind(request, host.name, lines_of(rabbitmq.list_bindings(host.name, queue=stored.name, actor=request.actor)))
        if done.error:
            notify_error(request, done.error)
        return HttpResponseRedirect(f"{request.path}?tab=bindings")
    return _bind(request, host, stored, form, values)


def _bind(request: HttpRequest, host, queue: StoredQueue, form: QueueQuery, values: Mapping[str, Any]) -> HttpResponse:
    binding = _binding_form(request.POST)
    bindings_tab = {**values, "tab": "bindings"}
    if not binding.is_valid():
        return _show(request, host, queue, form, bindings_tab, binding=binding)
    entered = binding.cleaned_data
    done = act(
        request, "bind", queue.address,
        lambda: rabbitmq.bind_queue(
            host.name, queue.name, entered["other"], entered["routing_key"], entered["arguments"], actor=request.actor
        ),
        target=f"from {entered['other']}, key {entered['routing_key']!r}",
        says=lambda is_new: bound(is_new, entered["other"], queue.name),
    )  # fmt: skip
    if done.error:
        return _show(request, host, queue, form, bindings_tab, binding=binding, done=done)
    return HttpResponseRedirect(f"{request.path}?tab=bindings")


def _set_options(request: HttpRequest, queue: StoredQueue) -> HttpResponse:
    form = OptionsForm(request.POST)
    if form.is_valid():
        done = act(
            request, "change queue options", queue.address,
            lambda: rabbitmq.set_queue_option(queue.address, **form.cleaned_data, actor=request.actor),
            target=", ".join(name for name, on in form.cleaned_data.items() if on) or "none",
            says=lambda _: f"Changed message expiry of {queue.name}.",
        )  # fmt: skip
        if done.error:
            notify_error(request, done.error)
    return HttpResponseRedirect(f"{request.path}?tab=settings")


def _binding_form(data: Any = None) -> BindingForm:
    return BindingForm(data, others="sources", other_label="From the exchange", fixed_to="queue")


def _show(
    request: HttpRequest,
    host: reads.NamespaceRow,
    queue: StoredQueue,
    form: QueueQuery,
    values: Mapping[str, Any],
    *,
    binding: BindingForm | None = None,
    done: Act = Act(),
) -> HttpResponse:
    entity = reads.entity(queue.address, actor=request.actor)
    context = _of_queue(queue, entity, browsing.queue_head(queue.id, actor=request.actor), May(request.actor.rights))
    context |= {"query": form, "values": values}
    listing = _listing_of(request, host, queue, entity, form, values, binding)
    context |= entity_page.body(request, entity, LISTS, listing, oldest_first="")
    if draws(request, HEAD):
        context["head"] = _head(request, entity, queue, context["top"], context["may"])
    word = timeline.leaving(Family.RABBITMQ, EventKind.SENT, EventKind.RECEIVED)
    parts = entity_page.live_parts(request, [entity], context, list_seconds=LIST_SECONDS, word=word)
    return draw(
        request, "/entity_body", host, context,
        page_title=queue.name, place="queues", fragment="_queue_lists", done=done, live=parts,
    )  # fmt: skip


def _of_queue(queue: StoredQueue, entity: EntityRow, top: QueueHead, may: May) -> dict[str, Any]:
    """The queue, its settings in force, and when it expires."""
    return {
        "queue": queue,
        "entity": entity,
        "address": queue.address,
        "may": may,
        "top": top,
        "effective": queue.effective,
        "expires_unused": queue.effective.get("expires") and timedelta(milliseconds=queue.effective["expires"]),
        "expires_at": top.expires_at,
        "pattern": f"^{re.escape(queue.name)}$",
    }


def _head(request: HttpRequest, entity: EntityRow, queue: StoredQueue, top: QueueHead, may: May) -> Any:
    """The head of the page, with the traffic of the last minutes."""
    points, deploys = reads.traffic(queue.address, SPARK_MINUTES, actor=request.actor), recent_deploys(queue.address.namespace)
    traffic = spark(points, words=("arrived", "acknowledged"), deploys=deploys)
    settings = effective_settings(rabbitmq.effective(queue.address, actor=request.actor))
    return queue_head(entity, may, queue, top, settings, traffic)


def _listing_of(
    request: HttpRequest, host: reads.NamespaceRow, queue: StoredQueue, entity: EntityRow, form: QueueQuery,
    values: Mapping[str, Any], binding: BindingForm | None,
) -> Callable[[bool], dict[str, Any]]:  # fmt: skip
    """What gives the tabs, and without the board the list of the chosen one."""
    tab = values["tab"] or "messages"
    bindings = rabbitmq.list_bindings(host.name, queue=queue.name, actor=request.actor)

    def listing(as_board: bool) -> dict[str, Any]:
        tabs = {"tabs": tab_views(entity, queue, len(bindings), "" if as_board else tab), "tab": tab}
        if as_board:
            return tabs
        own = _bindings(request, host.name, bindings, binding) if tab == "bindings" else {}
        return tabs | _listing(request, host, queue, entity, form, values, tab) | own

    return listing


def tab_views(entity: EntityRow, queue: StoredQueue, bindings: int, selected: str) -> list[TabView]:
    """The tabs with their counts."""
    counts = entity.counts
    expired = entity.expired_pending.value
    numbers = {
        "messages": counts.active, "ready": counts.active - counts.locked - expired, "unacked": counts.locked, "expired": expired,
        "consumers": queue.consumers, "bindings": bindings + 1,
    }  # fmt: skip
    return folded([TabView(slug, word, hue, numbers.get(slug), slug == selected, slug in _ASIDE) for slug, word, hue in _TABS])


def _listing(
    request: HttpRequest, host, queue: StoredQueue, entity: EntityRow, form: QueueQuery, values: Mapping[str, Any], tab: str
) -> dict[str, Any]:
    actor, cursor = request.actor, values["cursor"] or None
    match tab:
        case "consumers":
            return {"consumers": consumer_lines(browsing.consumers(host.name, queue.name, actor=actor), queue.effective)}
        case "settings":
            effective = rabbitmq.effective(queue.address, actor=actor)
            arguments, merged = presenters.arguments(queue.arguments), presenters.definition(effective.definition)
            options = OptionsForm(initial=queue.options)
            context = {"settings": effective_settings(effective), "kinds": KINDS, "options": options}
            return context | {"arguments": arguments, "merged": merged}
        case "history":
            return history(request, entity, values["cursor"])
        case "bindings":
            return {}
    narrowed = filter_of(request, host.clock.now).selecting(HOLDS[tab])
    order = values["order"]
    listing = list_context(
        request, entity, queue.address, Tab.ACTIVE, narrowed, order=order, orders=ORDERS, newest_first=order == "newest",
        cursor=cursor,
    )  # fmt: skip
    rows = listing["page"].rows
    facts = browsing.message_facts(queue.id, [row.sequence_number for row in rows], actor=actor)
    return {
        **listing,
        **({} if narrowed.problem else offers(entity, tab, narrowed.text, actor=actor)),
        "lines": [_line(row, facts.get(row.sequence_number), is_fixed=bool(row.owner_id) and tab != "unacked") for row in rows],
    }


def _line(row: MessageRow, facts: MessageFacts | None, *, is_fixed: bool) -> MessageLine:
    return MessageLine(row, facts, presenters.deaths(facts.deaths) if facts else [], is_fixed)


def _bindings(request: HttpRequest, vhost: str, bindings: Sequence, binding: BindingForm | None) -> dict[str, Any]:
    exchanges = rabbitmq.list_exchanges(vhost, actor=request.actor)
    return {
        "bindings": lines_of(list(bindings)),
        "form": binding or _binding_form(),
        "sources": [exchange.name for exchange in exchanges if exchange.name][:MOST_OFFERED],
    }


def consumer_lines(rows: Sequence[ConsumerRow], effective: Mapping[str, Any]) -> list[ConsumerLine]:
    """With a single active consumer, only the first one gets messages (RMQ-148)."""
    single = bool(effective.get("single_active_consumer"))
    return [ConsumerLine(row, not single or row.order == 1, presenters.arguments(row.arguments)) for row in rows]


def effective_settings(effective: Any) -> list[EffectiveSetting]:
    """The effective settings, each with all candidates."""
    return [_effective_setting(name, candidates) for name, candidates in effective.candidates.items()]


def _effective_setting(name: str, candidates: Sequence[Any]) -> EffectiveSetting:
    key = BY_EFFECTIVE.get(name)
    presented = [_candidate(candidate, key) for candidate in candidates]
    winner = next(candidate for candidate in presented if candidate.wins)
    return EffectiveSetting(
        key.label if key else name, key.meaning if key else "", key.policy or key.argument if key else name, winner.value,
        presented, _why(candidates),
    )  # fmt: skip


def _candidate(candidate: Any, key: Any) -> Candidate:
    for kind in ("operator policy", "policy"):
        if candidate.source.startswith(f"{kind} "):
            return Candidate(kind, candidate.source.removeprefix(f"{kind} "), value_text(key, candidate.value), candidate.wins)
    return Candidate(candidate.source, "", value_text(key, candidate.value), candidate.wins)


def _why(candidates: Sequence[Any]) -> str:
    """Why the winner wins; empty if there is only one candidate."""
    if len(candidates) < 2:
        return ""
    if all(isinstance(candidate.value, int) and not isinstance(candidate.value, bool) for candidate in candidates):
        return "the lowest value wins"
    return "arguments take precedence, then the operator policy"


def settings_words(entity: EntityRow, columns: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a revision in words: what is effective by arguments and policies, and the expiry options."""
    effective = {key: value for key, value in columns["effective"].items() if value is not None}
    words = {BY_EFFECTIVE[key].label if key in BY_EFFECTIVE else key.replace("_", " "): value_text(BY_EFFECTIVE.get(key), value)
             for key, value in effective.items()}  # fmt: skip
    options = {name: OptionsForm.base_fields[name].label for name in OptionsForm.base_fields}
    return words | {str(label): value_text(None, columns["options"].get(name, False)) for name, label in options.items()}


def setting_words(kind: str, name: str, value: Any) -> tuple[str, str]:
    """A setting of a queue, exchange or policy in words; arguments and keys of policies by their names in RabbitMQ."""
    for prefix, keys in ((ARGUMENT, BY_ARGUMENT), (DEFINITION, BY_POLICY)):
        if name.startswith(prefix):
            own = name.removeprefix(prefix)
            key = keys.get(own)
            return (key.label if key else own), "none" if value is None else value_text(key, value)
    if name in OptionsForm.base_fields:
        return str(OptionsForm.base_fields[name].label), value_text(None, value)
    if name == "apply_to":
        return "Applies to", APPLY_TO.get(value, str(value))
    if name == "priority":
        return "Priority", f"{value:g}"
    return name.replace("_", " ").capitalize(), value_text(None, value)
