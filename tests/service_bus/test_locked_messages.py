"""Receives pass many locked messages without walking over them, and still find at once, and in order, what becomes available
among them (docs/design.md D17, SB-061)."""

import json
import random
import threading
import time
from datetime import timedelta

import psycopg
import pytest

from broker_core import namespaces, service_bus, sweeps
from broker_core.common.types import EntityAddress, Family, SubQueue
from broker_core.runtime.pacing import advance_head
from broker_core.service_bus import entities
from broker_core.service_bus.messages import receiving
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from broker_core.store.driver import run
from broker_core.store.statements import SQL, call
from tests.broker_state import bounds_hold, entity_id, ledger_agrees, now

SECOND = timedelta(seconds=1)
LAG = 4
COUNT = 600


@pytest.fixture(autouse=True)
def small_lag(monkeypatch):
    monkeypatch.setattr("broker_core.runtime.pacing.HEAD_LAG", LAG)
    monkeypatch.setattr("broker_core.service_bus.messages.receiving.HEAD_LAG", LAG)


def send(queue, count):
    service_bus.send(queue, [Message(b"x") for _ in range(count)])


def numbers(messages):
    return [message.sequence_number for message in messages]


def locked_below(queue):
    text = "SELECT locked_below FROM vitrine_queue_head WHERE entity_id = %s AND subqueue = %s"
    return connections.current().execute(text, [entity_id(queue.main), queue.subqueue]).fetchone()[0]


def hold(queue, count):
    """Lock the first messages and let receives pass them. Returns them by number."""
    messages = {m.sequence_number: m for m in service_bus.receive(queue, count)}
    run(advance_head(entity_id(queue.main), queue.subqueue))
    assert locked_below(queue) > LAG + 1 and bounds_hold(queue)
    return messages


def token(held, *which):
    return [held[number].lock_token for number in which]


@pytest.fixture(params=["remembered", "by another process"])
def held(request, queue):
    """A queue with the messages 1 to 12, of which 1 to 10 are locked and passed; and these by number."""
    send(queue, 12)
    messages = hold(queue, 10)
    if request.param == "remembered":
        service_bus.release(queue, [m.lock_token for m in service_bus.receive(queue, 1)])
    else:
        receiving._passing_locked.clear()
    return queue, messages


def test_locked_messages_are_skipped(held):
    queue, _ = held
    assert numbers(service_bus.receive(queue, 5)) == [11, 12]
    assert service_bus.receive(queue, 5) == [] and bounds_hold(queue)


@pytest.mark.parametrize("settle", [service_bus.abandon, service_bus.release])
def test_released_messages_are_found_immediately_and_in_order(held, settle):
    queue, messages = held
    settle(queue, token(messages, 7))
    settle(queue, token(messages, 3, 9))
    assert numbers(service_bus.receive(queue, 2)) == [3, 7]
    assert numbers(service_bus.receive(queue, 9)) == [9, 11, 12]
    assert bounds_hold(queue) and ledger_agrees(queue)


def test_several_queues_are_received_from_together(held, make_queue):
    """SB-061, by `receive_from`, which first asks which queues have messages."""
    queue, messages = held
    service_bus.complete(queue, [m.lock_token for m in service_bus.receive(queue, 2)])
    assert service_bus.receive_from([make_queue(), queue], 3) == []
    service_bus.release(queue, token(messages, 5))
    assert numbers(service_bus.receive_from([make_queue(), queue], 3)) == [5]


def test_released_messages_can_be_received_and_deleted(held):
    queue, messages = held
    service_bus.abandon(queue, token(messages, 2, 8))
    assert numbers(service_bus.receive_and_delete(queue, 3)) == [2, 8, 11]
    assert ledger_agrees(queue)


def test_a_message_whose_lock_ended_among_others_is_found_immediately(make_queue, step):
    queue = make_queue(lock_duration=20 * SECOND)
    send(queue, 12)
    messages = hold(queue, 10)
    step(15 * SECOND)
    service_bus.renew(queue, token(messages, *range(1, 5), *range(6, 11)))
    step(5 * SECOND)
    (message, other) = service_bus.receive(queue, 2)
    assert (message.sequence_number, message.delivery_count) == (5, 1)
    assert other.sequence_number == 11
    step(15 * SECOND)
    assert numbers(service_bus.receive(queue, 20)) == [*range(1, 5), *range(6, 11), 12]
    assert bounds_hold(queue) and ledger_agrees(queue)


