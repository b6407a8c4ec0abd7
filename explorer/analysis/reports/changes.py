"""Before and after: what a changed setting or a deploy did to waiting, processing, failures and losses."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.compute as pc
from django import forms
from django.urls import reverse

from broker_core.common.types import SubQueue
from broker_core.history import configuration
from broker_core.namespaces import get_clock
from explorer.shared.changes import deploys
from explorer.shared.charts import WIDTHS, brief, count_lines, duration_lines
from explorer.shared.presenters import actor_name

from .. import messages
from ..forms import moment_input
from ..jobs import outcomes
from ..listing import messages_url
from ..survival import FEWEST
from . import hot, stored
from .attempts import MOST_READ, Z95, wilson
from .forms import EARLIEST, LATEST, OUTSIDE, ReportForm
from .losses import LOST
from .report import Analysis, Column, Figure, Link, Report, Section, Table, counted, keyed, moment, percent
from .scope import INSTANT, Range, Scope

WINDOWS = {"1h": ("1 hour", timedelta(hours=1)), "6h": ("6 hours", timedelta(hours=6)), "24h": ("24 hours", timedelta(days=1))}
LOOK_BACK = timedelta(days=7)  # a message that left in a window entered at most so long before
MOST_CHANGES = 50  # the newest
POINTS = 12  # of a chart, on each side
NOT_SETTINGS = ("id", "updated_at", "created_at", "rules_version", "deleted_at", "deleted_by", "deleted_messages", "path", "key")
NEEDED = (
    *("entity_id", "subqueue", "sequence_number", "outcome", "reason", "enqueued_at", "first_received_at", "last_received_at"),
    *("ended_at", "deliveries", "locks_lost", "generated"),
)
COMPARED = (
    *("entity_id", "enqueued_at", "ended_at", "waiting_us", "wait_us", "processing_us", "outcome", "locks_lost", "failed"),
    "generated",
)
TIMES = (
    Column("metric", "Time"),
    Column("before", "Before", "duration"),
    Column("before_low", "At least (95 % band)", "duration"),
    Column("before_high", "At most", "duration"),
    Column("after", "After", "duration"),
    Column("after_low", "At least (95 % band)", "duration"),
    Column("after_high", "At most", "duration"),
    Column("differs", "Differs clearly"),
)
SHARES = tuple(
    Column(one.name, "Messages that" if one.name == "metric" else one.title, "share" if one.kind == "duration" else one.kind)
    for one in TIMES
)
CHANGES = (
    Column("at", "At, UTC", "instant"),
    Column("what", "Change"),
    Column("of", "Of"),
    Column("by", "By"),
    Column("before", "Messages before", "count"),
    Column("after", "After", "count"),
    Column("differs", "What differs clearly"),
)
NOTES = (
    "Compares equally long periods before and after a change. Waiting is that of the messages that entered in the period: those "
    "not (yet) received count as long as they could have been (Kaplan-Meier), so consumers that stopped show as long waiting. "
    "The other rows are of the messages that left in the period. A message failed if it was lost or delivered more than once.",
    "The charts, and the table of changes except for the one that is compared, do not include messages that have not left yet.",
    f"A difference is clear if the 95 % bands do not overlap, and both sides have at least {FEWEST} messages. Other things may "
    "have changed at the same time, such as the load by the time of day: compare with a week earlier.",
    "Changes are changed settings, also by policies and programs, and deploys marked here or by manage.py mark_deploy.",
)
TIMES_SCHEMA = pa.schema([("us", pa.int64()), ("observed", pa.bool_()), ("messages", pa.int64())])
TOLERANCE = 1e-9  # of a share, for sums of logarithms
TOO_MANY = "too many messages to compare"
NO_CHANGES = "No settings were changed and no deploys were marked in this range."
OTHER_CLOCK = (
    "Changes are recorded in real time, which the clock of this namespace does not show. Give the instant of a change by the "
    "namespace's clock."
)


class ChangesForm(ReportForm):
    DEFAULTS = {"range": "7d", "window": "1h"}

    window = forms.ChoiceField(label="Before and after", choices=[(key, words) for key, (words, _) in WINDOWS.items()])
    at = forms.DateTimeField(required=False, label="Change at (UTC)", widget=moment_input())
    of = forms.IntegerField(required=False, min_value=1, max_value=2**63 - 1, widget=forms.HiddenInput)  # the queue changed then

    def __init__(self, data: Mapping[str, Any]):
        super().__init__(data)
        self.fields["compare"].choices = [("", "nothing"), ("week", "a week earlier")]

    def clean_at(self) -> datetime | None:
        at: datetime | None = self.cleaned_data["at"]
        if at and not EARLIEST <= at <= LATEST:
            raise forms.ValidationError(OUTSIDE)
        return at


@dataclass(frozen=True, slots=True)
class Change:
    """Something that changed. entity_id: only of this queue; None: of all."""

    at: datetime
    words: str
    actor: str
    entity_id: int | None = None


@dataclass(frozen=True, slots=True)
class Metric:
    """A value on both sides of a change, each with its band; None: unknown. Durations are microseconds; infinite: longer than
    was observed."""

    name: str
    is_duration: bool
    before: tuple[float, float, float] | None
    after: tuple[float, float, float] | None

    @property
    def differs(self) -> str:
        """In which direction it clearly differs; empty: it does not."""
        if self.before is None or self.after is None:
            return ""
        words = ("longer", "shorter") if self.is_duration else ("more", "less")
        return words[0] if self.after[1] > self.before[2] else words[1] if self.after[2] < self.before[1] else ""

    @property
    def columns(self) -> tuple[Any, ...]:
        sides = [side or (None,) * 3 for side in (self.before, self.after)]
        values = [self._column(one) for side in sides for one in side]
        return self.name, *values, self.differs or "no"

    def value(self, side: tuple[float, float, float] | None) -> str:
        if side is None or not self.is_duration:
            return percent(side[0]) if side else ""
        at, low, _ = side
        known = math.isfinite(at)
        return f"{'' if known else 'over '}{brief(timedelta(microseconds=at if known else low))}"

    def _column(self, value: float | None) -> float | timedelta | None:
        if value is None or not self.is_duration:
            return value
        return timedelta(microseconds=value) if math.isfinite(value) else None

    @property
    def words(self) -> str:
        return f"{self.name} {self.differs} ({self.value(self.before)} → {self.value(self.after)})"


def report(scope: Scope, values: Mapping[str, Any]) -> Report:
    length = WINDOWS[values["window"]][1]
    known = changes(scope) if is_real(scope) else []
    chosen = chosen_of(known, values["at"], values["of"])
    if chosen is None:
        return Report(NO_CHANGES if is_real(scope) else OTHER_CLOCK, (), NOTES, links=_links(scope))
    listed = known if chosen in known else [chosen, *known]
    span = Range(min(one.at for one in listed) - length, max(one.at for one in listed) + length)
    lives = read(scope, span).select(COMPARED)
    mine = of_change(lives, chosen, length)
    if mine.num_rows > MOST_READ:
        raise messages.TooManyLives(f"{mine.num_rows:,} messages are near this change; at most {MOST_READ:,} are compared.")
    still = present(scope, chosen, length)
    found = metrics(mine, chosen.at, still)
    said = sentence(chosen, found, _place(scope, chosen), pc.sum(still[1]["messages"]).as_py() or 0)
    if scope.compared:
        week = Change(chosen.at - timedelta(days=7), "", "", chosen.entity_id)
        earlier = of_change(read(scope, Range(week.at - length, week.at + length)), week, length)
        said += f" {_compared(found, metrics(earlier, week.at))}"
    rows = []
    for one in listed:
        near = mine if one == chosen else of_change(lives, one, length)
        near_metrics = found if one == chosen else metrics(near, one.at) if near.num_rows <= MOST_READ else None
        rows.append(_row(scope, one, near, near_metrics, length, values))
    sections = [*_charts(mine, chosen, length, scope.now), *_tables(found), _changes(rows)]
    return Report(said, sections, NOTES, pc.sum(mine["generated"]).as_py() or 0, links=_links(scope))


def is_real(scope: Scope) -> bool:
    """Whether the namespace's clock shows real time, by which changes are recorded."""
    return bool(scope.namespace.deleted_at) or not get_clock(scope.namespace.name).is_manual


