"""Redelivery and poison: why do deliveries not succeed, does another attempt help, and what fails again after a resubmit?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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
    troubled = attempts.listed(attempts.of_messages(found, pc.invert(found["succeeded"])))
    steps, why = by_attempt(found), reasons(troubled)
    said = sentence(found, steps, why, scope.namespace.family)
    if scope.compared:
        said += f" {_compared(attempts.read(scope, scope.compared), scope.compared)}"
    sections = [*_steps(steps), *_reasons(scope, why), *_again(scope)]
    worst = worst_messages(each for each in by_message(troubled).values() if len(each) > 1)
    if worst:
        sections.append(messages_section(scope, worst, "Deliveries of the messages that failed most often"))
    return Report(said, sections if found.num_rows else (), NOTES, pc.sum(found["generated"]).as_py() or 0)


def by_attempt(found: pa.Table) -> list[ByAttempt]:
    """How many deliveries succeeded, by their place. Pure."""
    known = found.filter(pc.is_valid(found["attempt"]))
    place = pc.min_element_wise(known["attempt"], MOST_ATTEMPTS + 1)
    well = pc.cast(known["succeeded"], pa.int64())
    grouped = pa.table({"place": place, "well": well}).group_by("place").aggregate([("well", "count"), ("well", "sum")])
    return [
        ByAttempt(str(row["place"]) if row["place"] <= MOST_ATTEMPTS else f"{row['place']}+", row["well_count"], row["well_sum"])
        for row in grouped.sort_by("place").to_pylist()
    ]


def reasons(troubled: Sequence[Attempt]) -> list[Reason]:
    """Why deliveries did not succeed, most frequent first. troubled: all deliveries of the messages that have such. Pure."""
    succeeded = {one.message for one in troubled if one.succeeded}
    groups: dict[tuple[int, int, str], list[Attempt]] = {}
    for one in troubled:
        if not one.succeeded:
            groups.setdefault((one.entity_id, one.outcome, one.error or ""), []).append(one)
    result = []
    for key, each in groups.items():
        messages, latest = {one.message for one in each}, max(each, key=lambda one: one.ended_at)
        time = sum((one.held for one in each), timedelta(0))
        result.append(Reason(*key, len(each), len(messages), len(messages & succeeded), time, latest.sequence_number))
    return sorted(result, key=lambda one: (-one.deliveries, one.entity_id, one.outcome, one.error))


def sentence(found: pa.Table, steps: Sequence[ByAttempt], why: Sequence[Reason], family: Family | None = None) -> str:
    """How many deliveries failed, mostly why, and whether another attempt helps."""
    if not found.num_rows:
        return "No deliveries ended in this range."
    failed = _failed(found)
    if not failed:
        return f"All {counted(found.num_rows, 'delivery', 'deliveries')} succeeded."
    messages = pc.sum(found["first"]).as_py()
    others = found.filter(pc.invert(found["first"])).group_by(list(attempts.MESSAGE)).aggregate([]).num_rows
    by_reason: Counter[tuple[int, str]] = Counter()
    for one in why:
        by_reason[one.outcome, one.error] += one.deliveries
    [((outcome, error), often)] = by_reason.most_common(1)
    most = words(EventKind(outcome), family).word + (f" ({error})" if error else "")
    said = (
        f"{attempts.share_of(failed, found.num_rows)} did not succeed; {others:,} of {counted(messages, 'message')} were "
        f"delivered more than once. Most frequent: {most}, {often:,}."
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
         Link(f"#{one.latest}", scope.message_url(one.entity_id, one.latest)))
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


def _compared(before: pa.Table, span: Range) -> str:
    total = before.num_rows
    if not total:
        return f"From {moment(span.start)} to {moment(span.end)} there were no deliveries."
    failed = _failed(before)
    return f"From {moment(span.start)} to {moment(span.end)} it was {percent(failed / total)} ({failed:,} of {total:,})."


def _failed(found: pa.Table) -> int:
    return found.num_rows - (pc.sum(found["succeeded"]).as_py() or 0)


ANALYSIS = Analysis(
    slug="redelivery", title="Redelivery and poison messages", group="why", form=ReportForm, make=report,
    question="Why do deliveries fail, does another one help, and what fails again after a resubmit?",
)  # fmt: skip
