"""Journeys: the computation as tables, and the pages of all families."""

import json
from datetime import timedelta

import pytest

from broker_core import namespaces, rabbitmq, service_bus
from broker_core.common.types import EntityAddress, EventKind, Message
from broker_core.history import archive as archiving
from broker_core.models import Entity
from broker_core.service_bus import entities
from explorer.analysis.jobs import outcomes
from explorer.analysis.reports import journeys

from .conftest import NOON

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
NAMES = {1: "orders", 2: "bills", 3: "news"}


def life(entity_id: int, number: int, since: float, until: float, outcome=outcomes.COMPLETED, **changes) -> dict:
    """A life of a message between seconds after noon, received a second after it began."""
    return {
        "entity_id": entity_id, "subqueue": 0, "sequence_number": number, "outcome": outcome, "message_id": None,
        "enqueued_at": NOON + since * SECOND, "first_received_at": NOON + (since + 1) * SECOND,
        "ended_at": NOON + until * SECOND,
        "from_entity_id": None, "from_sequence_number": None, "to_entity_id": None, "to_sequence_number": None,
        "generated": False,
    } | changes  # fmt: skip


def made_from(entity_id, number):
    return {"from_entity_id": entity_id, "from_sequence_number": number}


def steps(journey):
    return [(leg.how, leg.message, leg.subqueue, leg.length // SECOND) for leg in journey.legs]


def test_a_message_that_was_dead_lettered_and_resubmitted():
    lives = [
        life(1, 1, 0, 10, outcomes.DEAD_LETTERED),
        life(1, 1, 0, 100, outcomes.RESUBMITTED, subqueue=1, to_entity_id=1, to_sequence_number=2),
        life(1, 2, 100, 105, **made_from(1, 1)),
        life(1, 3, 0, 5),
    ]
    [one] = journeys.journeys(lives, {})
    assert steps(one) == [("", (1, 1), 0, 10), ("dead-lettered", (1, 1), 1, 90), ("resubmitted", (1, 2), 0, 5)]
    assert one.length == 105 * SECOND
    [route] = journeys.routes([one])
    assert journeys.sentence([route], NAMES) == (
        "1 journey ended, on 1 route. Most frequent: orders → (dead-lettered) dead letters of orders → (resubmitted) orders (1), "
        "half within 1.8 min, 95\xa0% within 1.8 min. The longest took 1.8 min, 85.7\xa0% of it in dead letters of orders."
    )


def test_a_journey_that_branches_counts_for_each_end():
    lives = [life(3, 1, 0, 0, EventKind.PUBLISHED), *(life(queue, 1, 0, 5 * queue, **made_from(3, 1)) for queue in (1, 2))]
    found = journeys.journeys(lives, {})
    assert [steps(one)[1] for one in found] == [("published", (1, 1), 0, 5), ("published", (2, 1), 0, 10)]


def test_what_a_message_became_is_known_also_from_where_it_left():
    lives = [life(1, 1, 0, 5, outcomes.MOVED, to_entity_id=2, to_sequence_number=7), life(2, 7, 5, 9)]
    assert [leg.how for leg in journeys.journeys(lives, {})[0].legs] == ["", "moved"]


def test_messages_that_lead_in_a_circle_or_to_themselves_end():
    lives = [life(1, 1, 0, 1, **made_from(1, 2)), life(1, 2, 0, 1, **made_from(1, 1)), life(1, 3, 0, 1, **made_from(1, 3))]
    assert journeys.journeys(lives, {}) == []


def sent(entity_id, number, at, correlation_id):
    return {
        "entity_id": entity_id, "sequence_number": number, "at": NOON + at * SECOND,
        "properties": json.dumps({"correlation_id": correlation_id}),
    }  # fmt: skip


def test_correlation_leads_to_the_message_of_that_id_or_to_the_one_before():
    lives = [life(1, 1, 0, 1, message_id="a"), life(2, 1, 1, 3, message_id="b"), life(1, 2, 0, 1), life(2, 2, 4, 5)]
    events = [sent(2, 1, 1, "a"), sent(2, 2, 4, "z"), sent(1, 2, 0, "z"), sent(1, 1, 0, "")]
    found = journeys.correlations(events, lives)
    assert found == {(2, 1): (1, 1), (2, 2): (1, 2)}
    assert journeys.correlations([sent(1, i, i, "all") for i in range(21)], []) == {}
    assert [steps(one)[1][:2] for one in journeys.journeys(lives, found)] == [("correlated", (2, 1)), ("correlated", (2, 2))]


def test_steps_of_a_route():
    lives = []
    for i in range(3):
        lives += [life(1, i, 0, 10, outcomes.FORWARDED), life(2, i, 10, 20 + 10 * i, **made_from(1, i))]
    [route] = journeys.routes(journeys.journeys(lives, {}))
    assert [one.length for one in route.journeys] == [20 * SECOND, 30 * SECOND, 40 * SECOND]
    assert route.shares == pytest.approx([30 / 90, 60 / 90])
    assert journeys._steps(route, NAMES)[1] == (
        "2", "bills", "forwarded", 10 * SECOND, SECOND, 20 * SECOND, 30 * SECOND, pytest.approx(2 / 3)
    )  # fmt: skip


@pytest.fixture
def moved(archive):
    """A message that was dead-lettered, resubmitted an hour later, and completed."""
    address = EntityAddress("reports", "orders")
    namespaces.ensure_namespace("reports")
    namespaces.pause_clock("reports")
    entities.create_queue(address)
    service_bus.send(address, [Message(b"x")])
    [message] = service_bus.receive(address, 1)
    service_bus.dead_letter(address, [message.lock_token])
    namespaces.step_clock("reports", HOUR)
    service_bus.resubmit(address, [message.sequence_number])
    service_bus.complete(address, [one.lock_token for one in service_bus.receive(address, 1)])
    archiving.archive_events()
    return Entity.objects.get(path="orders")


def test_the_page_draws_the_journey_and_leads_to_its_message(report_of, moved):
    body = report_of("journeys", queue=moved.pk, compare="before")
    assert "orders → (dead-lettered) dead letters of orders → (resubmitted) orders (1), half within 1.0 h" in body
    assert '<a href="/messages/reports/orders/2">#2</a>' in body and body.count('<svg class="chart gantt') == 4
    entities.create_queue(EntityAddress("reports", "other"))
    assert "No messages went on" in report_of("journeys", queue=Entity.objects.get(path="other").pk)


def test_only_events_with_a_correlation_id_count_towards_the_limit(report_of, moved, monkeypatch):
    monkeypatch.setattr(journeys, "MOST_READ", 3)  # three lives, four events
    address = EntityAddress("reports", "orders")
    service_bus.send(address, [Message(b"x")])
    archiving.archive_events()
    assert "1 journey ended" in report_of("journeys", queue=moved.pk)
    service_bus.send(address, [Message(b"x", correlation_id="c") for _ in range(4)])
    archiving.archive_events()
    assert "more than 3 events to examine" in report_of("journeys", queue=moved.pk)


def test_the_message_of_a_queue_that_was_deleted_is_not_that_of_the_next_one(report_of, moved):
    address = EntityAddress("reports", "orders")
    entities.delete_queue(address)
    entities.create_queue(address)
    archiving.archive_events()
    assert f'<a href="/messages/reports/orders/2?of={moved.pk}">#2</a>' in report_of("journeys", queue=moved.pk)


def test_rabbitmqs_dead_letter_exchange(report_of, archive):
    rabbitmq.create_vhost("host")
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead", "x-max-length": 1}
    rabbitmq.declare_queue(EntityAddress("host", "work"), arguments=dead)
    rabbitmq.declare_queue(EntityAddress("host", "dead"))
    for _ in range(2):
        rabbitmq.publish("host", [rabbitmq.Publication(b"x", routing_key="work")])
    rabbitmq.get(EntityAddress("host", "dead"), no_ack=True)
    archiving.archive_events()
    assert "work → (moved) dead (1)" in report_of("journeys", namespace="host")
