"""Overview: what was unusual, ranked by how far it was from the usual for the hour and the weekday, and where the evidence is."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.compute as pc
from django.urls import reverse

from broker_core.common.types import EventKind, SubQueue
from broker_core.history import schema
from explorer.shared.charts import WIDTHS, brief

from ..jobs import measures, outcomes
from ..survival import CannotTell
from . import attempts, flow, lock_losses, losses, redelivery, waiting
from .drawings import named_heat_map
from .forms import ReportForm
from .report import ROLLED_UP, Analysis, Column, Figure, Link, Report, Section, Table, counted, moment
from .scope import HOUR, Range, Scope, floor, generated, of_measure, sums

LOOK_BACK = timedelta(days=28)
FEWEST_ALIKE = 3  # hours of the same weekday, or else of any day, that say what is usual
FEWEST_HOURS = 24  # of the week before, if there are too few of these
FEWEST_TIMES = 10  # messages in an hour whose typical duration counts
LEAST_SCORE = 4.0  # times the usual spread
LEAST_COUNT = 5
LEAST_SPREAD = 8.0  # bins, a quarter of an octave
MOST_QUEUES = 100  # the busiest
MOST_DRAWN = 15
FULL_SCORE = 20.0  # the darkest cell
COLUMNS = (
    Column("what", "What was unusual"),
    Column("queue", "Queue"),
    Column("from", "From, UTC", "instant"),
    Column("until", "Until, UTC", "instant"),
    Column("was", "Was", "figure"),
    Column("usual", "Usual", "figure"),
    Column("score", "Times the usual spread", "number", has_bar=True),
)
NOTES = (
    "Usual is the median of the same hour of the same weekday in the four weeks before the range; with fewer than three of "
    "these, of the same hour on other days, else of the week before.",
    f"Lists what differs by at least {LEAST_SCORE:.0f} times the usual spread (median absolute deviation; for counts at least "
    "that of chance). Adjacent hours are one finding.",
    "Durations are typical ones (geometric means); messages that were not received count as waiting.",
    ROLLED_UP,
)


@dataclass(frozen=True, slots=True)
class Metric:
    """A number by hour. more, fewer: what is said if it is higher or lower than usual; empty: that is no finding. evidence: the
    slug of the report about it. is_duration: its values are bins (measures.bin_of), not counts."""

    name: str
    more: str
    evidence: str
    fewer: str = ""
    is_duration: bool = False


ARRIVALS = Metric("arrivals", "More messages entered", flow.ANALYSIS.slug, "Fewer messages entered")
LOSSES = Metric("losses", "More messages were lost", losses.ANALYSIS.slug)
WAITING = Metric("waiting", "Messages waited longer", waiting.ANALYSIS.slug, is_duration=True)
PROCESSING = Metric("processing", "Processing took longer", waiting.ANALYSIS.slug, is_duration=True)
FAILURES = Metric("failures", "More deliveries failed", redelivery.ANALYSIS.slug)
LOCKS = Metric("locks", "More locks were lost", lock_losses.ANALYSIS.slug)
METRICS = (ARRIVALS, LOSSES, WAITING, PROCESSING, FAILURES, LOCKS)

Series = Mapping[datetime, float]  # by hour; of counts, a missing hour is 0


@dataclass(frozen=True, slots=True)
class Finding:
    """Adjacent hours of a queue in which a metric was unusual. was, usual: sums of counts, or the longest duration (bins) and its
    usual one. score: the largest of an hour, in usual spreads; negative: less than usual."""

    metric: Metric
    entity_id: int
    start: datetime
    end: datetime
    was: float
    usual: float
    score: float

    @property
    def words(self) -> str:
        return self.metric.more if self.score > 0 else self.metric.fewer

    def value(self, number: float) -> str:
        """A value of the metric as text."""
        return brief(_duration(number)) if self.metric.is_duration else f"{number:,.0f}"


def report(scope: Scope, values: Mapping[str, Any]) -> Report:
    span = scope.range
    rows = pa.concat_tables([scope.rows(Range(span.start - LOOK_BACK, span.end)), of_present(scope.present(span.end))])
    if not rows.num_rows:
        return Report("No messages entered or left in this range, or in the four weeks before.")
    found = unusual(rows, span)
    said = sentence(found, scope.paths)
    if other := scope.compared:
        earlier = scope.rows(Range(other.start - LOOK_BACK, other.end))
        said += f" {compared(found, earlier, other, scope.paths)}"
    table = Table("findings", "Findings", COLUMNS, [_row(scope, one) for one in found], empty="Nothing was unusual.")
    sections = [*_map(scope, found), Section("findings", "Findings, most unusual first", table=table)]
    return Report(said, sections, NOTES, generated(rows))


def unusual(rows: pa.Table, span: Range) -> list[Finding]:
    """The findings of a range, most unusual first. rows: from LOOK_BACK before it. Raises CannotTell."""
    since = pc.min(rows["hour"]).as_py()
    hours = [span.start + i * HOUR for i in range(-int((span.start - floor(span.end, HOUR)) // HOUR))]  # whole ones
    if not hours:
        raise CannotTell("The range has no whole hour that is over. Choose a longer one.")
    if since is None or usual_hours(max(since, span.start - LOOK_BACK), span.start, span.start) is None:
        begins = f"begins at {moment(since)}" if since else "has no messages"
        needed = f"the overview needs {FEWEST_HOURS} hours of it before the range."
        raise CannotTell(f"The history {begins}. To know what is usual, {needed}")
    return findings(by_hour(rows), hours, max(since, span.start - LOOK_BACK))


def compared(found: Sequence[Finding], earlier: pa.Table, span: Range, names: Mapping[int, str]) -> str:
    """What was unusual in another range, and which findings are of both. earlier: its rows."""
    between = f"From {moment(span.start)} to {moment(span.end)}"
    try:
        before = unusual(earlier, span)
    except CannotTell:
        return f"{between} it is not known what was usual: there is too little history before."
    if not before:
        return f"{between} nothing was unusual."
    again = {(one.metric, one.entity_id, one.score > 0) for one in before} & {(o.metric, o.entity_id, o.score > 0) for o in found}
    said = f"{between} there {'was' if len(before) == 1 else 'were'} {counted(len(before), 'finding')}"
    if not again:
        return f"{said}, none of the same kind."
    same = next(one for one in found if (one.metric, one.entity_id, one.score > 0) in again)
    return (
        f"{said}, {len(again):,} of the same kind, such as in {names[same.entity_id]}: {same.words[0].lower()}{same.words[1:]}."
    )


def of_present(present: Iterable[Any]) -> pa.Table:
    """Messages that are still there, as rows of lives: they have entered, and have waited or still wait. Pure."""
    columns: dict[str, list[Any]] = {name: [] for name in schema.ROLLUP.names}
    for one in present:
        waited = measures.WAITING if one.received else measures.NEVER_RECEIVED
        for measure, number in ((measures.LIFE, 0), (waited, measures.bin_of(one.waited_us))):
            values = {
                "entity_id": one.entity_id, "subqueue": int(SubQueue.MAIN), "hour": one.hour, "end_hour": one.hour,
                "outcome": outcomes.STILL_THERE, "measure": measure, "bin": number, "messages": one.messages, "generated": 0,
            }  # fmt: skip
            for name, column in columns.items():
                column.append(values.get(name))
    return pa.table(columns, schema=schema.ROLLUP)


def by_hour(rows: pa.Table) -> dict[tuple[Metric, int], dict[datetime, float]]:
    """The metrics of each queue, of the busiest ones, by hour."""
    lives, held = of_measure(rows, measures.LIFE), of_measure(rows, measures.HELD)
    busy: dict[int, int] = defaultdict(int)
    for entity_id, messages in sums(lives, "entity_id"):
        busy[entity_id] = messages
    kept = set(sorted(busy, key=lambda one: (-busy[one], one))[:MOST_QUEUES])
    found: dict[tuple[Metric, int], dict[datetime, float]] = defaultdict(lambda: defaultdict(float))

    def count(metric: Metric, table: pa.Table, column: str, wanted: Callable[[int], bool]) -> None:
        for entity_id, at, outcome, messages in sums(table, "entity_id", column, "outcome"):
            if entity_id in kept and wanted(outcome):
                found[metric, entity_id][at] += messages

    count(ARRIVALS, lives, "hour", lambda outcome: True)
    count(LOSSES, lives, "end_hour", lambda outcome: outcome in losses.LOST)
    count(FAILURES, held, "end_hour", lambda outcome: outcome not in attempts.SUCCESSES)
    count(LOCKS, held, "end_hour", lambda outcome: outcome == EventKind.LOCK_LOST)
    for metric, table in (
        (WAITING, of_measure(rows, measures.WAITING, measures.NEVER_RECEIVED)),
        (PROCESSING, of_measure(rows, measures.PROCESSING)),
    ):
        for entity_id, at, number in _typical(table):
            if entity_id in kept:
                found[metric, entity_id][at] = number
    return found


def findings(series: Mapping[tuple[Metric, int], Series], hours: Sequence[datetime], since: datetime) -> list[Finding]:
    """What was unusual in these hours, most unusual first. since: the first hour with history. Pure."""
    found = []
    for (metric, entity_id), values in series.items():
        unusual = []
        for at in hours:
            alike = usual_hours(since, hours[0], at)
            if alike is None or (metric.is_duration and at not in values):
                continue
            known = (
                [values[one] for one in alike if one in values] if metric.is_duration else [values.get(one, 0.0) for one in alike]
            )
            if len(known) < FEWEST_ALIKE:
                continue
            value, usual = values.get(at, 0.0), median(known)
            score = _score(metric, value, usual, known)
            if abs(score) >= LEAST_SCORE and (score > 0 or metric.fewer):
                unusual.append((at, value, usual, score))
        found += _merged(metric, entity_id, unusual)
    return sorted(found, key=lambda one: (-abs(one.score), one.start, one.entity_id))


def usual_hours(since: datetime, before: datetime, at: datetime) -> list[datetime] | None:
    """The hours that say what is usual at an hour, between `since` and `before`; None: there are too few. Pure."""
    days = [at - timedelta(days=i) for i in range(1, LOOK_BACK.days + 8)]
    known = [one for one in days if since <= one < before]
    weeks = [one for one in known if one.weekday() == at.weekday()]
    for alike in (weeks, known):
        if len(alike) >= FEWEST_ALIKE:
            return alike
    last = [before - i * HOUR for i in range(1, 7 * 24 + 1) if before - i * HOUR >= since]
    return last if len(last) >= FEWEST_HOURS else None


def sentence(found: Sequence[Finding], names: Mapping[int, str]) -> str:
    """How much was unusual, and what most."""
    if not found:
        return "Nothing was unusual for the hour and the weekday."
    first = found[0]
    when = f"{moment(first.start)} to {moment(first.end)}"
    return (
        f"{counted(len(found), 'finding')}. Most unusual: {names[first.entity_id]}, {when}: "
        f"{first.words[0].lower()}{first.words[1:]} than usual ({first.value(first.was)}, usually {first.value(first.usual)})."
    )


def _score(metric: Metric, value: float, usual: float, known: Sequence[float]) -> float:
    """How far from the usual, in usual spreads."""
    spread = 1.4826 * median(abs(one - usual) for one in known)
    if metric.is_duration:
        return (value - usual) / max(spread, LEAST_SPREAD)
    return (value - usual) / max(spread, math.sqrt(max(usual, 1))) if abs(value - usual) >= LEAST_COUNT else 0.0


def _merged(metric: Metric, entity_id: int, unusual: Sequence[tuple[datetime, float, float, float]]) -> list[Finding]:
    """Adjacent hours in the same direction as one."""
    groups: list[list[tuple[datetime, float, float, float]]] = []
    for one in unusual:
        if groups and one[0] - groups[-1][-1][0] == HOUR and (one[3] > 0) == (groups[-1][-1][3] > 0):
            groups[-1].append(one)
        else:
            groups.append([one])
    made = []
    for group in groups:
        worst = max(group, key=lambda one: abs(one[3]))
        was, usual = worst[1:3] if metric.is_duration else (sum(one[1] for one in group), sum(one[2] for one in group))
        made.append(Finding(metric, entity_id, group[0][0], group[-1][0] + HOUR, was, usual, worst[3]))
    return made


def _typical(table: pa.Table) -> Iterable[tuple[int, datetime, float]]:
    """The mean bin of each queue and hour with enough messages: bins are logarithmic, so it is that of the geometric mean."""
    weighted = table.append_column("weighted", pc.multiply(pc.cast(table["bin"], pa.int64()), table["messages"]))
    total = weighted.group_by(["entity_id", "hour"]).aggregate([("messages", "sum"), ("weighted", "sum")])
    total = total.filter(pc.greater_equal(total["messages_sum"], FEWEST_TIMES))
    mean = pc.divide(pc.cast(total["weighted_sum"], pa.float64()), pc.cast(total["messages_sum"], pa.float64()))
    return zip(total["entity_id"].to_pylist(), total["hour"].to_pylist(), mean.to_pylist(), strict=True)


def _row(scope: Scope, one: Finding) -> tuple[Any, ...]:
    query = {
        "queue": one.entity_id,
        "range": "custom",
        "start": f"{one.start:%Y-%m-%dT%H:%M}",
        "end": f"{one.end:%Y-%m-%dT%H:%M}",
    }
    url = f"{reverse('explorer:analysis_report', args=(one.metric.evidence,))}?{urlencode(query)}"
    texts = (one.value(one.was), one.value(one.usual))
    return Link(one.words, url), scope.paths[one.entity_id], one.start, one.end, *texts, abs(one.score)


def _map(scope: Scope, found: Sequence[Finding]) -> list[Section]:
    """The findings as a heat map of queues and hours."""
    span = scope.range
    by_queue: dict[int, list[float]] = {}
    for one in found:
        if one.entity_id not in by_queue and len(by_queue) == MOST_DRAWN:
            continue
        shares = by_queue.setdefault(one.entity_id, [0.0] * len(span.buckets))
        for i, at in enumerate(span.buckets):
            if at < one.end and at + span.bucket > one.start:
                shares[i] = max(shares[i], min(0.999, abs(one.score) / FULL_SCORE))
    if not by_queue:
        return []
    rows = [(scope.paths[entity_id], shares) for entity_id, shares in by_queue.items()]
    label = f"How unusual each {span.unit} of a queue was"
    charts = [named_heat_map(span.buckets, rows, one, span.partial) for one in WIDTHS]
    figure = Figure(label, charts, "heat", "the stronger the color, the more unusual", template="explorer/analysis/_heat_map.svg")
    return [Section("map", "When and where", figures=[figure])]


def _duration(number: float) -> timedelta:
    return timedelta(microseconds=round(measures.middle(round(number))))


ANALYSIS = Analysis(
    slug="overview", title="Overview", group="happened", form=ReportForm, make=report,
    question="What was unusual for the hour and the weekday?",
)  # fmt: skip
