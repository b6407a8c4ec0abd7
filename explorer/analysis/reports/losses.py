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
    total, causes, span = tables.only_row("totals"), tables["causes"], scope.range
    named = scope.with_entities(entity_id for row in tables["routes"] for entity_id in (row.from_entity_id, row.to_entity_id))
    finding = sentence(causes, total, scope.paths)
    if scope.compared:
        finding += f" {difference(total.lost or 0, total.before or 0, scope.compared)}"
    sections = [
        _by_time(span, tables["times"]),
        Section.with_table("causes", "Causes", CAUSES, [_cause(scope, cause) for cause in causes]),
        Section.with_table("routes", "Paths", ROUTES, [_route(scope, route, named.paths) for route in tables["routes"]]),
    ]
    return Report(finding, sections if causes else (), NOTES, total.generated or 0)


def sentence(causes: Sequence[Any], total: Any, names: Mapping[int, str]) -> str:
    """How many messages were lost, where and why most of them, and which cause is new. causes: most messages first."""
    if not causes:
        return "No messages were lost in this range."
    share = f"{percent(total.lost / total.left)} of those that left"
    first: Any = causes[0]
    new: Any = next((cause for cause in causes if is_new(cause, total.begun)), None)
    if len(causes) == 1:
        since = f", new since {moment(first.since)}" if new else ""
        return f"{counted(first.messages, 'message')} of {_words(first, names)}{since} ({share})."
    if new is first:
        text = f"{first.messages:,} of {_words(first, names)}, new since {moment(first.since)}"
    else:
        text = f"most often {first.messages:,} of {_words(first, names)}"
    if new and new is not first:
        text += f"; new since {moment(new.since)}: {new.messages:,} of {_words(new, names)}"
    return f"{counted(total.lost, 'message')} were lost ({share}): {text}."


def is_new(cause: Any, begun: datetime | None) -> bool:
    """Whether a cause was first seen in the range, after a long enough history without it. begun: of the known history."""
    return cause.since == cause.first_at and begun is not None and cause.since - begun >= NEW_AFTER


def _words(cause: Any, names: Mapping[int, str]) -> str:
    """What happened, to follow "3 messages of": "orders expired"."""
    word = wording.OUTCOMES[LOST[cause.outcome]]
    verb = word if cause.outcome == outcomes.EXPIRED else f"{'was' if cause.messages == 1 else 'were'} {word}"
    return f"{names[cause.entity_id]} {verb}" + (f" ({cause.cause})" if cause.cause else "")


def _by_time(span: Range, rows: Iterable[Any]) -> Section:
    cells = ((LOST[row.outcome], row.at, row.messages) for row in rows)
    label, caption = f"Lost messages by {span.unit} and outcome", f"by the {span.unit} in which they were lost"
    return by_interval(span, cells, {name: wording.OUTCOMES[name] for name in LOST.values()}, label, caption)


def _cause(scope: Scope, cause: Any) -> tuple[Any, ...]:
    span, name = scope.range, LOST[cause.outcome]
    url = messages_url(
        {"queue": cause.entity_id}, cause.entered_at, span.end, left_start=span.start, left_end=span.end, outcome=name,
        cause=cause.cause or "", order="left",
    )  # fmt: skip
    link = Link(cause.messages, url)
    return scope.paths[cause.entity_id], wording.OUTCOMES[name], cause.cause, link, cause.first_at, cause.last_at, cause.since


def _route(scope: Scope, route: Any, names: Mapping[int, str]) -> tuple[Any, ...]:
    queue, name, span = names[route.entity_id], LOST[route.outcome], scope.range
    origin = "senders" if route.from_entity_id is None else names.get(route.from_entity_id, "another queue")
    if route.from_entity_id == route.entity_id:
        origin = f"{queue} (again)"  # resubmitted, or activated when it was due
    destination = names.get(route.to_entity_id) if route.to_entity_id is not None else None
    if name == "dead_lettered" and not destination:
        destination = f"dead letters of {queue}"
    url = messages_url(
        {"queue": route.entity_id}, span.start - LOOK_BACK, span.end, left_start=span.start, left_end=span.end, outcome=name,
        origin=route.from_entity_id or 0, destination=route.to_entity_id or 0, order="left",
    )  # fmt: skip
    return origin, queue, wording.OUTCOMES[name], destination, Link(route.messages, url)


ANALYSIS = Analysis(
    slug="losses", title="Losses", form=ReportForm, present=present, needs={"counts": LOOK_BACK, "lives": timedelta(0)},
    question="Which messages were lost, why, and on which path?",
)  # fmt: skip
