"""What each kind of page shows live, read through broker_core.reads and drawn with the page's own templates.

A watch is named by the page's address and the rights of who looks: viewers with both equal share it. It works in the feed's
thread alone.
"""

from __future__ import annotations

import hashlib
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from django.http import QueryDict
from django.template.loader import render_to_string

from broker_core import namespaces, queue_storage, reads, service_bus
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress, EventKind, Family, HistoryLevel
from broker_core.queue_storage.reading import queue_facts
from broker_core.reads import Capped, ClockReading, EntityRow, MessageRow, Tab
from broker_core.service_bus.rules.filters import rule_to_json
from explorer.queue_storage import counts as storage_counts
from explorer.queue_storage import lists as storage_lists
from explorer.queue_storage import receiver as storage_receiver
from explorer.queue_storage import rows as storage_rows
from explorer.service_bus import entity as entity_page
from explorer.service_bus import receiver
from explorer.shared import clocks, figures, overview, presenters, timeline
from explorer.shared.figures import Figure
from explorer.shared.forms.queries import (
    HISTORY,
    MESSAGE_TABS,
    RULES,
    SESSIONS,
    SUBSCRIPTIONS,
    EntityQuery,
    OverviewQuery,
    StorageQuery,
)
from explorer.shared.shell import address_of

from .frames import Element, Picture

Touched = Mapping[int, Mapping[int, EventKind]]
HISTORY_SECONDS = 2.0  # between two looks at what left a queue
_STAYING = (EventKind.SENT, EventKind.SCHEDULED, EventKind.RECEIVED, EventKind.RENEWED)
RABBIT_SECONDS = 1.0  # between two looks at a RabbitMQ queue
FOLLOW_SECONDS = 3.0  # between two tellings that a list is in another order
SHORTEST_WAIT = 0.2  # for an instant that passes
BLIND_SECONDS = 1.0  # between looks where history is not full, so that events do not tell of all changes
# In the place of what differs at each look, so that looks can be compared.
_ANY_TIME = datetime.min.replace(tzinfo=UTC)
_ANY_CLOCK = ClockReading(_ANY_TIME, _ANY_TIME, 0, is_manual=False)


class Watch(ABC):
    """A page as one audience sees it.

    entity_ids:    those whose events concern it, known after the first look.
    least_seconds: it is not looked at more often than that.
    """

    def __init__(self, page: str, actor: Actor, audience: str = ""):
        self.actor = actor
        self.group = "live." + hashlib.sha256(f"{actor.rights.value} {audience} {page}".encode()).hexdigest()[:40]
        self.entity_ids: set[int] = set()
        self.least_seconds = 0.0
        self._blind = False
        self._due_in = math.inf
        self._born = time.time_ns()  # so that stamps of another process's life differ

    @abstractmethod
    def look(self, old: Picture | None, touched: Touched | None) -> Picture:
        """The page as it is now. touched: what happened since `old`, so that the rest need not be read again; None: read all."""

    def concerns(self, touched: Touched) -> bool:
        """Whether these events can change the page."""
        return bool(touched)

    def fates(self, touched: Touched) -> dict[str, str]:
        """What became of messages, in a word, by the ids of their rows."""
        return {}

    def refresh_seconds(self, usual: float) -> float:
        """How long without news the page may go unread: no longer than until an instant passes that changes it."""
        return min(BLIND_SECONDS if self._blind else usual, self._due_in)

    def _see(self, entities: Iterable[EntityRow]) -> None:
        entities = list(entities)
        self.entity_ids = {entity.id for entity in entities}
        self._blind = any(entity.history_level < HistoryLevel.FULL or entity.clock.is_manual for entity in entities)

    def _await(self, instants: Iterable[datetime | None], clock: ClockReading) -> None:
        """Look again when the first of these instants has passed, and not later than usual."""
        ahead = min(((at - clock.now).total_seconds() for at in instants if at is not None), default=math.inf)
        self._due_in = max(ahead / clock.rate, SHORTEST_WAIT) if clock.rate else math.inf


