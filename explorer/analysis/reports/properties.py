"""Hot properties and sessions: which values of properties wait or fail more than the others, and which sessions stalled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import NormalDist
from typing import Any

from django.urls import reverse

from broker_core.common.durations import human
from explorer.charts.chart import WIDTHS
from explorer.charts.rows import ShareRow, named_heat_map, share_rows

from .. import dimensions
from ..survival import FEWEST
from .attempts import margin, wilson
from .forms import ReportForm
from .listing import messages_url
from .report import Analysis, Column, Figure, Link, Report, Section, counted, duration, moment, percent
from .scope import Range, Scope
from .tables import Tables

SLOW = 0.9  # of its queue's messages (jobs/reports/properties.py)
MOST_DRAWN = 10
LONG_STILL = timedelta(minutes=1)  # a session that stalled for less is not worth a sentence
VALUES = (
    Column("queue", "Queue"),
    Column("property", "Property"),
    Column("value", "Value"),
    Column("messages", "Messages", "count"),
    Column("failed", "Failed", "share"),
    Column("failed_low", "At least", "share", about="95 % band"),
    Column("failed_high", "At most", "share", about="95 % band"),
    Column("failed_others", "Others failed", "share"),
    Column("slow", "Waited long", "share"),
    Column("slow_low", "At least", "share", about="95 % band"),
    Column("slow_high", "At most", "share", about="95 % band"),
    Column("slow_others", "Others waited long", "share"),
)
SESSIONS = (
    Column("queue", "Queue"),
    Column("session", "Session"),
    Column("messages", "Messages", "count", has_bar=True),
    Column("share", "Share of the queue's", "share"),
    Column("failed", "Failed", "count"),
    Column("wait", "Longest wait", "duration"),
    Column("stalled", "Stalled, at most", "duration"),
    Column("since", "From, UTC", "instant"),
    Column("first", "Message that left then"),
)
NOTES = (
    "Includes the messages that left in this range. A message failed if it expired, was dead-lettered, moved or dropped, or "
    "was delivered more than once.",
    f"It waited long if it waited longer than {SLOW:.0%} of its queue's messages.".replace("%", "\xa0%"),
    f"A value is compared with the other messages of its queue, if both have at least {FEWEST}; bands are Wilson's, and a value "
    "stands out where its band is above that of the others, wider bands if the key has many values. The most frequent values of "
    "each queue are listed, and those that differ most.",
    "A session is stalled while messages of it wait and none leaves: its messages are delivered one after the other.",
)
TITLES = {"failed": "Which values fail more often", "slow": "Which values wait longer"}
NONE = "No messages that differ in a property left in this range."


@dataclass(frozen=True, slots=True)
class Value:
    """The messages of a queue with one value, and the others of the queue. slow: those that waited long. tested: how many values
    of the key there are; by chance alone, one of many differs."""

    entity_id: int
    key: str
    value: str
    messages: int
    failed: int
    slow: int
    others: int
    others_failed: int
    others_slow: int
    tested: int = 1

    @property
    def words(self) -> str:
        return dimensions.words(self.key, self.value)

    def shares(self, metric: str) -> tuple[float, float, float, float]:
        """The share that "failed" or was "slow", its band, and the share of the others."""
        count = getattr(self, metric)
        return count / self.messages, *wilson(count, self.messages), getattr(self, f"others_{metric}") / max(1, self.others)

    def margin(self, metric: str) -> float:
        """By how much the value's band is above that of the others; below 0: it does not stand out. The bands are wider for keys
        with many values."""
        z = NormalDist().inv_cdf(1 - 0.025 / self.tested)
        return margin(getattr(self, metric), self.messages, getattr(self, f"others_{metric}"), self.others, z)

    @property
    def most(self) -> float:
        return max(self.margin("failed"), self.margin("slow"))


def present(scope: Scope, values: Mapping[str, Any], tables: Tables) -> Report:
    names = Value.__dataclass_fields__
    all_values = [Value(*(getattr(row, name) for name in names)) for row in tables["values"]]
    all_values.sort(key=lambda value: (-value.most, -value.messages, value.key, value.value))
    sessions = sorted(
        tables["sessions"], key=lambda session: (-session.still_us, -session.messages, session.session, session.entity_id)
    )
    finding = (
        f"{sentence(all_values, scope)}{_compared(scope, all_values, tables['before'])} {session_sentence(sessions)}".strip()
    )
    everything = tables.only_row("all")
    sections = [*_values(scope, all_values), *_sessions(scope, sessions, tables["spells"])] if everything.messages else []
    return Report(finding, sections, NOTES, everything.generated, links=_links(scope, all_values))


def standing_out(all_values: Sequence[Value], metric: str) -> list[Value]:
    """The values that differ significantly, largest first."""
    return sorted((value for value in all_values if value.margin(metric) > 0), key=lambda value: -value.margin(metric))


def sentence(all_values: Sequence[Value], scope: Scope) -> str:
    """Which value fails, and which waits, clearly more than the others of its queue."""
    if not all_values:
        return NONE
    parts = []
    for metric, verb in (("failed", "failed"), ("slow", "waited long")):
        if worst := standing_out(all_values, metric)[:1]:
            value = worst[0]
            share, low, high, rest = value.shares(metric)
            parts.append(
                f"Messages of {scope.paths[value.entity_id]} with {value.words} {verb} more often: {percent(share)} "
                f"({percent(low)} to {percent(high)}), {percent(rest)} of the others."
            )
    return " ".join(parts) or f"No property of messages of {scope.name} has a value that failed or waited clearly more often."


def session_sentence(sessions: Sequence[Any]) -> str:
    """Which session stalled longest, and which has far more messages than an equal share. sessions: that one first."""
    if not sessions:
        return ""
    still, most, sentences = sessions[0], max(sessions, key=lambda session: session.messages), []
    if (length := timedelta(microseconds=still.still_us)) >= LONG_STILL:
        sentences.append(f"Session {still.session} stalled longest: {human(length)} from {moment(still.since)}.")
    share = most.messages / most.queue_messages
    if most.queue_sessions > 1 and share > 3 / most.queue_sessions and most.messages >= FEWEST:
        sentences.append(f"Session {most.session} has the most messages: {percent(share)} of its queue's.")
    return " ".join(sentences)


def stalled(spells: Iterable[tuple[datetime, datetime]], span: Range) -> list[float]:
    """The share of each interval that these times, which do not overlap, cover. Pure."""
    shares = []
    for at in span.buckets:
        covered = (min(until, at + span.bucket) - max(since, at) for since, until in spells)
        shares.append(sum((part for part in covered if part > timedelta(0)), timedelta(0)) / span.bucket)
    return shares


def _values(scope: Scope, all_values: Sequence[Value]) -> list[Section]:
    sections = []
    for metric, title in TITLES.items():
        if drawn := standing_out(all_values, metric)[:MOST_DRAWN]:
            rows = [_drawn(value, metric, scope) for value in drawn]
            label = f"{title}: share of the messages with each value, with its 95 % band, and of the others"
            keys = [("share", "share"), ("rest", "others of the queue")]
            charts = [share_rows(rows, width) for width in WIDTHS]
            figure = Figure(label, charts, "gantt", "with its 95 % band", keys)
            sections.append(Section(metric, title, figures=[figure]))
    data = [_value_row(scope, value) for value in all_values]
    return [*sections, Section.with_table("values", "Values", VALUES, data, empty=NONE)]


def _drawn(value: Value, metric: str, scope: Scope) -> ShareRow:
    share, low, high, rest = value.shares(metric)
    at = f"{scope.paths[value.entity_id]}: " if scope.is_whole else ""
    tip = f"{at}{value.words}: {percent(share)} of {value.messages:,}; others {percent(rest)}"
    return ShareRow(at + dimensions.text(value.key, value.value), share, tip, (low, high), rest)


def _value_row(scope: Scope, value: Value) -> tuple[Any, ...]:
    number = _link(scope, value.entity_id, value.messages, value.key, value.value)
    text = dimensions.text(value.key, value.value)
    return scope.paths[value.entity_id], dimensions.name(value.key), text, number, *value.shares("failed"), *value.shares("slow")


def _link(scope: Scope, entity_id: int, count: int, key: str, value: str) -> Link:
    """A number of messages that left in the range with a value, which leads to them."""
    span = scope.range
    of = {"queue": entity_id}
    url = messages_url(of, None, None, left_start=span.start, left_end=span.end, key=key, value=value)
    return Link(count, url)


def _sessions(scope: Scope, sessions: Sequence[Any], spells: Iterable[Any]) -> list[Section]:
    if not sessions:
        return []
    span, times = scope.range, dict[tuple[int, str], list[tuple[datetime, datetime]]]()
    for spell in spells:
        times.setdefault((spell.entity_id, spell.session), []).append((spell.since, spell.until))
    drawn = [
        (session.session, stalled(own_spells, span))
        for session in sessions
        if (own_spells := times.get((session.entity_id, session.session)))
    ]
    label = f"Share of each {span.unit} in which a session was stalled"
    charts = [named_heat_map(span.buckets, drawn, width) for width in WIDTHS]
    figure = Figure(label, charts, "heat", f"{label}; the stronger the color, the longer")
    data = [_session_row(scope, session) for session in sessions]
    return [Section.with_table("sessions", "Sessions", SESSIONS, data, figures=[figure] if drawn else [])]


def _session_row(scope: Scope, session: Any) -> tuple[Any, ...]:
    return (
        scope.paths[session.entity_id], session.session,
        _link(scope, session.entity_id, session.messages, dimensions.SESSION, session.session),
        session.messages / session.queue_messages, session.failed, duration(session.wait_us), duration(session.still_us),
        session.since,
        Link(f"#{session.first}", scope.message_url(session.entity_id, session.first)),
    )  # fmt: skip


def _compared(scope: Scope, all_values: Sequence[Value], before: Sequence[Any]) -> str:
    """The figures of the most significant value in the comparison range."""
    worst = next((value for value in all_values if value.most > 0), None)
    if worst is None or scope.compared is None:
        return ""
    metric = max(("failed", "slow"), key=worst.margin)
    key = (worst.entity_id, worst.key, worst.value)
    same = next((earlier for earlier in before if (earlier.entity_id, earlier.key, earlier.value) == key), None)
    if same is None:
        return f" From {scope.compared} there were no messages with {worst.words} to compare."
    count, verb = getattr(same, metric), "failed" if metric == "failed" else "waited long"
    low, high = wilson(count, same.messages)
    of = f"{percent(count / same.messages)} ({percent(low)} to {percent(high)}) of {counted(same.messages, 'message')}"
    return f" From {scope.compared}, {of} with {worst.words} {verb}."


def _links(scope: Scope, all_values: Sequence[Value]) -> list[Link]:
    if not scope.family.texts.application_properties:
        return []
    has_any = any(dimensions.is_property(value.key) for value in all_values)
    words = "Change the properties" if has_any else "Choose properties to tell messages apart by"
    return [Link(words, f"{reverse('explorer:analysis_properties')}?{scope.url_query}")]


ANALYSIS = Analysis(
    slug="properties", title="Hot properties and sessions", form=ReportForm, present=present, needs={"lives": timedelta(0)},
    question="Which property values wait or fail more often than others, and which sessions stalled?",
)  # fmt: skip
