"""What lives and attempts follow from the events that the brokers write: the oracle over archived files."""

import json
import uuid
from datetime import UTC, datetime, timedelta

from broker_core import namespaces, rabbitmq, service_bus
from broker_core.common.types import EntityAddress, EventKind, Family
from broker_core.history import archive
from broker_core.models import Entity
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message, TopicSettings
from tests.broker_state import entity_id

from .derived import derived

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def test_the_effective_default_is_that_of_the_time(archive_folder, happened, queue, postgres):
    def revise(at, time_to_live):
        columns = json.dumps({"default_message_time_to_live": time_to_live})
        postgres.execute(
            "INSERT INTO vitrine_entity_revision (entity_id, at, actor, settings) VALUES (%s, %s, 'user:a', %s)",
            (queue.pk, at, columns),
        )

    revise("2026-03-01T12:00Z", "00:00:10")
    revise("2026-03-01T13:00Z", "00:00:20")
    for number, at in enumerate(("11:59", "12:30", "13:00"), start=1):
        happened(EventKind.SENT, number, recorded_at=f"2026-03-01T{at}Z")
        happened(EventKind.EXPIRED, number, recorded_at=f"2026-03-01T{at}Z")
    archive.archive_events()
    assert [row["time_to_live_in_force_us"] for row in derived(archive_folder)[0]] == [10**7, 10**7, 2 * 10**7]


def test_service_bus_records_the_source_of_the_effective_time_to_live(archive_folder, postgres):
    name = f"l{uuid.uuid4().hex[:8]}"
    namespaces.ensure_namespace(name, Family.SERVICE_BUS)
    topic = EntityAddress(name, "t")
    entities.create_topic(topic, TopicSettings(default_message_time_to_live=20 * SECOND))
    subscription = topic.subscription("s")
    entities.create_subscription(subscription)
    service_bus.send(topic, [Message(b"default"), Message(b"own", time_to_live=5 * SECOND)])
    service_bus.complete(subscription, [m.lock_token for m in service_bus.receive(subscription, 2)])
    archive.archive_events()
    of_subscription = [r for r in derived(archive_folder)[0] if r["entity_id"] == entity_id(subscription)]
    assert [(r["time_to_live_in_force_us"], r["time_to_live_source"]) for r in of_subscription] == [
        (20_000_000, "topic"), (5_000_000, "own")
    ]  # fmt: skip
    assert {r["from_entity_id"] for r in of_subscription} == {entity_id(topic)}
    attempts = [r for r in derived(archive_folder)[1] if r["entity_id"] == entity_id(subscription)]
    assert [(r["attempt"], r["outcome"]) for r in attempts] == [(1, EventKind.COMPLETED)] * 2
    assert all(r["received_at"] <= r["ended_at"] < r["locked_until"] for r in attempts)


def test_a_lost_lock_is_an_attempt_whatever_statement_ends_it(archive_folder, postgres):
    name = f"l{uuid.uuid4().hex[:8]}"
    namespaces.ensure_namespace(name, Family.SERVICE_BUS)
    namespaces.pause_clock(name)
    queue = EntityAddress(name, "q")
    entities.create_queue(queue)
    service_bus.send(queue, [Message(b"x")])
    service_bus.receive(queue, 1)
    namespaces.step_clock(name, timedelta(minutes=2))
    service_bus.complete(queue, [service_bus.receive(queue, 1)[0].lock_token])
    archive.archive_events()
    found = [r for r in derived(archive_folder)[1] if r["entity_id"] == entity_id(queue)]
    assert [(r["attempt"], r["outcome"]) for r in found] == [(1, EventKind.LOCK_LOST), (2, EventKind.COMPLETED)]
    [life] = [r for r in derived(archive_folder)[0] if r["entity_id"] == entity_id(queue)]
    assert (life["deliveries"], life["locks_lost"]) == (2, 1)


def test_rabbitmq_caps_the_time_to_live_by_the_queues_argument(archive_folder, postgres):
    name = f"l {uuid.uuid4().hex[:8]}"
    rabbitmq.create_vhost(name)
    queue = EntityAddress(name, "q")
    rabbitmq.declare_queue(queue, arguments={"x-message-ttl": 60_000})
    for expiration in (None, "1000"):
        publication = rabbitmq.Publication(b"x", routing_key="q", properties=rabbitmq.Properties(expiration=expiration))
        rabbitmq.publish(name, [publication])
        rabbitmq.purge_queue(queue)
    archive.archive_events()
    of_queue = [r for r in derived(archive_folder)[0] if r["entity_id"] == Entity.objects.get(path="q").pk]
    assert [(r["time_to_live_in_force_us"], r["time_to_live_source"]) for r in of_queue] == [
        (60_000_000, "entity"), (1_000_000, "own")
    ]  # fmt: skip
