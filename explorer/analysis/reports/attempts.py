"""What reports about deliveries ("attempts") share: the words of their ends, the band of a share, and a Gantt chart. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from broker_core.common.types import EventKind
from explorer.charts.chart import WIDTHS
from explorer.charts.labels import brief
from explorer.charts.rows import gantt
from explorer.frames.actors import shown_actor
from explorer.frames.presenters import actor_name
from explorer.frames.timeline import words

from ..survival import FEWEST, Z95
from .report import Column, Figure, Link, Section
from .scope import Scope

NAMES = {  # CSS names of the ways in which a delivery ends
    kind: kind.name.lower()
    for kind in (
        EventKind.COMPLETED, EventKind.RECEIVED_AND_DELETED, EventKind.ABANDONED, EventKind.LOCK_LOST, EventKind.RELEASED,
        EventKind.DEFERRED, EventKind.DEAD_LETTERED, EventKind.EXPIRED, EventKind.DROPPED, EventKind.MOVED,
    )
}  # fmt: skip
MESSAGES = (
    Column("message", "Message", "text"),
    Column("queue", "Queue"),
    Column("deliveries", "Deliveries", "count"),
    Column("failed", "Not successful", "count"),
    Column("lost", "Locks lost", "count"),
    Column("first", "First received, UTC", "instant"),
    Column("end", "Last delivery ended as"),
)


def wilson(count: int, of: int, z: float = Z95) -> tuple[float, float]:
    """The band of a share, by default with 95 % (Wilson's score interval)."""
    if not of:
        return 0.0, 1.0
    share = count / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    spread = z / (1 + z * z / of) * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return max(0.0, middle - spread), min(1.0, middle + spread)


def margin(count: int, of: int, others: int, of_others: int, z: float = Z95) -> float:
    """By how much the band of a share is above that of the others; negative: it is not, or one of both is of too few."""
    if min(of, of_others) < FEWEST:
        return -1.0
    return wilson(count, of, z)[0] - wilson(others, of_others, z)[1]


def receiver_name(actor: str | None) -> str:
    """Who received, for people. Empty or None: unknown."""
    return actor_name(actor) if actor else "an unknown receiver"


def receiver_link(actor: str | None) -> Link | str:
    """The name, which leads to the receiver's page."""
    return Link(receiver_name(actor), shown_actor(actor).url) if actor else receiver_name(actor)


def messages_section(scope: Scope, deliveries: Iterable[Any], title: str) -> Section:
    """The deliveries of messages as a Gantt chart, with its table. deliveries: rows as jobs.reports.locks.worst makes them."""
    in_order = sorted(
        deliveries, key=lambda delivery: (delivery.entity_id, delivery.sequence_number, delivery.received_at, delivery.ended_at)
    )
    each = [list(rows) for _, rows in groupby(in_order, key=lambda delivery: (delivery.entity_id, delivery.sequence_number))]
    each.sort(key=lambda rows: (-sum(not delivery.well for delivery in rows), rows[0].entity_id, rows[0].sequence_number))
    ends = {kind: words(kind, scope.namespace.family).word for kind in NAMES}
    drawn = [(f"#{rows[0].sequence_number}", [_bar(delivery, rows[0].received_at, ends) for delivery in rows]) for rows in each]
    outcomes = {delivery.outcome for delivery in in_order}
    figure = Figure(
        title, [gantt(drawn, width) for width in WIDTHS], "gantt", "by time since the first delivery",
        [(name, ends[kind]) for kind, name in NAMES.items() if kind in outcomes],
    )  # fmt: skip
    data = [_row(scope, rows, ends) for rows in each]
    return Section.with_table("messages", title, MESSAGES, data, figures=[figure])


def _row(scope: Scope, rows: Sequence[Any], ends: Mapping[EventKind, str]) -> tuple[Any, ...]:
    first, last = rows[0], rows[-1]
    link = Link(f"#{first.sequence_number}", scope.message_url(first.entity_id, first.sequence_number))
    failed, lost = sum(not delivery.well for delivery in rows), sum(delivery.lost for delivery in rows)
    return link, scope.paths[first.entity_id], len(rows), failed, lost, first.received_at, ends.get(last.outcome, "other")


def _bar(delivery: Any, first: Any, ends: Mapping[EventKind, str]) -> tuple[str, Any, Any, str]:
    reason = f" ({delivery.error})" if delivery.error else ""
    how = f"{ends.get(delivery.outcome, 'other')}{reason} after {brief(delivery.ended_at - delivery.received_at)}"
    title = f"delivery {delivery.attempt or '?'} by {receiver_name(delivery.receiver)}: {how}"
    return NAMES.get(delivery.outcome, "other"), delivery.received_at - first, delivery.ended_at - first, title
