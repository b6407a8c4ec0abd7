"""Losses: which messages were lost, by what, and where had they been?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.common.types import SubQueue
from broker_core.models import Entity
from explorer.shared.charts import WIDTHS, stacked_bars

from .. import messages, wording
from ..jobs import measures, outcomes
from ..listing import messages_url
from . import stored
from .drawings import Flow, sankey
from .forms import ReportForm
from .report import ROLLED_UP, Analysis, Column, Figure, Link, Report, Section, Table, counted, difference, keyed, percent
from .scope import Range, Scope, ended, floor, generated, of_measure, sums

LOST = {outcomes.COLUMNS[name]: name for name in ("expired", "dead_lettered", "dropped", "moved", "purged", "deleted")}
LOOK_BACK = timedelta(days=30)  # a cause that was not seen for so long is new
NEW_AFTER = timedelta(days=1)  # of history without a cause
MOST_BOXES = 8  # in a layer of the diagram; the others are one
CAUSES = (
    Column("queue", "Queue"),
    Column("outcome", "Outcome"),
    Column("cause", "Cause"),
    Column("messages", "Messages", "count", has_bar=True),
    Column("first", "First in this range, UTC", "instant"),
    Column("last", "Last, UTC", "instant"),
    Column("since", "Known since, UTC", "instant"),
)
ROUTES = (
    Column("origin", "Came from"),
    Column("queue", "Lost in"),
    Column("outcome", "Outcome"),
    Column("destination", "Went to"),
    Column("messages", "Messages", "count", has_bar=True),
)
NOTES = (
    "Causes are reasons without numbers and ids.",
    f"A cause is known since it was first seen in the {LOOK_BACK.days} days before the end of the range.",
    "Messages that a dead-letter queue, another queue or an operator has got can be found there.",
    ROLLED_UP,
)
SENDERS = "senders"


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages of a queue that were lost for one cause. entered_at: the hour in which the first of them had entered. first_at,
    last_at: the hours in which they were lost first and last. since: the first loss of this cause that is known."""

    entity_id: int
    outcome: str
    cause: str
    messages: int
    entered_at: datetime
    first_at: datetime
    last_at: datetime
    since: datetime


@dataclass(frozen=True, slots=True)
class Route:
    """What lost messages had passed: the queue or topic they came from, the queue that lost them, where they went. entity_id,
    from_id, to_id: of these; None: there is none."""

    origin: str
    queue: str
    outcome: str
    destination: str
    messages: int
    entity_id: int = 0
    from_id: int | None = None
    to_id: int | None = None


# Entity, hours of entering and of leaving, outcome, cause, messages.
Ends = Sequence[tuple[int, datetime, datetime, int, str | None, int]]


def report(scope: Scope, values: Mapping[str, Any]) -> Report:
    span = scope.range
    longer = Range(span.end - max(LOOK_BACK, span.length), span.end)
    known = ended(of_measure(scope.rows(longer), measures.LIFE), longer)
    here = ended(known, span)
    ends, left = _ends(here), sum(count for _, count in sums(here, "outcome"))
    losses = causes(ends, _ends(known))
    table = Table("causes", "Causes", CAUSES, _rows(scope, losses), empty="No messages were lost in this range.")
    sections = [_by_time(span, ends), *_routes(scope, losses), Section("causes", "Causes", table=table)]
    return Report(
        finding=sentence(losses, left, pc.min(known["end_hour"]).as_py()) + _compared(scope, losses),
        sections=sections if losses else (),
        notes=NOTES,
        generated=generated(here),
    )