def changes(scope: Scope) -> list[Change]:
    """What changed in the range, newest first."""
    span = scope.range
    found = of_revisions(configuration.read(scope.ids, span.start, span.end), span)
    found += [
        Change(one.at, f"the deploy of {one.name}", one.actor) for one in deploys(scope.namespace.name, span.start, span.end)
    ]
    return sorted(found, key=lambda one: one.at, reverse=True)[:MOST_CHANGES]


def of_revisions(revisions: Iterable[configuration.Revision], span: Range) -> list[Change]:
    """The changes between revisions that follow each other. Pure."""
    found, before = [], None
    for one in revisions:
        follows = before is not None and before.entity_id == one.entity_id and span.has(one.since)
        words = differences(before.settings, one.settings) if before and follows else ""
        if words:
            found.append(Change(one.since, words, one.actor, one.entity_id))
        before = one
    return found


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The settings that differ, in words: "lock duration: 00:00:30 → 00:01:00"."""
    old, new = _flat(before), _flat(after)
    names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    return "; ".join(f"{name.replace('_', ' ')}: {_text(old.get(name))} → {_text(new.get(name))}" for name in names)


def chosen_of(known: Sequence[Change], at: datetime | None, entity_id: int | None) -> Change | None:
    """The change nearest to an instant, of this queue before those of others; without an instant the newest. Pure."""
    if at is None:
        return known[0] if known else None
    near = [one for one in known if abs(one.at - at) < timedelta(minutes=1)]
    by_distance = sorted(near, key=lambda one: (entity_id is not None and one.entity_id != entity_id, abs(one.at - at)))
    return by_distance[0] if by_distance else Change(at, "the change", "")


def read(scope: Scope, span: Range) -> pa.Table:
    """The messages of main lists that entered or left in a range. Raises TooManyLives."""
    lives = stored.lives(scope, span.start - LOOK_BACK, Range(span.start, max(span.end, scope.now)), NEEDED)
    there = pc.and_(pc.equal(lives["subqueue"], int(SubQueue.MAIN)), pc.not_equal(lives["outcome"], outcomes.CANCELLED))
    return hot.judged(lives.filter(there))


def of_change(lives: pa.Table, change: Change, length: timedelta) -> pa.Table:
    """The messages of a change's queue that entered or left at most so long before or after it."""
    first, over = pa.array([change.at - length, change.at + length], INSTANT)
    inside = [pc.and_(pc.greater_equal(lives[name], first), pc.less(lives[name], over)) for name in ("enqueued_at", "ended_at")]
    mine = pc.fill_null(pc.or_(*inside), False)
    if change.entity_id is not None:
        mine = pc.and_(mine, pc.equal(lives["entity_id"], change.entity_id))
    found = lives.filter(mine)
    for name, column in zip(("has_entered", "has_left"), inside, strict=True):
        found = found.append_column(name, pc.fill_null(column.filter(mine), False))
    return found


