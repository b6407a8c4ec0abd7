"""Overview: what was unusual, as incidents, ranked by how far they were from the usual for the hour and the weekday."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from explorer.charts.chart import WIDTHS
from explorer.charts.labels import brief
from explorer.charts.rows import named_heat_map

from ..jobs import constants, measures
from ..jobs.constants import HOUR
from ..survival import CannotTell
from .forms import ReportForm, report_url
from .listing import messages_url
from .report import Analysis, Column, Figure, Link, Report, Section, Table, counted, duration, joined, moment
from .scope import Range, Scope, floor
from .tables import Tables

MOST_DRAWN = 15
MOST_NAMED = 3  # queues of an incident
FULL_SCORE = 20.0  # the darkest cell
INCIDENTS = (
    Column("from", "From, UTC", "instant"),
    Column("until", "Until, UTC", "instant"),
    Column("queues", "Queues"),
    Column("what", "What was unusual, most first"),
    Column("findings", "Findings", "count"),
    Column("score", "How unusual", "number", has_bar=True, about="usual spread"),
)
FINDINGS = (
    Column("what", "What was unusual"),
    Column("queue", "Queue"),
    Column("incident", "Incident from, UTC", "instant"),
    Column("from", "From, UTC", "instant"),
    Column("until", "Until, UTC", "instant"),
    Column("was", "Was", "figure"),
    Column("usual", "Usual", "figure"),
    Column("score", "How unusual", "number", has_bar=True, about="usual spread"),
)
NOTES = (
    "Usual is the median of the same hour of the same weekday in the four weeks before; with fewer than "
    f"{constants.FEWEST_ALIKE} of these, of the same hour on other days; in the first {constants.EARLY.days} days of the history "
    f"of a queue, of the hours before, of which there must be at least {constants.FEWEST_HOURS}.",
    f"Listed is what differs by at least {constants.LEAST_SCORE:.0f} times the usual spread (median absolute deviation; for "
    "counts at least that of chance). Adjacent hours are one finding; findings that overlap in time are one incident.",
    "Durations are typical ones (geometric means); messages that were not received count as waiting.",
)


@dataclass(frozen=True, slots=True)
class Metric:
    """more, fewer: the words for a value above or below the usual one. evidence: the slug of the report about it. order: of the
    messages that it leads to; empty: it leads to none. is_duration: its values are bins (measures.bin_of), not counts."""

    more: str
    evidence: str
    fewer: str = ""
    order: str = ""
    is_duration: bool = False


METRICS = {
    constants.ARRIVALS: Metric("more messages entered", "flow", "fewer messages entered", order="enqueued"),
    constants.LOSSES: Metric("more messages were lost", "losses"),
    constants.WAITING: Metric("messages waited longer", "waiting", order="waiting", is_duration=True),
    constants.PROCESSING: Metric("processing took longer", "waiting", order="processing", is_duration=True),
    constants.FAILURES: Metric("more deliveries failed", "redelivery"),
    constants.LOCKS: Metric("more locks were lost", "locks"),
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Adjacent hours of a queue in which a metric was unusual. was, usual: sums of counts, or the longest duration (bins) and its
    usual one. score: the largest of an hour, in usual spreads; negative: less than usual."""

    metric: int
    entity_id: int
    start: datetime
    end: datetime
    was: float
    usual: float
    score: float

    @property
    def words(self) -> str:
        metric = METRICS[self.metric]
        return metric.more if self.score > 0 else metric.fewer

    def value(self, number: float) -> str:
        """A value of the metric as text."""
        if METRICS[self.metric].is_duration:
            return brief(duration(round(measures.middle(round(number)))))
        return f"{number:,.0f}"


@dataclass(frozen=True, slots=True)
class Incident:
    """Findings that overlap in time, most unusual first."""

    findings: tuple[Finding, ...]

    @property
    def start(self) -> datetime:
        return min(finding.start for finding in self.findings)

    @property
    def end(self) -> datetime:
        return max(finding.end for finding in self.findings)

    @property
    def entity_ids(self) -> list[int]:
        return list(dict.fromkeys(finding.entity_id for finding in self.findings))

    @property
    def score(self) -> float:
        return abs(self.findings[0].score)