class ShownOrder:
    """Which rows a page shows, in which order. Where that changes the page fetches its list again, not more often than every
    FOLLOW_SECONDS, so that rows do not turn about under the reader's eyes.

    shown: ids of rows that viewers may have, those who have not fetched it again yet, too.
    """

    def __init__(self) -> None:
        self.shown: set[int] = set()
        self._ids: list[int] = []
        self._changed_at = -math.inf

    def follow(self, ids: list[int]) -> bool:
        """Whether this is told as the order from now on."""
        if ids == self._ids or time.monotonic() - self._changed_at < FOLLOW_SECONDS:
            return False
        self.shown = {*self._ids, *ids}
        self._ids, self._changed_at = ids, time.monotonic()
        return True

    @property
    def stamp(self) -> str:
        return presenters.order_stamp(self._ids)


class OverviewWatch(Watch):
    """The table of entities: changed rows in place, totals. It is fetched again when other entities stand there, or in another
    order."""

    def __init__(self, page: str, actor: Actor, query: QueryDict, *, namespace: str | None = None):
        super().__init__(page, actor)
        self._namespace, self._query = namespace, cleaned(OverviewQuery(query))
        self._rows: dict[int, EntityRow] = {}
        self._order = ShownOrder()
        self._beneath: set[int] = set()
        self._figures: tuple[Figure, ...] = ()

    def look(self, old: Picture | None, touched: Touched | None) -> Picture:
        if touched is None:
            self._read_all()
        else:
            self._rows |= {row.id: row for row in reads.overview_of(touched, actor=self.actor)}
        matching = [*self._rows.values()]
        shown = (row for row in matching if row.id in self._order.shown)
        html = partial(_entity_html, self._figures)
        rows = {f"e-{row.id}": Element(entity_looks(row), partial(html, row, row.id in self._beneath)) for row in shown}
        texts = {f"t-{one.name}": one.text for one in overview.totals(matching, self._figures)}
        return Picture(self._clock(), rows, texts, self._order.stamp)

    def _read_all(self) -> None:
        namespaces = reads.namespaces(actor=self.actor)
        found = reads.overview(self._namespace, include_hidden=self._query["all"], actor=self.actor)
        if not self._query["all"]:
            found = overview.without_system(found, namespaces, self._namespace)
        self._see(found)
        matching = overview.arrange(found, self._query)
        here = next((n for n in namespaces if self._namespace and n.name.lower() == self._namespace.lower()), None)
        self._figures = overview.figures_of(here, matching)
        first = ((self._query["page"] or 1) - 1) * overview.ROWS
        shown = matching[first : first + overview.ROWS]
        self._rows = {row.id: row for row in matching}
        self._order.follow([row.id for row in shown])
        self._beneath |= overview.beneath(shown, self._query["sort"])

    def _clock(self) -> reads.ClockReading | None:
        return next((row.clock for row in self._rows.values()), None) if self._namespace else None

    def concerns(self, touched: Touched) -> bool:
        return not self._rows.keys().isdisjoint(touched)

    def refresh_seconds(self, usual: float) -> float:
        return usual