def present(scope: Scope, change: Change, length: timedelta) -> list[pa.Table]:
    """The messages that entered at most so long before a change, and after it, and have not left, as `times`."""
    older, before, after = (
        Counter({
            (one.entity_id, one.hour, one.waited_us, one.received): one.messages for one in scope.present(at)
            if change.entity_id in (None, one.entity_id)
        })
        for at in (change.at - length, change.at, change.at + length)
    )  # fmt: skip
    return [
        pa.table([[us for _, _, us, _ in side], [received for *_, received in side], list(side.values())], schema=TIMES_SCHEMA)
        for side in (before - older, after - before)
    ]


def times(us: Any, observed: Any) -> pa.Table:
    """How many messages took how long: us; observed: False: they took at least so long; messages."""
    return pa.table([us, observed, pa.repeat(1, len(us))], names=TIMES_SCHEMA.names).cast(TIMES_SCHEMA)


def metrics(lives: pa.Table, at: datetime, still: Sequence[pa.Table] = ()) -> list[Metric]:
    """What is compared, of messages as of_change gives them. still: those before and after that have not left, as `times`."""
    waiting = [times(one["wait_us"], pc.is_valid(one["waiting_us"])) for one in _sides(lives, "enqueued_at", at)]
    waiting = [pa.concat_tables(each) for each in zip(waiting, still, strict=True)] if still else waiting
    worked = [pc.drop_null(one["processing_us"]) for one in _sides(lives, "ended_at", at)]
    processing = [times(one, pa.repeat(True, len(one))) for one in worked]
    found = [
        Metric(f"{name}, {words}", True, *(quantile_band(side, share) for side in sides))
        for name, sides in (("waiting", waiting), ("processing", processing))
        for words, share in (("median", 0.5), ("95 %", 0.95))
    ]
    lost = pc.is_in(lives["outcome"], pa.array(list(LOST), pa.int16()))
    lives = lives.append_column("lost", pc.cast(lost, pa.int64()))
    lives = lives.append_column("lock_lost", pc.cast(pc.greater(lives["locks_lost"], 0), pa.int64()))
    for name, column in (("failed", "failed"), ("lost", "lost"), ("lost a lock", "lock_lost")):
        found.append(Metric(name, False, *(_share(side, column) for side in _sides(lives, "ended_at", at))))
    return found


