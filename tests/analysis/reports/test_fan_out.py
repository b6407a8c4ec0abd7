"""Topics and fan-out: the answer, shares that were taken, and lags in a chart that does not need time."""

import pytest

from broker_core.common.types import Family
from explorer.analysis.reports import fan_out
from explorer.analysis.reports.report import plain
from explorer.analysis.survival import CannotTell

from .scopes import HOUR, SPAN, a_scope, tables

TOPIC = 3
COLUMNS = {
    "targets": {
        "source": None, "source_id": TOPIC, "entity_id": 1, "taken": 40, "handled": 38, "lost": 1, "there": 1, "generated": 2,
        "p50_us": 1_000_000, "p95_us": 2_000_000, "fastest": 30, "compared": 40, "lag_p50_us": 0, "lag_p95_us": 0,
    },
    "sources": {"source": None, "source_id": TOPIC, "taken": 90},
    "topics": {"source_id": TOPIC, "published": 100},
    "before": {"published": 50},
}  # fmt: skip
SLOW = {"entity_id": 2, "taken": 90, "lag_p50_us": 3_000_000, "lag_p95_us": 60_000_000}


def shown(*targets, scope=None, **rows):
    scope = scope or a_scope("events/Subscriptions/audit", "events/Subscriptions/billing", "events")
    return fan_out.present(scope, {}, tables(COLUMNS, targets=list(targets), before=[{}], **rows))


def test_the_answer_names_the_subscription_with_the_fewest_copies_and_the_slowest_subscription():
    scope = a_scope("events/Subscriptions/audit", "events/Subscriptions/billing", "events", compared=SPAN.before(HOUR))
    report = shown(SLOW, {}, scope=scope, topics=[{}], sources=[{}])
    assert report.finding == (
        "100 messages of 1 topic became 130 copies; audit took the fewest: 40.0\xa0% of the messages of events; billing lags "
        "most behind the fastest, by 3.0 s in the median. 10 messages were taken by none. That is 100\xa0% more than from "
        "2026-03-01 11:00 to 2026-03-01 12:00 (50)."
    )
    assert [plain(cell) for cell in report.tables["targets"].rows[1][:9]] == ["events", "audit", 100, 40, 0.4, 60, 38, 1, 1]
    [lag] = [section for section in report.sections if section.name == "lag"]
    drawn = lag.figures[0].charts[0]
    assert [tick.text for tick in drawn.y_ticks] == ["billing"] and [bar.name for bar in drawn.shapes] == ["held", "waiting"]


def test_few_messages_have_no_lag_chart():
    report = shown(SLOW | {"compared": 29}, topics=[{}], sources=[{}])
    assert [section.name for section in report.sections] == ["taken"] and "lags" not in report.finding


def test_exchanges_count_only_messages_routed_to_a_queue():
    scope = a_scope("a", "b", family=Family.RABBITMQ)
    exchange = {"source": "news", "source_id": None}
    report = shown(exchange, scope=scope, sources=[exchange])
    assert report.finding == "90 messages of 1 exchange became 40 copies; a took the fewest: 44.4\xa0% of the messages of news."
    assert fan_out.UNROUTABLE in report.notes


def test_a_queue_has_the_fan_out_of_its_sources():
    rows = tables(COLUMNS, targets=[{}, SLOW, {"source_id": 8, "entity_id": 7}])["targets"]
    assert [row.entity_id for row in fan_out.of_scope(a_scope("events/Subscriptions/audit"), rows)] == [1, 2]
    assert fan_out.of_scope(a_scope("q"), rows[2:]) == []


def test_storage_queues_have_no_fan_out():
    with pytest.raises(CannotTell):
        shown(scope=a_scope("q", family=Family.QUEUE_STORAGE))
    assert shown().finding == "No topic had messages taken from it in this range."
