"""Losses: which messages were lost, by what, and where had they been?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from .. import wording
from ..jobs import outcomes
from .forms import ReportForm
from .listing import messages_url
from .report import Analysis, Column, Link, Report, Section, by_interval, counted, difference, moment, percent
from .scope import Range, Scope
from .tables import Tables

NAMES = {code: name for name, code in outcomes.COLUMNS.items()}  # of outcomes
LOST = {code: NAMES[code] for code in outcomes.LOST}
LOOK_BACK = timedelta(days=30)  # a cause that was not seen for so long is new
NEW_AFTER = timedelta(days=1)  # of history without a cause
CAUSES = (
    Column("queue", "Queue"),
    Column("outcome", "Outcome"),
    Column("cause", "Cause"),
    Column("messages", "Messages", "count", has_bar=True),
    Column("first", "First in this range, UTC", "instant"),
    Column("last", "Last, UTC", "instant"),
    Column("since", "Known since, UTC", "instant"),
)
ROUTES = (
    Column("origin", "Came from"),
    Column("queue", "Lost in"),
    Column("outcome", "Outcome"),
    Column("destination", "Went to"),
    Column("messages", "Messages", "count", has_bar=True),
)
NOTES = (
    "Lost messages expired, were dead-lettered, dropped, moved or purged, or were deleted with their queue.",
    "Causes are reasons without numbers and ids.",
    f"A cause is known since it was first seen in the {LOOK_BACK.days} days before the range, or in it; it is new if the history "
    f"begins at least {NEW_AFTER.days * 24} hours earlier.",
    "Dead-lettered and moved messages can be found in the dead-letter queue or in the destination queue.",
)


def present(scope: Scope, values: Mapping[str, Any], tables: Tables) -> Report:
    total, causes, span = tables.one("totals"), tables["causes"], scope.range
    named = scope.with_entities(one for row in tables["routes"] for one in (row.from_entity_id, row.to_entity_id))
    said = sentence(causes, total, scope.paths)
    if scope.compared:
        said += f" {difference(total.lost or 0, total.before or 0, scope.compared)}"
    sections = [
        _by_time(span, tables["times"]),
        Section.with_table("causes", "Causes", CAUSES, [_cause(scope, one) for one in causes]),
        Section.with_table("routes", "Paths", ROUTES, [_route(scope, one, named.paths) for one in tables["routes"]]),
    ]
    return Report(said, sections if causes else (), NOTES, total.generated or 0)


def sentence(causes: Sequence[Any], total: Any, names: Mapping[int, str]) -> str:
    """How many messages were lost, where and why most of them, and which cause is new. causes: most messages first."""
    if not causes:
        return "No messages were lost in this range."
    share = f"{percent(total.lost / total.left)} of those that left"
    first: Any = causes[0]
    new: Any = next((one for one in causes if is_new(one, total.begun)), None)
    if len(causes) == 1:
        since = f", new since {moment(first.since)}" if new else ""
        return f"{counted(first.messages, 'message')} of {_words(first, names)}{since} ({share})."
    if new is first:
        said = f"{first.messages:,} of {_words(first, names)}, new since {moment(first.since)}"
    else:
        said = f"most often {first.messages:,} of {_words(first, names)}"
    if new and new is not first:
        said += f"; new since {moment(new.since)}: {new.messages:,} of {_words(new, names)}"
    return f"{counted(total.lost, 'message')} were lost ({share}): {said}."


def is_new(cause: Any, begun: datetime | None) -> bool:
    """Whether a cause was first seen in the range, after a long enough history without it. begun: of the known history."""
    return cause.since == cause.first_at and begun is not None and cause.since - begun >= NEW_AFTER


def _words(cause: Any, names: Mapping[int, str]) -> str:
    """What happened, to follow "3 messages of": "orders expired"."""
    word = wording.OUTCOMES[LOST[cause.outcome]]
    verb = word if cause.outcome == outcomes.EXPIRED else f"{'was' if cause.messages == 1 else 'were'} {word}"
    return f"{names[cause.entity_id]} {verb}" + (f" ({cause.cause})" if cause.cause else "")


def _by_time(span: Range, rows: Iterable[Any]) -> Section:
    cells = ((LOST[one.outcome], one.at, one.messages) for one in rows)
    label, caption = f"Lost messages by {span.unit} and outcome", f"by the {span.unit} in which they were lost"
    return by_interval(span, cells, {name: wording.OUTCOMES[name] for name in LOST.values()}, label, caption)


def _cause(scope: Scope, one: Any) -> tuple[Any, ...]:
    span, name = scope.range, LOST[one.outcome]
    url = messages_url(
        {"queue": one.entity_id}, one.entered_at, span.end, left_start=span.start, left_end=span.end, outcome=name,
        cause=one.cause or "", order="left",
    )  # fmt: skip
    link = Link(one.messages, url)
    return scope.paths[one.entity_id], wording.OUTCOMES[name], one.cause, link, one.first_at, one.last_at, one.since


def _route(scope: Scope, one: Any, names: Mapping[int, str]) -> tuple[Any, ...]:
    queue, name, span = names[one.entity_id], LOST[one.outcome], scope.range
    origin = "senders" if one.from_entity_id is None else names.get(one.from_entity_id, "another queue")
    if one.from_entity_id == one.entity_id:
        origin = f"{queue} (again)"  # resubmitted, or activated when it was due
    destination = names.get(one.to_entity_id) if one.to_entity_id is not None else None
    if name == "dead_lettered" and not destination:
        destination = f"dead letters of {queue}"
    url = messages_url(
        {"queue": one.entity_id}, span.start - LOOK_BACK, span.end, left_start=span.start, left_end=span.end, outcome=name,
        origin=one.from_entity_id or 0, destination=one.to_entity_id or 0, order="left",
    )  # fmt: skip
    return origin, queue, wording.OUTCOMES[name], destination, Link(one.messages, url)


ANALYSIS = Analysis(
    slug="losses", title="Losses", form=ReportForm, present=present, needs={"counts": LOOK_BACK, "lives": timedelta(0)},
    question="Which messages were lost, why, and on which path?",
)  # fmt: skip
