"""Incidents: which change or deploy began this? When trouble began, and what settings and deploys before it did."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from django import forms
from django.urls import reverse

from explorer.charts.chart import WIDTHS
from explorer.charts.columns import count_lines, duration_lines
from explorer.charts.labels import brief
from explorer.frames.presenters import actor_name

from ..jobs import measures
from .before_after import Metric, metrics
from .forms import ReportForm
from .listing import messages_url
from .report import Analysis, Column, Figure, Link, Report, Section, counted, moment, percent
from .scope import Range, Scope
from .tables import Tables
from .times import Times, times_by

WINDOWS = {"1": "1 hour", "6": "6 hours", "24": "24 hours"}
PERIODS = {"1": "hour", "6": "6 hours", "24": "24 hours"}  # "the ... before"
LONGEST = timedelta(days=1)  # of WINDOWS
SUBJECTS = {
    "failed": "Failed deliveries of {0}", "locks": "Lost locks of {0}", "lost": "Lost messages of {0}",
    "waiting": "Messages of {0} that waited long",
}  # fmt: skip
TROUBLE = {"failed": "failed deliveries", "locks": "lost locks", "lost": "lost messages", "waiting": "long waiting"}
ONSETS = (
    Column("at", "From, UTC", "instant"),
    Column("of", "Of"),
    Column("what", "Trouble"),
    Column("before", "Before", "share"),
    Column("after", "After", "share", has_bar=True),
    Column("messages", "Affected after it", "count"),
    Column("change", "Change before it"),
    Column("ago", "Time since the change", "duration"),
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
FIGURES = (
    Column("metric", "Figure"),
    Column("before", "Before", "figure", about="95 % band"),
    Column("after", "After", "figure", about="95 % band"),
    Column("differs", "Differs clearly"),
)
NOTES = (
    "Trouble begins at a step of 5 minutes (an hour, in days older than a week) after which the share of failed deliveries, lost "
    "locks, lost messages or long waiting is at least twice that before it, by at least 4 standard errors, over the same length "
    "of time on both sides. At least 30 messages are needed before it, and 5 more than expected after it.",
    "A message waited long if it waited eight times as long as the fastest quarter of this range, and at least 1 s. A delivery "
    "failed if it was abandoned, lost its lock, or was the last one allowed, or if the receiver rejected the message.",
    "That a change precedes trouble does not prove that it caused it. Considered are changes of the queue's settings, also by "
    "policies and programs, and deploys marked here or by manage.py mark_deploy.",
    "The step in which a change was made counts for neither side. A difference is clear if the 95 % bands do not overlap.",
)
OTHER_CLOCK = "Changes are recorded in real time, which the clock of this namespace does not show, so none are considered."


class IncidentsForm(ReportForm):
    DEFAULTS = {"range": "1d", "window": "1"}
    compare = None

    window = forms.ChoiceField(label="Before and after", choices=list(WINDOWS.items()))


@dataclass(frozen=True, slots=True)
class Change:
    """Something that changed. number: in the tables. entity_id: only of this queue; None: of all."""

    number: int
    at: datetime
    words: str
    actor: str
    entity_id: int | None = None


def present(scope: Scope, values: Mapping[str, Any], tables: Tables) -> Report:
    length, about = timedelta(hours=int(values["window"])), tables.only_row("about")
    known, onsets = changes(tables["changes"]), sorted(tables["onsets"], key=lambda onset: onset.number)
    times = times_by(tables["times"], "point", "number", "side")
    shares = {(row.point, row.number, row.side): row for row in tables["shares"]}

    def figures(point: str, number: int) -> list[Metric]:
        places = [(point, number, side) for side in ("before", "after")]
        return metrics([times.get(place, Times()) for place in places], [shares.get(place) for place in places])

    causes = {onset.number: nearest(onset, known, scope.now, length) for onset in onsets}
    finding = sentence(onsets, causes, scope, length, partial(figures, "onset"))
    sections = []
    if onsets:
        first = onsets[0]
        title = f"{scope.paths[first.entity_id]} before and after {moment(first.at)}"
        data = [metric.columns for metric in figures("onset", first.number)]
        sections = [
            _picture(scope.range, first, causes[1], tables, scope.paths),
            _onsets(scope, onsets, causes, length),
            Section.with_table("figures", title, FIGURES, data),
        ]
    if known:
        rows = [_change(scope, change, figures("change", change.number), shares, length) for change in known]
        sections.append(Section.with_table("changes", "Changes", CHANGES, rows))
    deploy = Link("Mark a deploy", f"{reverse('explorer:mark_deploy')}?{scope.url_query}")
    notes = NOTES if about.real_clock else (*NOTES, OTHER_CLOCK)
    return Report(finding, sections, notes, about.generated, links=[deploy])


def changes(rows: Sequence[Any]) -> list[Change]:
    """Those of settings and deploys, newest first. Revisions without a difference are left out. Pure."""
    real_changes = []
    for row in sorted(rows, key=lambda change: change.number):
        if row.name is not None:
            real_changes.append(Change(row.number, row.at, f"the deploy of {row.name}", row.actor))
        elif words := differences(json.loads(row.old), json.loads(row.new)):
            real_changes.append(Change(row.number, row.at, words, row.actor, row.entity_id))
    return real_changes


def differences(before: Mapping[str, str | None], after: Mapping[str, str | None]) -> str:
    """The settings that differ, in words: "lock duration: 00:00:30 → 00:01:00"."""
    old, new = _flat(before), _flat(after)
    names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    return "; ".join(f"{name.replace('_', ' ')}: {_text(old.get(name))} → {_text(new.get(name))}" for name in names)


def nearest(onset: Any, known: Sequence[Change], now: datetime, length: timedelta) -> Change | None:
    """The change of this queue, or of all, that precedes an onset most closely, at most so long before its step. Pure."""
    over = onset.at + step_of(onset.at, now)
    before = [change for change in known if change.entity_id in (None, onset.entity_id) and onset.at - length <= change.at < over]
    return max(before, key=lambda change: (change.at, change.entity_id is not None), default=None)


def step_of(at: datetime, now: datetime) -> timedelta:
    """How finely the counts of this time are known."""
    return measures.COARSE if at < now - measures.AGED else measures.STEP


def sentence(onsets: Sequence[Any], causes: Mapping[int, Change | None], scope: Scope, length: timedelta, figures: Any) -> str:
    """What began when, and which change it followed. figures: gives the metrics of an onset by its number."""
    if not onsets:
        return (
            "No onset of failed deliveries, lost locks, lost messages or long waiting was found in this range, comparing "
            f"the {PERIODS[str(length // timedelta(hours=1))]} before and after each step."
        )
    first = onsets[0]
    subject, name = SUBJECTS[first.kind], scope.paths[first.entity_id]
    text = f"{subject.format(name)} rose from {percent(_before(first))} to {percent(_after(first))} at {moment(first.at)}"
    median = next((metric for metric in figures(first.number) if metric.name == "waiting, median"), None)
    if first.kind == "waiting" and median and median.before and median.after:
        text += f" (median wait {median.value(median.before)} → {median.value(median.after)})"
    cause = causes[first.number]
    if cause is None:
        text += f"; no change or deploy is known in the {PERIODS[str(length // timedelta(hours=1))]} before."
    else:
        text += f", {_since(first, cause)} {cause.words}."
    others = len(onsets) - 1
    return text if not others else f"{text} {counted(others, 'other onset')} {'is' if others == 1 else 'are'} listed below."


def _since(onset: Any, cause: Change) -> str:
    """How long after a change, as the beginning of "… after the change"."""
    if cause.at > onset.at:
        return "in the same minutes as"
    return f"{brief(onset.at - cause.at)} after" if cause.at < onset.at else "at the time of"


def _before(onset: Any) -> float:
    return onset.before_bad / onset.before


def _after(onset: Any) -> float:
    return onset.after_bad / onset.after


def _flat(settings: Mapping[str, str | None]) -> dict[str, Any]:
    """Settings by name, those in force before those that were set. settings: their values as texts, objects as JSON."""
    flat: dict[str, Any] = {name: value for name, value in settings.items() if not (value or "").startswith("{")}
    for group in ("options", "effective"):
        flat |= json.loads(settings.get(group) or "{}")
    return flat


def _text(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value)


def _picture(span: Range, onset: Any, cause: Change | None, tables: Tables, names: Mapping[int, str]) -> Section:
    """The clearest trouble over the range: its share, or the median and 95 % of the waiting, with the onset and the change."""
    starts, title = span.buckets, f"{TROUBLE[onset.kind].capitalize()} of {names[onset.entity_id]}"
    points = [("C", cause.at, cause.words)] if cause else []
    points.append(("T", onset.at, f"trouble begins at {moment(onset.at)}"))
    marks = sorted(((at - starts[0]) / span.bucket, letter, words) for letter, at, words in points)
    keys = [(name, word) for name, word in (("p50", "median wait"), ("p95", "95\xa0%"))]
    if onset.kind == "waiting":
        known = times_by(tables["waits"], "at")
        rows = [known.get(at, Times()) for at in starts]
        waits = {name: [times_of_step.wait(share) for times_of_step in rows] for name, share in (("p50", 0.5), ("p95", 0.95))}
        charts = [duration_lines(starts, waits, width, partial=span.partial, marks=marks) for width in WIDTHS]
        label = f"Waiting of {names[onset.entity_id]} by {span.unit}"
    else:
        by_time = {point.at: 100 * point.bad / point.total for point in tables["chart"]}
        shares = {"dead": [by_time.get(at) for at in starts]}
        charts = [count_lines(starts, shares, width, partial=span.partial, marks=marks) for width in WIDTHS]
        keys, label = [("dead", f"{TROUBLE[onset.kind]}, per cent")], f"{title} by {span.unit}, per cent"
    caption = "T: trouble begins" + (f"; C: {cause.words}" if cause else "")
    return Section("onset", title, figures=[Figure(label, charts, caption=caption, keys=keys)])


def _onsets(scope: Scope, onsets: Sequence[Any], causes: Mapping[int, Change | None], length: timedelta) -> Section:
    rows = []
    for onset in onsets:
        cause, until = causes[onset.number], onset.at + length
        of = {"queue": onset.entity_id}
        url = (
            messages_url(of, onset.at, until) if onset.kind == "waiting"
            else messages_url(of, onset.at - measures.AGED, until, left_start=onset.at, left_end=until, order="left")
        )  # fmt: skip
        ago = max(onset.at - cause.at, timedelta(0)) if cause else None
        rows.append((
            Link(onset.at, url), scope.paths[onset.entity_id], TROUBLE[onset.kind], _before(onset), _after(onset),
            onset.after_bad, cause.words if cause else None, ago,
        ))  # fmt: skip
    return Section.with_table("onsets", "Onsets", ONSETS, rows)


def _change(
    scope: Scope, change: Change, metrics_of_change: Sequence[Metric], shares: Mapping[Any, Any], length: timedelta
) -> tuple[Any, ...]:
    of = {"queue": change.entity_id} if change.entity_id is not None else scope.query
    counts = []
    for side, start in (("before", change.at - length), ("after", change.at)):
        row = shares.get(("change", change.number, side))
        url = messages_url(of, start - measures.AGED, start + length, left_start=start, left_end=start + length)
        counts.append(Link(row.left if row else 0, url))
    name = scope.paths.get(change.entity_id or 0, "all queues" if scope.is_whole else scope.name)
    differs = "; ".join(metric.words for metric in metrics_of_change if metric.differs)
    return change.at, change.words, name, actor_name(change.actor), *counts, differs or None


ANALYSIS = Analysis(
    slug="incidents", title="Which change or deploy began this?", form=IncidentsForm, present=present,
    needs={"counts": LONGEST, "histograms": LONGEST, "settings": timedelta(0)},
    question="When did losses, failed deliveries, lost locks or long waiting begin, and what changed before?",
)  # fmt: skip
