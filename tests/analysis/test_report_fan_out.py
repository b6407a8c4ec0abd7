"""Topics and fan-out: the computation as tables, and the pages of all families."""

import json
from datetime import timedelta

import pytest

from broker_core import namespaces, queue_storage, rabbitmq, service_bus
from broker_core.common.types import EntityAddress, Family, Message
from broker_core.history import archive as archiving
from broker_core.models import Entity
from broker_core.service_bus import entities
from broker_core.service_bus.rules.filters import Rule, compile_filter
from explorer.analysis.jobs import outcomes
from explorer.analysis.reports import fan_out

from .conftest import NOON

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
TOPIC, FAST, SLOW = 1, 2, 3
NAMES = {TOPIC: "news", FAST: "news/Subscriptions/fast", SLOW: "news/Subscriptions/slow"}


def copy(of: int, entity_id: int, after: float | None = None, outcome=outcomes.COMPLETED, **changes) -> dict:
    """The copy of a topic's message in a subscription, that ended so many seconds after noon."""
    ended = {"outcome": None, "ended_at": None} if after is None else {"outcome": outcome, "ended_at": NOON + after * SECOND}
    return {
        "entity_id": entity_id, "sequence_number": of, "at": NOON, "xid": 1, "message_id": None, "properties": None,
        "link": "published_from", "linked_entity_id": TOPIC, "linked_sequence_number": of,
    } | ended | changes  # fmt: skip


def published(count):
    return [(TOPIC, number) for number in range(count)]


def test_what_subscriptions_take_and_how_far_they_lag():
    rows = [copy(i, FAST, 1) for i in range(100)] + [copy(i, SLOW, 11) for i in range(40)]
    rows += [copy(40, SLOW, 1), copy(41, SLOW, 3, outcomes.EXPIRED), copy(42, SLOW)]
    found = fan_out.of_events(rows, published(110))
    assert (found.counts, found.nobody) == ({TOPIC: 110}, 10)
    slow, fast = fan_out.targets(found)
    assert (slow.entity_id, slow.taken, slow.lost, slow.there, len(slow.times)) == (SLOW, 43, 1, 1, 41)
    assert (slow.lag, slow.fastest, len(slow.lags)) == (10 * SECOND, 1, 41)
    assert (fast.taken, fast.fastest, len(fast.lags), fast.lag) == (100, 41, 41, 0 * SECOND)
    assert fan_out.sentence([slow, fast], NAMES, "topic", 10) == (
        "110 messages of 1 topic became 143 copies; 10 were taken by none. “slow” took fewest, 39.1\xa0% of what was published "
        "to “news”. “slow” lags most behind the fastest: half by 10 s, 5\xa0% by 10 s or more."
    )


def test_copies_of_messages_that_were_published_earlier_are_not_counted():
    assert fan_out.of_events([copy(7, FAST, 1), copy(0, FAST, 1)], published(1)).counts == {TOPIC: 1}
    assert len(fan_out.of_events([copy(7, FAST, 1), copy(0, FAST, 1)], published(1)).copies) == 1


def routed(number, entity_id, key="k", *, xid=1, exchange="logs", **changes):
    properties = json.dumps({"exchange": exchange, "routing_key": key})
    return copy(number, entity_id, 1, **{"link": None, "properties": properties, "xid": xid} | changes)


def test_copies_of_an_exchange_are_matched_by_publish_key_and_place():
    """Two publishes of two messages with one key to both queues, and of one with another key to one queue."""
    rows = [routed(i, queue, xid=xid) for queue in (FAST, SLOW) for i, xid in enumerate((1, 1, 2, 2))]
    rows += [routed(9, FAST, "other"), routed(10, FAST, exchange=""), routed(11, FAST, link="from")]
    found = fan_out.of_events(rows, [])
    assert (found.counts, found.nobody, len(found.copies)) == ({"logs": 5}, None, 9)
    assert [(one.entity_id, one.taken, one.share) for one in fan_out.targets(found)] == [(FAST, 5, 1.0), (SLOW, 4, 0.8)]


@pytest.fixture
def news(archive):
    """A topic with 40 messages; `all` takes and completes them 1 min before `some`, which takes half."""
    topic = EntityAddress("reports", "news")
    everything, some = (EntityAddress("reports", f"news/Subscriptions/{name}") for name in ("all", "some"))
    namespaces.ensure_namespace("reports")
    namespaces.pause_clock("reports")
    entities.create_topic(topic)
    entities.create_subscription(everything)
    entities.create_subscription(some)
    entities.delete_rule(some, "$Default")
    entities.create_rule(some, Rule("half", compile_filter("n < 20")))
    service_bus.send(topic, [Message(b"x", properties={"n": i}) for i in range(40)])
    for address in (everything, some):
        namespaces.step_clock("reports", MINUTE)
        service_bus.complete(address, [one.lock_token for one in service_bus.receive(address, 100)])
    archiving.archive_events()
    return Entity.objects.get(path="news/Subscriptions/some")


def test_published_messages_count_towards_the_limit(report_of, news, monkeypatch):
    monkeypatch.setattr(fan_out, "MOST_EVENTS", 99)  # 40 published, 60 copies
    assert "more than 99 events to examine" in report_of("fan-out", namespace="reports")
    monkeypatch.setattr(fan_out, "MOST_EVENTS", 100)
    assert "40 messages of 1 topic became 60 copies" in report_of("fan-out", namespace="reports")


def test_the_page_of_a_subscription_and_of_the_namespace(report_of, news):
    body = report_of("fan-out", queue=news.pk, compare="before")
    assert (
        "40 messages of 1 topic became 60 copies. “some” took fewest, 50.0 % of what was published to “news”." in body
        and "Filtered" in body
    )
    body = report_of("fan-out", namespace="reports")
    assert "news" in body and f"queue={news.pk}&start=" in body


def test_a_queue_without_a_topic(report_of, news):
    entities.create_queue(EntityAddress("reports", "q"))
    body = report_of("fan-out", queue=Entity.objects.get(path="q").pk)
    assert "No topic had messages taken from it in this range." in body


def test_exchanges_and_their_queues(report_of, archive):
    rabbitmq.create_vhost("host")
    for name in ("a", "b"):
        rabbitmq.declare_queue(EntityAddress("host", name))
        rabbitmq.bind_queue("host", name, "amq.fanout")
    rabbitmq.publish("host", [rabbitmq.Publication(b"x", exchange="amq.fanout") for _ in range(3)])
    rabbitmq.get(EntityAddress("host", "a"), no_ack=True)
    archiving.archive_events()
    body = report_of("fan-out", namespace="host")
    assert "3 messages of 1 exchange became 6 copies." in body and "Messages that no queue took are not in the archive" in body


def test_storage_queues_have_no_fan_out(report_of, archive):
    namespaces.create_namespace("jobs", family=Family.QUEUE_STORAGE)
    queue_storage.create_queue(EntityAddress("jobs", "work"))
    assert "Each message of this namespace is put into one queue" in report_of("fan-out", namespace="jobs")