def quantile_band(found: pa.Table, share: float) -> tuple[float, float, float] | None:
    """A quantile of `times` with its 95 % band, by the shares that it has with this probability in the Kaplan-Meier estimate
    (without times that were not observed: its ranks). Infinite: it is longer than was observed. None: there are too few. Pure."""
    known = found.filter(pc.is_valid(found["us"])).group_by(["us", "observed"]).aggregate([("messages", "sum")])
    ordered = known.sort_by([("us", "ascending"), ("observed", "descending")])
    count = pc.cast(ordered["messages_sum"], pa.float64())
    total = pc.sum(count).as_py() or 0.0
    if total < FEWEST:
        return None
    at_risk = pc.add(pc.subtract(total, pc.cumulative_sum(count)), count)
    ended = pc.if_else(ordered["observed"], count, 0.0)
    left = pc.exp(pc.cumulative_sum(pc.log1p(pc.negate(pc.divide(ended, at_risk)))))
    greenwood = pc.cumulative_sum(pc.divide(ended, pc.multiply(at_risk, pc.subtract(at_risk, ended))))

    def place(of: float) -> int:
        return pc.index(pc.less_equal(left, max(0.0, 1 - of) + TOLERANCE), True).as_py()

    middle, variance = place(share), share * (1 - share) / total
    if middle >= 0 and (rest := left[middle].as_py()):
        variance = max(variance, rest * rest * greenwood[middle].as_py())
    low, high = (place(of) for of in (share - Z95 * math.sqrt(variance), share + Z95 * math.sqrt(variance) + 1 / total))
    if low < 0:  # at least as long as enough messages were observed
        low = pc.sum(pc.greater_equal(at_risk, FEWEST)).as_py() - 1
    at, first, last = (ordered["us"][one].as_py() if one >= 0 else math.inf for one in (middle, low, high))
    return at, first, last


def sentence(change: Change, found: Sequence[Metric], place: str, still: int = 0) -> str:
    """What clearly differs after a change. still: how many of the messages that entered after it have not left."""
    what = f"After {change.words}{place} at {moment(change.at)}"
    there = f" {counted(still, 'message')} that entered after it {'has' if still == 1 else 'have'} not left yet." if still else ""
    if all(one.before is None or one.after is None for one in found):
        return f"{what}, or before it, fewer than {FEWEST} messages entered and left: that is too few to compare.{there}"
    clear = [one.words for one in found if one.differs]
    return f"{what}: {'; '.join(clear)}.{there}" if clear else f"{what}, nothing differs clearly from before.{there}"


def _sides(lives: pa.Table, by: str, at: datetime) -> list[pa.Table]:
    """The messages before and after an instant."""
    inside = lives.filter(lives["has_entered" if by == "enqueued_at" else "has_left"])
    before = pc.less(inside[by], pa.scalar(at, INSTANT))
    return [inside.filter(before), inside.filter(pc.invert(before))]