class EntityWatch(Watch):
    """An entity's counts, and a page of one of its lists. A filtered list is searched once: what it found is kept up to date."""

    def __init__(self, page: str, actor: Actor, query: QueryDict, *, namespace: str, path: str):
        super().__init__(page, actor)
        form = EntityQuery(query)
        self._values = cleaned(form)
        self._filter = form.message_filter()
        self._tab = self._values["tab"]
        self._address = address_of(namespace, path)
        self._entity_id = 0
        self._found: list[int] | None = None
        self._left = 0
        self.least_seconds = HISTORY_SECONDS if self._tab in (HISTORY, SESSIONS) else 0.0

    def look(self, old: Picture | None, touched: Touched | None) -> Picture:
        entity = reads.entity(self._address, actor=self.actor)
        self._see([entity])
        self._entity_id = entity.id
        tab = self._tab or entity_page.first_tab(entity)
        texts = _entity_texts(entity) | _next_change(entity, self.actor)
        if tab == SUBSCRIPTIONS:
            return Picture(entity.clock, self._subscriptions(entity), texts)
        if tab not in MESSAGE_TABS:
            return Picture(entity.clock, texts=texts, stamp=self._stamp(tab, touched))
        rows, onward = self._messages(tab)
        html = partial(self._message_html, tab, entity)
        elements = {row.dom_id: Element(_message_looks(row), partial(html, row)) for row in rows}
        self._await((row.deadline for row in rows), entity.clock)
        return Picture(entity.clock, elements, texts, None, not self._filter, onward)

    def _subscriptions(self, topic: EntityRow) -> dict[str, Element]:
        found = reads.subscriptions(self._address, actor=self.actor)
        self._see([topic, *found])
        rules = service_bus.rules_of([row.id for row in found], actor=self.actor)
        return {f"e-{row.id}": self._subscription(row, rules.get(row.id, [])) for row in found}

    def _subscription(self, row: EntityRow, rules: list[service_bus.RuleRow]) -> Element:
        looks = entity_looks(row), [rule_to_json(one.rule) for one in rules]
        return Element(looks, partial(_subscription_html, row, rules))

    def _stamp(self, tab: str, touched: Touched | None) -> str:
        """Another one where the list is to be fetched again."""
        if tab == HISTORY:
            return self._history_stamp(touched)
        if tab == RULES:
            rules = service_bus.rules_of([self._entity_id], actor=self.actor).get(self._entity_id, [])
            return f"{self._born}-{[rule_to_json(one.rule) for one in rules]}"
        page = reads.sessions(
            self._address, part=self._values["session"], cursor=self._values["cursor"] or None, actor=self.actor
        )
        return f"{self._born}-{[replace(row, read_at=_ANY_TIME) for row in page.rows]}"

    def _history_stamp(self, touched: Touched | None) -> str:
        if touched and any(kind.is_terminal for kind in touched.get(self._entity_id, {}).values()):
            self._left += 1
        return f"{self._born}-{self._left}"

    def _messages(self, name: str) -> tuple[Iterable[MessageRow], str | None]:
        """The list's rows, and the cursor of its next page."""
        tab = Tab(name)
        if self._filter and self._found is not None:
            rows = reads.messages_by_number(self._entity_id, self._found, actor=self.actor)
            return [row for row in rows if (row.subqueue, row.state) == (tab.subqueue, tab.state)], None
        page = reads.list_messages(
            self._address,
            tab,
            filter=self._filter,
            cursor=self._values["cursor"] or None,
            newest_first=self._values["order"] != "oldest",
            actor=self.actor,
        )
        self._found = [row.sequence_number for row in page.rows]
        return page.rows, page.next_cursor

    def _message_html(self, tab: str, entity: EntityRow, row: MessageRow) -> str:
        context = {"row": row, "bulk_action": entity_page.BULK.get(tab), "with_session": entity.requires_session}
        return render_to_string("explorer/service_bus/_message_row.html", context)

    def fates(self, touched: Touched) -> dict[str, str]:
        tab = self._tab or Tab.ACTIVE
        if tab not in MESSAGE_TABS:
            return {}
        subqueue = int(Tab(tab).subqueue)
        happened = touched.get(self._entity_id, {})
        return {f"m-{self._entity_id}-{subqueue}-{number}": word_for(kind) for number, kind in happened.items()}


