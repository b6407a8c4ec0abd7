"""What if the time-to-live had been X: the share of messages that would have expired before their first delivery."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from broker_core.common.durations import human
from broker_core.form_fields import DurationField
from explorer.shared.charts import WIDTHS, brief, share_curve

from ..jobs import measures, outcomes
from ..survival import FEWEST, CannotTell, Curve, Estimate
from .forms import ReportForm
from .report import ROLLED_UP, Analysis, Column, Figure, Report, Section, Table, counted, moment, percent
from .scope import Range, Scope, entered, generated, of_measure, sums

POINTS = 48  # of the curve
EXAMPLES = tuple(timedelta(seconds=s) for s in (1, 10, 30, 60, 300, 600, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400))
COLUMNS = (
    Column("time_to_live", "Time-to-live", "setting"),
    Column("share", "Would have expired", "share"),
    Column("low", "At least (95 % band)", "share"),
    Column("high", "At most", "share"),
)
BEFORE = Column("before", "In the other range", "share")
NOTES = (
    "Kaplan-Meier estimate of the time from enqueueing to the first delivery.",
    "A message that expired or is still waiting counts as long as it was there.",
    "The estimate assumes that consumers would have behaved the same, and does not include effects of fewer messages on the wait "
    "of the others.",
    ROLLED_UP,
)
MIXED = (
    "The messages had {} different times-to-live. The estimate takes them together: it holds if those with a short one would "
    "have waited like the others."
)


class TimeToLiveForm(ReportForm):
    DEFAULTS = {"range": "7d"}

    x = DurationField(label="Time-to-live", required=False, help_text='Such as "30 s" or "5 min".')


@dataclass(frozen=True, slots=True)
class History:
    """What became of the messages that entered a queue in a range.

    classes: how many had which time-to-live in force at their end, by bin; None: none, or unknown.
    """

    curve: Curve
    ended: int
    expired: int
    still_there: int
    generated: int
    classes: dict[int | None, int]


def report(scope: Scope, values: Mapping[str, Any]) -> Report:
    found, chosen, refusal = history(scope), values.get("x"), ""
    finding = based_on(found)
    try:
        if chosen:
            finding = f"{sentence(found, chosen)} {finding}"
        else:
            found.curve.at(0)
    except CannotTell as problem:
        refusal = str(problem)
    before = history(replace(scope, range=scope.compared, compared=None)) if scope.compared else None
    if before and scope.compared and chosen and not refusal:
        finding += f" {compared(before, scope.compared, chosen)}"
    then = dict(estimates(before)) if before else {}
    rows = [
        (duration, one.share, one.low, one.high, *([then[duration].share if duration in then else None] if before else []))
        for duration, one in estimates(found)
    ]
    table = Table("estimates", "Estimates", (*COLUMNS, BEFORE) if before else COLUMNS, rows)
    sections = [Section("estimate", "Estimate", figures=figures(found, chosen, before), table=table)] if rows else []
    notes = (*NOTES, MIXED.format(len(found.classes))) if len(found.classes) > 1 else NOTES
    return Report(finding, sections, notes, found.generated, refusal)


def history(scope: Scope) -> History:
    """Read what became of the messages that entered in the range, also of those that are still there."""
    rows, span = entered(scope.rows(), scope.range), scope.range
    lives = of_measure(rows, measures.LIFE)
    waiting, absent = (Counter(dict(sums(of_measure(rows, one), "bin"))) for one in (measures.WAITING, measures.NEVER_RECEIVED))
    there = [row for row in scope.present(span.end) if row.hour >= span.start]
    for row in there:
        (waiting if row.received else absent)[measures.bin_of(row.waited_us)] += row.messages
    by_outcome = dict(sums(lives, "outcome"))
    return History(
        curve=Curve(waiting, absent),
        ended=sum(by_outcome.values()),
        expired=by_outcome.get(outcomes.EXPIRED, 0),
        still_there=sum(row.messages for row in there),
        generated=generated(rows),
        classes=dict(sums(lives, "time_to_live_bin")),
    )


def based_on(found: History) -> str:
    """The messages that the estimate is from."""
    curve = found.curve
    return (
        f"Based on {counted(curve.messages, 'message')} that entered the queue: {curve.received:,} were received, "
        f"{curve.not_received:,} left it without having been received or are still waiting, {found.expired:,} expired."
    )


def sentence(found: History, time_to_live: timedelta) -> str:
    """The finding with its band and its assumption. Raises CannotTell."""
    estimate = found.curve.at(_microseconds(time_to_live))
    more = found.curve.messages * estimate.share - found.expired
    change = f"about {abs(more):,.0f} {'more' if more > 0 else 'fewer'} than the {found.expired:,} that did"
    return (
        f"With a time-to-live of {human(time_to_live)}, an estimated {percent(estimate.share)} "
        f"({percent(estimate.low)} to {percent(estimate.high)}) of the messages would have expired before their first delivery, "
        f"{change}, if consumers had behaved the same."
    )


def compared(before: History, span: Range, time_to_live: timedelta) -> str:
    """The estimate in another range."""
    between = f"From {moment(span.start)} to {moment(span.end)}"
    try:
        one = before.curve.at(_microseconds(time_to_live))
    except CannotTell as problem:
        return f"{between} it cannot be told: {problem}"
    return f"{between} it would have been {percent(one.share)} ({percent(one.low)} to {percent(one.high)})."


def estimates(found: History) -> list[tuple[timedelta, Estimate]]:
    """The estimate for usual times-to-live, as far as the history can tell."""
    rows = []
    for time_to_live in EXAMPLES:
        try:
            rows.append((time_to_live, found.curve.at(_microseconds(time_to_live))))
        except CannotTell:
            continue
    return rows


def figures(found: History, chosen: timedelta | None, before: History | None = None) -> list[Figure]:
    """The share that would have expired, by time-to-live, with its band, and that of another range. The history has enough
    messages."""
    low, high = (max(one, 1000) for one in found.curve.span_us)
    high = max(high, low * 10)
    times = [timedelta(microseconds=round(low * (high / low) ** (i / (POINTS - 1)))) for i in range(POINTS)]
    points = [found.curve.at(min(_microseconds(time), found.curve.span_us[1])) for time in times]
    series = {name: [getattr(one, name) for one in points] for name in ("share", "low", "high")}
    keys: list[tuple[str, str]] = []
    if before and before.curve.received >= FEWEST:
        last = before.curve.span_us[1]
        series["before"] = [before.curve.at(min(_microseconds(time), last)).share for time in times]
        keys = [("share", "this range"), ("before", "the other range")]
    tips = [f"{brief(time)}: {percent(one.share)}" for time, one in zip(times, points, strict=True)]
    charts = [share_curve(times, series, tips, variant, chosen) for variant in WIDTHS]
    label = "Share that would have expired before the first delivery, by time-to-live, with its 95 % band"
    return [Figure(label, charts, caption=label, keys=keys)]


def _microseconds(duration: timedelta) -> int:
    return round(duration / timedelta(microseconds=1))


ANALYSIS = Analysis(
    slug="time-to-live", title="What if the time-to-live had been different?", group="what_if", form=TimeToLiveForm, make=report,
    question="How many messages would have expired before their first delivery?", needs_entity=True,
)  # fmt: skip
