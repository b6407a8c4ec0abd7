"""What if the maximum deliveries had been N: an estimate from the archive's attempts. N counts deliveries: with a limit of N, the
N-th failed delivery of a message is its last one.

The number of failed deliveries of a message takes the place of time in the Kaplan-Meier estimate (survival.py): a message ends
when its receiver processes or rejects it; one that reached the limit, expired or was taken away is censored after its failures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from django import forms

from explorer.shared.charts import WIDTHS, brief
from explorer.shared.family import pages_of

from ..jobs import measures
from ..survival import CannotTell, Curve, Estimate, Subject
from . import held
from .attempts import wilson
from .drawings import share_bars
from .forms import ReportForm
from .report import PREVIEWED, Analysis, Column, Figure, Link, Report, Section, Table, counted, percent
from .scope import Scope, entered, of_measure

SUBJECT = Subject("messages were processed or rejected by a consumer", "No message of this time was delivered so often")
MOST_BARS = 12  # of the chart
MOST = 100  # deliveries of a message that are told apart
COLUMNS = (
    Column("limit", "{}", "count"),
    Column("dead", "Would have reached it", "share", has_bar=True),
    Column("low", "At least (95 % band)", "share"),
    Column("high", "At most", "share"),
    Column("well", "Processed", "share"),
    Column("failed", "Failed deliveries", "count"),
    Column("poison", "Wasted time", "duration"),
    Column("until_dead", "First delivery to the last failure", "duration"),
)
BY_ATTEMPT = (
    Column("delivery", "Delivery", "count"),
    Column("ended", "Ended", "count"),
    Column("processed", "Processed", "share", has_bar=True),
    Column("low", "At least (95 % band)", "share"),
    Column("high", "At most", "share"),
    Column("rejected", "Rejected", "count"),
    Column("failed", "Failed", "count"),
    Column("held", "Lock time, failed", "duration"),
)
NOTES = (
    "Kaplan-Meier estimate by the number of failed deliveries: a message that reached the limit, expired or is still there "
    "counts as often as it was delivered.",
    "A delivery fails if it is abandoned or its lock is lost. Wasted time: spent on messages that were never processed.",
    "The estimate assumes that later deliveries would have succeeded as often as those that there were, and that consumers would "
    "have behaved the same. It does not include effects on the wait of other messages; the replay does.",
    PREVIEWED,
)


class DeliveriesForm(ReportForm):
    DEFAULTS = {"range": "7d"}

    compare = None
    n = forms.IntegerField(label="Limit", required=False, min_value=0, max_value=10_000)

    @property
    def own_fields(self) -> list[forms.BoundField]:
        if self.subject:
            self["n"].label = pages_of(self.subject.namespace.family).limits.deliveries.capitalize()
        return super().own_fields


@dataclass(frozen=True, slots=True)
class Attempt:
    """All deliveries that were the n-th one of their message.

    well, rejected, failed: how many ended so; others were cut off. held: by consumers, on the average of the failed ones.
    since_first: from the message's first delivery to the end of this failed one, on the average.
    """

    well: int = 0
    rejected: int = 0
    failed: int = 0
    held: timedelta = timedelta(0)
    since_first: timedelta = timedelta(0)

    @property
    def ended(self) -> int:
        return self.well + self.rejected + self.failed

    @property
    def success(self) -> float:
        """The share that was processed."""
        return self.well / max(1, self.ended)


@dataclass(frozen=True, slots=True)
class History:
    """attempts: by the number of the delivery, from 1 on. dead: messages that reached the limit in force. curve: the share that
    was neither processed nor rejected within n deliveries."""

    curve: Curve
    attempts: list[Attempt]
    messages: int
    dead: int
    generated: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a limit of N deliveries would have done, as shares of the messages; wasted: failed deliveries per message.

    poison_time: how long consumers would have held messages in vain, that is in failed deliveries of messages that end
    dead-lettered, of all messages together. until_dead: from the first delivery of such a message to its last failure.
    """

    deliveries: int
    dead: Estimate
    well: float
    wasted: float
    poison_time: timedelta
    until_dead: timedelta