def present(scope: Scope, values: Mapping[str, Any], tables: Tables) -> Report:
    known, span = tables.only_row("known"), scope.range
    if known.since is None:
        return Report(f"No messages entered or left {scope.name} in this range, or in the four weeks before.")
    check(scope.name, span, known.since)
    found_incidents = incidents(findings(tables["hours"]))
    summary = sentence(scope.name, found_incidents, scope.paths)
    if scope.compared:
        summary += f" {compared(found_incidents, findings(tables['before']), scope.compared, scope.paths)}"
    if known.since + constants.EARLY > span.start:
        summary += f" {early(known.since)}"
    return Report(summary, _sections(scope, found_incidents), NOTES, known.generated)


def check(name: str, span: Range, since: datetime) -> None:
    """Raises CannotTell if no hour of the range can be judged. since: where the history begins."""
    if floor(span.end, HOUR) <= floor(span.start, HOUR):
        raise CannotTell("The range has no whole hour that is over. Choose a longer one.")
    first = floor(since, HOUR) + (constants.FEWEST_HOURS + 1) * HOUR
    if span.end < first:
        raise CannotTell(
            f"The history of {name} begins at {moment(since)}. What is unusual can be told from {moment(first)} on: each hour is "
            f"compared with at least {constants.FEWEST_HOURS} before it."
        )


def early(since: datetime) -> str:
    """What a short history means for the answer."""
    until = moment(floor(since, HOUR) + constants.EARLY)
    return f"The history begins at {moment(since)}: until {until}, hours are compared only with those before them."


def findings(hours: Iterable[Any]) -> list[Finding]:
    """Adjacent hours in the same direction as one, most unusual first. hours: rows of the table. Pure."""
    groups: list[list[Any]] = []
    for hour in sorted(hours, key=lambda hour: (hour.entity_id, hour.metric, hour.score > 0, hour.at)):
        last = groups[-1][-1] if groups else None
        if last and _kind(last) == _kind(hour) and hour.at - last.at == HOUR:
            groups[-1].append(hour)
        else:
            groups.append([hour])
    return sorted(map(_finding, groups), key=_rank)


def incidents(all_findings: Sequence[Finding]) -> list[Incident]:
    """Most unusual first. Pure."""
    groups: list[list[Finding]] = []
    end = None
    for finding in sorted(all_findings, key=lambda finding: (finding.start, finding.end)):
        if end is not None and finding.start < end:
            groups[-1].append(finding)
            end = max(end, finding.end)
        else:
            groups.append([finding])
            end = finding.end
    return sorted(
        (Incident(tuple(sorted(group, key=_rank))) for group in groups), key=lambda incident: (-incident.score, incident.start)
    )


def sentence(name: str, found_incidents: Sequence[Incident], names: Mapping[int, str]) -> str:
    """How much was unusual, and what most."""
    if not found_incidents:
        return f"Nothing was unusual in {name} for the hour and the weekday."
    incident, first = found_incidents[0], found_incidents[0].findings[0]
    others = len(incident.findings) - 1
    queues = f" in {counted(len(incident.entity_ids), 'queue')}" if len(incident.entity_ids) > 1 else ""
    more = f", with {counted(others, 'other finding')}{queues} at the same time" if others else ""
    when = f"{'Most unusual, from' if len(found_incidents) > 1 else 'From'} {moment(incident.start)} to {moment(incident.end)}"
    what = f"{first.words} than usual ({first.value(first.was)}, usually {first.value(first.usual)})"
    return f"{counted(len(found_incidents), 'incident')} in {name}. {when}: in {names[first.entity_id]}, {what}{more}."


def compared(found_incidents: Sequence[Incident], before: Sequence[Finding], span: Range, names: Mapping[int, str]) -> str:
    """What was unusual in another range, and which findings are of both."""
    earlier = incidents(before)
    if not earlier:
        return f"From {span} nothing was known to be unusual."
    kinds = {_kind(finding) for finding in before}
    again = [finding for incident in found_incidents for finding in incident.findings if _kind(finding) in kinds]
    text = f"From {span} there {'was' if len(earlier) == 1 else 'were'} {counted(len(earlier), 'incident')}"
    if not again:
        return f"{text}, of another kind."
    return f"{text}; again, {again[0].words} in {names[again[0].entity_id]}."


