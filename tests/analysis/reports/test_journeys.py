"""Journeys: routes with forwards come first, and only they are drawn."""

from datetime import timedelta

from explorer.analysis.reports import journeys
from explorer.analysis.reports.report import plain

from ..factories import NOON
from .scopes import HOUR, SPAN, a_scope, tables

S = 1_000_000
LEG = {"entity_id": 1, "sequence_number": 1, "how": "", "since_us": 0, "received_us": S, "left_us": 4 * S}
COLUMNS = {
    "routes": {
        "route": "1: 2:forwarded", "journeys": 5, "generated": 1, "p50_us": 9 * S, "p95_us": 20 * S, "longest_us": 30 * S,
    },
    "steps": {
        "route": "1: 2:forwarded", "step": 0, "entity_id": 1, "how": "", "begins_us": 0, "waits_us": S, "p50_us": 4 * S,
        "p95_us": 9 * S, "sum_us": 20 * S,
    },
    "examples": {
        "route": "1: 2:forwarded", "kind": "longest", "start": NOON, "length_us": 30 * S,
        "legs": [LEG, LEG | {"entity_id": 2, "sequence_number": 7, "how": "forwarded", "since_us": 4 * S, "received_us": None,
                             "left_us": 30 * S}],
    },
    "before": {"journeys": 10},
}  # fmt: skip
STEPS = [{"step": 1, "entity_id": 2, "how": "forwarded", "sum_us": 60 * S}, {}]
AGAIN = {"route": "1: 1:resubmitted", "journeys": 900}
AGAIN_STEPS = [AGAIN | {"step": i, "how": how} for i, how in enumerate(("", "resubmitted"))]
AGAIN_STEPS = [{name: value for name, value in again_step.items() if name != "journeys"} for again_step in AGAIN_STEPS]


def shown(scope=None, **rows):
    return journeys.present(scope or a_scope("orders", "audit"), {}, tables(COLUMNS, before=[{}], **rows))


def test_the_answer_says_where_forwarded_messages_spent_their_time():
    report = shown(routes=[AGAIN, {}], steps=[*AGAIN_STEPS, *STEPS], examples=[{}, {"kind": "median"}])
    assert report.finding == (
        "5 journeys went orders → (forwarded) audit, half within 9.0 s, 95\xa0% within 20 s; 75.0\xa0% of the time was in audit. "
        "2 routes had 905 journeys."
    )
    assert [section.name for section in report.sections] == ["median", "longest", "steps", "routes"] and report.generated == 2
    bars = report.sections[1].figures[0].charts[0].shapes
    assert [bar.name for bar in bars] == ["waiting", "held", "waiting"]  # the last one was not received
    first = report.tables["routes"].rows[0]
    assert plain(first[-1]) == "#7" and first[-1].url.endswith("/shop/audit/7") and first[5:7] == ("audit", 0.75)
    assert [row[1:3] for row in report.tables["steps"].rows] == [("orders", "sent"), ("audit", "forwarded")]


def test_journeys_of_resubmits_only_are_not_drawn():
    report = shown(routes=[AGAIN], steps=AGAIN_STEPS, scope=a_scope("orders", "audit", compared=SPAN.before(HOUR)))
    assert [section.name for section in report.sections] == ["steps", "routes"]
    assert "8900\xa0% more than" in report.finding and report.tables["routes"].rows[0][-1] is None


def test_a_range_without_journeys_says_so():
    assert shown().finding == "No messages went on to another queue in this range."
    assert timedelta(days=7) == journeys.LOOK_BACK == journeys.ANALYSIS.needs["events"] and journeys.ANALYSIS.whole_namespace