def report(scope: Scope, values: Mapping[str, Any]) -> Report:
    limits, chosen, refusal = scope.family.limits, values.get("n"), ""
    found = history(scope)
    finding = (
        f"Based on {counted(found.messages, 'message')} that were delivered: {found.curve.received:,} were processed or rejected "
        f"by a consumer, {found.dead:,} reached the limit."
    )
    try:
        if chosen is not None:
            deliveries = chosen + limits.more_deliveries
            if not deliveries:
                raise CannotTell(f"A {limits.deliveries} of 0 would allow no delivery. Enter 1 or more.")
            finding = f"{sentence(found, deliveries, limits.deliveries, chosen)} {finding}"
        else:
            found.curve.at(1)
    except CannotTell as problem:
        refusal = str(problem)
    return Report(finding, _sections(scope, found) if answers(found) else [], NOTES, found.generated, refusal)


def history(scope: Scope) -> History:
    """Read the deliveries of the messages that were first delivered in a range. Raises messages.TooManyLives."""
    lives = of_measure(entered(scope.rows(), scope.range), measures.LIFE)
    by_limit = pc.fill_null(pc.is_in(lives["cause"], pa.array(held.LIMIT_REASONS)), False)
    dead = pc.sum(lives.filter(by_limit)["messages"]).as_py() or 0
    return of_deliveries(held.read(scope), dead)


def of_deliveries(table: pa.Table, dead: int = 0) -> History:
    """The history in attempts, judged and in the order of their messages. dead: messages that reached the limit in force."""
    first = held.starts_message(table)
    place = pc.cumulative_sum(pc.cast(first, pa.int64()))  # of the message, from 1
    known = pc.or_(pc.is_null(table["attempt"]), pc.less_equal(table["attempt"], 1))
    begun = table["received_at"].combine_chunks().filter(first)
    from_first = known.combine_chunks().filter(first)  # not: a message whose first deliveries are outside the range
    failed = pc.cast(table["failed"], pa.int64()).combine_chunks()
    running = pc.cumulative_sum(failed)
    before = pc.subtract(running, failed)
    base = before.filter(first)
    index = pc.subtract(place, 1)
    rows = pa.table({
        "message": place,
        "number": pc.add(pc.subtract(before, base.take(index)), 1),
        "well": pc.cast(table["well"], pa.int64()), "rejected": pc.cast(table["rejected"], pa.int64()), "failed": failed,
        "held": pc.if_else(pc.equal(failed, 1), table["held_us"], 0),
        "since": pc.if_else(pc.equal(failed, 1), _since(table["ended_at"], begun.take(index)), 0),
    }).filter(from_first.take(index))  # fmt: skip
    generated = pc.sum(table["generated"]).as_py() or 0
    return _counted(rows, dead, generated)


def answer(found: History, deliveries: int) -> Answer:
    """Raises CannotTell if there are too few messages, or none was delivered so often."""
    dead = found.curve.at(deliveries)
    still, well, wasted, poison = 1.0, 0.0, 0.0, timedelta(0)
    for attempt in found.attempts[:deliveries]:
        total = max(1, attempt.ended)
        well += still * attempt.well / total
        still *= attempt.failed / total
        wasted += still
        poison += attempt.held
    last = found.attempts[min(deliveries, len(found.attempts)) - 1]
    return Answer(deliveries, dead, well, wasted, dead.share * found.messages * poison, last.since_first)


def answers(found: History) -> list[Answer]:
    """For each number of deliveries that was observed."""
    rows = []
    for deliveries in range(1, len(found.attempts) + 1):
        try:
            rows.append(answer(found, deliveries))
        except CannotTell:
            break
    return rows


def sentence(found: History, deliveries: int, word: str, limit: int) -> str:
    """The finding with its band, its assumption, its stratum and the number of messages. word, limit: the family's setting and
    its value for so many deliveries. Raises CannotTell."""
    one = answer(found, deliveries)
    change = one.dead.share * found.messages - found.dead
    same = f"as many as the {found.dead:,} that were"
    than = f"about {abs(change):,.0f} {'more' if change > 0 else 'fewer'} than the {found.dead:,} that were"
    return (
        f"With a {word} of {limit:,}, an estimated {percent(one.dead.share)} ({percent(one.dead.low)} to "
        f"{percent(one.dead.high)}) of {counted(found.messages, 'message')} that were delivered would have reached it, "
        f"{same if abs(change) < 0.5 else than}; {percent(one.well)} would have been processed. Deliveries would have failed "
        f"{one.wasted * found.messages:,.0f} times; consumers would have held messages that never succeed for "
        f"{brief(one.poison_time)} in all, each about {brief(one.until_dead)} from its first delivery to its last failure. "
        "This holds if later deliveries had succeeded as often as those that there were, and consumers had behaved the same."
    )


