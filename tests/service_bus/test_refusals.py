"""A settlement that is refused changes nothing (SB-071), and the message's history says who tried it, and when."""

from datetime import timedelta

import pytest

from broker_core import namespaces, queue_storage, reads, service_bus
from broker_core.common.errors import LockLost
from broker_core.common.types import Actor, EntityAddress, EventKind, HistoryLevel, Right
from broker_core.queue_storage.rules.errors import PopReceiptMismatch
from broker_core.runtime.refusals import Allowance
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from explorer.frames.timeline import autopsy
from tests.fixtures import account, broker_database, namespace  # noqa: F401 - fixtures

SLOW, FAST = (Actor("process", name, Right.ALL) for name in ("slow", "fast"))


@pytest.fixture
def queue(namespace):  # noqa: F811
    address = EntityAddress(namespace, "orders")
    entities.create_queue(address, lock_duration=timedelta(seconds=30))
    service_bus.send(address, [Message(body=b"1")])
    namespaces.pause_clock(namespace)
    return address


def history(address):
    return reads.timeline(reads.entity(address).id, 1)


def step(address, seconds):
    namespaces.step_clock(address.namespace, timedelta(seconds=seconds))


def test_a_late_settlement_is_explained_after_the_message_was_removed(queue):
    [held] = service_bus.receive(queue, 1, actor=SLOW)
    step(queue, 20)
    service_bus.renew(queue, held.lock_token, actor=SLOW)
    step(queue, 31)
    [other] = service_bus.receive(queue, 1, actor=FAST)
    service_bus.complete(queue, other.lock_token, actor=FAST)
    step(queue, 3)
    with pytest.raises(LockLost):
        service_bus.complete(queue, held.lock_token, actor=SLOW)
    events = history(queue)
    assert (events[-1].kind, events[-1].actor, events[-1].reason) == (EventKind.SETTLE_REFUSED, "process:slow", "complete")
    explanation = autopsy(events[-1], events)
    assert explanation.title == "Complete refused: 4 s too late"
    assert "renewed once" in explanation.history and "ended at" in explanation.history
    assert reads.message(queue, 1) is None, "nothing was changed"


def test_the_explanation_of_a_second_settlement_names_the_first(queue):
    [held] = service_bus.receive(queue, 1, actor=SLOW)
    service_bus.abandon(queue, held.lock_token, actor=SLOW)
    step(queue, 1)
    with pytest.raises(LockLost):
        service_bus.dead_letter(queue, held.lock_token, actor=SLOW)
    events = history(queue)
    assert events[-1].reason == "dead-letter"
    assert autopsy(events[-1], events).title == "Dead-letter refused: the lock had been settled before"


def test_unknown_numbers_and_entities_without_history_record_no_refusal(queue):
    entities.update_queue(queue, history_level=HistoryLevel.LIFECYCLE)
    [held] = service_bus.receive(queue, 1, actor=SLOW)
    service_bus.complete(queue, held.lock_token, actor=SLOW)
    before = len(history(queue))
    assert service_bus.complete(queue, [held.lock_token], actor=SLOW).lost == (held.lock_token,)
    assert len(history(queue)) == before
    entities.update_queue(queue, history_level=HistoryLevel.FULL)
    never_given = type(held.lock_token)(int=held.lock_token.int + 7)
    service_bus.complete(queue, [held.lock_token, never_given], actor=SLOW)
    assert [e.kind for e in history(queue)[before:]] == [EventKind.SETTLE_REFUSED]
    assert reads.timeline(reads.entity(queue).id, 8) == []


def test_an_outdated_pop_receipt_is_recorded(account):  # noqa: F811
    address = EntityAddress(account, "jobs")
    queue_storage.create_queue(address)
    put = queue_storage.put(address, "1")
    [got] = queue_storage.get(address, 1, actor=FAST)
    with pytest.raises(PopReceiptMismatch):
        queue_storage.delete(address, put.message_id, put.pop_receipt, actor=SLOW)
    last = history(address)[-1]
    assert (last.kind, last.actor, last.reason) == (EventKind.SETTLE_REFUSED, "process:slow", "delete")
    queue_storage.delete(address, got.message_id, got.pop_receipt, actor=FAST)


def test_repeated_refusals_of_a_client_are_recorded_a_limited_number_of_times():
    allowance = Allowance(5)
    assert allowance.take(3) == 3
    assert allowance.take(10) == 2
    assert allowance.take(10) == 0
