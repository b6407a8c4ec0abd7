"""Redelivery: the computation as tables, and the page."""

from dataclasses import asdict
from datetime import timedelta

import pyarrow as pa
import pytest

from broker_core import namespaces, service_bus
from broker_core.common.types import Actor, EntityAddress, EventKind, Message, Right
from broker_core.history import archive as archiving
from broker_core.history import schema
from broker_core.models import Entity
from broker_core.service_bus import entities
from explorer.analysis.reports import attempts, redelivery
from explorer.analysis.reports.attempts import Attempt
from explorer.analysis.reports.redelivery import Resubmitted
from explorer.analysis.reports.scope import Range

from .conftest import NOON

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
SPAN = Range(NOON, NOON + 4 * HOUR)
COMPLETED, ABANDONED, LOST = EventKind.COMPLETED, EventKind.ABANDONED, EventKind.LOCK_LOST


def held(
    number: int, since: float, length: float, outcome=COMPLETED, *, attempt=1, by="process:w", lock=30, **changes
) -> Attempt:
    """A delivery that began `since` seconds after noon, and lasted `length` seconds."""
    at = NOON + since * SECOND
    until = at + lock * SECOND if lock else None
    values = {"locked_until": until, "lock_ended_at": until, "received_by": by} | changes
    return Attempt(1, number, attempt, outcome, at, at + length * SECOND, **values)


def judged(found: list[Attempt]) -> pa.Table:
    fields = [schema.ATTEMPT.field(name) for name in attempts.COLUMNS if name != "subqueue"]
    return attempts.judged(pa.Table.from_pylist([asdict(one) for one in found], schema=pa.schema(fields)))


def test_success_by_attempt():
    found = [held(i, 0, 1, COMPLETED if i else ABANDONED) for i in range(4)] + [held(9, 0, 1, attempt=n) for n in (11, 15)]
    assert [(one.name, one.deliveries, one.succeeded) for one in redelivery.by_attempt(judged(found))] == [
        ("1", 4, 3),
        ("11+", 2, 2),
    ]


def test_reasons_say_how_many_messages_succeeded_later():
    found = [
        held(1, 0, 2, ABANDONED, error="Bad #"), held(1, 5, 2, ABANDONED, attempt=2, error="Bad #"), held(1, 9, 1, attempt=3),
        held(2, 0, 3, ABANDONED, error="Bad #"), held(2, 4, 1, LOST, attempt=2),
    ]  # fmt: skip
    first, second = redelivery.reasons(found)
    assert (first.error, first.deliveries, first.messages, first.later, first.time) == ("Bad #", 3, 2, 1, 7 * SECOND)
    assert (second.outcome, second.deliveries, second.later, second.latest) == (LOST, 1, 0, 2)
    said = redelivery.sentence(judged(found), redelivery.by_attempt(judged(found)), [first, second])
    assert said.startswith("4 of 5 deliveries (80.0\xa0%) did not succeed; 2 of 2 messages were delivered more than once.")
    assert said.endswith("Most frequent: abandoned (Bad #), 3.")
    assert redelivery.sentence(judged(found[2:3]), [], []) == "All 1 delivery succeeded."


def test_what_became_of_resubmitted_messages():
    ends = {(1, 10): EventKind.DEAD_LETTERED, (1, 11): COMPLETED, (1, 12): EventKind.EXPIRED}
    moved = [(1, 1, 10), (1, 1, 11), (1, 1, 12), (1, 1, 13), (2, 1, 11)]
    assert redelivery.resubmitted(moved, ends) == [Resubmitted(1, 4, 2, 1), Resubmitted(2, 1, 0, 1)]


@pytest.fixture
def worked(archive):
    """A queue with a message whose lock was lost, which was abandoned, dead-lettered, resubmitted and dead-lettered again."""
    address, worker = EntityAddress("plant", "q"), Actor("process", "worker", Right.ALL)
    namespaces.ensure_namespace("plant")
    namespaces.pause_clock("plant")
    entities.create_queue(address, lock_duration=30 * SECOND)
    service_bus.send(address, [Message(b"x")])
    service_bus.receive(address, 1, actor=worker)
    namespaces.step_clock("plant", 2 * MINUTE)
    for settle in (service_bus.abandon, service_bus.dead_letter):
        [message] = service_bus.receive(address, 1, actor=worker)
        settle(address, [message.lock_token], actor=worker)
    service_bus.resubmit(address, [message.sequence_number])
    [message] = service_bus.receive(address, 1, actor=worker)
    service_bus.dead_letter(address, [message.lock_token], reason="Order 5", actor=worker)
    archiving.archive_events()
    return Entity.objects.get(path="q")


def test_the_pages_lead_to_the_messages(report_of, worked):
    body = report_of("locks", queue=worked.pk, compare="week")
    assert "1 of 4 deliveries (25.0 %) ended because their lock ended" in body and "no deliveries in the range to compare" in body
    assert '<a href="/messages/plant/q/1">#1</a>' in body and body.count('<svg class="chart gantt') == 2
    body = report_of("redelivery", namespace="plant", compare="week")
    assert "4 of 4 deliveries (100.0 %) did not succeed" in body and "Order #" in body
    assert "1 message was resubmitted; 1 was lost again." in body
    body = report_of("receivers", queue=worked.pk, compare="before")
    assert "One receiver, worker, received 4 messages" in body and "there were no deliveries" in body


def test_the_messages_of_a_queue_that_was_deleted_are_not_those_of_the_next_one(report_of, worked):
    address = EntityAddress("plant", "q")
    entities.delete_queue(address)
    entities.create_queue(address)
    archiving.archive_events()
    assert f'href="/messages/plant/q/2?of={worked.pk}"' in report_of("redelivery", queue=worked.pk)
    assert f'href="/messages/plant/q/1?of={worked.pk}"' in report_of("locks", namespace="plant")
