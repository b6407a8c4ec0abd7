"""Messages that ended are kept for the time that their namespace sets, and can be read in full (docs/design.md D20)."""

from dataclasses import replace
from datetime import timedelta

import pytest
from django.db import connection

from broker_core import namespaces, queue_storage, rabbitmq, reads, service_bus, sweeps
from broker_core.common.errors import InvalidArgument, NotAuthorized
from broker_core.common.types import Actor, EntityAddress, HistoryLevel, Right
from broker_core.rabbitmq import Publication
from broker_core.runtime import keeping
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from broker_core.store.driver import all_or_none, run, undo
from broker_core.store.statements import ENDING, SQL
from tests.fixtures import account, broker_database, make_queue, namespace, queue, vhost  # noqa: F401 - fixtures

HOUR = timedelta(hours=1)
BODY = b'{"tenant": "acme"}'


@pytest.fixture(autouse=True)
def _fresh():
    keeping.forget_keeping()


def keep(name, period=HOUR):
    """Keep the messages of a namespace, with a clock that only the test moves."""
    namespaces.pause_clock(name)
    namespaces.update_namespace(name, keep_messages_for=period)


def kept(address, number):
    return reads.kept_message(reads.entity(address).id, number)


def assert_kept_for_an_hour(address, number, body=BODY):
    """The message can be read until the hour is over, and not after."""
    found = kept(address, number)
    assert found is not None and reads.message(address, number) is None
    assert reads.kept_body(found).content == body
    namespaces.step_clock(address.namespace, HOUR - timedelta(seconds=1))
    assert reads.kept_body(kept(address, number)).content == body
    namespaces.step_clock(address.namespace, timedelta(seconds=1))
    assert kept(address, number) is None
    assert reads.kept_body(found) is None


def sent(address, **settings):
    [number] = service_bus.send(address, [Message(BODY, subject="paid", properties={"region": "EU"}, **settings)])
    return number


def test_a_completed_message_is_kept_with_its_properties(queue):  # noqa: F811
    keep(queue.namespace)
    number = sent(queue)
    [message] = service_bus.receive(queue)
    service_bus.complete(queue, message.lock_token)
    found = kept(queue, number)
    assert found.broker_properties == {"subject": "paid"} and found.application_properties == {"region": ("string", "EU")}
    assert_kept_for_an_hour(queue, number)


def test_messages_completed_as_a_batch_are_kept(queue):  # noqa: F811
    keep(queue.namespace)
    service_bus.send(queue, [Message(str(number).encode()) for number in range(5)])
    service_bus.complete(queue, [message.lock_token for message in service_bus.receive(queue, 5)])
    assert [reads.kept_body(kept(queue, number)).content for number in range(1, 6)] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_message_completed_with_the_next_receive_is_kept(queue):  # noqa: F811
    keep(queue.namespace)
    number = sent(queue)
    [message] = service_bus.receive(queue)
    service_bus.receive(queue, completing=[message.lock_token])
    assert_kept_for_an_hour(queue, number)


def by_receiving(queue):  # noqa: F811
    service_bus.receive_and_delete(queue)


def by_purging(queue):  # noqa: F811
    namespaces.step_clock(queue.namespace, timedelta(seconds=1))
    service_bus.purge(queue)


def by_cancelling(queue):  # noqa: F811
    service_bus.cancel_scheduled(queue, [1])


def by_expiring(queue):  # noqa: F811
    namespaces.step_clock(queue.namespace, timedelta(minutes=2))
    sweeps.expire_messages(namespace=queue.namespace)


@pytest.mark.parametrize("end", [by_receiving, by_purging, by_cancelling, by_expiring], ids=lambda end: end.__name__)
def test_a_message_is_kept_however_it_ends(queue, end):  # noqa: F811
    keep(queue.namespace)
    soon = namespaces.get_clock(queue.namespace).now + timedelta(hours=5)
    how: dict = {by_cancelling: {"scheduled_enqueue_at": soon}, by_expiring: {"time_to_live": timedelta(minutes=1)}}
    number = sent(queue, **how.get(end, {}))
    end(queue)
    assert_kept_for_an_hour(queue, number)


