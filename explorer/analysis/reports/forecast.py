"""Recurring backlog: will this week's backlog come again, and when?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import median
from typing import Any

from explorer.charts.chart import WIDTHS
from explorer.charts.columns import count_lines

from ..jobs.constants import FEWEST_WEEKS, HOUR, LARGE, LARGE_TIMES, MOST_WEEKS, WEEK, WEEK_HOURS
from ..survival import CannotTell
from .forms import ReportForm, report_url
from .report import Analysis, Column, Figure, Link, Report, Section, Table, counted, moment
from .scope import Scope, floor
from .tables import Tables

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
PEAKS = (
    Column("when", "When, UTC"),
    Column("queue", "Queue"),
    Column("weeks", "Weeks with it", "count"),
    Column("median", "Largest backlog, median", "count", has_bar=True),
    Column("most", "At most", "count"),
    Column("last", "Last seen, UTC", "instant"),
    Column("next", "Expected next, UTC", "instant"),
)
HOURS = (
    Column("at", "From, UTC", "instant"),
    Column("entered", "Entered, median", "count"),
    Column("entered_low", "Fewest", "count"),
    Column("entered_high", "Most", "count"),
    Column("backlog", "Largest backlog, median", "count"),
    Column("backlog_low", "Least", "count"),
    Column("backlog_high", "Most", "count"),
)
NOTES = (
    f"Compares the same hour of the week in the last weeks before the end of the range, at most {MOST_WEEKS}. The backlog of an "
    "hour is the largest at the end of one of its steps of 5 minutes (of an hour in history that is older than a week).",
    f"A backlog is large if it is at least {LARGE} messages and {LARGE_TIMES} times the median of all hours of the queue. One "
    f"that was large in the same hour of at least {FEWEST_WEEKS} weeks, and of half of the weeks, comes again. Adjacent hours "
    "are one peak.",
    "The range is that of the observed weeks, not a confidence interval; changes in traffic or consumers are not anticipated.",
)


class ForecastForm(ReportForm):
    DEFAULTS = {"range": "7d"}
    compare = None


@dataclass(frozen=True, slots=True)
class Peak:
    """Adjacent hours of the week in which the backlog of a queue was large in several weeks. slot: the first of them. most: the
    largest backlog by week in which it was (0: the last one)."""

    entity_id: int
    slot: int
    hours: int
    most: Mapping[int, int]

    @property
    def median(self) -> int:
        return round(median(self.most.values()))

    @property
    def when(self) -> str:
        return f"{DAYS[self.slot // 24]} {self.slot % 24:02}:00 to {(self.slot + self.hours) % 24:02}:00"


def present(scope: Scope, values: Mapping[str, Any], tables: Tables) -> Report:
    known, end = tables.only_row("known"), floor(scope.range.end, HOUR)
    if known.since is None:
        return Report(f"No messages entered or left {scope.name}.")
    weeks = min(MOST_WEEKS, (end - floor(known.since, HOUR)) // WEEK)
    if weeks < FEWEST_WEEKS:
        raise CannotTell(
            f"The history of {scope.name} begins at {moment(known.since)}. Whether a backlog comes again can be told from "
            f"{moment(known.since + FEWEST_WEEKS * WEEK)} on: it takes {FEWEST_WEEKS} weeks of history."
        )
    repeating = peaks(tables["peaks"], weeks)
    backlog, *details = _coming(scope, tables["hours"], weeks)
    return Report(sentence(scope, repeating, weeks), [backlog, _peaks(scope, repeating, end), *details], NOTES, known.generated)


def peaks(rows: Iterable[Any], weeks: int) -> list[Peak]:
    """The peaks that repeat, largest first. rows: entity_id, slot, backlog (by week), weeks (in which it was large). Pure."""
    by_queue: dict[int, dict[int, Any]] = {}
    for row in rows:
        seen = [week for week in row.weeks if week < weeks]
        if len(seen) >= max(FEWEST_WEEKS, weeks / 2):
            by_queue.setdefault(row.entity_id, {})[row.slot] = {week: row.backlog[week] for week in seen}
    repeating = []
    for entity_id, slots in by_queue.items():
        for run in _runs(sorted(slots)):
            most: dict[int, int] = {}
            for slot in run:
                for week, backlog in slots[slot].items():
                    most[week] = max(most.get(week, 0), backlog)
            repeating.append(Peak(entity_id, run[0], len(run), dict(sorted(most.items()))))
    return sorted(repeating, key=lambda peak: (-peak.median, peak.slot, peak.entity_id))


def sentence(scope: Scope, repeating: Sequence[Peak], weeks: int) -> str:
    """Which backlog comes again, and when next."""
    if not repeating:
        return (
            f"No backlog of {scope.name} came again: in no hour of the week was it large in {FEWEST_WEEKS} or more of the last "
            f"{weeks} weeks."
        )
    first = repeating[0]
    at = next_at(first, scope.now)
    others = f" {counted(len(repeating) - 1, 'other peak repeats', 'other peaks repeat')}." if len(repeating) > 1 else ""
    return (
        f"Probably yes: {scope.paths[first.entity_id]} had a large backlog on {first.when} UTC in {len(first.most)} of {weeks} "
        f"weeks (median {counted(first.median, 'message')}, at most {max(first.most.values()):,}). It is expected next on "
        f"{moment(at)}.{others}"
    )


def next_at(peak: Peak, now: datetime) -> datetime:
    """When the peak begins next, or began if it is not over yet."""
    at = floor(now, WEEK) - WEEK + peak.slot * HOUR  # one that began last week may go on
    while at + peak.hours * HOUR <= now:
        at += WEEK
    return at


def last_at(peak: Peak, end: datetime) -> datetime:
    """When it began in the last week in which it was seen. end: of the last week."""
    at = floor(end, WEEK) + peak.slot * HOUR
    first = at if at < end else at - WEEK
    return first - min(peak.most) * WEEK


def _runs(slots: Sequence[int]) -> list[list[int]]:
    """Runs of adjacent hours of the week; the last one is before the first."""
    runs: list[list[int]] = []
    for slot in slots:
        if runs and runs[-1][-1] + 1 == slot:
            runs[-1].append(slot)
        else:
            runs.append([slot])
    if len(runs) > 1 and runs[0][0] == 0 and runs[-1][-1] == WEEK_HOURS - 1:
        runs[0] = runs.pop() + runs[0]
    return runs


def _coming(scope: Scope, rows: Iterable[Any], weeks: int) -> list[Section]:
    """The backlog and the arrivals of the next seven days, if they are like the weeks before; with the numbers."""
    by_slot = {row.slot: row for row in rows}
    first = floor(scope.now, HOUR) + HOUR
    starts = [first + i * HOUR for i in range(WEEK_HOURS)]
    data: list[tuple[Any, ...]] = []
    for at in starts:
        row = by_slot[(at - floor(at, WEEK)) // HOUR]  # of the hour of the week
        spread = [(round(median(counts)), min(counts), max(counts)) for counts in (row.arrivals[:weeks], row.backlog[:weeks])]
        data.append((at, *spread[0], *spread[1]))
    word = f"of the last {weeks} weeks"

    def section(name: str, title: str, series: str, first: int, columns: str, label: str) -> Section:
        lines = {key: [row[first + i] for row in data] for i, key in enumerate((series, "low", "high"))}
        keys = [(series, f"median {word}"), ("low", f"least and most {word}")]
        charts = [count_lines(starts, lines, width) for width in WIDTHS]
        return Section(name, title, figures=[Figure(label, charts, keys=keys, columns=columns)])

    backlog = section(
        "backlog", "Expected backlog", "active", 4, "backlog backlog_low backlog_high",
        "messages in the queue by hour of the next seven days, UTC, if they are like the weeks before",
    )  # fmt: skip
    arrivals = section(
        "arrivals", "Expected arrivals", "entered", 1, "entered entered_low entered_high",
        "messages that enter by hour of the next seven days, UTC, if they are like the weeks before",
    )  # fmt: skip
    numbers = Section("data", "Data", table=Table("hours", "Data", HOURS, data[::-1], is_axis=True))
    return [backlog, arrivals, numbers]


def _peaks(scope: Scope, repeating: Sequence[Peak], end: datetime) -> Section:
    """The peaks that repeat; when they were seen last leads to the backlog of that time."""
    rows = []
    for peak in repeating:
        seen = last_at(peak, end)
        url = report_url("flow", {"queue": peak.entity_id}, seen - HOUR, seen + (peak.hours + 1) * HOUR)
        rows.append(
            (peak.when, scope.paths[peak.entity_id], len(peak.most), peak.median, max(peak.most.values()), Link(seen, url),
             next_at(peak, scope.now))
        )  # fmt: skip
    return Section("peaks", "Peaks that repeat", table=Table("peaks", "Peaks", PEAKS, rows, empty="No peak repeats."))


ANALYSIS = Analysis(
    slug="forecast", title="Recurring backlog", form=ForecastForm, present=present,
    needs={"counts": MOST_WEEKS * WEEK},
    question="Will this week's backlog come again?",
)  # fmt: skip