def _kind(row: Any) -> tuple[int, int, bool]:
    """Of an hour or a finding."""
    return row.metric, row.entity_id, row.score > 0


def _rank(finding: Finding) -> tuple[Any, ...]:
    return -abs(finding.score), finding.start, finding.entity_id, finding.metric


def _finding(hours: Sequence[Any]) -> Finding:
    worst = max(hours, key=lambda hour: abs(hour.score))
    was, usual = sum(hour.value for hour in hours), sum(hour.usual for hour in hours)
    if METRICS[worst.metric].is_duration:
        was, usual = worst.value, worst.usual
    return Finding(worst.metric, worst.entity_id, hours[0].at, hours[-1].at + HOUR, was, usual, worst.score)


def _sections(scope: Scope, found_incidents: Sequence[Incident]) -> list[Section]:
    """When and where, with the incidents; then the details."""
    if not found_incidents:
        return []
    table = Table(
        "incidents", "Incidents, most unusual first", INCIDENTS, [_incident(scope, incident) for incident in found_incidents]
    )
    rows = [_row(scope, incident, finding) for incident in found_incidents for finding in incident.findings]
    details = Table("findings", "Findings by incident", FINDINGS, rows)
    return [
        Section("map", "When and where", figures=[_map(scope, found_incidents)], table=table),
        Section("findings", "Findings", table=details),
    ]


def _map(scope: Scope, found_incidents: Sequence[Incident]) -> Figure:
    """The findings as a heat map of queues and intervals."""
    span = scope.range
    by_queue: dict[int, list[float]] = {}
    for finding in (finding for incident in found_incidents for finding in incident.findings):
        if finding.entity_id not in by_queue and len(by_queue) == MOST_DRAWN:
            continue
        shares = by_queue.setdefault(finding.entity_id, [0.0] * len(span.buckets))
        for i, at in enumerate(span.buckets):
            if at < finding.end and at + span.bucket > finding.start:
                shares[i] = max(shares[i], min(0.999, abs(finding.score) / FULL_SCORE))
    rows = [(scope.paths[entity_id], shares) for entity_id, shares in by_queue.items()]
    charts = [named_heat_map(span.buckets, rows, width) for width in WIDTHS]
    caption = "the stronger the color, the more unusual"
    return Figure(f"How unusual each {span.unit} was", charts, "heat", caption)


def _incident(scope: Scope, incident: Incident) -> tuple[Any, ...]:
    """An incident; what was unusual leads to the report about it."""
    first, ids = incident.findings[0], incident.entity_ids
    more = [f"{len(ids) - MOST_NAMED} more"] if len(ids) > MOST_NAMED else []
    queues = joined([*(scope.paths[i] for i in ids[:MOST_NAMED]), *more])
    words = "; ".join(dict.fromkeys(finding.words for finding in incident.findings))
    of = {"queue": first.entity_id} if len(ids) == 1 else scope.query
    url = report_url(METRICS[first.metric].evidence, of, incident.start, incident.end)
    return (
        incident.start,
        incident.end,
        queues,
        Link(f"{words[0].upper()}{words[1:]}", url),
        len(incident.findings),
        incident.score,
    )


def _row(scope: Scope, incident: Incident, finding: Finding) -> tuple[Any, ...]:
    """A finding, with links to its report and, where there are such, its messages."""
    metric, of = METRICS[finding.metric], {"queue": finding.entity_id}
    url = report_url(metric.evidence, of, finding.start, finding.end)
    was: Any = finding.value(finding.was)
    if metric.order and finding.was:
        was = Link(was, messages_url(of, finding.start, finding.end, order=metric.order))
    what = Link(f"{finding.words[0].upper()}{finding.words[1:]}", url)
    return (
        what,
        scope.paths[finding.entity_id],
        incident.start,
        finding.start,
        finding.end,
        was,
        finding.value(finding.usual),
        abs(finding.score),
    )


ANALYSIS = Analysis(
    slug="overview", title="Overview", form=ReportForm, present=present,
    needs={"counts": constants.LOOK_BACK, "histograms": constants.LOOK_BACK},
    question="What was unusual for the hour and the weekday?",
)  # fmt: skip