def causes(ends: Ends, known: Ends = ()) -> list[Loss]:
    """Why messages were lost, most frequent first. known: losses of a longer time. Pure."""
    found: dict[tuple[int, str, str], list[tuple[datetime, datetime, int]]] = {}
    since: dict[tuple[int, str, str], datetime] = {}
    for entity_id, began, at, outcome, cause, count in ends:
        if outcome in LOST:
            found.setdefault((entity_id, LOST[outcome], cause or ""), []).append((at, began, count))
    for entity_id, _, at, outcome, cause, _ in (*ends, *known):
        if outcome in LOST:
            key = (entity_id, LOST[outcome], cause or "")
            since[key] = min(since.get(key, at), at)
    losses = [
        Loss(*key, sum(count for *_, count in at), min(began for _, began, _ in at), min(at)[0], max(at)[0], since[key])
        for key, at in found.items()
    ]
    return sorted(losses, key=lambda loss: (-loss.messages, loss.outcome, loss.cause, loss.entity_id))


def by_bucket(span: Range, ends: Ends) -> dict[str, list[int]]:
    """The losses in each interval, by outcome in the order of LOST. Pure."""
    place = {at: i for i, at in enumerate(span.buckets)}
    found: dict[str, list[int]] = {}
    for _, _, at, outcome, _, count in ends:
        if outcome in LOST:
            found.setdefault(LOST[outcome], [0] * len(place))[place[floor(at, span.bucket)]] += count
    return {name: found[name] for name in LOST.values() if name in found}


def sentence(losses: Sequence[Loss], left: int, begun: datetime | None) -> str:
    """How many messages were lost, mostly why, and which cause is new. left: all that left. begun: the first known hour."""
    if not losses:
        return "No messages were lost in this range."
    total, first = sum(loss.messages for loss in losses), losses[0]
    verb = "was" if total == 1 else "were"
    new = next((loss for loss in losses if loss.since == loss.first_at and begun and loss.since - begun >= NEW_AFTER), None)
    appeared = f" New since {new.since:%Y-%m-%d %H:%M}: {_words(new)}." if new else ""
    of = f" ({percent(total / left)} of those that left)" if left > total else ""
    return f"{counted(total, 'message')} {verb} lost{of}. Most frequent: {_words(first)}, {first.messages:,}.{appeared}"


def routes(rows: Iterable[Mapping[str, Any]], names: Mapping[int, str]) -> list[Route]:
    """Where lost messages came from and went to, most first. rows: lives. Pure."""
    found: Counter[tuple[str, str, str, str, int, int | None, int | None]] = Counter()
    for row in rows:
        ids = row["entity_id"], row["from_entity_id"], row["to_entity_id"]
        origin = names.get(row["from_entity_id"], "another queue") if row["from_entity_id"] is not None else SENDERS
        queue, outcome = names[row["entity_id"]], LOST[row["outcome"]]
        if row["from_entity_id"] == row["entity_id"]:
            origin = f"{queue} (again)"  # resubmitted, or activated when it was due
        destination = names.get(row["to_entity_id"], "") if row["to_entity_id"] is not None else ""
        if outcome == "dead_lettered" and not destination:
            destination = f"dead letters of {queue}"
        found[origin, queue, outcome, destination, *ids] += 1
    ordered = sorted(found.items(), key=lambda item: (-item[1], item[0][:4]))
    return [Route(*key[:4], count, *key[4:]) for key, count in ordered]


def flows(found: Sequence[Route]) -> list[Flow]:
    """The routes as steps of a diagram: origin, queue, outcome or destination; the rare ones of each as one. Pure."""
    layers: list[Counter[str]] = [Counter(), Counter(), Counter()]
    for route in found:
        for layer, name in enumerate(_boxes(route)):
            layers[layer][name] += route.messages
    kept = [{name for name, _ in layer.most_common(MOST_BOXES if len(layer) > MOST_BOXES + 1 else None)} for layer in layers]
    steps: Counter[tuple[int, str, str, str]] = Counter()
    for route in found:
        boxes = [name if name in kept[i] else "others" for i, name in enumerate(_boxes(route))]
        steps[0, boxes[0], boxes[1], "source"] += route.messages
        steps[1, boxes[1], boxes[2], route.outcome] += route.messages
    return [Flow(layer, source, target, count, name) for (layer, source, target, name), count in steps.items()]