class StorageQueueWatch(Watch):
    """A storage queue's counts, and a page of one of its lists. A filtered list is searched once, as an EntityWatch does."""

    def __init__(self, page: str, actor: Actor, query: QueryDict, *, namespace: str, path: str):
        super().__init__(page, actor)
        self._form = StorageQuery(query, tabs=storage_lists.SLUGS)
        self._tab = cleaned(self._form)["tab"] or storage_lists.FIRST
        self._address = address_of(namespace, path)
        self._entity_id = 0
        self._found: list[int] | None = None
        self._left = 0
        self._origin: tuple[EntityAddress | None] | None = None  # known after the first look
        self.least_seconds = HISTORY_SECONDS if self._tab == HISTORY else 0.0

    def look(self, old: Picture | None, touched: Touched | None) -> Picture:
        entity = reads.entity(self._address, actor=self.actor)
        self._see([entity])
        self._entity_id = entity.id
        texts = _texts(entity, storage_lists.tab_views(entity, self._tab)) | _next_change(entity, self.actor)
        if not entity.expired_pending.capped:
            texts[f"c-{entity.id}-wire"] = f"{storage_counts.total(entity):,}"
        if self._tab == HISTORY:
            return Picture(entity.clock, texts=texts, stamp=self._stamp(touched))
        rows, onward = self._messages()
        context = {"facts": queue_facts(entity.address.path, entity.options), **self._origins(entity, rows)}
        elements = {row.dom_id: Element(_storage_looks(row, context), partial(_storage_html, row, context)) for row in rows}
        self._await((row.deadline for row in rows), entity.clock)
        return Picture(entity.clock, elements, texts, None, not self._form.narrows, onward)

    def _origins(self, entity: EntityRow, rows: Iterable[MessageRow]) -> dict:
        """For a poison queue: which queue's, and where each of its messages came from."""
        if self._origin is None:
            self._origin = (storage_lists.origin_address(entity.address, self.actor),)
        [origin] = self._origin
        numbers = [row.sequence_number for row in rows]
        found = queue_storage.came_from(entity.address, numbers, actor=self.actor) if origin else {}
        return {"origin": origin, "came_from": found}

    def _stamp(self, touched: Touched | None) -> str:
        if touched and any(kind.is_terminal for kind in touched.get(self._entity_id, {}).values()):
            self._left += 1
        return f"{self._born}-{self._left}"

    def _messages(self) -> tuple[Iterable[MessageRow], str | None]:
        if self._form.narrows and self._found is not None:
            rows = reads.messages_by_number(self._entity_id, self._found, actor=self.actor)
            return [row for row in rows if storage_lists.has(self._tab, row)], None
        page = storage_lists.read(self._address, self._form, self.actor)
        self._found = [row.sequence_number for row in page.rows]
        return page.rows, page.next_cursor

    def fates(self, touched: Touched) -> dict[str, str]:
        happened = touched.get(self._entity_id, {})
        word = partial(timeline.words, family=Family.QUEUE_STORAGE)
        return {f"m-{self._entity_id}-0-{number}": word(kind).word for number, kind in happened.items() if kind != EventKind.SENT}


class RabbitQueueWatch(Watch):
    """A RabbitMQ queue: counts are told, lists fetched again when something happened, for they show more than rows."""

    def __init__(self, page: str, actor: Actor, query: QueryDict, *, namespace: str, path: str):
        super().__init__(page, actor)
        self._address = address_of(namespace, path)
        self._looks = 0
        self._counts: object = None
        self.least_seconds = RABBIT_SECONDS

    def look(self, old: Picture | None, touched: Touched | None) -> Picture:
        entity = reads.entity(self._address, actor=self.actor)
        self._see([entity])
        counts = replace(entity.counts, read_at=None), entity.expired_pending, entity.options, entity.effective
        if touched or counts != self._counts:
            self._counts, self._looks = counts, self._looks + 1
        ready = entity.counts.active - entity.counts.locked
        told = {
            "messages": entity.counts.active,
            "ready": ready,
            "unacked": entity.counts.locked,
            "expired": entity.expired_pending,
        }
        texts = (
            _texts(entity, ())
            | _next_change(entity, self.actor)
            | {f"c-{entity.id}-{name}": str(Capped(n) if isinstance(n, int) else n) for name, n in told.items()}
        )
        return Picture(entity.clock, texts=texts, stamp=f"{self._born}-{self._looks}")