def test_a_dead_letter_that_is_discarded_is_kept(queue):  # noqa: F811
    keep(queue.namespace)
    number = sent(queue)
    [message] = service_bus.receive(queue)
    service_bus.dead_letter(queue, message.lock_token, "invalid", "no tenant")
    namespaces.step_clock(queue.namespace, timedelta(seconds=1))
    service_bus.purge(queue.dead_letter)
    assert_kept_for_an_hour(queue, number)


def test_the_messages_of_a_deleted_queue_are_kept(queue):  # noqa: F811
    keep(queue.namespace)
    number, entity_id = sent(queue), reads.entity(queue).id
    entities.delete_queue(queue)
    sweeps.remove_deleted_entities()
    found = reads.kept_message(entity_id, number)
    assert reads.kept_body(found).content == BODY
    namespaces.step_clock(queue.namespace, HOUR)
    assert reads.kept_message(entity_id, number) is None


def test_a_message_that_ended_long_ago_is_not_searched(queue, monkeypatch):  # noqa: F811
    keep(queue.namespace)
    number = sent(queue)
    service_bus.receive_and_delete(queue)
    [*_, end] = events = reads.timeline(reads.entity(queue).id, number)
    events = [*events[:-1], replace(end, recorded_at=end.recorded_at - keeping.LONGEST)]
    monkeypatch.setattr(reads.kept, "call", lambda name, **params: pytest.fail(name))
    assert reads.kept_message(reads.entity(queue).id, number, events=events) is None


@pytest.fixture
def letters(account):  # noqa: F811
    address = EntityAddress(account, "letters")
    queue_storage.create_queue(address)
    keep(account)
    return address


def by_deletion(letters):
    [got] = queue_storage.get(letters)
    queue_storage.delete(letters, got.message_id, got.pop_receipt)


def by_clearing(letters):
    queue_storage.clear(letters)


def by_removal(letters):
    queue_storage.remove(letters, [1])


def by_expiry(letters):
    namespaces.step_clock(letters.namespace, timedelta(minutes=5))
    sweeps.expire_messages(namespace=letters.namespace)


@pytest.mark.parametrize("end", [by_deletion, by_clearing, by_removal, by_expiry], ids=lambda end: end.__name__)
def test_a_storage_message_is_kept_however_it_ends(letters, end):
    queue_storage.put(letters, BODY.decode(), time_to_live=timedelta(minutes=1))
    end(letters)
    assert_kept_for_an_hour(letters, 1)


@pytest.fixture
def tasks(vhost):  # noqa: F811
    address = EntityAddress(vhost, "tasks")
    rabbitmq.declare_queue(address, arguments={"x-max-length": 1, "x-message-ttl": 60_000})
    keep(vhost)
    rabbitmq.publish(vhost, [Publication(BODY, routing_key="tasks")])
    return address


def by_acknowledgement(tasks):
    channel = rabbitmq.connect(tasks.namespace).channel()
    channel.ack(channel.get(tasks.path).delivery_tag)


def by_getting(tasks):
    rabbitmq.get(tasks, no_ack=True)


def by_dropping(tasks):
    rabbitmq.publish(tasks.namespace, [Publication(b"newer", routing_key="tasks")])


def by_purging_the_queue(tasks):
    rabbitmq.purge_queue(tasks)


def by_time(tasks):
    namespaces.step_clock(tasks.namespace, timedelta(minutes=2))
    sweeps.expire_messages(namespace=tasks.namespace)


@pytest.mark.parametrize(
    "end", [by_acknowledgement, by_getting, by_dropping, by_purging_the_queue, by_time], ids=lambda end: end.__name__
)
def test_a_rabbitmq_message_is_kept_however_it_ends(tasks, end):
    end(tasks)
    assert_kept_for_an_hour(tasks, 1)


def test_nothing_is_kept_by_default(queue):  # noqa: F811
    number = sent(queue)
    service_bus.receive_and_delete(queue)
    assert kept(queue, number) is None and not _count(queue)


def _count(address):
    return reads.kept_in(address.namespace)[0]


def test_turning_it_off_keeps_no_more(queue):  # noqa: F811
    keep(queue.namespace)
    sent(queue)
    service_bus.receive_and_delete(queue)
    namespaces.update_namespace(queue.namespace, keep_messages_for=timedelta())
    sent(queue)
    service_bus.receive_and_delete(queue)
    assert _count(queue) == 1 and kept(queue, 1) and not kept(queue, 2)


