"""The page of a queue, topic or subscription: settings, message lists, subscriptions, rules and sessions; bulk actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from broker_core import reads, service_bus
from broker_core.common.durations import human
from broker_core.common.types import EntityKind, EventKind, Family
from broker_core.reads import EntityRow, Tab
from broker_core.service_bus import entities
from broker_core.service_bus.rules.entity_settings import SERVICE_NAMES
from explorer.live.page import FILTERED_SECONDS, HEAD_SECONDS, HISTORY_SECONDS, Live, live, refresh_seconds
from explorer.operations.presenters import offers
from explorer.shared import split, timeline
from explorer.shared.filtering import filter_of, listed, status_of
from explorer.shared.forms.queries import HISTORY, ORDERS, RULES, SESSIONS, SUBSCRIPTIONS, EntityQuery
from explorer.shared.glance import TRAFFIC_MINUTES, Glance, spark
from explorer.shared.lists import TabView
from explorer.shared.presenters import plural
from explorer.shared.shell import (
    BadQuery,
    about,
    address_of,
    cleaned,
    draws,
    page,
    show,
)

HEAD = "explorer/service_bus/entity.html#head"
_STAYING = (EventKind.SENT, EventKind.SCHEDULED, EventKind.RECEIVED, EventKind.RENEWED)
_TABS = (
    (SUBSCRIPTIONS, "subscriptions", "subscription"),
    ("active", "active", "active"),
    ("locked", "locked", "locked"),
    ("scheduled", "scheduled", "scheduled"),
    ("deferred", "deferred", "deferred"),
    ("dead-letter", "dead letters", "dead"),
    ("transfer-dead-letter", "transfer dead letters", "dead"),
    (SESSIONS, "sessions", "session"),
    (RULES, "rules", "rules"),
    (HISTORY, "history", "gone"),
)
_TABS_OF = {
    EntityKind.QUEUE: {"active", "locked", "scheduled", "deferred", "dead-letter", HISTORY},
    EntityKind.TOPIC: {SUBSCRIPTIONS, "scheduled", HISTORY},
    EntityKind.SUBSCRIPTION: {"active", "locked", "deferred", "dead-letter", RULES, HISTORY},
}
_SOURCES = {"default": "default", "entity": "set on this {}"}


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
        "tabs": tab_views(entity, tab),
        "tab": tab,
        "form": form,
        **_listing(request, entity, form, tab),
        **split.context(request, entity.address),
    }
    if draws(request, HEAD):
        effective = entities.effective(address, actor=request.actor)
        context |= {
            "settings": settings_of(effective, entity.kind),
            "glance": at_a_glance(effective, entity.kind),
            "spark": spark(reads.traffic(address, TRAFFIC_MINUTES, actor=request.actor), completes=entity.holds_messages),
        }
    return show(
        request,
        "service_bus/entity",
        context,
        fragment="service_bus/_messages",
        status=status_of(context),
        live=_live(request, entity, tab, context),
    )


def _live(request: HttpRequest, entity: EntityRow, tab: str, context: dict) -> Live:
    shown = [entity, *(row for row, _ in context.get("subscriptions", ()))]
    slow = FILTERED_SECONDS if context.get("filtered") else HISTORY_SECONDS if tab in (HISTORY, SESSIONS) else 0.0
    return Live(
        {HEAD: HEAD_SECONDS, "explorer/service_bus/_messages.html": slow, **split.fragments(request)},
        entities=shown,
        refresh_seconds=refresh_seconds(shown),
        personal=bool(request.GET.get("m")),
        word=timeline.leaving(Family.SERVICE_BUS, *_STAYING),
    )


def _listing(request: HttpRequest, entity: EntityRow, form: EntityQuery, tab: str) -> dict:
    values, actor = form.cleaned_data, request.actor
    cursor = values["cursor"] or None
    match tab:
        case "history":
            return {"events": reads.gone(entity.address, cursor=cursor, actor=actor), "filtered": False}
        case "subscriptions":
            rows = reads.subscriptions(entity.address, actor=actor)
            rules = service_bus.rules_of([row.id for row in rows], actor=actor)
            return {"subscriptions": [(row, rules.get(row.id, [])) for row in rows]}
        case "rules":
            return {"rules": service_bus.rules_of([entity.id], actor=actor).get(entity.id, [])}
        case "sessions":
            return {"sessions": reads.sessions(entity.address, part=values["session"], cursor=cursor, actor=actor)}
    narrowed = filter_of(request, entity.clock.now)
    return {
        **listed(request, entity.address, Tab(tab), narrowed, newest_first=values["order"] != "oldest", cursor=cursor),
        **({} if narrowed.problem else offers(entity, tab, narrowed.text, actor=actor)),
        "orders": ORDERS,
        "order": values["order"],
    }


def resubmitted(new_numbers: dict[int, int], asked: Sequence[int]) -> str:
    """The result of a resubmission in words, with the messages that were not resubmitted."""
    if len(new_numbers) == 1:
        [(old, new)] = new_numbers.items()
        said = f"Resubmitted message {old} as message {new}."
    elif new_numbers:
        said = f"Resubmitted {_messages(new_numbers)} to the end of the queue with new numbers."
    else:
        said = "No messages were resubmitted."
    left = [n for n in asked if n not in new_numbers]
    return said + (f" Not resubmitted: {', '.join(map(str, left))} (locked, or no longer in the queue)." if left else "")


def _messages(numbers) -> str:
    return f"{plural(len(numbers), 'message')}"


def first_tab(entity: EntityRow) -> str:
    return SUBSCRIPTIONS if entity.kind == EntityKind.TOPIC else "active"


def tabs_of(entity: EntityRow, selected: str) -> set[str]:
    """The tabs of an entity. Those that are usually empty are shown only if they have messages or are selected."""
    counts = entity.counts
    found = set(_TABS_OF[entity.kind]) | ({SESSIONS} if entity.requires_session else set())
    unusual = {"scheduled": counts.scheduled, "transfer-dead-letter": counts.transfer_dead_letter}
    return found | {tab for tab, count in unusual.items() if count or tab == selected}


def tab_views(entity: EntityRow, selected: str) -> list[TabView]:
    """The tabs with their counts."""
    counts, here = entity.counts, tabs_of(entity, selected)
    numbers = {
        "active": counts.active, "locked": counts.locked, "scheduled": counts.scheduled, "deferred": counts.deferred,
        "dead-letter": counts.dead_letter, "transfer-dead-letter": counts.transfer_dead_letter,
        SUBSCRIPTIONS: entity.subscriptions, RULES: entity.rules,
    }  # fmt: skip
    return [TabView(slug, word, hue, numbers.get(slug), slug == selected) for slug, word, hue in _TABS if slug in here]


def settings_of(effective: Mapping[str, tuple[object, str]], kind: EntityKind) -> list[Setting]:
    """The settings by their Azure names, with the source of each value."""
    return [Setting(SERVICE_NAMES[name], value, _source(source, kind)) for name, (value, source) in effective.items()]


def at_a_glance(effective: Mapping[str, tuple[object, str]], kind: EntityKind) -> list[Glance]:
    """The most important settings of this kind of entity."""
    shown = {
        "lock_duration": ("Lock", human),
        "max_delivery_count": ("Max deliveries", lambda count: f"{count:,}"),
        "default_message_time_to_live": ("Time-to-live", human),
        "dead_lettering_on_message_expiration": ("Expired messages", lambda kept: "dead-lettered" if kept else "dropped"),
        "requires_duplicate_detection": ("Duplicate detection", lambda found: "on" if found else "off"),
    }
    return [
        Glance(SERVICE_NAMES[name], word, in_words(effective[name][0]), _source(effective[name][1], kind))
        for name, (word, in_words) in shown.items()
        if name in effective and (name != "requires_duplicate_detection" or effective[name][0] or kind == EntityKind.TOPIC)
    ]


def _source(source: str, kind: EntityKind) -> str:
    return _SOURCES.get(source, source).format(kind)
