"""Random interleavings of an operation's batches with receivers, settlements, pauses, undo and a second operator."""

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker_core import operations as core
from broker_core import reads, service_bus, sweeps
from broker_core.common.errors import BrokerError
from broker_core.operations import Kind
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from explorer import operations
from explorer.operations import runner

from .test_kinds import OTTO, start

MESSAGES = 12
ACTIONS = ("batch", "receive", "complete", "abandon", "pause", "resume", "stop", "undo", "second", "send")
STEPS = st.lists(st.sampled_from(ACTIONS), max_size=14)


def lists(address):
    """Message ids by list, the hidden ones too."""
    entity = reads.entity(address).id
    rows = (
        connections.current()
        .execute("SELECT subqueue, message_id FROM vitrine_message WHERE entity_id = %(e)s", {"e": entity})
        .fetchall()
    )
    return Counter(row.message_id for row in rows)


def hidden(address):
    """Ids of hidden messages of which there is no copy elsewhere."""
    rows = connections.current().execute(
        "SELECT message_id FROM vitrine_hidden_message WHERE entity_id = %s AND copies IS NULL", [reads.entity(address).id]
    )
    return Counter(row.message_id for row in rows.fetchall())


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(runner, "BATCH", 3)
    monkeypatch.setattr("explorer.operations.starting.DIRECT", 0)
    monkeypatch.setattr("explorer.operations.control.DIRECT", 0)
    monkeypatch.setattr("explorer.operations.starting.submit", lambda _: None)
    monkeypatch.setattr("explorer.operations.control.submit", lambda _: None)


@pytest.mark.parametrize("kind", [Kind.RESUBMIT, Kind.PURGE, Kind.MOVE, Kind.ARCHIVE])
def test_every_message_is_in_exactly_one_place(make_queue, small, kind):
    @settings(max_examples=8, suppress_health_check=list(HealthCheck), derandomize=True)
    @given(STEPS)
    def run(steps):
        queue, other = make_queue(), make_queue()
        service_bus.send(queue, [Message(b"x", message_id=str(n)) for n in range(MESSAGES)])
        everything, gone = Counter(str(n) for n in range(MESSAGES)), Counter()
        if kind is Kind.RESUBMIT:
            for message in service_bus.receive(queue, MESSAGES):
                service_bus.dead_letter(queue, [message.lock_token], "no")
        listed = "dead-letter" if kind is Kind.RESUBMIT else "active"
        how = {"options": {"to": other.path}} if kind is Kind.MOVE else {}
        running, held, sent = [start(kind, queue, listed, **how)], [], MESSAGES
        for step in steps:
            try:
                match step:
                    case "batch":
                        runner.run(running[-1], seconds=0)
                    case "receive":
                        held += service_bus.receive(queue, 2)
                    case "complete" if held:
                        message = held.pop()
                        service_bus.complete(queue, [message.lock_token])
                        gone[message.message_id] += 1
                    case "abandon" if held:
                        service_bus.abandon(queue, [held.pop().lock_token])
                    case "second":
                        running.append(start(kind, queue, listed, **how))
                        runner.run(running[0], seconds=0)
                    case "send":
                        service_bus.send(queue, [Message(message_id=str(sent))])
                        everything[str(sent)] += 1
                        sent += 1
                    case "pause" | "resume" | "stop" | "undo":
                        operations.change(core.find(running[0].id), step, actor=OTTO)
            except BrokerError:
                continue
            assert lists(queue) + lists(other) + hidden(queue) + gone == everything, step
        for operation in running:
            runner.run(operation, seconds=None)
        assert lists(queue) + lists(other) + hidden(queue) + gone == everything
        assert sweeps.check_ledger()["differences"] == []

    run()


def test_two_operators_never_process_the_same_message(queue, small):
    service_bus.send(queue, [Message() for _ in range(10)])
    first, second = start(Kind.PURGE, queue), start(Kind.PURGE, queue)
    while core.find(first.id).is_open or core.find(second.id).is_open:
        runner.run(first, seconds=0)
        runner.run(second, seconds=0)
    done = [core.find(operation.id) for operation in (first, second)]
    assert sum(operation.done for operation in done) == 10 and reads.entity(queue).counts.active == 0
    for operation in done:
        operations.change(operation, "undo", actor=OTTO)
        runner.run(operation, seconds=None)
    assert reads.entity(queue).counts.active == 10


def test_a_stopped_operation_does_no_more_work_and_can_be_undone(queue, small):
    service_bus.send(queue, [Message() for _ in range(10)])
    operation = start(Kind.DISCARD, queue)
    runner.run(operation, seconds=0)
    stopped = operations.change(core.find(operation.id), "stop", actor=OTTO)
    assert stopped.done == 3 and not runner.run(stopped, seconds=None)
    assert reads.entity(queue).counts.active == 7
    operations.change(stopped, "undo", actor=OTTO)
    runner.run(stopped, seconds=None)
    assert reads.entity(queue).counts.active == 10


def test_a_pace_is_enforced_and_can_be_changed(queue, monkeypatch, small):
    waits = []
    monkeypatch.setattr(runner.time, "sleep", waits.append)
    service_bus.send(queue, [Message() for _ in range(6)])
    operation = start(Kind.PURGE, queue, pace=2)
    runner.run(operation, seconds=0)
    assert core.find(operation.id).done == 2 and 0 < waits[-1] <= 1
    operations.set_pace(operation, 1, actor=OTTO)
    runner.run(operation, seconds=0)
    runner.run(operation, seconds=None)
    assert core.find(operation.id).done == 6