def _share(side: pa.Table, column: str) -> tuple[float, float, float] | None:
    values = pc.drop_null(side[column])
    if len(values) < FEWEST:
        return None
    count = pc.sum(values).as_py()
    return count / len(values), *wilson(count, len(values))


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by name, those in force before those that were set."""
    found = {name: value for name, value in settings.items() if name not in NOT_SETTINGS and not isinstance(value, dict)}
    for group in ("options", "effective"):
        found |= settings.get(group) or {}
    return found


def _text(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)


def _place(scope: Scope, change: Change) -> str:
    return f" of {scope.paths[change.entity_id]}" if change.entity_id in scope.paths and scope.is_whole else ""


def _charts(lives: pa.Table, change: Change, length: timedelta, now: datetime) -> list[Section]:
    step = length / POINTS
    every = [change.at + i * step for i in range(-POINTS, POINTS)]
    starts = [at for at in every if at < now] or every
    mark = [(POINTS, "C", change.words)] if change.at < now else []

    def by_step(by: str, column: str) -> list[list[int]]:
        inside = lives.filter(lives["has_entered" if by == "enqueued_at" else "has_left"])
        groups: list[list[int]] = [[] for _ in starts]
        for at, value in zip(inside[by].to_pylist(), inside[column].to_pylist(), strict=True):
            if value is not None and starts[0] <= at < starts[-1] + step:
                groups[min(len(starts) - 1, (at - starts[0]) // step)].append(value)
        return groups

    sections = []
    for name, title, by, column in (
        ("waiting", "Waiting", "enqueued_at", "waiting_us"), ("processing", "Processing", "ended_at", "processing_us"),
    ):  # fmt: skip
        groups = [sorted(each) for each in by_step(by, column)]
        lines = {
            key: [timedelta(microseconds=each[math.ceil(share * len(each)) - 1]) if each else None for each in groups]
            for key, share in (("p50", 0.5), ("p95", 0.95))
        }
        if any(groups):
            label = f"{title} before and after the change, by {brief(step)}"
            charts = [duration_lines(starts, lines, (), one, marks=mark) for one in WIDTHS]
            keys = keyed(lines, {"p50": "median", "p95": "95 %"})
            sections.append(Section(name, title, figures=[Figure(label, charts, caption=label, keys=keys)], is_half=True))
    failed = by_step("ended_at", "failed")
    series = {"active": [len(each) for each in failed], "dead": [sum(each) for each in failed]}
    label = f"Messages that left, and of these those that failed, by {brief(step)}"
    charts = [count_lines(starts, series, one, marks=mark) for one in WIDTHS]
    figure = Figure(label, charts, caption=label, keys=keyed(series, {"active": "left", "dead": "failed"}))
    return [*sections, Section("failures", "Failures", figures=[figure])]


def _tables(found: Sequence[Metric]) -> list[Section]:
    times, shares = ([one.columns for one in found if one.is_duration is kind] for kind in (True, False))
    return [
        Section("times", "Times", table=Table("times", "Times", TIMES, times)),
        Section("shares", "Failures and losses", table=Table("shares", "Failures and losses", SHARES, shares)),
    ]


def _row(
    scope: Scope, one: Change, lives: pa.Table, found: Sequence[Metric] | None, length: timedelta, values: Mapping[str, Any]
) -> tuple[Any, ...]:
    """lives: of the change. found: its metrics; None: it has too many messages."""
    query = {**scope.query, **_same_range(values), "at": f"{one.at:%Y-%m-%dT%H:%M:%S.%f}"}
    query |= {"of": one.entity_id} if one.entity_id is not None else {}
    of = {"queue": one.entity_id} if one.entity_id is not None else scope.query
    counts = [
        Link(side.num_rows, messages_url(of, start - LOOK_BACK, start + length, left_start=start, left_end=start + length))
        for side, start in zip(_sides(lives, "ended_at", one.at), (one.at - length, one.at), strict=True)
    ]
    name = scope.paths.get(one.entity_id or 0, "all queues" if scope.is_whole else scope.name)
    differs = TOO_MANY if found is None else "; ".join(metric.words for metric in found if metric.differs)
    return Link(one.at, f"?{urlencode(query)}"), one.words, name, actor_name(one.actor), *counts, differs or None


def _same_range(values: Mapping[str, Any]) -> dict[str, str]:
    """The parameters of the form, but for the change."""
    given = {name: values[name] for name in ("range", "start", "end", "compare", "window") if values[name]}
    return {name: f"{value:%Y-%m-%dT%H:%M}" if isinstance(value, datetime) else value for name, value in given.items()}


def _changes(rows: Sequence[tuple[Any, ...]]) -> Section:
    table = Table("changes", "Changes", CHANGES, rows)
    return Section("changes", "Changes", "The instant of a change leads to what is before and after it.", table=table)


def _compared(found: Sequence[Metric], earlier: Sequence[Metric]) -> str:
    """How what clearly differs went a week earlier."""
    pairs = [(now, then) for now, then in zip(found, earlier, strict=True) if now.differs]
    known = [
        f"{then.name} {then.value(then.before)} → {then.value(then.after)}" for _, then in pairs if then.before and then.after
    ]
    if not pairs:
        return ""
    return f"At the same time a week earlier: {'; '.join(known)}." if known else "A week earlier there were too few messages."


def _links(scope: Scope) -> list[Link]:
    return [Link("Mark a deploy", f"{reverse('explorer:mark_deploy')}?{scope.url_query}")]


ANALYSIS = Analysis(
    slug="changes", title="Before and after", group="why", form=ChangesForm, make=report,
    question="How did a changed setting or a deploy affect waiting, processing, failures and losses?",
)  # fmt: skip
