"""The page of a queue, topic or subscription: settings, message lists, subscriptions, rules and sessions; bulk actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from broker_core import reads, service_bus
from broker_core.common.types import EntityKind, EventKind, Family
from broker_core.reads import EntityRow, Tab
from broker_core.service_bus import entities
from broker_core.service_bus.rules.entity_settings import FORWARDS, KEPT, SERVICE_NAMES
from explorer.charts.sparklines import SPARK_MINUTES, spark
from explorer.frames import timeline
from explorer.frames.deploys import recent_deploys
from explorer.frames.filtering import filter_of, list_context, status_of
from explorer.frames.forms.queries import HISTORY, ORDERS, RECEIVERS, RULES, SESSIONS, SUBSCRIPTIONS, EntityQuery
from explorer.frames.head import HEAD
from explorer.frames.history import history
from explorer.frames.lists import TabView, folded
from explorer.frames.presenters import plural
from explorer.frames.receivers import MOST_HELD, receivers_of
from explorer.frames.shell import BadQuery, May, about, address_of, cleaned, draws, page, show
from explorer.frames.vocabularies import SESSIONS as SESSION_WORDS
from explorer.frames.vocabulary import field_of
from explorer.live.page import HISTORY_SECONDS, live
from explorer.operations.presenters import offers
from explorer.pages import entity_page

from .head import head, source_words
from .idleness import shown_idleness
from .kept_properties import kept_of

LISTS = "explorer/service_bus/_messages.html"
_STAYING = (EventKind.SENT, EventKind.SCHEDULED, EventKind.RECEIVED, EventKind.RENEWED)
_TABS = (
    (SUBSCRIPTIONS, "subscriptions", "subscription"),
    ("all", "in the queue", "list"),
    ("active", "active", "active"),
    ("locked", "locked", "locked"),
    ("scheduled", "scheduled", "scheduled"),
    ("deferred", "deferred", "deferred"),
    ("dead-letter", "dead letters", "dead"),
    ("transfer-dead-letter", "transfer dead letters", "dead"),
    (SESSIONS, "sessions", "session"),
    (RULES, "rules", "rules"),
    (RECEIVERS, "receivers", "hand"),
    (HISTORY, "history", "gone"),
)
_TABS_OF = {
    EntityKind.QUEUE: {"all", "active", "locked", "scheduled", "deferred", "dead-letter", RECEIVERS, HISTORY},
    EntityKind.TOPIC: {SUBSCRIPTIONS, "scheduled", HISTORY},
    EntityKind.SUBSCRIPTION: {"all", "active", "locked", "deferred", "dead-letter", RULES, RECEIVERS, HISTORY},
}
LIST_OF_TAB = {"active": Tab.UNLOCKED}  # the lists that differ from their tab
DUE_ORDERS = [("", "next due first"), ("newest", "last due first")]


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    value: object
    source: str


@live
@page
@require_GET
def entity(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """The entity: its settings and one of its lists."""
    address = address_of(namespace, path)
    form = EntityQuery(request.GET)
    cleaned(form)
    entity = reads.entity(address, actor=request.actor)
    tab = form.cleaned_data["tab"] or first_tab(entity)
    if tab not in tabs_of(entity, tab):
        raise BadQuery([("tab", f"A {entity.kind} {'without sessions ' if tab == SESSIONS else ''}has no tab {tab}.")])
    context = {
        **about(request, entity),
        "form": form,
        "is_dead": tab in ("dead-letter", "transfer-dead-letter"),
        **entity_page.body(request, entity, LISTS, lambda as_board: _tabs_and_list(request, entity, form, tab, as_board)),
    }
    if draws(request, HEAD):
        context |= _head(request, entity, context["may"])
    live_entities = [entity, *(row for row, _ in context.get("subscriptions", ()))]
    seconds = HISTORY_SECONDS if tab in (HISTORY, SESSIONS, RECEIVERS) else 0.0
    word = timeline.leaving(Family.SERVICE_BUS, *_STAYING)
    parts = entity_page.live_parts(request, live_entities, context, list_seconds=seconds, word=word)
    return show(request, "entity", context, fragment="service_bus/_messages", status=status_of(context), live=parts)


def _head(request: HttpRequest, entity: EntityRow, may: May) -> dict:
    address, actor = entity.address, request.actor
    effective = entities.effective(address, actor=actor)
    points, deploys = reads.traffic(address, SPARK_MINUTES, actor=actor), recent_deploys(address.namespace)
    traffic = spark(points, completes=entity.holds_messages, deploys=deploys)
    forwards = any(name in effective and effective[name].value for name in FORWARDS)
    return {
        "settings": settings_of(effective, entity.kind),
        "kept": kept_of(entity.kind, effective[KEPT].value),
        "head": head(entity, may, effective, traffic),
        "forwarding_notes": entities.forwarding_notes(address, actor=actor) if forwards else [],
        "idleness": shown_idleness(entity, reads.idleness(address, actor=actor)),
    }


def _tabs_and_list(request: HttpRequest, entity: EntityRow, form: EntityQuery, tab: str, as_board: bool) -> dict:
    tabs = {"tabs": tab_views(entity, "" if as_board else tab), "tab": tab}
    return tabs if as_board else tabs | _listing(request, entity, form, tab)


def _listing(request: HttpRequest, entity: EntityRow, form: EntityQuery, tab: str) -> dict:
    values, actor = form.cleaned_data, request.actor
    cursor = values["cursor"] or None
    match tab:
        case "history":
            return history(request, entity, values["cursor"])
        case "receivers":
            locked = reads.list_messages(entity.address, Tab.LOCKED, limit=MOST_HELD, actor=actor)
            return {"receivers": receivers_of(entity, locked.rows, actor)}
        case "subscriptions":
            rows = reads.subscriptions(entity.address, actor=actor)
            rules = service_bus.rules_of([row.id for row in rows], actor=actor)
            return {"subscriptions": [(row, rules.get(row.id, [])) for row in rows]}
        case "rules":
            return {"rules": service_bus.rules_of([entity.id], actor=actor).get(entity.id, [])}
        case "sessions":
            field = field_of(request, SESSION_WORDS)
            part = " ".join(field.terms.words)
            return {"filter": field, "sessions": reads.sessions(entity.address, part=part, cursor=cursor, actor=actor)}
    narrowed, newest_first = filter_of(request, entity.clock.now), is_newest_first(tab, values["order"])
    orders = DUE_ORDERS if tab == Tab.SCHEDULED else ORDERS
    listing = list_context(
        request, entity, entity.address, list_of(tab), narrowed, order=values["order"], orders=orders, newest_first=newest_first,
        cursor=cursor,
    )  # fmt: skip
    return listing | ({} if narrowed.problem else offers(entity, tab, narrowed.text, actor=actor))


def list_of(tab: str) -> Tab:
    return LIST_OF_TAB.get(tab) or Tab(tab)


def is_newest_first(tab: str, order: str) -> bool:
    """The order of a list: the newest first, but of scheduled messages the one that is due next."""
    return order == "newest" if tab == Tab.SCHEDULED else order != "oldest"


def resubmitted(new_numbers: dict[int, int], requested: Sequence[int]) -> str:
    """The result of a resubmission in words, with the messages that were not resubmitted."""
    if len(new_numbers) == 1:
        [(old, new)] = new_numbers.items()
        text = f"Resubmitted message {old} as message {new}."
    elif new_numbers:
        text = f"Resubmitted {_messages(new_numbers)} to the end of the queue with new numbers."
    else:
        text = "No messages were resubmitted."
    skipped = [n for n in requested if n not in new_numbers]
    return text + (f" Not resubmitted: {', '.join(map(str, skipped))} (locked, or no longer in the queue)." if skipped else "")


def _messages(numbers) -> str:
    return f"{plural(len(numbers), 'message')}"


def first_tab(entity: EntityRow) -> str:
    return SUBSCRIPTIONS if entity.kind == EntityKind.TOPIC else str(Tab.ALL)


def tabs_of(entity: EntityRow, selected: str) -> set[str]:
    """The tabs of an entity. Those that are usually empty are shown only if they have messages or are selected."""
    counts = entity.counts
    tabs = set(_TABS_OF[entity.kind]) | ({SESSIONS} if entity.requires_session else set())
    unusual = {"scheduled": counts.scheduled, "transfer-dead-letter": counts.transfer_dead_letter}
    return tabs | {tab for tab, count in unusual.items() if count or tab == selected}


def tab_views(entity: EntityRow, selected: str) -> list[TabView]:
    """The tabs with their counts."""
    counts, visible = entity.counts, tabs_of(entity, selected)
    numbers = {
        "all": counts.active + counts.deferred + counts.scheduled,
        "active": counts.active - counts.locked, "locked": counts.locked,
        "scheduled": counts.scheduled, "deferred": counts.deferred, "dead-letter": counts.dead_letter,
        "transfer-dead-letter": counts.transfer_dead_letter, SUBSCRIPTIONS: entity.subscriptions, RULES: entity.rules,
    }  # fmt: skip
    own = {"all": f"in the {entity.kind}"}
    return folded(
        [
            TabView(slug, own.get(slug, word), hue, numbers.get(slug), slug == selected, slug in (RECEIVERS, HISTORY))
            for slug, word, hue in _TABS
            if slug in visible
        ]
    )


def settings_of(effective: Mapping[str, tuple[object, str]], kind: EntityKind) -> list[Setting]:
    """The settings by their Azure names, with the source of each value."""
    shown = {name: setting for name, setting in effective.items() if name != KEPT}
    return [Setting(SERVICE_NAMES[name], value, source_words(source, kind)) for name, (value, source) in shown.items()]