def test_a_change_by_another_process_counts_after_some_seconds(queue, monkeypatch):  # noqa: F811
    number = sent(queue)
    service_bus.receive_and_delete(queue)
    monkeypatch.setattr("broker_core.namespaces.namespaces.forget_keeping", lambda: None)  # as if another process did it
    keep(queue.namespace)
    monkeypatch.setattr(keeping, "CHECK_SECONDS", 0.0)
    sent(queue)
    service_bus.receive_and_delete(queue)
    assert not kept(queue, number) and kept(queue, number + 1)


def test_a_new_queue_of_a_namespace_that_keeps_messages_keeps_them_at_once(make_queue):  # noqa: F811
    first = make_queue()
    keep(first.namespace)
    sent(first)
    service_bus.receive_and_delete(first)
    second = make_queue()
    sent(second)
    service_bus.receive_and_delete(second)
    assert kept(second, 1)


def test_an_entity_without_history_keeps_nothing(make_queue):  # noqa: F811
    address = make_queue(history_level=HistoryLevel.OFF)
    keep(address.namespace)
    sent(address)
    service_bus.receive_and_delete(address)
    assert not _count(address)


def test_nothing_more_is_kept_when_the_limit_is_reached(queue, settings):  # noqa: F811
    settings.VITRINE_KEPT_MB = 0
    keep(queue.namespace)
    sent(queue)
    service_bus.receive_and_delete(queue)
    assert not _count(queue)


def test_reading_a_kept_body_requires_the_right(queue):  # noqa: F811
    keep(queue.namespace)
    number = sent(queue)
    service_bus.receive_and_delete(queue)
    viewer = Actor("user", "vera", Right.BROWSE)
    found = reads.kept_message(reads.entity(queue).id, number, actor=viewer)
    with pytest.raises(NotAuthorized):
        reads.kept_body(found, actor=viewer)


def test_what_is_rolled_back_is_not_kept(queue):  # noqa: F811
    keep(queue.namespace)
    number = sent(queue)
    [message] = service_bus.receive(queue)

    def steps():
        yield from service_bus.complete.steps(queue, message.lock_token)
        undo()

    run(all_or_none(steps()))
    assert not _count(queue) and reads.message(queue, number) is not None


def test_deleting_the_namespace_removes_what_it_kept(queue):  # noqa: F811
    keep(queue.namespace)
    sent(queue)
    service_bus.receive_and_delete(queue)
    entity_id = reads.entity(queue).id
    entities.delete_queue(queue)
    sweeps.remove_deleted_entities()
    assert rows_of(entity_id) == 1
    namespaces.delete_namespace(queue.namespace)
    assert rows_of(entity_id) == 0


def rows_of(entity_id):
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM vitrine_kept_message WHERE entity_id = %s", [entity_id])
        return cursor.fetchone()[0]


def test_a_slot_is_emptied_when_its_time_is_over(queue):  # noqa: F811
    keep(queue.namespace)
    sent(queue)
    service_bus.receive_and_delete(queue)
    assert sweeps.drop_kept_messages() == {}, "the time is not over"
    over = "UPDATE vitrine_kept_message SET slot = 16 + (div(extract(epoch FROM now()), 43200)::int + 17) % 18"
    connections.current().execute(over)
    assert sweeps.drop_kept_messages()["bytes"] > 0
    assert not _count(queue)


@pytest.mark.parametrize("period", [timedelta(seconds=59), timedelta(days=8), "1h"])
def test_the_period_is_from_a_minute_to_seven_days(queue, period):  # noqa: F811
    with pytest.raises(InvalidArgument, match="keep_messages_for: must be from 1 minute to 7 days"):
        namespaces.update_namespace(queue.namespace, keep_messages_for=period)


def test_each_statement_that_ends_messages_has_a_variant_that_keeps_them():
    moves = {  # the message, or copies of it, are elsewhere then
        "remove_forwarded", "take_due_at_topic", "resubmit", "remove_moved", "storage_move", "storage_move_spent", "withdraw",
    }  # fmt: skip
    ends = {name for name, text in SQL.items() if "DELETE FROM vitrine_message AS m" in text and not name.endswith("_keeping")}
    assert ends - moves == ENDING