def _sections(scope: Scope, found: History) -> list[Section]:
    limits, entity = scope.family.limits, scope.entities[0]
    rows = []
    for one in answers(found):
        limit = one.deliveries - limits.more_deliveries
        url = "" if entity.deleted_at else limits.propose(entity, None, limit, None)
        failed = round(one.wasted * found.messages)
        rows.append((Link(limit, url) if url else limit, one.dead.share, one.dead.low, one.dead.high, one.well, failed,
                     one.poison_time, one.until_dead))  # fmt: skip
    columns = [replace(COLUMNS[0], title=limits.deliveries.capitalize()), *COLUMNS[1:]]
    ended = [(number, one) for number, one in enumerate(found.attempts, 1) if one.ended]
    by_attempt = [
        (number, one.ended, one.success, *wilson(one.well, one.ended), one.rejected, one.failed, one.held if one.failed else None)
        for number, one in ended
    ]
    return [
        Section("limits", "By limit", table=Table("limits", "By limit", columns, rows)),
        Section(
            "success",
            "Success by delivery",
            figures=[_figure(ended)],
            table=Table("success", "Success by delivery", BY_ATTEMPT, by_attempt),
        ),
    ]


def _figure(ended: Sequence[tuple[int, Attempt]]) -> Figure:
    shown = ended[:MOST_BARS]
    labels, shares = [str(number) for number, _ in shown], [one.success for _, one in shown]
    tips = [f"delivery {number}: {percent(one.success)} of {one.ended:,} processed" for number, one in shown]
    bands = [wilson(one.well, one.ended) for _, one in shown]
    charts = [share_bars(labels, shares, bands, tips, variant) for variant in WIDTHS]
    label = "Share of deliveries after which the message was processed, by their number, with its 95 % band"
    return Figure(label, charts, kind="bars", caption=label)


def _counted(rows: pa.Table, dead: int, generated: int) -> History:
    rows = rows.set_column(1, "number", pc.min_element_wise(rows["number"], MOST))
    sums = ("well", "rejected", "failed", "held", "since")
    by_number = rows.group_by("number").aggregate([(name, "sum") for name in sums]).sort_by("number").to_pylist()
    found: dict[int, Attempt] = {}
    for row in by_number:
        each = max(1, row["failed_sum"])
        times = (timedelta(microseconds=row[f"{name}_sum"] / each) for name in ("held", "since"))
        found[row["number"]] = Attempt(row["well_sum"], row["rejected_sum"], row["failed_sum"], *times)
    last = max((number for number, one in found.items() if one.ended), default=0)
    messages = rows.group_by("message").aggregate([(name, "sum") for name in ("well", "rejected", "failed")])
    over = pc.greater(pc.add(messages["well_sum"], messages["rejected_sum"]), 0)
    ended = Counter({number: one.well + one.rejected for number, one in found.items() if one.well + one.rejected})
    failures = pc.min_element_wise(messages.filter(pc.invert(over))["failed_sum"], MOST)
    cut = Counter({row["values"]: row["counts"] for row in pc.value_counts(failures).to_pylist()})
    listed = [found.get(number, Attempt()) for number in range(1, last + 1)]
    return History(
        curve=Curve(ended, cut, SUBJECT, lambda number: number - 1),
        attempts=listed,
        messages=messages.num_rows,
        dead=dead,
        generated=generated,
    )


def _since(ended: pa.ChunkedArray, begun: pa.Array) -> pa.ChunkedArray:
    return pc.max_element_wise(pc.subtract(pc.cast(ended, pa.int64()), pc.cast(begun, pa.int64())), 0)


ANALYSIS = Analysis(
    slug="deliveries", title="What if the maximum number of deliveries had been different?", group="what_if", form=DeliveriesForm,
    make=report, needs_entity=True, question="How many messages would have been processed, or failed for good?",
)  # fmt: skip
