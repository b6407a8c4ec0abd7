"""What the pages of a virtual host show live: its queues, its connections, and both at a glance.

Connections and consumers leave no events, so these pages are looked at each second or two, once for all who see them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

from django.http import QueryDict
from django.template.loader import render_to_string

from broker_core import reads
from broker_core.common.types import Actor
from broker_core.reads import ClockReading, EntityRow
from explorer.rabbitmq import connections, queues, vhost
from explorer.rabbitmq.forms.topology import ListQuery
from explorer.rabbitmq.shared import matching
from explorer.shared.shell import May

from .frames import Element, Picture
from .watches import ShownOrder, Touched, Watch, cleaned, entity_looks

QUEUES_SECONDS = 2.0  # without any event: consumers come and go
CONNECTIONS_SECONDS = 1.0


class QueuesWatch(Watch):
    """A page of the list of queues. Sorted by what does not change, rows come and go one by one. Sorted by a number, new ones
    come last, until the list is fetched again in another order."""

    def __init__(self, page: str, actor: Actor, query: QueryDict, *, namespace: str):
        super().__init__(page, actor)
        self._vhost, self._query = namespace, cleaned(ListQuery(query, sorts=queues.SORTS))
        self._order: list[int] = []
        self._told = ShownOrder()
        self.least_seconds = CONNECTIONS_SECONDS / 2

    def look(self, old: Picture | None, touched: Touched | None) -> Picture:
        lines = queues.lines_of(self._vhost, self.actor)
        self._see([line.queue for line in lines])
        found = matching(lines, self._query["q"], lambda line: line.queue.address.path)
        by_id = {line.queue.id: line for line in queues.arrange(found, self._query["sort"])}
        first = ((self._query["page"] or 1) - 1) * queues.ROWS
        is_told = self._told.follow(list(by_id)[first : first + queues.ROWS])
        self._order = list(by_id) if self._is_steady or is_told else _kept(self._order, by_id)
        shown = [by_id[number] for number in self._order[first : first + queues.ROWS]]
        rows = {f"e-{line.queue.id}": Element(_queue_looks(line), partial(self._html, line)) for line in shown}
        stamp = None if self._is_steady else self._told.stamp
        return Picture(_clock_among(line.queue for line in lines), rows, stamp=stamp, ordered=True)

    @property
    def _is_steady(self) -> bool:
        return self._query["sort"].removeprefix("-") in ("", "name", "type")

    def _html(self, line: queues.QueueLine) -> str:
        return render_to_string("explorer/rabbitmq/_queue_row.html", {"line": line})

    def refresh_seconds(self, usual: float) -> float:
        return QUEUES_SECONDS


class ConnectionsWatch(Watch):
    """The list of connections. What may be done to one is drawn by the viewers' rights, which they share."""

    def __init__(self, page: str, actor: Actor, query: QueryDict, *, namespace: str):
        super().__init__(page, actor)
        self._vhost = namespace
        self.least_seconds = CONNECTIONS_SECONDS

    def look(self, old: Picture | None, touched: Touched | None) -> Picture:
        clock = reads.now(self._vhost, actor=self.actor)
        lines = connections.lines_of(self._vhost, self.actor)
        rows = {line.dom_id: Element(_connection_looks(line), partial(self._html, line, clock)) for line in lines}
        return Picture(clock, rows, ordered=True)

    def _html(self, line: connections.ConnectionLine, clock: ClockReading) -> str:
        context = {"line": line, "host": self._vhost, "clock": clock, "may": May(self.actor.rights)}
        return render_to_string("explorer/rabbitmq/_connection_row.html", context)

    def refresh_seconds(self, usual: float) -> float:
        return CONNECTIONS_SECONDS


class VhostWatch(Watch):
    """A virtual host at a glance: its numbers, and its fullest queues, which are fetched again when they are others."""

    def __init__(self, page: str, actor: Actor, query: QueryDict, *, namespace: str):
        super().__init__(page, actor)
        self._vhost = namespace
        self._order = ShownOrder()
        self.least_seconds = CONNECTIONS_SECONDS / 2

    def look(self, old: Picture | None, touched: Touched | None) -> Picture:
        found = reads.overview(self._vhost, include_hidden=True, actor=self.actor)
        self._see(found)
        self._order.follow([queue.id for queue in vhost.busiest(found)[: vhost.SHOWN]])
        shown = [queue for queue in found if queue.id in self._order.shown]
        rows = {f"e-{queue.id}": Element(entity_looks(queue), partial(self._html, queue)) for queue in shown}
        texts = {f"v-{figure.name}": figure.text for figure in vhost.figures(self._vhost, found, self.actor)}
        return Picture(_clock_among(found), rows, texts, self._order.stamp)

    def _html(self, queue: EntityRow) -> str:
        return render_to_string("explorer/rabbitmq/_glance_row.html", {"one": queue})

    def refresh_seconds(self, usual: float) -> float:
        return QUEUES_SECONDS


def _kept(order: Sequence[int], there: Iterable[int]) -> list[int]:
    """The order as it was, without those that are gone, and with new ones at its end."""
    there = dict.fromkeys(there)
    return list(dict.fromkeys([*(number for number in order if number in there), *there]))


def _clock_among(found: Iterable[EntityRow]) -> ClockReading | None:
    return next((queue.clock for queue in found), None)


def _queue_looks(line: queues.QueueLine) -> tuple:
    return entity_looks(line.queue), line.features, line.consumers, line.is_neglected


def _connection_looks(line: connections.ConnectionLine) -> tuple:
    """All but what is left of its lease, of which the page says only whether it is late."""
    same = replace(line.connection, lease_left=timedelta(0), lease_until=line.connection.opened_at)
    return same, line.consumers, line.held, line.is_silent
