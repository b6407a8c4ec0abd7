"""Receivers: how their deliveries ended, and when they received."""

from explorer.analysis.jobs.history import Span
from explorer.analysis.jobs.reports import receivers

from .rows import HOUR, MINUTE, NOON, a_request, history, listed


def test_deliveries_are_counted_by_receiver(spark):
    asked = a_request(compared=Span(NOON - HOUR, NOON))
    rows = [
        {"held_us": 4}, {"held_us": 8, "entity_id": 2, "generated": True}, {"well": False, "held_us": 99},
        {"well": False, "rejected": True, "received_at": NOON + 7 * MINUTE},
        {"well": False, "lost": True, "failed": True, "received_by": "b", "attempt": 2, "generated": True},
        {"well": False, "failed": True, "received_by": None},
        {"subqueue": 1}, {"received_at": NOON - MINUTE, "well": False, "failed": True},
    ]  # fmt: skip
    tables = receivers.tables(history(spark, asked, attempts=rows))
    columns = ("receiver", "queues", "deliveries", "succeeded", "lost", "rejected", "failed", "work_us", "work_95_us", "last_at")
    assert listed(tables["receivers"], *columns) == [
        ("", 1, 1, 0, 0, 0, 1, None, None, NOON), ("a", 2, 4, 2, 0, 1, 0, 4, 8, NOON + 7 * MINUTE),
        ("b", 1, 1, 0, 1, 0, 0, None, None, NOON),
    ]  # fmt: skip
    assert listed(tables["times"], "receiver", "at", "deliveries") == [
        ("", NOON, 1), ("a", NOON, 3), ("a", NOON + 5 * MINUTE, 1), ("b", NOON, 1),
    ]  # fmt: skip
    assert listed(tables["all"], "receivers", "deliveries", "unsuccessful", "generated") == [(3, 6, 3, 1)]
    assert listed(tables["before"], "receivers", "deliveries", "unsuccessful") == [(1, 1, 1)]


def test_the_busiest_receivers_are_kept(spark, monkeypatch):
    monkeypatch.setattr(receivers, "MOST_RECEIVERS", 2)
    monkeypatch.setattr(receivers, "MOST_DRAWN", 1)
    rows = [{"received_by": name} for name in "abbccc"]
    tables = receivers.tables(history(spark, attempts=rows))
    assert listed(tables["receivers"], "receiver") == [("b",), ("c",)]
    assert listed(tables["times"], "receiver", "deliveries") == [("c", 3)]


def test_a_receiver_is_one_however_it_is_stored(spark):
    stored = ["process:a", "generated:process:a", "key:app@10.0.0.7", "http:app@10.0.0.8", "key:app", "user:ada@example.org"]
    tables = receivers.tables(history(spark, attempts=[{"received_by": name} for name in stored]))
    assert listed(tables["receivers"], "receiver", "deliveries") == [
        ("key:app", 3), ("process:a", 2), ("user:ada@example.org", 1),
    ]  # fmt: skip
