"""Waiting and work: how long do messages wait for their first delivery, how long does processing take, and for whom?"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from explorer.charts.chart import WIDTHS
from explorer.charts.columns import duration_heat_map, share_curve
from explorer.charts.labels import brief

from ..jobs.measures import middle
from ..survival import FEWEST, CannotTell, Curve
from .forms import ReportForm
from .listing import messages_url
from .report import Analysis, Column, Figure, Link, Report, Section, Table, counted, moment, percent
from .scope import Axis, Range, Scope
from .tables import Tables
from .times import Times, times_by, together

PERCENTILES = (0.5, 0.75, 0.9, 0.95, 0.99)
POINTS = 48  # of a curve
MANY_TIMES = 1000  # the median; how many more says nothing
SLOW = 2.0  # times the median of all, from which the slowest interval is worth a sentence
AXIS = (
    Column("at", "Enqueued, UTC", "instant"),
    Column("entered", "Messages", "count"),
    Column("wait_p50", "Wait, median", "duration"),
    Column("wait_p95", "Wait, 95 %", "duration"),
    Column("processed", "Processed", "count"),
    Column("work_p50", "Processing, median", "duration"),
    Column("work_p95", "Processing, 95 %", "duration"),
)
SHARES = (
    Column("share", "Share of messages", "share"),
    Column("wait", "Received within", "duration"),
    Column("work", "Processed within", "duration"),
)
SHARES_BEFORE = (
    Column("wait_before", "Received within, before", "duration"),
    Column("work_before", "Processed within, before", "duration"),
)
QUEUES = (
    Column("queue", "Queue"),
    Column("messages", "Messages", "count"),
    Column("wait_p50", "Wait, median", "duration"),
    Column("wait_p95", "Wait, 95 %", "duration", has_bar=True),
    Column("never", "Not received", "share"),
    Column("processed", "Processed", "count"),
    Column("work_p50", "Processing, median", "duration"),
    Column("work_p95", "Processing, 95 %", "duration", has_bar=True),
)
NOTES = (
    "Waiting is from enqueueing to the first delivery; processing is from the last delivery to the settlement by a receiver.",
    "Messages are counted in the interval in which they were enqueued.",
    "Messages that expired, were removed or still wait count as long as they could have been received (Kaplan-Meier), so an "
    "outage shows as long waiting; a percentile that was not reached is shown as a dash.",
    "Durations are those of bins, off by at most 1 in 32.",
)
LINES = [("p50", "median"), ("p95", "95 %")]


def present(scope: Scope, values: Mapping[str, Any], tables: Tables) -> Report:
    known = tables.only_row("known")
    by_time, by_queue = times_by(tables["times"], "at"), times_by(tables["queues"], "entity_id")
    everything = together(by_time.values())
    before = times_by(tables["before"]).get(None, Times()) if scope.compared else None
    medians = {at: times.wait(0.5) for at, times in by_time.items() if times.messages >= FEWEST}
    finding = " ".join(
        [
            sentence(scope.name, everything, medians),
            *([slowest_queue(scope.paths, by_queue)] if scope.is_whole and len(by_queue) > 1 else ()),
            *([compared(before, scope.compared)] if scope.compared and before is not None else ()),
        ]
    )
    sections = [section for section in _sections(scope, scope.range.axis(known.since), by_time, by_queue, before) if section]
    return Report(finding, sections if everything.messages else (), NOTES, known.generated)


def sentence(name: str, times: Times, medians: Mapping[datetime, timedelta | None]) -> str:
    """How long the messages of a queue or namespace waited, how long processing took, and the slowest interval. medians: of the
    waiting by interval."""
    if not times.messages:
        return f"No messages entered {name} in this range."
    half, most = times.wait(0.5), times.wait(0.95)
    if half is None:
        share = percent(times.absent.total() / times.messages)
        text = (
            f"Of {counted(times.messages, 'message')} in {name}, {share} were not received (yet): the median is beyond what was "
            "observed."
        )
    else:
        later = f"95\xa0% within {brief(most)}" if most is not None else "95\xa0% not within the time observed"
        text = f"Of {counted(times.messages, 'message')} in {name}, half were received within {brief(half)}, {later}."
    if times.work:
        text += f" Processing took {brief(times.processing(0.5))} in the median, 95\xa0% within {brief(times.processing(0.95))}."
    slowest = max(medians, key=lambda at: medians[at] or timedelta.max, default=None)
    if slowest is None or half is None:
        return text
    worst = medians[slowest]
    if worst is None:
        return f"{text} Of those enqueued from {moment(slowest)} on, fewer than half were received."
    if worst >= SLOW * half:
        times_ = f"{worst / half:,.0f}" if worst < MANY_TIMES * half else f"over {MANY_TIMES:,}"
        text += f" Slowest were those from {moment(slowest)} on: half waited {brief(worst)}, {times_} times as long."
    return text


def slowest_queue(names: Mapping[int, str], by_queue: Mapping[int, Times]) -> str:
    """The queue whose messages waited longest."""
    entity_id, times = _slowest_first(by_queue)[0]
    most = times.wait(0.95)
    text = f"95\xa0% within {brief(most)}" if most is not None else "95\xa0% not within the time observed"
    return f"The slowest queue is {names[entity_id]}: {text}."


def compared(before: Times, span: Range) -> str:
    """The times of another range."""
    if not before.messages:
        return f"From {span} there were no messages."
    half, most = before.wait(0.5), before.wait(0.95)
    return f"From {span}: half within {brief(half)}, 95\xa0% within {brief(most)}."


def _sections(
    scope: Scope, axis: Axis, by_time: Mapping[datetime, Times], by_queue: Mapping[int, Times], before: Times | None
) -> list[Section | None]:
    """The heat map of waiting, then the details."""
    span = scope.range
    return [
        _heat(span, axis, by_time, "wait", "Waiting"),
        _heat(span, axis, by_time, "work", "Processing"),
        _shares(together(by_time.values()), before),
        *(_by_queue(scope, by_queue) if scope.is_whole else ()),
        Section("data", "Data", table=Table("times", "Data", AXIS, _rows(scope, axis, by_time), is_axis=True)),
    ]


def _heat(span: Range, axis: Axis, by_time: Mapping[datetime, Times], kind: str, title: str) -> Section | None:
    """The durations by interval as a heat map with lines of percentiles. kind: wait, or work."""
    counts: dict[tuple[int, float], int] = {}
    empty = Times()
    rows = [by_time.get(at, empty) for at in axis.starts]
    for i, times in enumerate(rows):
        for number, count in (times.waiting if kind == "wait" else times.work).items():
            counts[i, middle(number) / 1e6] = count
    if not counts:
        return None
    lines = {
        name: [times_of_step.wait(share) if kind == "wait" else times_of_step.processing(share) for times_of_step in rows]
        for name, share in (("p50", 0.5), ("p95", 0.95))
    }
    word = title.lower()
    label = f"Duration of {word} by {span.unit}, with median and 95th percentile"
    figure = Figure(
        label, [duration_heat_map(axis.starts, counts, lines, width, axis.partial) for width in WIDTHS], "heat",
        caption=f"{word} by the {span.unit} of enqueueing, logarithmic scale; the stronger the color, the more messages",
        keys=LINES, columns=f"entered {kind}_p50 {kind}_p95",
    )  # fmt: skip
    return Section(kind, title, figures=[figure])


def _shares(times: Times, before: Times | None) -> Section:
    """The share received within a time, with its band, and that of the other range; and a table of percentiles."""
    columns = SHARES + (SHARES_BEFORE if before else ())
    rows = [
        (share, times.wait(share), times.processing(share), *((before.wait(share), before.processing(share)) if before else ()))
        for share in PERCENTILES
    ]
    figures = []
    with suppress(CannotTell):  # too few for a band; the table has what there is
        figures.append(_curve(times, before))
    return Section("shares", "How long they waited", figures=figures, table=Table("shares", "Percentiles", columns, rows))


def _curve(times: Times, before: Times | None) -> Figure:
    curve = times.curve
    other = before.curve if before and before.waiting.total() >= FEWEST else None
    spans = [curve.span_us, *([other.span_us] if other else [])]
    low = max(1000, min(first for first, _ in spans))
    high = max(low * 10, *(last for _, last in spans))
    points = [timedelta(microseconds=round(low * (high / low) ** (i / (POINTS - 1)))) for i in range(POINTS)]

    def received(of: Curve) -> list[Any]:
        return [of.at(min(round(point / timedelta(microseconds=1)), of.span_us[1])) for point in points]

    estimates = received(curve)
    series = {
        "share": [1 - estimate.share for estimate in estimates],
        "low": [1 - estimate.high for estimate in estimates],
        "high": [1 - estimate.low for estimate in estimates],
    }
    keys = [("share", "this range, with its 95\xa0% band")]
    if other:
        series["before"] = [1 - estimate.share for estimate in received(other)]
        keys.append(("before", "the range to compare with"))
    tips = [f"{brief(at)}: {percent(share)}" for at, share in zip(points, series["share"], strict=True)]
    label = "Share of the messages that were received within a time"
    return Figure(label, [share_curve(points, series, tips, width) for width in WIDTHS], keys=keys)


def _by_queue(scope: Scope, by_queue: Mapping[int, Times]) -> list[Section]:
    paths, span = scope.paths, scope.range
    data = [
        (paths[entity_id], Link(times.messages, messages_url({"queue": entity_id}, span.start, span.end)), *_columns(times)[:2],
         times.absent.total() / times.messages, *_columns(times)[2:])
        for entity_id, times in _slowest_first(by_queue)
    ]  # fmt: skip
    return [Section.with_table("queues", "By queue", QUEUES, data, sentence="Slowest first.")]


def _columns(times: Times) -> tuple[Any, ...]:
    """The columns from the median wait on, without the share that was not received."""
    return (*map(times.wait, (0.5, 0.95)), times.work.total(), *map(times.processing, (0.5, 0.95)))


def _slowest_first(by_queue: Mapping[int, Times]) -> list[tuple[int, Times]]:
    def key(item: tuple[int, Times]) -> list[timedelta]:
        return [item[1].wait(share) or timedelta.max for share in (0.95, 0.5)]

    return sorted(((entity_id, times) for entity_id, times in by_queue.items() if times.messages), key=key, reverse=True)


def _rows(scope: Scope, axis: Axis, by_time: Mapping[datetime, Times]) -> list[tuple[Any, ...]]:
    """The intervals for the table, newest first."""
    span, empty, rows = scope.range, Times(), []
    for at in reversed(axis.starts):
        times = by_time.get(at, empty)
        url = messages_url(scope.query, max(at, span.start), min(at + span.bucket, span.end))
        rows.append((at, Link(times.messages, url), *_columns(times)))
    return rows


ANALYSIS = Analysis(
    slug="waiting", title="Waiting and work", form=ReportForm, present=present,
    needs={"counts": timedelta(days=1), "histograms": timedelta(0)},
    question="How long do messages wait, how long does processing take, and for whom?",
)  # fmt: skip