class MessageWatch(Watch):
    """A message's page. It is drawn for one person (forms, body), so it is fetched again when the message has changed."""

    def __init__(self, page: str, actor: Actor, query: QueryDict, *, namespace: str, path: str, sequence_number: int):
        super().__init__(page, actor)
        self._address, self._number = address_of(namespace, path), sequence_number
        self._looks = 0
        self._display_state: object = None

    def look(self, old: Picture | None, touched: Touched | None) -> Picture:
        entity = reads.entity(self._address, actor=self.actor)
        self._see([entity])
        found = reads.messages_by_number(entity.id, [self._number], actor=self.actor)
        self._await((row.deadline for row in found), entity.clock)
        display_state = [_message_looks(row) for row in found]
        if touched is not None or display_state != self._display_state:
            self._display_state, self._looks = display_state, self._looks + 1
        return Picture(entity.clock, stamp=f"{self._born}-{self._looks}")

    def concerns(self, touched: Touched) -> bool:
        return any(self._number in numbers for numbers in touched.values())


class ReceiverWatch(Watch):
    """The hand-operated receiver: fetched again when a lock of this person began, was renewed or ended."""

    def __init__(self, page: str, actor: Actor, query: QueryDict, *, subqueue: str, namespace: str, path: str):
        super().__init__(page, actor, actor.holder_label)
        self._address = address_of(namespace, path, subqueue)

    def look(self, old: Picture | None, touched: Touched | None) -> Picture:
        entity = reads.entity(self._address, actor=self.actor)
        self._see([entity])
        held: list[tuple] = [(one.row.sequence_number, one.row.locked_until) for one in receiver.held(self._address, self.actor)]
        if entity.requires_session:
            rows = reads.sessions(self._address, holder=self.actor.holder_label, actor=self.actor).rows
            held += [(row.session_id, row.locked_until, row.state_updated_at) for row in rows]
        available = receiver.available(entity, self._address.subqueue)
        texts = _entity_texts(entity) | {"available": _plural(available)}
        return Picture(entity.clock, texts=texts, stamp=f"{self._born}-{held}")


class StorageReceiverWatch(Watch):
    """Getting by hand: fetched again when a receipt of this person began to count, or ended."""

    def __init__(self, page: str, actor: Actor, query: QueryDict, *, subqueue: str, namespace: str, path: str):
        super().__init__(page, actor, actor.holder_label)
        self._address = address_of(namespace, path)

    def look(self, old: Picture | None, touched: Touched | None) -> Picture:
        entity = reads.entity(self._address, actor=self.actor)
        self._see([entity])
        rows = [one.row for one in storage_receiver.got(entity.address, self.actor)]
        self._await((row.deadline for row in rows), entity.clock)
        held = [(row.sequence_number, row.lock_token, row.display_state) for row in rows]
        texts = _texts(entity, ()) | {"available": _plural(figures.at_hand(entity))}
        return Picture(entity.clock, texts=texts, stamp=f"{self._born}-{held}")