def test_a_renewal_that_shortens_a_lock_is_respected(make_queue, step):
    queue = make_queue(lock_duration=60 * SECOND)
    send(queue, 12)
    messages = hold(queue, 10)
    entities.update_queue(queue, lock_duration=10 * SECOND)
    service_bus.renew(queue, token(messages, 6))
    step(10 * SECOND)
    assert numbers(service_bus.receive(queue, 1)) == [6]


def test_messages_of_released_locks_are_found(make_queue):
    queue = make_queue(lock_duration=60 * SECOND, drops_locks_on_change=True)
    send(queue, 12)
    hold(queue, 10)
    entities.update_queue(queue, lock_duration=10 * SECOND)
    assert numbers(service_bus.receive(queue, 20)) == [*range(1, 13)]


def test_a_dead_letter_that_arrives_among_locked_messages_is_found(queue):
    send(queue, 12)
    messages = {m.sequence_number: m for m in service_bus.receive(queue, 12)}
    service_bus.dead_letter(queue, token(messages, *range(2, 6), *range(7, 12)))
    held = hold(queue.dead_letter, 8)
    service_bus.dead_letter(queue, token(messages, 6))
    assert numbers(service_bus.receive(queue.dead_letter, 1)) == [6]
    service_bus.abandon(queue.dead_letter, token(held, 4))
    service_bus.dead_letter(queue, token(messages, 1, 12))
    assert numbers(service_bus.receive(queue.dead_letter, 9)) == [1, 4, 11, 12]
    assert bounds_hold(queue.dead_letter) and ledger_agrees(queue)


def test_deferred_and_removed_messages_are_not_received(held):
    queue, messages = held
    service_bus.abandon(queue, token(messages, 2, 3, 4))
    again = {m.sequence_number: m for m in service_bus.receive(queue, 2)}
    service_bus.defer(queue, token(again, 2))
    service_bus.complete(queue, token(again, 3))
    service_bus.purge(queue, enqueued_before=now(queue) + SECOND)
    assert service_bus.receive(queue, 9) == [] and ledger_agrees(queue)


def test_a_returned_message_that_has_expired_is_not_received(make_queue, step):
    queue = make_queue(dead_lettering_on_message_expiration=True, default_message_time_to_live=30 * SECOND)
    send(queue, 12)
    messages = hold(queue, 10)
    service_bus.release(queue, token(messages, 4))
    step(31 * SECOND)
    send(queue, 1)
    assert numbers(service_bus.receive(queue, 5)) == [13]
    assert numbers(service_bus.receive(queue.dead_letter, 5)) == [4, 11, 12]


def test_records_do_not_accumulate(held):
    """One message that is abandoned again and again, with and without other locked ones before it."""
    queue, messages = held
    for _ in range(5):
        service_bus.release(queue, token(messages, 7))
        messages = {m.sequence_number: m for m in service_bus.receive(queue, 1)}
        assert list(messages) == [7]
    assert returned(queue) <= 1
    service_bus.release(queue, token(messages, 7))
    service_bus.purge(queue, enqueued_before=now(queue) + SECOND)
    sweeps.advance_heads()
    service_bus.receive(queue, 1)
    assert returned(queue) == 0


def returned(queue):
    text = "SELECT count(*) FROM vitrine_returned WHERE entity_id = %s"
    return connections.current().execute(text, [entity_id(queue)]).fetchone()[0]


def test_records_in_an_ordinary_queue_are_swept(queue):
    send(queue, 2)
    for _ in range(3):
        service_bus.release(queue, [service_bus.receive(queue, 1)[0].lock_token])
    assert returned(queue) == 3
    sweeps.advance_heads()
    assert returned(queue) == 0
    text = "SELECT xmin::text FROM vitrine_queue_head WHERE entity_id = %s AND subqueue = 0"
    before = connections.current().execute(text, [entity_id(queue)]).fetchall()
    sweeps.advance_heads()
    assert connections.current().execute(text, [entity_id(queue)]).fetchall() == before


def test_many_released_messages_are_reached_by_a_scan(queue):
    """Then the bound is lowered to the first of them, and their records go."""
    send(queue, 40)
    messages = hold(queue, 38)
    service_bus.release(queue, token(messages, *range(20, 20 + 2 * LAG)))
    run(advance_head(entity_id(queue), SubQueue.MAIN))
    assert (locked_below(queue), returned(queue)) == (20, 0)
    assert numbers(service_bus.receive(queue, 40)) == [*range(20, 20 + 2 * LAG), 39, 40]
    run(advance_head(entity_id(queue), SubQueue.MAIN))
    assert locked_below(queue) == 41


