"""What if the lock had been Y: an estimate from the archive's attempts. Lock stands for the lock duration, the visibility timeout
and the consumer timeout alike.

A delivery whose lock was lost needed at least as long as the lock was: it is censored there (survival.py). Consumers that renew
their locks would renew any lock, so their deliveries are counted apart. Nothing here feeds back: neither the work that is done
twice nor the messages that come back sooner change what consumers do. Replay (replay.py) does that.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from django.forms import BoundField

from broker_core.common.durations import human
from broker_core.form_fields import DurationField
from explorer.shared.charts import WIDTHS, brief, cost_curve, share_curve
from explorer.shared.family import LimitPages, pages_of

from .. import rollups
from ..jobs import measures
from ..survival import FEWEST, CannotTell, Curve, Estimate, Subject
from . import held
from .forms import ReportForm
from .report import PREVIEWED, Analysis, Column, Figure, Link, Report, Section, Table, counted, percent
from .scope import Scope

SUBJECT = Subject("deliveries were ended by their consumer", "No delivery of this time was held for so long")
POINTS = 48  # of the cost curve
NEAR_LOWEST = 1.25  # locks that cost at most this much of the lowest cost are recommended
SHOWN_COST = 8  # the chart begins where the cost is at most so many times the lowest
WEIGHT = timedelta(minutes=1)  # how much delay is as bad as a duplicate, unless the user says otherwise
EXAMPLES = tuple(timedelta(seconds=s) for s in (1, 5, 10, 30, 60, 120, 300, 900, 1800, 3600, 4 * 3600, 86_400, 7 * 86_400))
SECOND = timedelta(seconds=1)
COLUMNS = (
    Column("lock", "{}", "setting"),
    Column("lost", "Locks lost", "share"),
    Column("low", "At least (95 % band)", "share"),
    Column("high", "At most", "share"),
    Column("duplicates", "Processed twice, at least", "share"),
    Column("vanished", "Consumer lost", "share"),
    Column("recovery", "Delivered again after a crash", "duration"),
)
NOTES = (
    "Kaplan-Meier estimate of how long consumers held messages; a delivery whose lock was lost counts as long as the lock was.",
    "Deliveries that were processed later than a lock would have ended would have been processed twice. Where no consumer was "
    "heard of for as long as any lock was, it is unknown whether it crashed or needed longer; the cost counts it as a crash.",
    "The estimate assumes that consumers would have behaved the same, and does not include effects of repeated work on the wait "
    "of other messages; the replay does.",
    PREVIEWED,
)


@dataclass(frozen=True, slots=True)
class History:
    """The deliveries of a queue in a range.

    curve:    how long consumers that never renewed a lock held messages.
    lost:     their locks that were lost; renewing: deliveries of consumers that renew.
    usual_lock: the most frequent one at the receipt; None: locks do not end by time.
    pickup:   from the end of a lost lock to the next delivery, by bin.
    """

    curve: Curve
    lost: int
    renewing: int
    usual_lock: timedelta | None
    pickup: Counter[int]
    generated: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a lock of some length would have done, as shares of the deliveries.

    duplicates: the consumer was still working when its lock ended, and is known to have gone on to the end; at least.
    vanished:   nothing was heard of the consumer for as long as any lock was: it crashed, or needed longer.
    recovery:   from the delivery to a consumer that crashed to the next delivery: the lock, and the median of the pickup.
    """

    lock: timedelta
    lost: Estimate
    duplicates: float
    vanished: float
    recovery: timedelta


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a lock, by 1,000 deliveries, as delay: of the duplicates by their weight, and of the messages that vanished with their
    consumer until they are delivered again."""

    lock: timedelta
    duplicates: timedelta
    recovery: timedelta

    @property
    def total(self) -> timedelta:
        return self.duplicates + self.recovery


class LockForm(ReportForm):
    DEFAULTS = {"range": "7d"}

    compare = None
    x = DurationField(label="Lock", required=False, help_text='Such as "30 s" or "5 min".')
    weight = DurationField(label="Cost of a duplicate", required=False, help_text='As a delay; "1 min" if empty.')

    @property
    def own_fields(self) -> list[BoundField]:
        if self.subject:
            self["x"].label = pages_of(self.subject.namespace.family).limits.lock.capitalize()
        return super().own_fields


def report(scope: Scope, values: Mapping[str, Any]) -> Report:
    limits, chosen, weight = scope.family.limits, values.get("x"), values.get("weight") or WEIGHT
    found, refusal, advice = history(scope), "", ""
    finding = based_on(found)
    try:
        advice = recommendation(found, weight, limits.lock, vanish=not limits.notices_crashes)
        if chosen:
            finding = f"{sentence(found, chosen, limits.lock, notices_crashes=limits.notices_crashes)} {finding}"
    except CannotTell as problem:
        refusal = str(problem)
    sections = _sections(scope, found, chosen, weight, advice) if advice else []
    return Report(finding, sections, NOTES, found.generated, refusal)


def history(scope: Scope) -> History:
    """Read the deliveries of a queue that began in a range. Raises messages.TooManyLives."""
    return of_deliveries(held.read(scope))


def of_deliveries(table: pa.Table) -> History:
    """The history in attempts, judged and in the order of their messages."""
    table = table.append_column("pickup_us", _pickup(table)).filter(pc.is_valid(table["attempt"]))
    renewed = pc.fill_null(pc.greater(table["renewals"], 0), False)
    renewers = pc.unique(table.filter(renewed)["received_by"])
    renews = pc.or_(renewed, pc.is_in(table["received_by"], renewers, skip_nulls=True))
    plain = table.filter(pc.invert(renews))
    let_go = plain["let_go"]
    return History(
        curve=Curve(_bins(plain.filter(let_go), "held_us"), _bins(plain.filter(pc.invert(let_go)), "held_us"), SUBJECT),
        lost=pc.sum(plain["lost"]).as_py() or 0,
        renewing=table.num_rows - plain.num_rows,
        usual_lock=held.usual_lock(table),
        pickup=_bins(table, "pickup_us"),
        generated=pc.sum(table["generated"]).as_py() or 0,
    )


def answer(found: History, lock: timedelta) -> Answer:
    """Raises CannotTell if there are too few deliveries, or none was held for so long."""
    if found.renewing and found.curve.received < FEWEST:
        raise CannotTell(
            f"The consumers of {found.renewing:,} deliveries renew their locks, and would renew shorter ones, too. "
            f"Only {found.curve.received:,} other {SUBJECT.ended}; an estimate needs at least {FEWEST}."
        )
    lost = found.curve.at(lock // timedelta(microseconds=1))
    vanished = min(found.curve.plateau, lost.share)
    return Answer(lock, lost, lost.share - vanished, vanished, lock + (median(found.pickup) or timedelta(0)))


def answers(found: History) -> list[Answer]:
    """For usual locks, as far as the history can tell."""
    rows = []
    for lock in EXAMPLES:
        try:
            rows.append(answer(found, lock))
        except CannotTell:
            continue
    return rows


def costs(found: History, weight: timedelta, *, vanish: bool = True, since: timedelta | None = None) -> list[Cost]:
    """The cost curve over the locks that the history can tell, evenly spaced on a logarithmic axis. vanish: whether the broker
    notices a crash only by the end of the lock. since: the shortest lock. Raises CannotTell."""
    tried = [answer(found, lock) for lock in _points(found, since)]
    return [
        Cost(one.lock, 1000 * one.duplicates * weight, 1000 * one.vanished * one.lock if vanish else timedelta(0))
        for one in tried
    ]


def recommended(curve: list[Cost]) -> tuple[timedelta, timedelta]:
    """The shortest and the longest lock around the cheapest one that cost little more than it."""
    lowest = min(range(len(curve)), key=lambda i: curve[i].total)
    limit = max(curve[lowest].total * NEAR_LOWEST, SECOND / 1000)
    first = last = lowest
    while first and curve[first - 1].total <= limit:
        first -= 1
    while last + 1 < len(curve) and curve[last + 1].total <= limit:
        last += 1
    return curve[first].lock, curve[last].lock


def based_on(found: History) -> str:
    """The deliveries that the estimate is from."""
    curve = found.curve
    renewing = f" {counted(found.renewing, 'delivery', 'deliveries')} to consumers that renew are left out." * bool(
        found.renewing
    )
    return (
        f"Based on {counted(curve.messages, 'delivery', 'deliveries')} to consumers that do not renew: {curve.received:,} were "
        f"ended by their consumer, {found.lost:,} lost their lock.{renewing}"
    )


def sentence(found: History, lock: timedelta, word: str, *, notices_crashes: bool = False) -> str:
    """The finding with its band, its assumption, its stratum and the number of deliveries. word: the family's. Raises
    CannotTell."""
    one = answer(found, lock)
    count = found.curve.messages
    change = _change(one.lost.share * count - found.lost, found.lost)
    unknown = ""
    if one.vanished > 0:
        unknown = (
            f"; the consumers of another {percent(one.vanished)} were not heard of for as long as any {word} was, and crashed or "
            "needed longer"
        )
    recovery = f"A message whose consumer crashed would have been delivered again after about {brief(one.recovery)}."
    if notices_crashes:
        recovery = f"The {word} does not matter when a consumer crashes: its connection ends, and its messages are requeued."
    return (
        f"With a {word} of {human(lock)}, an estimated {percent(one.lost.share)} ({percent(one.lost.low)} to "
        f"{percent(one.lost.high)}) of {counted(count, 'delivery', 'deliveries')} to consumers that do not renew would have lost "
        f"their lock, {change}. In {percent(one.duplicates)} the consumer was still working, and the message would have been "
        f"processed twice{unknown}. {recovery} This holds if consumers had behaved the same."
    )


def recommendation(found: History, weight: timedelta, word: str, *, vanish: bool = True) -> str:
    """The recommended band in words. Raises CannotTell."""
    curve = costs(found, weight, vanish=vanish)
    low, high = recommended(curve)
    to = f"at least {brief(low)}; longer ones were not observed" if high == curve[-1].lock else f"{brief(low)} to {brief(high)}"
    return f"Recommended {word}: {to}. Here a message that is processed twice is as bad as {human(weight)} of delay."


def _sections(scope: Scope, found: History, chosen: timedelta | None, weight: timedelta, advice: str) -> list[Section]:
    limits, entity = scope.family.limits, scope.entities[0]
    rows = [
        (Link(one.lock, limits.propose(entity, one.lock, None, None)) if entity.deleted_at is None else one.lock,
         one.lost.share, one.lost.low, one.lost.high, one.duplicates, one.vanished,
         None if limits.notices_crashes else one.recovery)
        for one in answers(found)
    ]  # fmt: skip
    columns = [replace(COLUMNS[0], title=limits.lock.capitalize()), *COLUMNS[1:]]
    sides = "of messages that are processed twice, and of messages that wait for the end of a lock after a crash"
    return [
        Section("estimate", "Locks lost", figures=[_lost_figure(found, chosen, limits.lock)], is_half=True),
        Section("cost", "Cost", advice, figures=[_cost_figure(found, chosen, weight, limits)], is_half=True, notes=[
            f"Delay by 1,000 deliveries, {sides}. Locks that cost at most a quarter more than the cheapest are recommended."
        ]),
        Section("estimates", "Estimates", table=Table("estimates", "Estimates", columns, rows)),
    ]  # fmt: skip


def _lost_figure(found: History, chosen: timedelta | None, word: str) -> Figure:
    locks = _points(found)
    estimates = [answer(found, lock).lost for lock in locks]
    series = {name: [getattr(one, name) for one in estimates] for name in ("share", "low", "high")}
    tips = [f"{brief(lock)}: {percent(one.share)}" for lock, one in zip(locks, estimates, strict=True)]
    charts = [share_curve(locks, series, tips, variant, chosen, found.usual_lock) for variant in WIDTHS]
    label = f"Share of deliveries that would have lost their lock, by {word}, with its 95 % band"
    return Figure(label, charts, caption=label + usual(found.usual_lock, locks))


def usual(lock: timedelta | None, locks: Sequence[timedelta]) -> str:
    """The usual lock, as the end of the caption of a chart of these: where it is marked, or that it is not on the axis."""
    if lock is None:
        return ""
    if locks[0] <= lock <= locks[-1]:
        return f"; N: {human(lock)} was usual"
    return f"; {human(lock)} was usual, which is {'longer' if lock > locks[-1] else 'shorter'} than the chart shows"


def _cost_figure(found: History, chosen: timedelta | None, weight: timedelta, limits: LimitPages) -> Figure:
    curve = costs(found, weight, vanish=not limits.notices_crashes)
    limit = min(one.total for one in curve) * SHOWN_COST
    if limit and curve[0].total > limit:
        since = next(one.lock for one in curve if one.total <= limit)
        curve = costs(found, weight, vanish=not limits.notices_crashes, since=since)
    series = {
        "p50": [one.total for one in curve],
        "p95": [one.duplicates for one in curve],
        "p99": [one.recovery for one in curve],
    }
    tips = [f"{brief(one.lock)}: duplicates {brief(one.duplicates)}, crashes {brief(one.recovery)}" for one in curve]
    locks = [one.lock for one in curve]
    charts = [cost_curve(locks, series, tips, variant, chosen, found.usual_lock) for variant in WIDTHS]
    keys = [("p50", "both"), ("p95", "duplicates"), ("p99", "waiting after crashes")]
    return Figure(f"Delay by 1,000 deliveries, by {limits.lock}", charts, keys=keys, caption=f"by {limits.lock}")


def _points(found: History, since: timedelta | None = None) -> list[timedelta]:
    """Locks that the history can tell, evenly spaced on a logarithmic axis."""
    low, high = found.curve.span_us
    low = since // timedelta(microseconds=1) if since else max(low, 1000)
    low = min(low, high * 9 // 10 or 1)
    step = (high / low) ** (1 / (POINTS - 1))
    return [timedelta(microseconds=min(high, math.ceil(low * step**i))) for i in range(POINTS)]


def median(histogram: Counter[int]) -> timedelta | None:
    """The median of a histogram of microseconds; None: it is empty."""
    left = histogram.total() / 2
    for number in sorted(histogram):
        left -= histogram[number]
        if left <= 0:
            return _duration(number)
    return None


def _change(more: float, were: int) -> str:
    if abs(more) < 0.5:
        return f"as many as the {were:,} that did"
    return f"about {abs(more):,.0f} {'more' if more > 0 else 'fewer'} than the {were:,} that did"


def _pickup(table: pa.Table) -> pa.Array:
    """From the end of each lost lock to the message's next delivery; NULL: it was not lost, or there was none."""
    ended = pc.cast(pc.coalesce(table["lock_ended_at"], table["ended_at"]), pa.int64())
    passed = pc.subtract(_next(pc.cast(table["received_at"], pa.int64())), ended)
    goes_on = pc.invert(_next(held.starts_message(table)))
    return pc.if_else(pc.and_(goes_on, table["lost"]), pc.max_element_wise(passed, 0, skip_nulls=False), None)


def _next(column: pa.Array) -> pa.Array:
    """Of each row the next one's value; the last has none."""
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return pa.concat_arrays([column.slice(1), pa.nulls(min(1, len(column)), column.type)])


def _bins(table: pa.Table, name: str) -> Counter[int]:
    counted = pc.value_counts(rollups.bins_of(table[name]).combine_chunks())
    return Counter({row["values"]: row["counts"] for row in counted.to_pylist() if row["values"] is not None})


def _duration(number: int) -> timedelta:
    return timedelta(microseconds=measures.middle(number))


ANALYSIS = Analysis(
    slug="lock", title="What if the lock had been different?", group="what_if", form=LockForm, make=report, needs_entity=True,
    question="How many locks would have been lost and messages processed twice, and how soon after a crash is one redelivered?",
)  # fmt: skip