class ByFamily(Watch):
    """A page that differs by the namespace's family, which the first look finds out."""

    of_family: Mapping[Family, Callable[..., Watch]] = {}

    def __init__(self, page: str, actor: Actor, query: QueryDict, *, namespace: str, **parts: str):
        super().__init__(page, actor, actor.holder_label if "subqueue" in parts else "")
        self._namespace = namespace
        self._make = partial(self._made, page, query, parts)
        self._inner: Watch | None = None

    def _made(self, page: str, query: QueryDict, parts: dict) -> Watch:
        family = namespaces.get_namespace(self._namespace, actor=self.actor).family
        if family not in self.of_family:
            raise InvalidArgument("page", f"{page!r} has no live updates")
        return self.of_family[family](page, self.actor, query, namespace=self._namespace, **parts)

    def look(self, old: Picture | None, touched: Touched | None) -> Picture:
        self._inner = self._inner or self._make()
        picture = self._inner.look(old, touched)
        self.entity_ids, self.least_seconds = self._inner.entity_ids, self._inner.least_seconds
        return picture

    def concerns(self, touched: Touched) -> bool:
        return self._inner is None or self._inner.concerns(touched)

    def fates(self, touched: Touched) -> dict[str, str]:
        return self._inner.fates(touched) if self._inner else {}

    def refresh_seconds(self, usual: float) -> float:
        return self._inner.refresh_seconds(usual) if self._inner else usual


class AnyEntityWatch(ByFamily):
    of_family = {
        Family.SERVICE_BUS: EntityWatch,
        Family.QUEUE_STORAGE: StorageQueueWatch,
        Family.RABBITMQ: RabbitQueueWatch,
    }


class AnyReceiverWatch(ByFamily):
    of_family = {Family.SERVICE_BUS: ReceiverWatch, Family.QUEUE_STORAGE: StorageReceiverWatch}


def word_for(kind: EventKind) -> str:
    """What happened, in a word for a row that leaves its list; empty where that is no reason to leave."""
    return "" if kind in _STAYING else timeline.words(kind).word


def cleaned(form) -> dict:
    if not form.is_valid():
        raise InvalidArgument("page", "; ".join(f"{name}: {' '.join(errors)}" for name, errors in form.errors.items()))
    return form.cleaned_data


def entity_looks(row: EntityRow) -> tuple:
    rates = (presenters.rate(row.sent_rate), presenters.rate(row.completed_rate))
    counts = replace(row.counts, read_at=None)
    bare = replace(row, clock=_ANY_CLOCK, counts=counts, sent_rate=0, completed_rate=0, last_receive_at=None)
    return bare, rates, presenters.is_neglected(row), presenters.consuming(row)


def _entity_html(figures: tuple[Figure, ...], row: EntityRow, beneath: bool) -> str:
    return render_to_string("explorer/_entity_row.html", {"entity": row, "beneath": beneath, "figures": figures})


def _subscription_html(row: EntityRow, rules: list[service_bus.RuleRow]) -> str:
    return render_to_string("explorer/service_bus/_subscription_row.html", {"entity": row, "rules": rules})


def _storage_looks(row: MessageRow, context: Mapping) -> tuple:
    return _message_looks(row), storage_rows.shown(row, context["facts"]).flags


def _storage_html(row: MessageRow, context: Mapping) -> str:
    return render_to_string("explorer/queue_storage/_row.html", {"row": row, **context})


def _next_change(entity: EntityRow, actor: Actor) -> dict[str, str]:
    """What the clock changes next, for who steps it."""
    return {"clock-next": clocks.next_words(entity.address, entity.clock, actor)} if entity.clock.is_manual else {}


def _plural(count: int) -> str:
    return f"{count:,} message{'' if count == 1 else 's'}"


def _message_looks(row: MessageRow) -> tuple:
    return replace(row, read_at=_ANY_TIME), row.display_state


def _entity_texts(entity: EntityRow) -> dict[str, str]:
    return _texts(entity, entity_page.tab_views(entity, ""))


def _texts(entity: EntityRow, views: Iterable[entity_page.TabView]) -> dict[str, str]:
    tabs = {view.slug: view.text for view in views if view.count is not None}
    others = {
        "sent": presenters.rate(entity.sent_rate),
        "completed": presenters.rate(entity.completed_rate),
        "receivers": presenters.consuming(entity),
    }
    return {f"c-{entity.id}-{name}": text for name, text in (tabs | others).items()}
