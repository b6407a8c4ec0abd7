"""Redelivery and poison: why do deliveries not succeed, does another attempt help, and what fails again after a resubmit?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from django.urls import reverse

from broker_core.common.types import EventKind, Family, SubQueue
from explorer.shared.charts import WIDTHS
from explorer.shared.timeline import words

from ..jobs import outcomes
from ..survival import FEWEST
from . import attempts, stored
from .attempts import Attempt, by_message, wilson
from .drawings import share_bars
from .forms import ReportForm
from .lock_losses import messages_section, worst_messages
from .losses import LOST
from .report import Analysis, Column, Figure, Link, Report, Section, Table, counted, moment, percent
from .scope import Range, Scope

MOST_ATTEMPTS = 10  # in the chart; later ones are one bar
BY_ATTEMPT = (
    Column("attempt", "Delivery"),
    Column("deliveries", "Deliveries", "count"),
    Column("succeeded", "Succeeded", "count"),
    Column("share", "Share", "share", has_bar=True),
    Column("low", "At least (95 % band)", "share"),
    Column("high", "At most", "share"),
)
REASONS = (
    Column("queue", "Queue"),
    Column("end", "Delivery ended as"),
    Column("reason", "Reason"),
    Column("deliveries", "Deliveries", "count", has_bar=True),
    Column("messages", "Messages", "count"),
    Column("later", "Succeeded later", "share"),
    Column("time", "Time spent", "duration"),
    Column("example", "Latest message"),
)
AGAIN = (
    Column("queue", "Resubmitted from"),
    Column("resubmitted", "Messages", "count"),
    Column("lost", "Lost again", "count"),
    Column("share", "Share lost again", "share", has_bar=True),
    Column("ended", "Ended well", "count"),
    Column("open", "Not ended in this range", "count"),
)
NOTES = (
    "A delivery succeeded if the receiver completed (acknowledged, deleted) the message.",
    "Reasons are without numbers and ids. Time spent is from the receipt to the end of the delivery.",
    f"Bands are Wilson's; fewer than {FEWEST} deliveries say little.",
    "Read from the archived deliveries; receives are recorded at the history level full.",
)


@dataclass(frozen=True, slots=True)
class ByAttempt:
    """The deliveries with one place among those of their message."""

    name: str
    deliveries: int
    succeeded: int

    @property
    def share(self) -> float:
        return self.succeeded / self.deliveries

    @property
    def band(self) -> tuple[float, float]:
        return wilson(self.succeeded, self.deliveries)


@dataclass(frozen=True, slots=True)
class Reason:
    """Why deliveries of a queue did not succeed. later: the messages of them that succeeded later."""

    entity_id: int
    outcome: int
    error: str
    deliveries: int
    messages: int
    later: int
    time: timedelta
    latest: int


@dataclass(frozen=True, slots=True)
class Resubmitted:
    """What became of the messages that were resubmitted from a queue."""

    entity_id: int
    messages: int
    lost: int
    ended: int


def report(scope: Scope, values: Mapping[str, Any]) -> Report:
    found = attempts.read(scope, scope.range)
    steps, why = by_attempt(found), reasons(found)
    said = sentence(found, steps, why, scope.namespace.family)
    if scope.compared:
        said += f" {_compared(attempts.read(scope, scope.compared), scope.compared)}"
    sections = [*_steps(steps), *_reasons(scope, why), *_again(scope)]
    worst = worst_messages(each for each in by_message(found).values() if len(each) > 1)
    if worst:
        sections.append(messages_section(scope, worst, "Deliveries of the messages that failed most often"))
    return Report(said, sections if found else (), NOTES, sum(one.generated for one in found))


def by_attempt(found: Sequence[Attempt]) -> list[ByAttempt]:
    """How many deliveries succeeded, by their place. Pure."""
    total: Counter[int] = Counter()
    well: Counter[int] = Counter()
    for one in found:
        if one.attempt is not None:
            place = min(one.attempt, MOST_ATTEMPTS + 1)
            total[place] += 1
            well[place] += one.succeeded
    return [ByAttempt(str(i) if i <= MOST_ATTEMPTS else f"{i}+", total[i], well[i]) for i in sorted(total)]


def reasons(found: Sequence[Attempt]) -> list[Reason]:
    """Why deliveries did not succeed, most frequent first. Pure."""
    succeeded = {one.message for one in found if one.succeeded}
    groups: dict[tuple[int, int, str], list[Attempt]] = {}
    for one in found:
        if not one.succeeded:
            groups.setdefault((one.entity_id, one.outcome, one.error or ""), []).append(one)
    result = []
    for key, each in groups.items():
        messages, latest = {one.message for one in each}, max(each, key=lambda one: one.ended_at)
        time = sum((one.held for one in each), timedelta(0))
        result.append(Reason(*key, len(each), len(messages), len(messages & succeeded), time, latest.sequence_number))
    return sorted(result, key=lambda one: (-one.deliveries, one.entity_id, one.outcome, one.error))


def sentence(found: Sequence[Attempt], steps: Sequence[ByAttempt], why: Sequence[Reason], family: Family | None = None) -> str:
    """How many deliveries failed, mostly why, and whether another attempt helps."""
    if not found:
        return "No deliveries ended in this time."
    failed = sum(not one.succeeded for one in found)
    if not failed:
        return f"All {counted(len(found), 'delivery', 'deliveries')} succeeded."
    messages = by_message(found)
    again = sum(len(each) > 1 for each in messages.values())
    most = words(EventKind(why[0].outcome), family).word + (f" ({why[0].error})" if why[0].error else "")
    said = (
        f"{attempts.share_of(failed, found)} did not succeed; {again:,} of {counted(len(messages), 'message')} were delivered "
        f"more than once. Most frequent: {most}, {why[0].deliveries:,}."
    )
    enough = [one for one in steps if one.deliveries >= FEWEST]
    if len(enough) > 1:
        first, last = enough[0], enough[-1]
        said += f" Delivery {first.name} succeeds in {percent(first.share)}, delivery {last.name} in {percent(last.share)}."
    return said


def resubmitted(moved: Sequence[tuple[int, int, int]], ends: Mapping[tuple[int, int], int]) -> list[Resubmitted]:
    """What became of resubmitted messages. moved: (queue, queue and number of the message that it became). ends: by queue and
    number, the outcome. Pure."""
    found: dict[int, Counter[str]] = {}
    for entity_id, *became in moved:
        outcome = ends.get((became[0], became[1]))
        word = "open" if outcome is None else "lost" if outcome in LOST else "ended"
        found.setdefault(entity_id, Counter())[word] += 1
    rows = [Resubmitted(entity_id, each.total(), each["lost"], each["ended"]) for entity_id, each in found.items()]
    return sorted(rows, key=lambda one: (-one.lost, -one.messages, one.entity_id))


def _steps(steps: Sequence[ByAttempt]) -> list[Section]:
    if not steps:
        return []
    shares, bands = [one.share for one in steps], [one.band for one in steps]
    tips = [f"delivery {one.name}: {percent(one.share)} of {one.deliveries:,}" for one in steps]
    names = [one.name for one in steps]
    label = "Share of deliveries that succeeded, by their place among those of the message, with its 95 % band"
    figure = Figure(label, [share_bars(names, shares, bands, tips, one) for one in WIDTHS], "bars", caption=label)
    data = [(one.name, one.deliveries, one.succeeded, one.share, *one.band) for one in steps]
    return [
        Section(
            "attempts", "Does another delivery help?", figures=[figure], table=Table("attempts", "By delivery", BY_ATTEMPT, data)
        )
    ]


def _reasons(scope: Scope, why: Sequence[Reason]) -> list[Section]:
    if not why:
        return []
    paths, family = scope.paths, scope.namespace.family
    data = [
        (paths[one.entity_id], words(EventKind(one.outcome), family).word, one.error, one.deliveries, one.messages,
         one.later / one.messages, one.time,
         Link(f"#{one.latest}", reverse("explorer:message", args=(scope.namespace.name, paths[one.entity_id], one.latest))))
        for one in why
    ]  # fmt: skip
    return [Section("reasons", "Reasons", table=Table("reasons", "Reasons", REASONS, data))]


def _again(scope: Scope) -> list[Section]:
    """Messages that were resubmitted in the range: a life in a dead-letter or poison queue ended, and another began."""
    columns = ("entity_id", "subqueue", "sequence_number", "outcome", "reason", "ended_at", "to_entity_id", "to_sequence_number")
    since = scope.range.start - timedelta(days=7)
    lives = stored.lives(scope, since, scope.range, columns)
    moved = lives.filter(pc.and_(pc.equal(lives["outcome"], outcomes.RESUBMITTED), pc.is_valid(lives["to_sequence_number"])))
    if not moved.num_rows:
        return []
    into = pa.table({name: moved[f"to_{name}"] for name in ("entity_id", "sequence_number")})
    main = lives.filter(pc.equal(lives["subqueue"], int(SubQueue.MAIN)))
    after = main.join(into, ["entity_id", "sequence_number"], join_type="left semi")
    ends = {(row["entity_id"], row["sequence_number"]): row["outcome"] for row in after.to_pylist()}
    rows = [(row["entity_id"], row["to_entity_id"], row["to_sequence_number"]) for row in moved.to_pylist()]
    found, paths = resubmitted(rows, ends), scope.paths
    data = [
        (paths[one.entity_id], one.messages, one.lost, one.lost / one.messages, one.ended, one.messages - one.lost - one.ended)
        for one in found
    ]
    total, lost = sum(one.messages for one in found), sum(one.lost for one in found)
    was = ["was" if count == 1 else "were" for count in (total, lost)]
    text = f"{counted(total, 'message')} {was[0]} resubmitted; {lost:,} {was[1]} lost again."
    return [Section("resubmitted", "After a resubmit", text, table=Table("resubmitted", "After a resubmit", AGAIN, data))]


def _compared(before: Sequence[Attempt], span: Range) -> str:
    if not before:
        return f"From {moment(span.start)} to {moment(span.end)} there were no deliveries."
    failed = sum(not one.succeeded for one in before)
    return (
        f"From {moment(span.start)} to {moment(span.end)} it was {percent(failed / len(before))} ({failed:,} of {len(before):,})."
    )


ANALYSIS = Analysis(
    slug="redelivery", title="Redelivery and poison messages", group="why", form=ReportForm, make=report,
    question="Why do deliveries fail, does another one help, and what fails again after a resubmit?",
)  # fmt: skip
