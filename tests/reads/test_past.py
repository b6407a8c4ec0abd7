"""An entity at an instant, rebuilt from events, is what it was then: in random histories of each family."""

import os
import random
from contextlib import suppress
from datetime import timedelta

import pytest

from broker_core import namespaces, queue_storage, rabbitmq, reads, service_bus, sweeps
from broker_core.common.errors import BrokerError, EntityNotFound
from broker_core.common.types import Actor, EntityAddress, MessageState, Right, SubQueue
from broker_core.reads import past_of_entities
from broker_core.reads.past_of_entities import is_held
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from tests.fixtures import account, broker_database, make_queue, namespace, vhost  # noqa: F401 - fixtures
from tests.rabbitmq import shortcuts

SECOND = timedelta(seconds=1)
WORKERS = [Actor("process", f"worker-{n}", Right.ALL) for n in (1, 2)]
HISTORIES = int(os.environ.get("VITRINE_HISTORIES", "7"))  # of each family
ACTS = 28


def visible_facts(rows):
    """What a person sees of messages: their list, state, holder, failures and end."""
    return {
        row.sequence_number: (
            row.subqueue, row.state, str(row.display_state), row.locked_by if is_held(row) else None, row.delivery_count,
            row.deadline, row.message_id, row.session_id, row.enqueued_at, row.dead_letter_reason, row.dead_lettered_at,
        )
        for row in rows
    }  # fmt: skip


def numbers(counts):
    return (counts.active, counts.locked, counts.deferred, counts.scheduled, counts.dead_letter)


def now(address):
    """What is there now: the messages, and the counts of Service Bus's lists."""
    entity = reads.entity(address)
    rows = reads.messages_by_number(entity.id, range(1, 400))
    return entity.clock.now, visible_facts(rows), rows


def service_bus_act(queue, dice, held):
    actor = dice.choice(WORKERS)
    match dice.choice(["send", "send", "receive", "receive", "settle", "settle", "settle", "schedule", "deferred", "more"]):
        case "send":
            life = dice.choice([None, None, 20 * SECOND, 90 * SECOND])
            service_bus.send(queue, [Message(b"", message_id=f"m{dice.random()}", time_to_live=life)] * 2, actor=actor)
        case "schedule":
            at = namespaces.get_clock(queue.namespace).now + dice.randrange(5, 60) * SECOND
            service_bus.send(queue, [Message(b"", scheduled_enqueue_at=at)], actor=actor)
        case "receive":
            address = dice.choice([queue, queue, queue.dead_letter])
            held += [(address, message.lock_token, actor) for message in service_bus.receive(address, 2, actor=actor)]
        case "settle" if held:
            address, token, by = held.pop(dice.randrange(len(held)))
            how = dice.choice(["complete", "abandon", "abandon", "defer", "dead_letter", "renew"])
            getattr(service_bus, how)(address, [token], actor=by)
            if how == "renew":
                held.append((address, token, by))
        case "deferred":
            rows = reads.list_messages(queue, reads.Tab.DEFERRED, limit=1).rows
            for row in rows:
                [message] = service_bus.receive_deferred(queue, [row.sequence_number], actor=actor)
                held.append((queue, message.lock_token, actor))
        case "more":
            dead = [row.sequence_number for row in reads.list_messages(queue, reads.Tab.DEAD_LETTER, limit=1).rows]
            dice.choice([
                lambda: service_bus.resubmit(queue, dead, actor=actor),
                lambda: service_bus.release_locks(queue, [dice.randrange(1, 20)], actor=actor),
                lambda: service_bus.edit(queue, dice.randrange(1, 20), body=b"edited", actor=actor),
                lambda: sweeps.follow_clock(queue.namespace),
            ])()  # fmt: skip


def storage_act(queue, dice, held):
    actor = dice.choice(WORKERS)
    match dice.choice(["put", "put", "get", "get", "settle", "settle", "more"]):
        case "put":
            delay, life = dice.choice([0, 0, 15]) * SECOND, dice.choice([None, 60 * SECOND])
            held.append((queue_storage.put(queue, "x", visibility_timeout=delay, time_to_live=life, actor=actor), actor))
        case "get":
            for message in queue_storage.get(queue, 2, visibility_timeout=dice.randrange(5, 30) * SECOND, actor=actor):
                held.append((message, actor))
        case "settle" if held:
            message, by = held.pop(dice.randrange(len(held)))
            if dice.random() < 0.5:
                queue_storage.delete(queue, message.message_id, message.pop_receipt, actor=by)
            else:
                hidden = dice.choice([0, 10, 40]) * SECOND
                queue_storage.update(queue, message.message_id, message.pop_receipt, visibility_timeout=hidden, actor=by)
        case "more":
            dice.choice([
                lambda: queue_storage.release(queue, [dice.randrange(1, 20)], actor=actor),
                lambda: queue_storage.edit(queue, dice.randrange(1, 20), text="edited", actor=actor),
                lambda: queue_storage.remove(queue, [dice.randrange(1, 20)], actor=actor),
                lambda: sweeps.follow_clock(queue.namespace),
            ])()  # fmt: skip


