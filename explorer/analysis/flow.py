"""Flow, backlog and losses of a queue by hour, from roll-ups and the messages that are still in the queue, without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.common.durations import human
from broker_core.common.types import SubQueue
from broker_core.history import archive
from broker_core.models import Entity
from explorer.shared.charts import WIDTHS, Chart, brief, count_lines, duration_lines, stacked_bars

from . import presenters, rollups
from .jobs import measures, outcomes

HOUR = timedelta(hours=1)
EPOCH = datetime.fromisoformat("1970-01-01T00:00Z")
FOREVER = datetime.max.replace(tzinfo=UTC)
LOST = {outcomes.COLUMNS[name]: name for name in ("expired", "dead_lettered", "dropped", "moved", "purged", "deleted")}


@dataclass(frozen=True, slots=True)
class Flow:
    """Of each hour: the messages that entered and left, those in the queue at its end, and how long the oldest of these had been
    there at most (hours are whole); None: none was there. losses: by outcome, in the order of LOST."""

    hours: list[datetime]
    entered: list[int]
    left: list[int]
    depth: list[int]
    oldest: list[timedelta | None]
    losses: dict[str, list[int]]

    @property
    def rows(self) -> list[dict]:
        """The hours for the table, newest first."""
        names = ("hour", "entered", "left", "depth", "oldest")
        columns = zip(self.hours, self.entered, self.left, self.depth, self.oldest, strict=True)
        return [dict(zip(names, row, strict=True)) for row in columns][::-1]


@dataclass(frozen=True, slots=True)
class Loss:
    """Messages that were lost for one cause. first_at, last_at: the hours in which it happened first and last."""

    outcome: str
    cause: str
    messages: int
    first_at: datetime
    last_at: datetime


Lives = Iterable[tuple[datetime, datetime, int, str | None, int]]  # entered in, left in, outcome, cause, messages


def read(entity: Entity, start: datetime, end: datetime) -> tuple[list, Counter[datetime]]:
    """The lives of a queue, as Lives, that were there in a range, and its present messages by the hour in which they entered."""
    rows = rollups.read([entity.pk], [entity.namespace_id], start, end)
    rows = rows.filter(pc.and_(pc.equal(rows["measure"], measures.LIFE), pc.equal(rows["subqueue"], int(SubQueue.MAIN))))
    names = ("hour", "end_hour", "outcome", "cause", "messages")
    with archive.connected() as postgres:
        there = archive.read_arrow(postgres, "history_still_there", entity_ids=[entity.pk], start=EPOCH, end=end)
    entered = pc.floor_temporal(there["enqueued_at"].cast(pa.timestamp("us", tz="UTC")), unit="hour")
    return list(zip(*(rows[name].to_pylist() for name in names), strict=True)), Counter(entered.to_pylist())


def of_hours(hours: Sequence[datetime], lives: Lives, there: Mapping[datetime, int]) -> Flow:
    """The flow in these consecutive hours. Pure."""
    entered: Counter[datetime] = Counter(there)
    left: Counter[datetime] = Counter()
    until = dict.fromkeys(there, FOREVER)  # of the messages that entered in an hour: when the last one left
    losses: dict[str, Counter] = {name: Counter() for name in LOST.values()}
    for began, ended, outcome, _, count in lives:
        entered[began] += count
        left[ended] += count
        until[began] = max(until.get(began, ended), ended)
        if outcome in LOST:
            losses[LOST[outcome]][ended] += count
    depth = [sum(entered[at] for at in entered if at < hours[0]) - sum(left[at] for at in left if at < hours[0])]
    for hour in hours:
        depth.append(depth[-1] + entered[hour] - left[hour])
    begun = sorted(until)
    first = (next((at for at in begun if at <= hour < until[at]), None) for hour in hours)
    oldest = [None if at is None else hour + HOUR - at for at, hour in zip(first, hours, strict=True)]
    shown = {name: [counts[hour] for hour in hours] for name, counts in losses.items() if any(counts[hour] for hour in hours)}
    return Flow(list(hours), [entered[hour] for hour in hours], [left[hour] for hour in hours], depth[1:], oldest, shown)


def causes(hours: Sequence[datetime], lives: Lives) -> list[Loss]:
    """Why messages were lost in these hours, most frequent first. Pure."""
    found: dict[tuple[str, str], list[tuple[datetime, int]]] = {}
    for _, ended, outcome, cause, count in lives:
        if outcome in LOST and hours[0] <= ended <= hours[-1]:
            found.setdefault((LOST[outcome], cause or ""), []).append((ended, count))
    losses = [
        Loss(outcome, cause, sum(count for _, count in at), min(at)[0], max(at)[0]) for (outcome, cause), at in found.items()
    ]
    return sorted(losses, key=lambda loss: (-loss.messages, loss.outcome, loss.cause))


def hours_between(start: datetime, end: datetime) -> list[datetime]:
    """The hours that a range touches."""
    first = start.replace(minute=0, second=0, microsecond=0)
    return [first + i * HOUR for i in range(-int((first - end) // HOUR))]


def flow_sentence(flow: Flow) -> str:
    """When the backlog was largest, and whether it shrinks."""
    most = max(flow.depth)
    if not any(flow.entered) and not any(flow.left) and not most:
        return "No messages entered, left or waited in this time."
    if not most:
        return f"{sum(flow.entered):,} messages entered; at the end of no hour was one waiting."
    at = flow.depth.index(most)
    oldest = flow.oldest[at]
    waited = f"; the oldest had waited at most {human(oldest)}" if oldest else ""
    gain = flow.left[-1] - flow.entered[-1]
    verb = "is" if flow.depth[-1] == 1 else "are"
    now = f" {flow.depth[-1]:,} {verb} in the queue now" if flow.depth[-1] else " The queue is empty now"
    drain = f"; at this hour's pace it is empty in {brief(flow.depth[-1] / gain * HOUR)}" if gain > 0 and flow.depth[-1] else ""
    hour = presenters.moment(flow.hours[at], "hour")
    return f"The backlog was largest at the end of the hour {hour}: {most:,} messages{waited}.{now}{drain}."


def loss_sentence(flow: Flow, losses: list[Loss]) -> str:
    """How many messages were lost, and mostly why."""
    if not losses:
        return "No messages were lost in this time."
    total = sum(loss.messages for loss in losses)
    word = presenters.OUTCOMES[losses[0].outcome] + (f" ({losses[0].cause})" if losses[0].cause else "")
    return f"{total:,} messages were lost. Most frequent: {word}, {losses[0].messages:,}."


def charts(flow: Flow) -> dict[str, list[Chart]]:
    """The charts by name, each in both widths. The last hour is not over."""
    hours, partial = flow.hours, [False] * (len(flow.hours) - 1) + [True]

    def tips(series: Mapping[str, Sequence]) -> list[str]:
        return [
            f"{presenters.moment(at, 'hour')}: "
            + ", ".join(f"{values[i]:,} {presenters.OUTCOMES[name]}" for name, values in series.items())
            for i, at in enumerate(hours)
        ]

    ages = [f"{presenters.moment(at, 'hour')}: oldest {brief(age)}" for at, age in zip(hours, flow.oldest, strict=True)]
    traffic = {"entered": flow.entered, "left": flow.left}
    return {
        "traffic": [count_lines(hours, traffic, variant, partial=partial) for variant in WIDTHS],
        "depth": [count_lines(hours, {"active": flow.depth}, variant, partial=partial) for variant in WIDTHS],
        "oldest": [duration_lines(hours, {"p50": flow.oldest}, ages, variant, partial=partial) for variant in WIDTHS],
        "losses": [stacked_bars(hours, flow.losses, tips(flow.losses), variant, partial=partial) for variant in WIDTHS],
    }
