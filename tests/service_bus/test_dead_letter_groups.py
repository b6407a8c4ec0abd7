"""Groups of messages that failed (reads.dead_groups), in all families."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import connection
from hypothesis import given
from hypothesis import strategies as st

from broker_core import namespaces, queue_storage, rabbitmq, reads, service_bus
from broker_core.common.types import EntityAddress
from broker_core.rabbitmq import Publication
from broker_core.reads import EntityFilter, dead_letters, description_pattern
from broker_core.service_bus.rules.values import Message


@pytest.mark.parametrize(
    ("description", "pattern"),
    [
        ("", ""),
        ("no such customer", "no such customer"),
        ("customer 4711 not found", "customer * not found"),
        ("order SO-54096599: total 12.50 EUR", "order *: total * EUR"),
        ("id 0b8f6a52-1c4e-4f1b-9f5e-aaaaaaaaaaaa was rejected", "id * was rejected"),
        ("field 'currency' is missing", "field * is missing"),
        ('expected "a b", got "c"', "expected *, got *"),
        ("can't connect, won't retry", "can't connect, won't retry"),
        ("missing: 1, 2, 3", "missing: *"),
        ("at 2026-11-22T09:00:01Z", "at *"),
        ("GET /orders/4711/items", "GET /orders/*/items"),
        ("x" * 400, "x" * 300),
    ],
)
def test_descriptions_are_reduced_to_their_pattern(description, pattern):
    assert description_pattern(description) == pattern


ALPHABET = st.sampled_from("ab Z09_.-,:;/*'\"`()\né")


@given(st.lists(st.text(ALPHABET, max_size=60), max_size=20))
def test_the_database_computes_the_same_patterns(django_db_blocker, texts):
    with django_db_blocker.unblock(), connection.cursor() as cursor:
        cursor.execute(
            "SELECT vitrine_description_pattern(t) FROM unnest(%s::text[]) WITH ORDINALITY AS x(t, n) ORDER BY n", [texts]
        )
        assert [row[0] for row in cursor.fetchall()] == [description_pattern(text) for text in texts]


def _dead(queue, *failures):
    """Send a message for each (reason, description), and dead-letter it with them."""
    service_bus.send(queue, [Message(b"{}") for _ in failures])
    for message, (reason, description) in zip(service_bus.receive(queue, len(failures)), failures, strict=True):
        service_bus.dead_letter(queue, [message.lock_token], reason, description)


def _groups(queue):
    return reads.dead_groups(EntityFilter(namespace=queue.namespace))


def test_dead_letters_are_grouped_by_reason_and_pattern(make_queue):
    queue = make_queue()
    _dead(queue, ("Schema", "no field 'a' in 1"), ("Schema", "no field 'b' in 2"), ("Schema", "bad total 3"), (None, None))
    groups = _groups(queue)
    assert [group.count for group in groups.groups] == [2, 1, 1]
    assert {(group.reason, group.description): group.count for group in groups.groups} == {
        ("Schema", "no field * in *"): 2,
        ("", ""): 1,
        ("Schema", "bad total *"): 1,
    }
    assert (groups.total, groups.examined, groups.capped) == (4, 4, False)
    assert all(group.address == queue.dead_letter and sum(group.recent) == group.count for group in groups.groups)


def test_groups_have_a_trend_and_first_and_last_times(make_queue):
    queue = make_queue()
    namespaces.pause_clock(queue.namespace)
    _dead(queue, ("A", "1"))
    namespaces.step_clock(queue.namespace, timedelta(minutes=12))
    _dead(queue, ("A", "2"), ("A", "3"))
    namespaces.step_clock(queue.namespace, timedelta(minutes=50))
    [group] = _groups(queue).groups
    assert group.last_at - group.first_at == timedelta(minutes=12)
    assert (group.count, group.recent) == (3, (0, 2, *[0] * 10))


def test_resubmitted_dead_letters_are_counted(make_queue):
    queue = make_queue()
    _dead(queue, ("A", "1"), ("A", "2"))
    service_bus.resubmit(queue.dead_letter, [1])
    [again] = service_bus.receive(queue, 1)
    service_bus.dead_letter(queue, [again.lock_token], "A", "3")
    [group] = _groups(queue).groups
    assert (group.count, group.resubmitted, group.newest) == (2, 1, 3)


def test_the_work_is_bounded_and_the_newest_messages_are_grouped(make_queue, monkeypatch):
    monkeypatch.setattr(dead_letters, "EXAMINED", 2)
    monkeypatch.setattr(dead_letters, "LEAST_OF_LIST", 2)
    queue = make_queue()
    _dead(queue, ("Old", ""), ("New", ""), ("New", ""))
    groups = _groups(queue)
    assert [(group.reason, group.count) for group in groups.groups] == [("New", 2)]
    assert (groups.total, groups.examined, groups.capped) == (3, 2, True)


def test_short_lists_leave_their_share_to_long_lists():
    assert dead_letters._caps([10, 90_000, 90_000], 20_000) == [20_000, 20_000, 20_000]
    caps = dead_letters._caps([5, *[90_000] * 19], 5_000)
    assert caps[0] == 5_000
    assert set(caps[1:]) == {5_262}


def test_poison_messages_are_grouped_by_reason_and_origin(db):
    account = f"dead{uuid4().hex[:8]}"
    jobs = EntityAddress(account, "jobs")
    queue_storage.create_account(account)
    queue_storage.create_queue(jobs, max_dequeue_count=1)
    namespaces.pause_clock(account)
    queue_storage.put_all(jobs, ["a", "b"])
    queue_storage.get(jobs, 2, visibility_timeout=timedelta(seconds=1))
    namespaces.step_clock(account, timedelta(seconds=2))
    queue_storage.get(jobs)
    [group] = _groups(jobs).groups
    assert (group.address.path, group.origin, group.count, group.resubmitted) == ("jobs-poison", "jobs", 2, 0)
    assert group.reason


def test_dead_letters_of_rabbitmq_are_grouped(db):
    vhost = f"dead {uuid4().hex[:6]}"
    rabbitmq.create_vhost(vhost)
    rabbitmq.declare_exchange(vhost, "graves", "fanout")
    mail = rabbitmq.declare_queue(EntityAddress(vhost, "mail"), arguments={"x-dead-letter-exchange": "graves"}).address
    rabbitmq.declare_queue(EntityAddress(vhost, "dead"))
    rabbitmq.bind_queue(vhost, "dead", "graves", "")
    rabbitmq.publish(vhost, [Publication(b"x", routing_key="mail")] * 2)
    rabbitmq.reject(mail, [delivery.token for delivery in rabbitmq.take(mail, 2, owner_id=1_000_004)])
    rabbitmq.publish(vhost, [Publication(b"alive", routing_key="dead")])
    [group] = _groups(mail).groups
    assert (group.address.path, group.reason, group.origin, group.count) == ("dead", "rejected", "mail", 2)
