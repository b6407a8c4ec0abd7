"""Losses: the answer with its queue, the chart, and numbers that lead to their messages."""

from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

from explorer.analysis.jobs import outcomes
from explorer.analysis.reports import losses
from explorer.analysis.reports.report import plain

from ..factories import NOON
from .scopes import HOUR, SPAN, a_scope, tables

LONG_AGO = NOON - timedelta(days=9)
COLUMNS = {
    "causes": {
        "entity_id": 1, "outcome": outcomes.DEAD_LETTERED, "cause": "Bad #", "messages": 6, "entered_at": NOON, "first_at": NOON,
        "last_at": NOON, "since": LONG_AGO,
    },
    "times": {"at": NOON, "outcome": outcomes.DEAD_LETTERED, "messages": 6},
    "routes": {
        "entity_id": 1, "outcome": outcomes.DEAD_LETTERED, "from_entity_id": None, "to_entity_id": None, "messages": 6,
    },
    "totals": {"left": 60, "lost": 9, "generated": 2, "begun": LONG_AGO, "before": None},
}  # fmt: skip
EXPIRED = {"entity_id": 2, "outcome": outcomes.EXPIRED, "cause": None, "messages": 3, "since": NOON}


def shown(scope=None, total=None, **rows):
    return losses.present(scope or a_scope("orders", "stock"), {}, tables(COLUMNS, totals=[total or {}], **rows))


def test_the_answer_names_the_queues_of_the_most_frequent_cause_and_of_the_new_cause():
    assert shown(causes=[{}, EXPIRED]).finding == (
        "9 messages were lost (15.0\xa0% of those that left): most often 6 of orders were dead-lettered (Bad #); new since "
        "2026-03-01 12:00: 3 of stock expired."
    )
    assert shown(causes=[EXPIRED | {"messages": 8}, {"messages": 1}]).finding.endswith(
        ": 8 of stock expired, new since 2026-03-01 12:00."
    )
    report = shown(causes=[{"messages": 1}], total={"lost": 1, "before": 4}, scope=a_scope("orders", compared=SPAN.before(HOUR)))
    assert report.finding.startswith(
        "1 message of orders was dead-lettered (Bad #) (1.7\xa0% of those that left). That is 75\xa0% fewer"
    )
    assert report.generated == 2


def test_no_cause_is_new_in_a_young_history():
    assert "new" not in shown(causes=[EXPIRED, {}], total={"begun": NOON - HOUR}).finding


def test_a_range_without_losses_says_so():
    report = shown(total={"lost": 0, "left": None})
    assert (report.finding, report.sections) == ("No messages were lost in this range.", ())


def test_losses_by_interval_are_stacked_by_outcome():
    times = [{}, {"outcome": outcomes.EXPIRED, "messages": 2, "at": NOON + 2 * SPAN.bucket}]
    figure = shown(causes=[{}], times=times).sections[0].figures[0]
    assert figure.keys == [("expired", "expired"), ("dead_lettered", "dead-lettered")]
    expired, dead = figure.charts[0].shapes
    assert (expired.name, expired.path.count("M"), dead.name, dead.path.count("M")) == ("expired", 1, "dead_lettered", 1)
    assert not expired.path.startswith(dead.path.partition(" ")[0]), "in another interval"


def test_causes_and_paths_link_to_their_messages():
    routes = [
        {}, {"from_entity_id": 2}, {"from_entity_id": 1}, {"outcome": outcomes.MOVED, "to_entity_id": 2},
        {"outcome": outcomes.EXPIRED},
    ]  # fmt: skip
    report = shown(causes=[{}, EXPIRED], routes=routes).tables
    query = parse_qs(urlsplit(report["causes"].rows[1][3].url).query, keep_blank_values=True)
    assert (query["queue"], query["outcome"], query["cause"]) == (["2"], ["expired"], [""])
    assert [[plain(value) for value in row] for row in report["routes"].rows] == [
        ["senders", "orders", "dead-lettered", "dead letters of orders", 6],
        ["stock", "orders", "dead-lettered", "dead letters of orders", 6],
        ["orders (again)", "orders", "dead-lettered", "dead letters of orders", 6],
        ["senders", "orders", "moved to other queues", "stock", 6],
        ["senders", "orders", "expired", None, 6],
    ]
    assert parse_qs(urlsplit(report["routes"].rows[1][4].url).query)["origin"] == ["2"]
