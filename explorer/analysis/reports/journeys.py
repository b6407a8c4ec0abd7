"""Journeys: how long messages take from end to end, along topics, forwards, resubmits, moves and correlation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from explorer.charts.chart import WIDTHS
from explorer.charts.labels import brief
from explorer.charts.rows import gantt

from .forms import ReportForm
from .report import Analysis, Column, Figure, Link, Report, Section, counted, difference, duration, moment, percent
from .scope import Scope
from .tables import Tables

LOOK_BACK = timedelta(days=7)  # how long before the range a journey may have begun
MOST_ALIKE, MOST_HOPS = 20, 6  # as in jobs/reports/journeys.py
FOLLOWED = {"forwarded", "moved", "correlated"}  # a journey with such a step is worth a drawing
ROUTES = (
    Column("route", "Route"),
    Column("journeys", "Journeys", "count", has_bar=True),
    Column("p50", "Median", "duration"),
    Column("p95", "95 %", "duration"),
    Column("longest", "Longest", "duration"),
    Column("slowest", "Most time in"),
    Column("share", "Share of the time", "share"),
    Column("example", "Message of the longest"),
)
STEPS = (
    Column("step", "Step"),
    Column("place", "In"),
    Column("how", "Came by"),
    Column("begins", "Begins after, median", "duration"),
    Column("waits", "Waits, median", "duration"),
    Column("p50", "Takes, median", "duration"),
    Column("p95", "Takes, 95 %", "duration"),
    Column("share", "Share of the time", "share", has_bar=True),
)
NOTES = (
    "A journey leads from a message to those that were made from it: copies of a topic, forwarded, moved and resubmitted ones; "
    "and to messages whose correlation id is its message id, or with the same correlation id (of at most "
    f"{MOST_ALIKE} messages). One that branches counts once for each end.",
    "Time spent in a dead-letter queue is excluded.",
    f"Includes journeys of 2 to {MOST_HOPS + 1} steps whose last step ended in this range, and that began at most "
    f"{LOOK_BACK.days} days before it. Messages sent at the history level off are not included.",
)


def present(scope: Scope, values: Mapping[str, Any], tables: Tables) -> Report:
    steps: dict[str, list[Any]] = defaultdict(list)
    for step in sorted(tables["steps"], key=lambda step: step.step):
        steps[step.route].append(step)
    routes = ordered(tables["routes"], steps)
    named = scope.with_entities(step.entity_id for step in tables["steps"])
    finding = sentence(routes, steps, named.paths)
    if scope.compared:
        finding += f" {difference(sum(route.journeys for route in routes), tables.only_row('before').journeys, scope.compared)}"
    examples = {(example.route, example.kind): example for example in tables["examples"]}
    sections = _sections(named, routes, steps, examples) if routes else ()
    return Report(finding, sections, NOTES, sum(route.generated for route in routes))


def ordered(routes: Iterable[Any], steps: Mapping[str, Sequence[Any]]) -> list[Any]:
    """Routes with forwards, moves or correlation before those of topics and resubmits alone; then most journeys first. Pure."""
    return sorted(routes, key=lambda route: (not is_followed(steps[route.route]), -route.journeys, -route.p50_us, route.route))


def is_followed(steps: Iterable[Any]) -> bool:
    return any(step.how in FOLLOWED for step in steps)


def sentence(routes: Sequence[Any], steps: Mapping[str, Sequence[Any]], names: Mapping[int, str]) -> str:
    """How long journeys of the first route took, and where they spent their time."""
    if not routes:
        return "No messages went on to another queue in this range."
    first, total = routes[0], sum(each.journeys for each in routes)
    place, share = slowest(steps[first.route])
    half, most = (brief(duration(us)) for us in (first.p50_us, first.p95_us))
    route = _words(steps[first.route], names)
    text = f"{counted(first.journeys, 'journey')} went {route}, half within {half}, 95\xa0% within {most}"
    text += f"; {percent(share)} of the time was in {_name(place, names)}." if share else "."
    return text if total == first.journeys else f"{text} {counted(len(routes), 'route')} had {counted(total, 'journey')}."


def slowest(steps: Sequence[Any]) -> tuple[Any, float]:
    """The step in which most time was spent, and its share. Pure."""
    most, total = max(steps, key=lambda step: step.sum_us), sum(step.sum_us for step in steps)
    return most, most.sum_us / total if total else 0.0


def _sections(
    named: Scope, routes: Sequence[Any], steps: Mapping[str, Sequence[Any]], examples: Mapping[Any, Any]
) -> list[Section]:
    first, names, sections = routes[0], named.paths, []
    if is_followed(steps[first.route]):
        for kind, title in (("median", "Median journey"), ("longest", "Longest journey")):
            if example := examples.get((first.route, kind)):
                sections.append(_waterfall(example, kind, title, names))
    data = [_step(i, step, steps[first.route], names) for i, step in enumerate(steps[first.route], 1)]
    title = f"Steps: {_words(steps[first.route], names)}"
    sections.append(Section.with_table("steps", title, STEPS, data))
    rows = [_route(named, route, steps[route.route], examples.get((route.route, "longest"))) for route in routes]
    return [*sections, Section.with_table("routes", "Routes", ROUTES, rows)]


def _waterfall(journey: Any, kind: str, title: str, names: Mapping[int, str]) -> Section:
    """A row for each step of a journey: how long it waited, and how long it then took."""
    rows = []
    for leg in journey.legs:
        since, left = (timedelta(microseconds=leg[name]) for name in ("since_us", "left_us"))
        received = left if leg["received_us"] is None else timedelta(microseconds=leg["received_us"])
        bars = [("waiting", since, received, f"waited {brief(received - since)}")]
        if leg["received_us"] is not None:
            bars.append(("held", received, left, f"received, left after {brief(left - received)}"))
        rows.append((names.get(leg["entity_id"], "a deleted queue"), bars))
    label = f"{title}, from {moment(journey.start)} UTC: time in each queue"
    keys, caption = [("waiting", "waited"), ("held", "received, until it left")], f"from {moment(journey.start)} UTC"
    charts = [gantt(rows, variant) for variant in WIDTHS]
    return Section(kind, title, figures=[Figure(label, charts, "gantt", caption, keys)])


def _step(number: int, step: Any, steps: Sequence[Any], names: Mapping[int, str]) -> tuple[Any, ...]:
    total = sum(each.sum_us for each in steps)
    times = [duration(us) for us in (step.begins_us, step.waits_us, step.p50_us, step.p95_us)]
    return str(number), _name(step, names), step.how or "sent", *times, step.sum_us / total if total else 0.0


def _route(named: Scope, route: Any, steps: Sequence[Any], longest: Any) -> tuple[Any, ...]:
    place, share = slowest(steps)
    last, link = longest.legs[-1] if longest else None, None
    if last and last["entity_id"] in named.by_id:
        link = Link(f"#{last['sequence_number']}", named.message_url(last["entity_id"], last["sequence_number"]))
    lengths = [duration(us) for us in (route.p50_us, route.p95_us, route.longest_us)]
    return _words(steps, named.paths), route.journeys, *lengths, _name(place, named.paths), share, link


def _name(step: Any, names: Mapping[int, str]) -> str:
    return names.get(step.entity_id, "a deleted queue")


def _words(steps: Iterable[Any], names: Mapping[int, str]) -> str:
    """A route in words: "orders → (forwarded) audit"."""
    return " ".join(f"→ ({step.how}) {_name(step, names)}" if step.how else _name(step, names) for step in steps)


ANALYSIS = Analysis(
    slug="journeys", title="Journeys", form=ReportForm, present=present, whole_namespace=True,
    needs={"lives": LOOK_BACK, "events": LOOK_BACK},
    question="How long do messages take from end to end, along topics, forwards, resubmits, moves and correlation?",
)  # fmt: skip