def test_a_receive_scans_from_the_head_if_many_locks_ended(make_queue, step, monkeypatch):
    """The receive then walks from the head, as without the bound."""
    monkeypatch.setattr("broker_core.service_bus.messages.tidying.ROUNDS", 1)
    monkeypatch.setattr("broker_core.service_bus.messages.tidying.BATCH", 2)
    queue = make_queue(lock_duration=20 * SECOND)
    send(queue, 14)
    for _ in range(6):
        service_bus.receive(queue, 2)
    run(advance_head(entity_id(queue), SubQueue.MAIN))
    assert locked_below(queue) == 13
    step(21 * SECOND)
    assert numbers(service_bus.receive(queue, 3)) == [1, 2, 3]
    assert numbers(service_bus.receive(queue, 20)) == [*range(4, 15)]
    assert ledger_agrees(queue)


def test_a_session_keeps_no_records(make_queue):
    queue = make_queue(requires_session=True)
    service_bus.send(queue, [Message(b"x", session_id="a") for _ in range(9)])
    session = service_bus.accept_session(queue, "a", max_count=9)
    service_bus.abandon(queue, [m.lock_token for m in session.messages[:3]])
    service_bus.close_session(session)
    assert returned(queue) == 0


def test_a_receive_reads_as_many_rows_as_it_returns(queue):
    send(queue, 300)
    messages = hold(queue, 290)
    service_bus.release(queue, token(messages, 150))
    values = {"entity_id": entity_id(queue), "subqueue": 0, "max_count": 3, "holder": "h", "past_deadlines": False}
    values = call("receive_past_locked", **values).params
    with psycopg.connect(**connections.Database().parameters()) as own, own.transaction(force_rollback=True):
        [(plan,)] = own.execute("EXPLAIN (ANALYZE, FORMAT JSON) " + SQL["receive_past_locked"], values)
    read = [n for n in nodes(plan[0]["Plan"]) if n.get("Relation Name") == "vitrine_message" and "Scan" in n["Node Type"]]
    walked = sum(node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) for node in read)
    assert walked < 20, json.dumps(read, indent=1)


def nodes(plan):
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def repeat(work, done, problems):
    """A thread that repeats `work` with dice of its own until `done`."""

    def loop():
        dice = random.Random(threading.get_ident())
        try:
            while not done.is_set():
                work(dice)
        except Exception as exc:
            problems.append(exc)
            done.set()
        finally:
            connections.close_all_of_this_thread()

    thread = threading.Thread(target=loop)
    thread.start()
    return thread


@pytest.mark.slow
def test_no_message_is_lost_while_receivers_settle_and_bounds_move(broker_database):
    """Receivers that complete, give back or forget, on real time, while the bounds are moved: the invariant holds in each
    snapshot, every message is completed once, and none stays behind."""
    namespaces.create_namespace("passing", Family.SERVICE_BUS)
    queue = EntityAddress("passing", "q")
    entities.create_queue(queue, lock_duration=5 * SECOND, max_delivery_count=1000)
    send(queue, COUNT)
    done, problems = threading.Event(), []
    completed: list[int] = []

    def receive(dice):
        messages = service_bus.receive(queue, dice.randint(1, 25))
        dice.shuffle(messages)
        for message in messages:
            if message.sequence_number <= 20 and not message.delivery_count:
                continue  # held until the lock ends
            how = dice.choices([service_bus.complete, service_bus.abandon, service_bus.release, None], [40, 25, 25, 2])[0]
            report = how(queue, [message.lock_token]) if how else None
            if how is service_bus.complete:
                completed.extend(number for _, number in report.settled)
        if len(completed) == COUNT:
            done.set()
        time.sleep(0 if messages else 0.01)

    def move(_):
        run(advance_head(entity_id(queue), SubQueue.MAIN))
        time.sleep(0.002)

    def watch(_):
        assert bounds_hold(queue)
        time.sleep(0.005)

    def sweep(_):
        sweeps.end_locks()
        time.sleep(0.05)

    threads = [repeat(work, done, problems) for work in (receive, receive, receive, receive, move, watch, sweep)]
    done.wait(90)
    done.set()
    for thread in threads:
        thread.join(30)
    assert problems == []
    assert sorted(completed) == list(range(1, COUNT + 1))
    assert service_bus.receive(queue, 5) == [] and ledger_agrees(queue)
