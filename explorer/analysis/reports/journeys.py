"""Journeys: how long messages take from end to end, along forwards, resubmits, moves, dead-letter queues and correlation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.common.types import EventKind, SubQueue
from broker_core.models import Entity
from explorer.shared.charts import WIDTHS, brief

from .. import messages
from ..jobs import outcomes
from . import stored
from .attempts import MOST_READ, quantile
from .drawings import gantt
from .forms import ReportForm
from .report import Analysis, Column, Figure, Link, Report, Section, Table, counted, difference, moment, percent
from .scope import Range, Scope

LOOK_BACK = timedelta(days=7)  # how long before the range a journey may have begun
MOST_STEPS = 50
MOST_ALIKE = 20  # messages with one correlation id; more do not belong together
HOW = {
    outcomes.FORWARDED: "forwarded", outcomes.RESUBMITTED: "resubmitted", outcomes.MOVED: "moved",
    outcomes.DEAD_LETTERED: "dead-lettered", EventKind.PUBLISHED: "published",
}  # fmt: skip
LIVES = (
    *("entity_id", "subqueue", "sequence_number", "outcome", "enqueued_at", "first_received_at", "ended_at", "message_id"),
    *("from_entity_id", "from_sequence_number", "to_entity_id", "to_sequence_number", "generated"),
)
ROUTES = (
    Column("route", "Route"),
    Column("journeys", "Journeys", "count", has_bar=True),
    Column("p50", "Median", "duration"),
    Column("p95", "95 %", "duration"),
    Column("longest", "Longest", "duration"),
    Column("slowest", "Most time in"),
    Column("share", "Share of the time", "share"),
    Column("example", "Message of the longest"),
)
STEPS = (
    Column("step", "Step"),
    Column("place", "In"),
    Column("how", "Came by"),
    Column("begins", "Begins after, median", "duration"),
    Column("waits", "Waits, median", "duration"),
    Column("p50", "Takes, median", "duration"),
    Column("p95", "Takes, 95 %", "duration"),
    Column("share", "Share of the time", "share", has_bar=True),
)
NOTES = (
    "A journey leads from a message to those that were made from it: copies of a topic, forwarded, moved and resubmitted ones, "
    "its life as a dead letter; and to messages whose correlation id is its message id, or with the same correlation id (of at "
    f"most {MOST_ALIKE} messages). One that branches counts once for each end.",
    f"Includes journeys of two or more steps whose last step ended in this range, and that began at most {LOOK_BACK.days} "
    "days before it. Messages sent at the history level off are not included.",
)

Message = tuple[int, int]  # entity and number


@dataclass(frozen=True, slots=True)
class Leg:
    """A life of a message in a list. how: how it came there; empty: it was sent."""

    message: Message
    subqueue: int
    outcome: int
    since: datetime
    received: datetime | None
    ended: datetime
    how: str = ""
    generated: bool = False

    @property
    def length(self) -> timedelta:
        return max(self.ended - self.since, timedelta(0))

    @property
    def wait(self) -> timedelta:
        return max((self.received or self.ended) - self.since, timedelta(0))


@dataclass(frozen=True, slots=True)
class Journey:
    legs: tuple[Leg, ...]

    @property
    def start(self) -> datetime:
        return min(leg.since for leg in self.legs)

    @property
    def length(self) -> timedelta:
        return max(max(leg.ended for leg in self.legs) - self.start, timedelta(0))

    @property
    def route(self) -> tuple[tuple[int, int, str], ...]:
        """Of each leg the entity, the list in it, and how it came there."""
        return tuple((leg.message[0], leg.subqueue, leg.how) for leg in self.legs)


@dataclass(frozen=True, slots=True)
class Route:
    """The journeys of one route, shortest first."""

    journeys: tuple[Journey, ...]

    @property
    def legs(self) -> tuple[Leg, ...]:
        """Of the longest one, for what all have in common."""
        return self.journeys[-1].legs

    def length(self, share: float) -> timedelta:
        return quantile([one.length for one in self.journeys], share) or timedelta(0)

    @property
    def shares(self) -> list[float]:
        """The share of each leg in the time of all."""
        sums = [sum((one.legs[i].length for one in self.journeys), timedelta(0)) for i in range(len(self.legs))]
        total = sum(sums, timedelta(0))
        return [each / total if total else 0.0 for each in sums]


def report(scope: Scope, values: Mapping[str, Any]) -> Report:
    wide = replace(scope, entities=list(Entity.objects.filter(namespace=scope.namespace).order_by("pk")), is_whole=True)
    names = wide.paths
    listed, generated = read(wide, scope.range, scope)
    said = sentence(listed, names)
    if scope.compared:
        said += f" {_compared(listed, read(wide, scope.compared, scope)[0], names, scope.compared)}"
    return Report(said, _sections(wide, listed) if listed else (), NOTES, generated)


def read(wide: Scope, span: Range, scope: Scope) -> tuple[list[Route], int]:
    """The routes of journeys that passed a queue of the scope and ended in a range, and how many of them are generated.
    wide: of all entities of the namespace. Raises TooManyLives."""
    lives = stored.lives(wide, span.start - LOOK_BACK, Range(span.start - LOOK_BACK, span.end), LIVES)
    lives = lives.filter(pc.and_(pc.is_valid(lives["enqueued_at"]), pc.not_equal(lives["outcome"], outcomes.CANCELLED)))
    if lives.num_rows > MOST_READ:
        raise messages.TooManyLives(
            f"{lives.num_rows:,} messages left in this range and the {LOOK_BACK.days} days before; at most {MOST_READ:,} are "
            "followed. Shorten it."
        )
    rows = lives.to_pylist()
    kinds, columns = (EventKind.SENT, EventKind.PUBLISHED), ("entity_id", "sequence_number", "at", "properties")
    before = Range(span.start - LOOK_BACK, span.end)
    events = stored.events(wide, before, columns, kinds, most=MOST_READ, keep=with_correlation)
    found = journeys(rows, correlations(events.to_pylist(), rows))
    mine = [
        one for one in found
        if span.has(one.legs[-1].ended) and (scope.is_whole or any(leg.message[0] in scope.ids for leg in one.legs))
    ]  # fmt: skip
    return routes(mine), sum(any(leg.generated for leg in one.legs) for one in mine)


def with_correlation(events: pa.Table) -> pa.Table:
    """Those of messages that have a correlation id, as far as their text shows. Pure."""
    return events.filter(pc.match_substring(events["properties"], '"correlation_id"'))


def correlations(events: Iterable[Mapping[str, Any]], lives: Iterable[Mapping[str, Any]]) -> dict[Message, Message]:
    """By message, the one that its correlation id leads to: with that message id, or the one before with the same correlation id.
    events: of messages that were sent, with their properties (JSON). Pure."""
    alike: dict[str, list[Message]] = {}
    for row in sorted(events, key=lambda row: (row["at"], row["entity_id"], row["sequence_number"])):
        value = json.loads(row["properties"]).get("correlation_id")
        if value not in (None, ""):
            text = value if isinstance(value, str) else json.dumps(value)
            alike.setdefault(text, []).append((row["entity_id"], row["sequence_number"]))
    by_id: dict[str, Message] = {}
    for row in lives:
        if row["message_id"] is not None and row["subqueue"] == SubQueue.MAIN:
            by_id.setdefault(row["message_id"], (row["entity_id"], row["sequence_number"]))
    found: dict[Message, Message] = {}
    for key, group in alike.items():
        if key in by_id:
            found.update((message, by_id[key]) for message in group if message != by_id[key])
        elif len(group) <= MOST_ALIKE:
            found.update(zip(group[1:], group, strict=False))
    return found


def journeys(lives: Iterable[Mapping[str, Any]], correlated: Mapping[Message, Message]) -> list[Journey]:
    """The journeys of two legs or more. correlated: by message, an earlier one that it belongs to. Pure."""
    legs: dict[Message, list[Leg]] = {}
    origin: dict[Message, Message] = {}
    for row in sorted(lives, key=lambda row: row["subqueue"]):
        message = (row["entity_id"], row["sequence_number"])
        how = "dead-lettered" if row["subqueue"] != SubQueue.MAIN else ""
        since = legs[message][-1].ended if how and message in legs else row["enqueued_at"]
        leg = Leg(
            message, row["subqueue"], row["outcome"], since, row["first_received_at"], row["ended_at"], how, row["generated"]
        )
        legs.setdefault(message, []).append(leg)
        if row["from_sequence_number"] is not None and not how:
            origin[message] = (row["from_entity_id"], row["from_sequence_number"])
        if row["to_sequence_number"] is not None:
            origin.setdefault((row["to_entity_id"], row["to_sequence_number"]), message)
    by_correlation = {message: one for message, one in correlated.items() if origin.get(message) not in legs and one in legs}
    parents = {message: one for message, one in origin.items() if one in legs and message in legs and one != message}
    parents |= {message: one for message, one in by_correlation.items() if message in legs}
    ends = legs.keys() - set(parents.values())
    found = [_journey(message, legs, parents, by_correlation) for message in sorted(ends)]
    return [one for one in found if len(one.legs) > 1]


def routes(found: Iterable[Journey]) -> list[Route]:
    """The routes, that with most journeys first. Pure."""
    groups: dict[tuple[tuple[int, int, str], ...], list[Journey]] = {}
    for one in found:
        groups.setdefault(one.route, []).append(one)
    listed = [Route(tuple(sorted(each, key=lambda one: one.length))) for each in groups.values()]
    return sorted(listed, key=lambda one: (-len(one.journeys), -one.length(0.5), one.journeys[0].route))


def sentence(listed: Sequence[Route], names: Mapping[int, str]) -> str:
    """How many journeys there were, how long those of the most frequent route took, and where the longest spent its time."""
    if not listed:
        return "No messages went on to another list or queue in this range."
    total, first = sum(len(one.journeys) for one in listed), listed[0]
    said = (
        f"{counted(total, 'journey')} ended, on {counted(len(listed), 'route')}. Most frequent: {_words(first.legs, names)} "
        f"({len(first.journeys):,}), half within {brief(first.length(0.5))}, 95\xa0% within {brief(first.length(0.95))}."
    )
    longest = max((one.journeys[-1] for one in listed), key=lambda one: one.length)
    slowest = max(longest.legs, key=lambda leg: leg.length)
    if longest.length:
        share = min(1.0, slowest.length / longest.length)
        said += f" The longest took {brief(longest.length)}, {percent(share)} of it in {_place(slowest, names)}."
    return said


def _journey(
    message: Message, legs: Mapping[Message, list[Leg]], parents: Mapping[Message, Message], by_correlation: Mapping[Message, Any]
) -> Journey:
    """The journey that ends with a message."""
    path = [message]
    while (before := parents.get(path[-1])) is not None and before not in path and len(path) < MOST_STEPS:
        path.append(before)
    found: list[Leg] = []
    for one in reversed(path):
        first, *rest = legs[one]
        if found and not first.how:
            first = replace(first, how="correlated" if one in by_correlation else HOW.get(found[-1].outcome, "made from it"))
        found += [first, *rest]
    return Journey(tuple(found))


def _sections(wide: Scope, listed: Sequence[Route]) -> list[Section]:
    first, names = listed[0], wide.paths
    middle = first.journeys[max(0, (len(first.journeys) + 1) // 2 - 1)]
    sections = []
    for name, title, one in (("median", "Median journey", middle), ("longest", "Longest journey", first.journeys[-1])):
        rows = [(_place(leg, names), _bars(leg, one.start)) for leg in one.legs]
        label = f"{title} of the most frequent route, from {moment(one.start)} UTC: time in each queue"
        charts = [gantt(rows, variant) for variant in WIDTHS]
        keys = [("waiting", "waited"), ("held", "received, until it left")]
        caption = f"of the most frequent route; from {moment(one.start)} UTC"
        sections.append(Section(name, title, figures=[Figure(label, charts, "bars", caption, keys,
                                template="explorer/analysis/_gantt.svg")], is_half=True))  # fmt: skip
    steps = Table("steps", "Steps of the most frequent route", STEPS, _steps(first, names))
    sections.append(Section("steps", "Steps of the most frequent route", _words(first.legs, names), table=steps))
    data = [_route(wide, one) for one in listed]
    return [*sections, Section("routes", "Routes", table=Table("routes", "Routes", ROUTES, data))]


def _bars(leg: Leg, start: datetime) -> list[tuple[str, timedelta, timedelta, str]]:
    """The time of a leg, before and after it was received first."""
    since, received, ended = leg.since - start, leg.since + leg.wait - start, leg.since + leg.length - start
    bars = [("waiting", since, received, f"waited {brief(leg.wait)}")]
    if leg.received:
        bars.append(("held", received, ended, f"received, left after {brief(ended - received)}"))
    return bars


def _steps(route: Route, names: Mapping[int, str]) -> list[tuple[Any, ...]]:
    rows = []
    for i, (leg, share) in enumerate(zip(route.legs, route.shares, strict=True)):
        mine = [one.legs[i] for one in route.journeys]
        begins = sorted(one.legs[i].since - one.start for one in route.journeys)
        lengths, waits = (sorted(getattr(one, name) for one in mine) for name in ("length", "wait"))
        times = (quantile(begins, 0.5), quantile(waits, 0.5), quantile(lengths, 0.5), quantile(lengths, 0.95))
        rows.append((str(i + 1), _place(leg, names), leg.how or "sent", *times, share))
    return rows


def _route(wide: Scope, one: Route) -> tuple[Any, ...]:
    shares, names = one.shares, wide.paths
    place = shares.index(max(shares))
    entity_id, number = one.journeys[-1].legs[-1].message
    link = None
    if entity_id in names:
        link = Link(f"#{number}", wide.message_url(entity_id, number))
    lengths = (one.length(0.5), one.length(0.95), one.journeys[-1].length)
    return _words(one.legs, names), len(one.journeys), *lengths, _place(one.legs[place], names), shares[place], link


def _place(leg: Leg, names: Mapping[int, str]) -> str:
    name = names.get(leg.message[0], "a deleted queue")
    return name if leg.subqueue == SubQueue.MAIN else f"dead letters of {name}"


def _words(legs: Iterable[Leg], names: Mapping[int, str]) -> str:
    """A route in words: "orders → (dead-lettered) dead letters of orders"."""
    return " ".join(f"→ ({leg.how}) {_place(leg, names)}" if leg.how else _place(leg, names) for leg in legs)


def _compared(listed: Sequence[Route], before: Sequence[Route], names: Mapping[int, str], span: Range) -> str:
    """How many journeys there were then, and how long the route that is most frequent now took."""
    total, then = (sum(len(one.journeys) for one in each) for each in (listed, before))
    said = difference(total, then, span)
    same = next((one for one in before if listed and one.journeys[0].route == listed[0].journeys[0].route), None)
    return f"{said} Half of this route were then within {brief(same.length(0.5))}." if same else said


ANALYSIS = Analysis(
    slug="journeys", title="Journeys", group="happened", form=ReportForm, make=report,
    question="How long do messages take from end to end, along forwards, resubmits, moves, dead letters and correlation?",
)  # fmt: skip
