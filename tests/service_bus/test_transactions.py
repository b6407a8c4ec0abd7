"""Transactions: together or not at all (SB-160 to SB-167), and the many ways to lose a lock (SB-070 to SB-076)."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from broker_core import service_bus
from broker_core.common.errors import (
    EntityDisabled,
    EntityNotFound,
    LockLost,
    MessageTooLarge,
    NotAllowed,
    TransactionEnded,
)
from broker_core.common.types import EntityAddress, EntityStatus
from broker_core.service_bus import entities
from broker_core.service_bus.messages.renewal import renewer
from broker_core.service_bus.rules.values import Message
from broker_core.store import aio, connections
from broker_core.store.driver import Atomically, run
from broker_core.store.statements import SQL, call
from tests.broker_state import bodies, entity_id, events, has_waiting_receiver, ledger_agrees, now
from tests.eventually import eventually

MINUTE = timedelta(minutes=1)


def received(queue, *sent):
    service_bus.send(queue, [Message(body) for body in sent])
    return service_bus.receive(queue, len(sent))


def test_sends_and_settlements_are_committed_together(queue):
    a, b, c = received(queue, b"a", b"b", b"c")
    with service_bus.transaction() as tx:
        tx.complete(queue, [a.lock_token])
        tx.send(queue, [Message(b"new"), Message(b"later", scheduled_enqueue_at=now(queue) + MINUTE)])
        tx.defer(queue, [b.lock_token])
        tx.dead_letter(queue, [c.lock_token], "why")
        assert len(service_bus.peek(queue)) == 3  # nothing has happened yet
    assert [(m.body, m.state.name) for m in service_bus.peek(queue)] == [
        (b"b", "DEFERRED"),
        (b"new", "ACTIVE"),
        (b"later", "SCHEDULED"),
    ]
    assert service_bus.peek(queue.dead_letter)[0].dead_letter_reason == "why" and ledger_agrees(queue)


def test_waiting_receivers_are_notified_after_the_commit(queue):
    """Design D8: in the transaction it would wake them for what they cannot see yet, and hold the lock on notifications."""

    def mark():
        of_messages = {"subqueues": [0], "kinds": [0], "session_ids": [None], "session_tokens": [None]}
        yield call("watch_entities", entity_ids=[entity_id(queue)], **of_messages, seconds=60.0, renewed_below=30.0)

    def sending():
        yield from service_bus.send.steps(queue, [Message(b"a")])
        return has_waiting_receiver(queue)

    def together():
        return (yield Atomically(sending()))

    run(mark())
    assert run(together())
    assert not has_waiting_receiver(queue)


def test_the_results_are_in_the_order_of_the_operations(queue):
    (message,) = received(queue, b"a")
    tx = service_bus.transaction()
    tx.send(queue, [Message(b"b"), Message(b"c")])
    tx.renew(queue, [message.lock_token])
    numbers, report = tx.commit()
    assert numbers == [2, 3] and report.locked_until == now(queue) + MINUTE


def test_a_lost_lock_rolls_back_the_transaction(queue, step):
    (message,) = received(queue, b"a")
    tx = service_bus.transaction()
    tx.send(queue, [Message(b"new")])
    tx.complete(queue, [message.lock_token])
    step(2 * MINUTE)
    with pytest.raises(LockLost):
        tx.commit()
    assert bodies(service_bus.peek(queue)) == ["a"] and ledger_agrees(queue)
    assert service_bus.send(queue, [Message(b"next")]) == [2]  # no number was lost


def test_a_rollback_leaves_the_locks_as_they_were(queue):
    """SB-163."""
    (message,) = received(queue, b"a")
    tx = service_bus.transaction()
    tx.complete(queue, [message.lock_token])
    tx.send(queue, [Message(b"new")])
    tx.rollback()
    assert service_bus.receive(queue, 5) == []
    assert service_bus.complete(queue, [message.lock_token]).settled
    with pytest.raises(TransactionEnded, match="rolled back"):
        tx.commit()


def test_a_failed_commit_does_not_stop_the_renewal_of_its_locks(queue):
    """SB-163."""
    kept, lost = received(queue, b"a", b"b")
    renewer.hold(kept, for_=timedelta(hours=1))
    service_bus.release(queue, [lost.lock_token])
    with pytest.raises(LockLost), service_bus.transaction() as tx:
        tx.complete(queue, [kept.lock_token])
        tx.complete(queue, [lost.lock_token])
    assert kept.lock_token in renewer.tokens()
    service_bus.complete(queue, [kept.lock_token])
    assert kept.lock_token not in renewer.tokens()


def test_an_error_in_the_block_rolls_back(queue):
    with pytest.raises(ZeroDivisionError), service_bus.transaction() as tx:
        tx.send(queue, [Message(b"x")])
        raise ZeroDivisionError
    assert service_bus.peek(queue) == []


def test_a_transaction_covers_one_entity_or_a_topic_and_its_subscriptions(make_queue, namespace):
    """SB-161."""
    first, second = make_queue(), make_queue()
    tx = service_bus.transaction()
    tx.send(first, [Message(b"x")])
    with pytest.raises(NotAllowed, match="one entity"):
        tx.send(second, [Message(b"x")])
    tx.rollback()
    topic = EntityAddress(namespace, "topic")
    entities.create_topic(topic)
    where = topic.subscription("s")
    entities.create_subscription(where)
    service_bus.send(topic, [Message(b"first")])
    (message,) = service_bus.receive(where, 1)
    with service_bus.transaction() as tx:
        tx.complete(where, [message.lock_token])
        tx.send(topic, [Message(b"second")])
    assert bodies(service_bus.receive(where, 5)) == ["second"]


def test_a_transaction_has_at_most_two_minutes_and_a_hundred_messages(queue):
    """SB-162."""
    seconds = iter([0.0, 0.0, 121.0, 121.0])
    tx = service_bus.transaction(clock=lambda: next(seconds))
    tx.send(queue, [Message(b"x")])
    with pytest.raises(TransactionEnded, match="two minutes"):
        tx.send(queue, [Message(b"y")])
    assert service_bus.peek(queue) == []
    with pytest.raises(NotAllowed, match="at most 100"):
        service_bus.transaction().send(queue, [Message(b"x") for _ in range(101)])


def test_bad_messages_are_refused_when_they_are_added(queue):
    tx = service_bus.transaction()
    text: Any = "text"
    with pytest.raises(Exception, match="body"):
        tx.send(queue, [Message(text)])
    tx.send(queue, [Message(b"x" * (256 * 1024 + 1))])
    with pytest.raises(MessageTooLarge):
        tx.commit()
    assert service_bus.peek(queue) == []


def test_a_via_transaction_sends_to_other_entities_with_the_same_commit(make_queue):
    """SB-166, SB-167."""
    via, other, third = make_queue(), make_queue(), make_queue()
    (message,) = received(via, b"work")
    with service_bus.transaction(via=via) as tx:
        tx.complete(via, [message.lock_token])
        tx.send(other, [Message(b"to other"), Message(b"timed", scheduled_enqueue_at=now(via) + MINUTE)])
        tx.send(third, [Message(b"to third")])
        tx.send(via, [Message(b"to itself")])
    assert bodies(service_bus.peek(other)) == ["to other", "timed"] and bodies(service_bus.peek(third)) == ["to third"]
    assert bodies(service_bus.peek(via)) == ["to itself"]
    assert all(ledger_agrees(address) for address in (via, other, third))
    with pytest.raises(NotAllowed), service_bus.transaction(via=via) as tx:
        tx.send(EntityAddress("elsewhere", "q"), [Message(b"x")])


def test_messages_can_be_sent_via_the_topic_of_a_subscription(make_queue, namespace):
    """SB-167: where the work came from a subscription, its topic is the way."""
    topic = EntityAddress(namespace, "topic")
    entities.create_topic(topic)
    where = topic.subscription("s")
    entities.create_subscription(where)
    other = make_queue()
    service_bus.send(topic, [Message(b"work")])
    (message,) = service_bus.receive(where, 1)
    with service_bus.transaction(via=where) as tx:
        tx.complete(where, [message.lock_token])
        tx.send(other, [Message(b"result")])
    assert bodies(service_bus.receive(other, 1)) == ["result"] and service_bus.peek(where) == []
    entities.update_queue(other, status=EntityStatus.DISABLED)
    with service_bus.transaction(via=topic) as tx:
        tx.send(other, [Message(b"stuck")])
    (stuck,) = service_bus.receive(topic.transfer_dead_letter, 1)
    assert stuck.body == b"stuck" and service_bus.complete(topic.transfer_dead_letter, [stuck.lock_token]).settled


def test_a_via_transaction_handles_disabled_deleted_and_full_targets(make_queue):
    """SB-166, SB-917: disabled: its transfer dead-letter queue; deleted: refused; full: it waits."""
    via, disabled, deleted, full = make_queue(), make_queue(), make_queue(), make_queue()
    service_bus.send(deleted, [Message(b"known to this process")])
    entities.update_queue(disabled, status=EntityStatus.DISABLED)
    entities.delete_queue(deleted)
    set_size = "UPDATE vitrine_entity SET max_size_in_megabytes = %s WHERE path = %s AND deleted_at IS NULL"
    connections.current().execute(set_size, [0, full.path])
    with service_bus.transaction(via=via) as tx:
        tx.send(disabled, [Message(b"to disabled")])
        tx.send(full, [Message(b"to full")])
    assert bodies(service_bus.peek(via.transfer_dead_letter)) == ["to disabled"]
    assert service_bus.peek(full) == []
    with pytest.raises(EntityNotFound), service_bus.transaction(via=via) as tx:
        tx.send(deleted, [Message(b"x")])
    connections.current().execute(set_size, [1024, full.path])
    assert (
        bodies(service_bus.receive(full, 1)) == []
    )  # it does not forward here by a setting, so only a send or the sweep moves it on
    with service_bus.transaction(via=via) as tx:
        tx.send(full, [Message(b"second")])
    assert bodies(service_bus.receive(full, 5)) == ["to full", "second"]


def test_a_transaction_can_be_committed_under_asyncio(queue):
    tx = service_bus.transaction()
    tx.send(queue, [Message(b"x")])

    async def commit():
        try:
            return await tx.commit_aio()
        finally:
            await aio.close()

    assert asyncio.run(commit()) == [[1]]


# Ways to lose a lock


def test_dropped_locks_are_lost_and_count_as_failed_deliveries(queue):
    """SB-072, SB-073: as an update of the service."""
    a, b = received(queue, b"a", b"b")
    (dead,) = service_bus.receive(_dead_letter_one(queue), 1)
    assert service_bus.drop_locks(queue) == 3
    for address, message in ((queue, a), (queue, b), (queue.dead_letter, dead)):
        with pytest.raises(LockLost):
            service_bus.complete(address, [message.lock_token]).require_all()
    again = service_bus.receive(queue, 5)
    assert [(m.body, m.delivery_count) for m in again] == [(b"a", 1), (b"b", 1)]
    assert [e.details for e in events(queue) if e.kind == 12 and e.sequence_number == 1][0]["dropped_by"].startswith("process:")
    assert ledger_agrees(queue)


def _dead_letter_one(queue):
    service_bus.send(queue, [Message(b"dead")])
    (message,) = service_bus.receive(queue, 1)
    service_bus.dead_letter(queue, [message.lock_token])
    return queue.dead_letter


def test_a_change_of_the_entity_drops_locks_if_configured(make_queue):
    """SB-072, SB-907."""
    keeps, drops = make_queue(), make_queue(drops_locks_on_change=True)
    (kept,), (dropped,) = received(keeps, b"a"), received(drops, b"b")
    for queue in (keeps, drops):
        entities.update_queue(queue, max_delivery_count=7)
    assert service_bus.complete(keeps, [kept.lock_token]).settled
    assert service_bus.complete(drops, [dropped.lock_token]).lost


def test_the_last_dropped_lock_dead_letters(make_queue):
    queue = make_queue(max_delivery_count=1)
    received(queue, b"a")
    service_bus.drop_locks(queue)
    assert service_bus.receive(queue.dead_letter, 1)[0].dead_letter_reason == "MaxDeliveryCountExceeded"


def test_a_disabled_or_deleted_entity_has_no_valid_locks(make_queue):
    """SB-076."""
    disabled, deleted = make_queue(), make_queue()
    (first,), (second,) = received(disabled, b"a"), received(deleted, b"b")
    entities.update_queue(disabled, status=EntityStatus.DISABLED)
    entities.delete_queue(deleted)
    with pytest.raises(EntityDisabled):
        service_bus.complete(disabled, [first.lock_token])
    with pytest.raises(EntityNotFound):
        service_bus.complete(deleted, [second.lock_token])


def test_a_topic_gets_scheduled_and_unscheduled_messages_by_a_via_transaction(make_queue, namespace, step):
    """SB-166, SB-051: the one waits at the topic, the other is published, whatever else goes with it."""
    via, topic = make_queue(), EntityAddress(namespace, "topic")
    entities.create_topic(topic)
    where = topic.subscription("s")
    entities.create_subscription(where)
    with service_bus.transaction(via=via) as tx:
        tx.send(topic, [Message(b"now"), Message(b"timed", scheduled_enqueue_at=now(via) + MINUTE), Message(b"now, too")])
    assert bodies(service_bus.peek(where)) == ["now", "now, too"] and bodies(service_bus.peek(topic)) == ["timed"]
    step(2 * MINUTE)
    assert bodies(service_bus.receive(where, 9)) == ["now", "now, too", "timed"] and service_bus.peek(topic) == []
    assert all(ledger_agrees(address) for address in (via, topic, where))


@pytest.mark.parametrize("way", ["sync", "aio"])
def test_messages_of_a_transaction_are_forwarded_after_its_commit(make_queue, way):
    """SB-170: while it holds counters it waits for nobody who forwards, and he may wait for them."""
    target = make_queue()
    source = make_queue(forward_to=target.path, forward_dead_lettered_messages_to=target.path)
    queue = make_queue(forward_dead_lettered_messages_to=target.path)
    (message,) = received(queue, b"dead")
    dead = service_bus.transaction()
    dead.dead_letter(queue, [message.lock_token])
    dead.send(queue, [Message(b"kept")])
    sent = service_bus.transaction()
    sent.send(source, [Message(b"sent")])

    async def commit(tx):
        try:
            return await tx.commit_aio()
        finally:
            await aio.close()

    def stored():
        return bodies(service_bus.peek(queue)) == ["kept"] and bodies(service_bus.peek(source)) == ["sent"]

    with ThreadPoolExecutor(2) as others, connections.current().transaction():
        for entity, subqueue in ((queue, 1), (source, 0)):  # as if somebody forwarded from them now
            connections.current().execute(SQL["lock_forwarder"], {"entity_id": entity_id(entity), "subqueue": subqueue})
        commits = [others.submit(tx.commit) if way == "sync" else others.submit(asyncio.run, commit(tx)) for tx in (dead, sent)]
        eventually(stored)
        assert bodies(service_bus.peek(target)) == []
    assert [each.result() is not None for each in commits] == [True, True]
    assert sorted(bodies(service_bus.peek(target))) == ["dead", "sent"] and ledger_agrees(queue) and ledger_agrees(source)
