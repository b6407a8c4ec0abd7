"""Losses: which messages were lost, and by what?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker_core.common.durations import human
from explorer.shared.charts import WIDTHS, stacked_bars

from .. import presenters
from ..jobs import measures, outcomes
from .forms import ReportForm
from .report import Analysis, Column, Figure, Report, Section, Table, counted, keyed
from .scope import Range, Scope, ended, floor, generated, of_measure, sums

LOST = {outcomes.COLUMNS[name]: name for name in ("expired", "dead_lettered", "dropped", "moved", "purged", "deleted")}
CAUSES = (
    Column("queue", "Queue"),
    Column("outcome", "Outcome"),
    Column("cause", "Cause"),
    Column("messages", "Messages", "count", has_bar=True),
    Column("first", "First, UTC", "instant"),
    Column("last", "Last, UTC", "instant"),
)


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages of a queue that were lost for one cause. first_at, last_at: the hours in which that happened first and last."""

    entity_id: int
    outcome: str
    cause: str
    messages: int
    first_at: datetime
    last_at: datetime


Ends = Iterable[tuple[int, datetime, int, str | None, int]]  # entity, hour of leaving, outcome, cause, messages


def report(scope: Scope, values: Mapping[str, Any]) -> Report:
    rows = ended(of_measure(scope.rows(), measures.LIFE), scope.range)
    ends = list(sums(rows, "entity_id", "end_hour", "outcome", "cause"))
    losses, paths = causes(ends), scope.paths
    table = Table(
        "causes", "Causes", CAUSES,
        [(paths[one.entity_id], presenters.OUTCOMES[one.outcome], one.cause, one.messages, one.first_at, one.last_at)
         for one in losses],
        empty="No messages were lost in this time.",
    )  # fmt: skip
    return Report(
        finding=sentence(losses),
        sections=[_by_time(scope.range, ends), Section("causes", "Causes", table=table)],
        notes=("Causes are reasons without numbers and ids.",),
        generated=generated(rows),
    )


def causes(ends: Ends) -> list[Loss]:
    """Why messages were lost, most frequent first. Pure."""
    found: dict[tuple[int, str, str], list[tuple[datetime, int]]] = {}
    for entity_id, at, outcome, cause, count in ends:
        if outcome in LOST:
            found.setdefault((entity_id, LOST[outcome], cause or ""), []).append((at, count))
    losses = [Loss(*key, sum(count for _, count in at), min(at)[0], max(at)[0]) for key, at in found.items()]
    return sorted(losses, key=lambda loss: (-loss.messages, loss.outcome, loss.cause, loss.entity_id))


def by_bucket(span: Range, ends: Ends) -> dict[str, list[int]]:
    """The losses in each interval, by outcome in the order of LOST. Pure."""
    place = {at: i for i, at in enumerate(span.buckets)}
    found: dict[str, list[int]] = {}
    for _, at, outcome, _, count in ends:
        if outcome in LOST:
            found.setdefault(LOST[outcome], [0] * len(place))[place[floor(at, span.bucket)]] += count
    return {name: found[name] for name in LOST.values() if name in found}


def sentence(losses: Sequence[Loss]) -> str:
    """How many messages were lost, and mostly why."""
    if not losses:
        return "No messages were lost in this time."
    total = sum(loss.messages for loss in losses)
    word = presenters.OUTCOMES[losses[0].outcome] + (f" ({losses[0].cause})" if losses[0].cause else "")
    verb = "was" if total == 1 else "were"
    return f"{counted(total, 'message')} {verb} lost. Most frequent: {word}, {losses[0].messages:,}."


def _by_time(span: Range, ends: Ends) -> Section:
    lost = by_bucket(span, ends)
    if not lost:
        return Section("times", "By time", "No messages were lost in this time.")
    label = f"Lost messages by {human(span.bucket)} and outcome"
    charts = [stacked_bars(span.buckets, lost, (), one, partial=span.partial) for one in WIDTHS]
    caption = f"by the {human(span.bucket)} in which they were lost"
    return Section("times", "By time", figures=[Figure(label, charts, "bars", caption, keyed(lost, presenters.OUTCOMES))])


ANALYSIS = Analysis(
    slug="losses", title="Losses", group="happened", form=ReportForm, make=report,
    question="Which messages were lost, by what, and when did each cause first appear?",
)  # fmt: skip