def _boxes(route: Route) -> tuple[str, str, str]:
    word = wording.OUTCOMES[route.outcome]
    return route.origin, route.queue, route.destination or word


def _words(loss: Loss) -> str:
    return wording.OUTCOMES[loss.outcome] + (f" ({loss.cause})" if loss.cause else "")


def _ends(rows: Any) -> Ends:
    return list(sums(rows, "entity_id", "hour", "end_hour", "outcome", "cause"))


def _rows(scope: Scope, losses: Sequence[Loss]) -> list[tuple[Any, ...]]:
    paths, span = scope.paths, scope.range
    return [
        (paths[one.entity_id], wording.OUTCOMES[one.outcome], one.cause,
         Link(one.messages, messages_url(
             {"queue": one.entity_id}, one.entered_at, span.end, left_start=span.start, left_end=span.end, outcome=one.outcome,
             cause=one.cause, order="left",
         )), one.first_at, one.last_at, one.since)
        for one in losses
    ]  # fmt: skip


def _by_time(span: Range, ends: Ends) -> Section:
    lost = by_bucket(span, ends)
    label = f"Lost messages by {span.unit} and outcome"
    charts = [stacked_bars(span.buckets, lost, (), one, partial=span.partial) for one in WIDTHS]
    caption = f"by the {span.unit} in which they were lost"
    figure = Figure(label, charts, "bars", caption, keyed(lost, wording.OUTCOMES))
    return Section("times", "By time", figures=[figure])


def _routes(scope: Scope, losses: Sequence[Loss]) -> list[Section]:
    """Nothing without losses, or where there are too many lives to look at."""
    if not losses:
        return []
    columns = ("entity_id", "subqueue", "outcome", "reason", "ended_at", "from_entity_id", "to_entity_id")
    try:
        lives = stored.lives(scope, min(loss.entered_at for loss in losses), scope.range, columns)
    except messages.TooManyLives as problem:
        return [Section("routes", "Paths", str(problem))]
    lives = messages.with_outcome(lives.filter(pc.equal(lives["subqueue"], int(SubQueue.MAIN))))
    lives = lives.filter(pc.is_in(lives["outcome"], pa.array(list(LOST), pa.int16())))
    rows = lives.select(["entity_id", "outcome", "from_entity_id", "to_entity_id"]).to_pylist()
    wanted = {row[name] for row in rows for name in ("from_entity_id", "to_entity_id") if row[name] is not None}
    found = routes(rows, dict(Entity.objects.filter(pk__in=wanted).values_list("pk", "path")) | scope.paths)
    steps = flows(found)
    label = "Paths of the lost messages: their origin, the queue that lost them, and their destination"
    figures = [Figure(label, [sankey(steps, one) for one in WIDTHS], caption=label, template="explorer/analysis/_sankey.svg")]
    first = min(loss.entered_at for loss in losses)
    data = [
        (one.origin, one.queue, wording.OUTCOMES[one.outcome], one.destination or None, Link(one.messages, messages_url(
            {"queue": one.entity_id}, first, scope.range.end, left_start=scope.range.start, left_end=scope.range.end,
            outcome=one.outcome, origin=one.from_id or 0, destination=one.to_id or 0, order="left",
        ))) for one in found
    ]  # fmt: skip
    table = Table("routes", "Paths", ROUTES, data)
    return [Section("routes", "Paths", figures=figures if steps else (), table=table)]


def _compared(scope: Scope, losses: Sequence[Loss]) -> str:
    if scope.compared is None:
        return ""
    rows = ended(of_measure(scope.rows(scope.compared), measures.LIFE), scope.compared)
    before = sum(count for outcome, count in sums(rows, "outcome") if outcome in LOST)
    return f" {difference(sum(loss.messages for loss in losses), before, scope.compared)}"


ANALYSIS = Analysis(
    slug="losses", title="Losses", group="happened", form=ReportForm, make=report,
    question="Which messages were lost, why, and on which path?",
)  # fmt: skip
