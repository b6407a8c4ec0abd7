"""What if the time-to-live had been X: an estimate from roll-ups and the messages that are still in the queue, without Spark."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.common.durations import human
from broker_core.common.types import SubQueue
from broker_core.history import archive, manifest
from broker_core.models import Entity
from broker_core.namespaces import get_clock
from explorer.shared.charts import WIDTHS, Chart, brief, share_curve

from . import messages, rollups
from .jobs import measures, outcomes
from .survival import CannotTell, Curve, Estimate

POINTS = 48  # of the curve
EXAMPLES = tuple(timedelta(seconds=s) for s in (1, 10, 30, 60, 300, 600, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400))


@dataclass(frozen=True, slots=True)
class History:
    """What became of the messages that entered a queue in a range.

    classes: how many had which time-to-live in force at their end, by bin; None: none, or unknown.
    archived_at: messages that left later may be missing.
    """

    curve: Curve
    ended: int
    expired: int
    still_there: int
    generated: int
    classes: dict[int | None, int]
    archived_at: datetime | None


def history(entity: Entity, start: datetime, end: datetime, now: datetime) -> History:
    """Read the history of a queue. now: by the clock of its namespace. Raises messages.TooManyLives for a tail that takes longer
    than a page should."""
    rollups.require_short_tail(entity.namespace_id)
    rows = rollups.read([entity.pk], [entity.namespace_id], start, end)
    first, over = pa.array([_hour(start), end], pa.timestamp("us", tz="UTC"))
    entered = pc.and_(pc.greater_equal(rows["hour"], first), pc.less(rows["hour"], over))
    rows = rows.filter(pc.and_(entered, pc.equal(rows["subqueue"], int(SubQueue.MAIN))))
    waiting, absent = _histogram(rows, measures.WAITING), _histogram(rows, measures.NEVER_RECEIVED)
    counted = rows.filter(pc.equal(rows["measure"], measures.LIFE)).to_pylist()
    classes: Counter[int | None] = Counter()
    for row in counted:
        classes[row["time_to_live_bin"]] += row["messages"]
    there_received, there_not = _still_there(entity, _hour(start), end, now)
    return History(
        curve=Curve(waiting + there_received, absent + there_not),
        ended=sum(row["messages"] for row in counted),
        expired=sum(row["messages"] for row in counted if row["outcome"] == outcomes.EXPIRED),
        still_there=(there_received + there_not).total(),
        generated=sum(row["generated"] for row in counted),
        classes=dict(classes),
        archived_at=manifest.state().done_at,
    )


def sentence(found: History, time_to_live: timedelta) -> str:
    """The finding with its band, its assumption and the number of messages. Raises CannotTell."""
    estimate = found.curve.at(_microseconds(time_to_live))
    more = found.curve.messages * estimate.share - found.expired
    change = f"about {abs(more):,.0f} {'more' if more > 0 else 'fewer'} than the {found.expired:,} that did"
    return (
        f"With a time-to-live of {human(time_to_live)}, an estimated {percent(estimate.share)} "
        f"({percent(estimate.low)} to {percent(estimate.high)}) of the messages would have expired before their first delivery, "
        f"{change}, if consumers had behaved the same."
    )


def table(found: History) -> list[tuple[timedelta, Estimate]]:
    """The estimate for usual times-to-live, as far as the history can tell."""
    rows = []
    for time_to_live in EXAMPLES:
        try:
            rows.append((time_to_live, found.curve.at(_microseconds(time_to_live))))
        except CannotTell:
            continue
    return rows


def charts(found: History, chosen: timedelta | None) -> list[Chart]:
    """The share that would have expired, by time-to-live, with its band. Empty if there are too few messages."""
    low, high = (max(one, 1000) for one in found.curve.span_us)
    high = max(high, low * 10)
    times = [timedelta(microseconds=round(low * (high / low) ** (i / (POINTS - 1)))) for i in range(POINTS)]
    try:
        estimates = [found.curve.at(min(_microseconds(time), found.curve.span_us[1])) for time in times]
    except CannotTell:
        return []
    series = {name: [getattr(one, name) for one in estimates] for name in ("share", "low", "high")}
    tips = [f"{brief(time)}: {percent(one.share)}" for time, one in zip(times, estimates, strict=True)]
    return [share_curve(times, series, tips, variant, chosen) for variant in WIDTHS]


def _histogram(rows: pa.Table, measure: int) -> Counter[int]:
    chosen = rows.filter(pc.equal(rows["measure"], measure)).group_by("bin").aggregate([("messages", "sum")])
    return Counter(dict(zip(chosen["bin"].to_pylist(), chosen["messages_sum"].to_pylist(), strict=True)))


def _still_there(entity: Entity, start: datetime, end: datetime, now: datetime) -> tuple[Counter[int], Counter[int]]:
    """Histograms of the messages in the queue: the waiting of those that were received, the age of the others."""
    with archive.connected() as postgres:
        there = archive.read_arrow(postgres, "history_still_there", entity_ids=[entity.pk], start=start, end=end)
    instant = pa.timestamp("us", tz="UTC")
    enqueued, first = there["enqueued_at"].cast(instant), there["first_received_at"].cast(instant)
    received = pc.is_valid(first)
    ages = messages.elapsed(enqueued, pc.coalesce(first, pa.scalar(now, instant)))
    bins = rollups.bins_of(pc.if_else(received, ages, pc.min_element_wise(ages, there["time_to_live_us"])))
    return Counter(bins.filter(received).to_pylist()), Counter(bins.filter(pc.invert(received)).to_pylist())


def _hour(at: datetime) -> datetime:
    return at.replace(minute=0, second=0, microsecond=0)


def _microseconds(duration: timedelta) -> int:
    return round(duration / timedelta(microseconds=1))


def percent(share: float) -> str:
    percent = 100 * share
    if 0 < percent < 0.05:
        return "under 0.1\xa0%"
    return f"{percent:.1f}\xa0%"


def clock_now(entity: Entity) -> datetime:
    """The time of a queue's namespace; real time if that was deleted."""
    return datetime.now(UTC) if entity.namespace.deleted_at else get_clock(entity.namespace.name).now
