"""Incidents: onsets by step, changes of settings and deploys, and what is beside them."""

import json
from datetime import timedelta

import pytest

from explorer.analysis.jobs import measures, outcomes
from explorer.analysis.jobs.kinds import Kind
from explorer.analysis.jobs.measures import bin_of
from explorer.analysis.jobs.reports import incidents

from .rows import HOUR, MINUTE, NOON, a_request, frame, history, listed

FIVE = timedelta(minutes=5)
ONSET = ("kind", "entity_id", "at", "before", "before_bad", "after", "after_bad")


def count(minute: int, messages: int, outcome: int = outcomes.COMPLETED, measure: int = measures.ATTEMPT, **changes):
    at = NOON + minute * MINUTE
    return {"measure": measure, "step": at, "end_step": at, "outcome": outcome, "messages": messages} | changes


def steady(share: float, first: int, last: int, outcome: int = Kind.ABANDONED):
    """100 deliveries in each step of these minutes, of which a share failed."""
    bad = round(100 * share)
    return [row for minute in range(first, last, 5) for row in (count(minute, 100 - bad), count(minute, bad, outcome))]


@pytest.mark.slow
def test_an_onset_is_where_the_shares_differ_most(spark):
    rows = steady(0.01, -60, 25) + steady(0.09, 25, 60)
    tables = incidents.tables(history(spark, counts=rows))
    assert listed(tables["onsets"], "number", *ONSET) == [(1, "failed", 1, NOON + 25 * MINUTE, 1200, 12, 700, 63)]
    assert (NOON + 25 * MINUTE, 9, 100) in listed(tables["chart"], "at", "bad", "total")
    assert listed(tables["shares"], "point", "number", "side", "deliveries", "failed") == [
        ("onset", 1, "after", 700, 63), ("onset", 1, "before", 1200, 12),
    ]  # fmt: skip


@pytest.mark.slow
def test_steady_failure_rates_and_few_messages_have_no_onset(spark):
    few = [count(-5, 20, entity_id=2), count(5, 20, Kind.ABANDONED, entity_id=2)]
    assert listed(incidents.tables(history(spark, counts=steady(0.5, -60, 60) + few))["onsets"]) == []


@pytest.mark.slow
def test_lost_locks_and_losses_have_separate_onsets(spark):
    locks = steady(0, -60, 30) + steady(0.3, 30, 60, Kind.LOCK_LOST)
    lost = [count(minute, 50, measure=measures.LIFE, entity_id=2) for minute in range(-60, 30, 5)]
    lost += [count(30, 50, outcomes.EXPIRED, measures.LIFE, entity_id=2, generated=50)]
    tables = incidents.tables(history(spark, counts=locks + lost))
    assert listed(tables["onsets"], *ONSET[:3]) == sorted(
        [("failed", 1, NOON + HOUR / 2), ("locks", 1, NOON + HOUR / 2), ("lost", 2, NOON + HOUR / 2)], key=repr
    )
    assert listed(tables["about"], "generated", "real_clock") == [(50, True)]


def test_a_message_removed_by_the_broker_is_not_a_failed_delivery(spark):
    rows = [
        count(0, 1, outcomes.DEAD_LETTERED, cause="TTLExpiredException"), count(0, 2, outcomes.DEAD_LETTERED, cause="Bad #"),
        count(0, 4, outcomes.MOVED), count(0, 8, 8), count(0, 16, outcomes.DROPPED, cause="maxlen"),
    ]  # fmt: skip
    trouble = incidents.trouble_of_counts(frame(spark, "counts", *rows))
    assert listed(trouble, "kind", "bad", "total") == [("failed", 6, 31), ("locks", 0, 31)]


def waits(minute: int, seconds: float, messages: int, measure: int = measures.WAITING):
    return {"measures": [measure], "step": NOON + minute * MINUTE, "bins": [bin_of(round(seconds * 1e6))], "counts": [messages]}


@pytest.mark.slow
def test_long_waiting_counts_messages_that_were_not_received(spark):
    rows = [waits(minute, 0.2, 40) for minute in range(-60, 60, 5)]
    rows += [waits(40, 90, 20), waits(45, 600, 20, measures.NEVER_RECEIVED), waits(45, 0.5, 7, measures.NEVER_RECEIVED)]
    tables = incidents.tables(history(spark, histograms=rows))
    assert listed(tables["onsets"], *ONSET) == [("waiting", 1, NOON + 40 * MINUTE, 480, 0, 200, 40)]
    assert (NOON + 40 * MINUTE, [bin_of(200_000), bin_of(90_000_000)], [40, 20]) in listed(
        tables["waits"], "at", "bins", "counts"
    )
    assert listed(tables["times"], "point", "side", "measure", "counts") == sorted(
        [("onset", "before", measures.WAITING, [480]), ("onset", "after", measures.WAITING, [160, 20]),
         ("onset", "after", measures.NEVER_RECEIVED, [7, 20])], key=repr,
    )  # fmt: skip


def revision(number: int, hours: float, entity_id: int = 1, **settings):
    return {"revision_id": number, "entity_id": entity_id, "since": NOON + hours * HOUR, "settings": json.dumps(settings)}


@pytest.mark.slow
def test_changes_are_revisions_that_differ_and_deploys(spark):
    rows = [
        revision(1, -1, lock_duration="30", updated_at="a"), revision(2, 0.2, lock_duration="60", updated_at="b"),
        revision(3, 0.4, lock_duration="60", updated_at="c"), revision(4, 0.5, 2, lock_duration="9"),
    ]  # fmt: skip
    deploys = [{"at": (NOON + at * MINUTE).isoformat(), "name": f"shop {at}", "actor": "user:b"} for at in (4, 99)]
    asked = a_request(values={"deploys": deploys, "window": "6"})
    tables = incidents.tables(history(spark, asked, settings=rows, counts=[count(minute, 1) for minute in (-5, 0, 5, 10, 15)]))
    assert listed(tables["changes"], "number", "at", "entity_id", "name", "actor") == [
        (1, NOON + 12 * MINUTE, 1, None, "user:a"), (2, NOON + 4 * MINUTE, None, "shop 4", "user:b"),
    ]  # fmt: skip
    assert listed(tables["shares"], "point", "number", "side", "deliveries") == [
        ("change", 1, "after", 1), ("change", 1, "before", 3), ("change", 2, "after", 3), ("change", 2, "before", 1),
    ]  # fmt: skip
    other = incidents.tables(history(spark, a_request(values={"deploys": deploys, "real_clock": False}), settings=rows))
    assert listed(other["changes"]) == [] and listed(other["about"], "real_clock", "generated") == [(False, 0)]
