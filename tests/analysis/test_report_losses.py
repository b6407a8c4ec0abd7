"""Losses: the computation as tables, and the page."""

from datetime import timedelta
from itertools import pairwise

import pytest
from django.urls import reverse

from explorer.analysis.jobs import outcomes
from explorer.analysis.reports import losses, stored
from explorer.analysis.reports.drawings import CHARACTER, Flow, sankey
from explorer.analysis.reports.losses import Route
from explorer.analysis.reports.scope import Range
from tests.html import body_of

from .conftest import NOON

HOUR = timedelta(hours=1)
SPAN = Range(NOON, NOON + 4 * HOUR)


def left(hour: int, count: int, outcome: int, cause=None, entity_id: int = 1):
    return (entity_id, NOON + (hour - 1) * HOUR, NOON + hour * HOUR, outcome, cause, count)


ENDS = [
    left(1, 3, outcomes.EXPIRED),
    left(2, 2, outcomes.DEAD_LETTERED, "Bad #"),
    left(3, 4, outcomes.DEAD_LETTERED, "Bad #"),
    left(0, 50, outcomes.COMPLETED),
    left(1, 9, outcomes.FORWARDED),
]


def test_losses_are_by_the_hour_of_the_loss_and_by_cause():
    causes = losses.causes(ENDS)
    assert losses.by_bucket(SPAN, ENDS) == {"expired": [0, 3, 0, 0], "dead_lettered": [0, 0, 2, 4]}
    assert [(loss.outcome, loss.cause, loss.messages) for loss in causes] == [("dead_lettered", "Bad #", 6), ("expired", "", 3)]
    assert (causes[0].first_at, causes[0].last_at, causes[0].entered_at) == (NOON + 2 * HOUR, NOON + 3 * HOUR, NOON + HOUR)


def test_the_sentence_names_the_most_frequent_cause_and_a_new_one():
    old = [left(-90, 1, outcomes.DEAD_LETTERED, "Bad #"), left(-80, 1, outcomes.EXPIRED)]
    assert losses.sentence(losses.causes(ENDS, old), 59, NOON - 90 * HOUR) == (
        "9 messages were lost (15.3\xa0% of those that left). Most frequent: dead-lettered (Bad #), 6."
    )
    said = losses.sentence(losses.causes(ENDS, old[1:]), 9, NOON - 90 * HOUR)
    assert said.endswith("6. New since 2026-03-01 14:00: dead-lettered (Bad #).")
    assert losses.sentence(losses.causes(ENDS), 9, NOON).endswith("Most frequent: dead-lettered (Bad #), 6.")
    assert losses.sentence([], 5, None) == "No messages were lost in this range."


def test_where_lost_messages_had_been():
    names = {1: "orders", 2: "audit", 3: "events"}
    life = {"entity_id": 1, "outcome": outcomes.DEAD_LETTERED, "from_entity_id": None, "to_entity_id": None}
    rows = [life, life, life | {"from_entity_id": 3}, life | {"from_entity_id": 1}, life | {"from_entity_id": 9},
            life | {"outcome": outcomes.MOVED, "to_entity_id": 2}, life | {"outcome": outcomes.EXPIRED}]  # fmt: skip
    assert losses.routes(rows, names) == [
        Route("senders", "orders", "dead_lettered", "dead letters of orders", 2, 1),
        Route("another queue", "orders", "dead_lettered", "dead letters of orders", 1, 1, 9),
        Route("events", "orders", "dead_lettered", "dead letters of orders", 1, 1, 3),
        Route("orders (again)", "orders", "dead_lettered", "dead letters of orders", 1, 1, 1),
        Route("senders", "orders", "expired", "", 1, 1),
        Route("senders", "orders", "moved", "audit", 1, 1, None, 2),
    ]


def test_rare_boxes_of_the_diagram_are_one():
    found = [Route("senders", f"q{i}", "expired", "", 20 - i) for i in range(12)]
    steps = losses.flows(found)
    assert {step.target for step in steps if step.layer == 0} == {"others", *(f"q{i}" for i in range(8))}
    assert sum(step.count for step in steps if step.layer == 1) == sum(route.messages for route in found)


def test_boxes_of_a_diagram_are_as_high_as_what_passes_them():
    drawn = sankey([Flow(0, "a", "b", 30, "x"), Flow(0, "a", "c", 10, "x"), Flow(1, "b", "d", 30, "y")], "wide")
    height = {node.name: node.height for node in drawn.nodes}
    assert abs(height["a"] - (height["b"] + height["c"])) < 0.3 and abs(height["b"] / height["c"] - 3) < 0.05
    assert [ribbon.title for ribbon in drawn.ribbons] == ["a → b: 30", "a → c: 10", "b → d: 30"]
    assert all(node.y >= 0 and node.y + node.height <= drawn.height for node in drawn.nodes)


@pytest.mark.parametrize("variant", ["wide", "narrow"])
def test_labels_of_a_diagram_are_apart_however_rare_their_boxes_are(variant):
    rare = [Flow(1, "b", f"dead-letters-of-{i}", 1, "y") for i in range(8)]
    drawn = sankey([Flow(0, "a", "b", 100_000, "x"), Flow(1, "b", "gone", 100_000, "y"), *rare], variant)
    middles = sorted(node.middle for node in drawn.nodes if node.at_end)
    assert len(middles) == 9 and all(low - high >= 16 for high, low in pairwise(middles))
    assert all(node.y + node.height <= drawn.height for node in drawn.nodes)


@pytest.mark.parametrize("variant", ["wide", "narrow"])
def test_labels_of_the_last_boxes_leave_room_for_those_before(variant):
    drawn = sankey(
        [Flow(0, "senders", "payments-of-all", 9, "x"), Flow(1, "payments-of-all", "dead letters of it", 9, "y")], variant
    )
    before, last = drawn.nodes[1:]
    assert before.text_x + CHARACTER * len(before.text) < last.text_x - CHARACTER * len(last.text)


def test_the_page_leads_from_a_cause_to_its_messages(report_of, viewer, queue):
    body = report_of("losses", queue=queue.pk, compare="week")
    assert "2 messages were lost (40.0 % of those that left). Most frequent: dead-lettered (Order #), 2." in body
    assert "senders → q: 2" in body and "dead letters of q" in body and "there were none" in body
    url = reverse("explorer:analysis_messages")
    route, cause = (part.split('"')[0] for part in body.split('href="') if part.startswith(url))
    listed = body_of(viewer.get(cause))
    assert "2 messages" in listed and "with the reason “Order #”" in listed
    assert "2 messages" in body_of(viewer.get(route))
    assert "2 messages" not in body_of(viewer.get(route.replace("origin=0", "origin=1")))


def test_without_the_lives_the_rest_is_answered(report_of, queue, monkeypatch):
    monkeypatch.setattr(stored, "MOST_LIVES", 1)
    body = report_of("losses", queue=queue.pk)
    assert "at most 1 are read" in body and "2 messages were lost" in body