def rabbitmq_act(queue, dice, held):
    match dice.choice(["publish", "publish", "take", "take", "settle", "settle", "more"]):
        case "publish":
            shortcuts.send(queue, "a", "b", expiration=dice.choice([None, None, "20000"]))
        case "take":
            held += shortcuts.take(queue, 2)
        case "settle" if held:
            number = held.pop(dice.randrange(len(held)))
            how = dice.choice(["acknowledge", "requeue", "requeue", "reject"])
            getattr(rabbitmq, how)(queue, [number.token])
        case "more":
            dice.choice([
                lambda: rabbitmq.edit(queue, dice.randrange(1, 20), body=b"edited"),
                lambda: sweeps.follow_clock(queue.namespace),
            ])()  # fmt: skip


def history(address, act, seed):
    """Act at random, and note what is there at random instants."""
    dice, held, seen = random.Random(seed), [], []
    for _ in range(ACTS):
        with suppress(BrokerError):  # a lock that ended, a message that has gone
            act(address, dice, held)
        if dice.random() < 0.35:
            seen.append(now(address))
            namespaces.step_clock(address.namespace, dice.randrange(1, 25) * SECOND)
    seen.append(now(address))
    return seen


def assert_rebuilt(address, seen):
    for at, messages, rows in seen:
        past = reads.past(address, at)
        assert visible_facts(past.rows) == messages, at
        main = [row for row in rows if row.subqueue == SubQueue.MAIN]
        active = [row for row in main if row.state == MessageState.ACTIVE]
        assert numbers(past.counts) == (
            len(active), sum(map(is_held, active)), sum(row.state == MessageState.DEFERRED for row in main),
            sum(row.state == MessageState.SCHEDULED for row in main), sum(row.subqueue == SubQueue.DEAD_LETTER for row in rows),
        )  # fmt: skip


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_the_past_of_a_service_bus_queue_is_rebuilt(make_queue, seed):  # noqa: F811
    queue = make_queue(lock_duration=timedelta(seconds=30), max_delivery_count=3)
    assert_rebuilt(queue, history(queue, service_bus_act, seed))


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_the_past_of_a_storage_queue_is_rebuilt(account, seed):  # noqa: F811
    queue = EntityAddress(account, "jobs")
    queue_storage.create_queue(queue, max_dequeue_count=4)
    assert_rebuilt(queue, history(queue, storage_act, seed))


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_the_past_of_a_rabbitmq_queue_is_rebuilt(vhost, seed):  # noqa: F811
    queue = shortcuts.declare(vhost, message_ttl=60_000)
    assert_rebuilt(queue, history(queue, rabbitmq_act, seed))


def test_an_instant_before_the_first_event_has_no_message_and_an_unknown_entity_is_refused(make_queue):  # noqa: F811
    queue = make_queue()
    before = reads.entity(queue).clock.now
    namespaces.step_clock(queue.namespace, SECOND)
    service_bus.send(queue, [Message(b"")])
    past = reads.past(queue, before)
    assert past.rows == () and past.before is None and past.after == past.first == before + SECOND
    with pytest.raises(EntityNotFound):
        reads.past(EntityAddress(queue.namespace, "none"), before)


def test_with_many_messages_held_messages_are_rebuilt_and_all_are_counted(make_queue, monkeypatch):  # noqa: F811
    monkeypatch.setattr(past_of_entities, "MOST_REBUILT", 5)
    queue = make_queue()
    service_bus.send(queue, [Message(b"")] * 9)
    service_bus.receive(queue, 3, actor=WORKERS[0])
    at = reads.entity(queue).clock.now
    past = reads.past(queue, at)
    assert past.capped and [row.sequence_number for row in past.rows] == [1, 2, 3, 4, 5]
    assert (past.counts.active, past.counts.locked) == (9, 3)


def test_messages_that_are_not_rebuilt_are_counted_in_their_past_state(make_queue, monkeypatch):  # noqa: F811
    monkeypatch.setattr(past_of_entities, "MOST_REBUILT", 2)
    queue = make_queue()
    now = namespaces.get_clock(queue.namespace).now
    service_bus.send(queue, [Message(b"")] * 12 + [Message(b"", scheduled_enqueue_at=now + 60 * SECOND)] * 3)
    tokens = [message.lock_token for message in service_bus.receive(queue, 9, actor=WORKERS[0])]
    service_bus.dead_letter(queue, tokens[:4], actor=WORKERS[0])
    service_bus.defer(queue, tokens[4:], actor=WORKERS[0])
    past = reads.past(queue, reads.entity(queue).clock.now)
    assert past.capped and numbers(past.counts) == (3, 0, 5, 3, 4)


def test_the_past_has_the_settings_of_its_time(make_queue):  # noqa: F811
    queue = make_queue(max_delivery_count=3, default_message_time_to_live=timedelta(hours=1))
    service_bus.send(queue, [Message(b"")])
    began = reads.entity(queue).clock.now
    namespaces.step_clock(queue.namespace, SECOND)
    service_bus.send(queue, [Message(b"")])
    namespaces.step_clock(queue.namespace, SECOND)
    entities.update_queue(queue, max_delivery_count=7, default_message_time_to_live=timedelta(minutes=1))
    changed = reads.entity(queue).clock.now
    before, after = reads.past(queue, began), reads.past(queue, changed)
    assert (before.settings["max_delivery_count"], before.rows[0].max_delivery_count) == (3, 3)
    assert before.rows[0].expires_at == began + timedelta(hours=1)
    assert (after.settings["max_delivery_count"], after.rows[0].max_delivery_count) == (7, 7)
    assert after.rows[0].expires_at == began + timedelta(minutes=1)
