"""Consumers side by side: each message to one of them, and a change that meets another one is either done or refused."""

import asyncio
import contextlib
import threading
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from broker_core import namespaces, queue_storage, sweeps
from broker_core.common.errors import BrokerError
from broker_core.common.types import Actor, EntityAddress, EntityStatus, Right
from broker_core.queue_storage import changing, delete, get, getting, peek, put, put_all, putting, update
from broker_core.queue_storage.rules.errors import MessageNotFound, PopReceiptMismatch, QueueDisabled, QueueNotFound
from broker_core.runtime.pacing import BATCH
from broker_core.store import connections
from broker_core.store.driver import run
from broker_core.store.statements import SQL, call
from tests.broker_state import entity_id, events, ledger_agrees
from tests.combined_calls import group_sizes, results_behind_first
from tests.eventually import eventually

SECOND = timedelta(seconds=1)


def side_by_side(*works):
    """Each work in a thread with a connection of its own; their answers, or what they were refused."""
    answers: list[Any] = [None] * len(works)
    start = threading.Barrier(len(works))

    def run(at, work):
        start.wait()
        try:
            answers[at] = work()
        except BrokerError as refusal:
            answers[at] = refusal
        finally:
            connections.close_all_of_this_thread()

    threads = [threading.Thread(target=run, args=(at, work)) for at, work in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return answers


def test_puts_and_deletes_of_threads_are_combined(queue, monkeypatch):
    groups, of = group_sizes(monkeypatch, putting._puts, changing._deletions), entity_id(queue)
    texts = [str(n) for n in range(6)]
    counter = "SELECT FROM vitrine_entity_counter WHERE entity_id = %s FOR UPDATE"
    outcomes = results_behind_first(putting._puts, counter, of, [lambda text=text: put(queue, text) for text in texts])
    assert groups == [1, 5] and sorted(m.sequence_number for m in outcomes) == list(range(1, 7))
    there = {m.sequence_number: m.text for m in peek(queue, 32)}
    assert [there[m.sequence_number] for m in outcomes] == texts  # each call has the message of its own text
    groups.clear()
    keys = [(m.message_id, m.pop_receipt) for m in outcomes[:5]] + [(outcomes[5].message_id, outcomes[0].pop_receipt)]
    messages = "SELECT FROM vitrine_message WHERE entity_id = %s FOR UPDATE"
    deleted = results_behind_first(changing._deletions, messages, of, [lambda key=key: delete(queue, *key) for key in keys])
    assert groups[:2] == [1, 5] and deleted[:5] == [None] * 5 and isinstance(deleted[5], PopReceiptMismatch)
    assert [m.text for m in peek(queue, 32)] == ["5"] and ledger_agrees(queue)


def test_combined_deletes_have_separate_results(queue):
    """Of two with the same receipt the first deletes; an id with the receipt of another message deletes nothing."""
    a, b, c = put_all(queue, ["a", "b", "c"])
    key = (entity_id(queue), "process:test")
    pair, crossed = (a.message_id, a.pop_receipt), [(b.message_id, c.pop_receipt), (c.message_id, b.pop_receipt)]
    assert run(changing._delete_together(key, [[pair], [pair], crossed])) == [{a.message_id}, set(), set()]
    assert queue_storage.delete_all(queue, crossed).deleted == ()
    assert [m.text for m in peek(queue, 32)] == ["b", "c"] and ledger_agrees(queue)


@pytest.fixture
def get_groups(monkeypatch):
    """The counts of each group of gets from now on. The first is made when `wanted` further calls wait."""
    groups, together = [], getting._gets._together

    def all_wait(wanted):
        lines = [*getting._gets._of_threads.values(), *getting._gets._of_tasks.values()]
        return sum(len(line.waiting) for line in lines) == wanted

    def after(wanted):
        def make(key, counts):
            groups.append(list(counts))
            if len(groups) == 1:
                eventually(lambda: all_wait(wanted))
            return together(key, counts)

        monkeypatch.setattr(getting._gets, "_together", make)
        return groups

    return after


def test_gets_of_threads_are_combined(queue, get_groups):
    """The first call gets the first messages, and no message is handed to two."""
    put_all(queue, [str(n) for n in range(8)])
    groups = get_groups(3)
    got = side_by_side(*[lambda count=count: get(queue, count) for count in (1, 2, 3, 4)])
    assert [len(group) for group in groups] == [1, 3]
    in_order = [message for group in groups for count in group for message in got[count - 1]]
    assert [message.text for message in in_order] == list("01234567")
    assert all(len(messages) <= count for count, messages in enumerate(got, 1))
    assert len({message.pop_receipt for message in in_order}) == 8 and ledger_agrees(queue)


def test_gets_with_different_leases_or_holders_are_not_combined(queue, get_groups):
    put_all(queue, ["a", "b", "c"])
    groups = get_groups(0)
    others = [Actor("key", name, Right.ALL, name) for name in ("first", "second")]
    got = side_by_side(
        lambda: get(queue, visibility_timeout=30 * SECOND, actor=others[0]),
        lambda: get(queue, visibility_timeout=60 * SECOND, actor=others[0]),
        lambda: get(queue, visibility_timeout=30 * SECOND, actor=others[1]),
    )
    assert groups == [[1]] * 3 and sorted(message.text for [message] in got) == ["a", "b", "c"]
    assert [locked_by(queue, message) for [message] in got] == ["first", "first", "second"]
    lease = {message.visible_at - message.inserted_at for [message] in (got[0], got[2])}
    assert lease == {30 * SECOND} and got[1][0].visible_at - got[1][0].inserted_at == 60 * SECOND


def locked_by(queue, message):
    sql = "SELECT locked_by FROM vitrine_message WHERE entity_id = %s AND sequence_number = %s"
    return connections.current().execute(sql, [entity_id(queue), message.sequence_number]).fetchone()[0]


def test_combined_gets_of_tasks_have_separate_results(queue, monkeypatch):
    """What was got for a cancelled task is visible again, not counted, and the others have theirs."""
    put_all(queue, list("abcd"))
    groups = group_sizes(monkeypatch, getting._gets)

    async def gets():
        tasks = [asyncio.create_task(get.aio(queue)) for _ in range(4)]
        while not getting._gets._of_tasks or len(next(iter(getting._gets._of_tasks.values())).waiting) < 3:
            await asyncio.sleep(0)
        tasks[2].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    got = asyncio.run(gets())
    assert groups == [1, 3] and isinstance(got.pop(2), asyncio.CancelledError)
    assert [message.text for [message] in got] == ["a", "b", "d"]
    [again] = get(queue, 4)
    assert (again.text, again.dequeue_count) == ("c", 1) and ledger_agrees(queue)


def test_a_group_of_gets_is_refused_call_by_call(queue, get_groups):
    groups = get_groups(2)
    missing = EntityAddress(queue.namespace, "missing")
    answers = side_by_side(*[lambda: get(missing)] * 3)
    assert [type(answer) for answer in answers] == [QueueNotFound] * 3 and groups[:2] == [[1], [1, 1]]


def test_messages_of_a_get_are_returned_if_the_queue_is_paused_meanwhile(queue, monkeypatch):
    put(queue, "a")
    refresh = getting._refresh_hint

    def pause_and_refresh(queue_id):
        yield from queue_storage.set_status.steps(queue, EntityStatus.RECEIVE_DISABLED)
        return (yield from refresh(queue_id))

    monkeypatch.setattr(getting, "_refresh_hint", pause_and_refresh)
    assert [message.text for message in get(queue, 2)] == ["a"]
    with pytest.raises(QueueDisabled):
        get(queue)


def test_two_consumers_get_disjoint_messages(queue):
    put_all(queue, [str(i) for i in range(600)])

    def drain():
        results = []
        while got := get(queue, 7):
            results += [message.sequence_number for message in got]
        return results

    first, second = side_by_side(drain, drain)
    assert sorted(first + second) == list(range(1, 601))
    assert ledger_agrees(queue)


def test_concurrent_puts_gets_and_deletes_neither_lose_nor_duplicate_messages(make_queue):
    address = make_queue(max_dequeue_count=50)
    done = threading.Event()

    def produce():
        for i in range(150):
            put(address, str(i))
        done.set()

    def consume():
        results = []
        while True:
            last = done.is_set()
            got = get(address, 5)
            for message in got:
                receipt, _ = update(address, message.message_id, message.pop_receipt, visibility_timeout=60 * SECOND)
                delete(address, message.message_id, receipt)
                results.append(message.text)
            if last and not got:
                return results

    _, first, second = side_by_side(produce, consume, consume)
    assert sorted(first + second, key=int) == [str(i) for i in range(150)]
    assert ledger_agrees(address)


def test_only_one_of_two_deletes_with_the_same_receipt_succeeds(queue):
    for _ in range(20):
        put(queue, "a")
        (got,) = get(queue)
        answers = side_by_side(*[lambda: delete(queue, got.message_id, got.pop_receipt)] * 2)
        assert sorted(type(answer).__name__ for answer in answers) == ["MessageNotFound", "NoneType"]
    assert ledger_agrees(queue)


def test_only_one_of_two_updates_with_the_same_receipt_succeeds(queue):
    for _ in range(20):
        message = put(queue, "a")
        key = message.message_id, message.pop_receipt
        answers = side_by_side(*[lambda: update(queue, *key, visibility_timeout=SECOND)] * 2)
        assert sorted(type(answer).__name__ for answer in answers) == ["PopReceiptMismatch", "Updated"]
    assert ledger_agrees(queue)


def during_transaction(statement, params, action, then=lambda other: None):
    """Run `action` in a thread while another connection has run a statement and not committed yet; `then` is done there before it
    is. Returns the action's answer, or what it was refused."""
    answers = []

    def act():
        try:
            answers.append(action())
        except BrokerError as refusal:
            answers.append(refusal)
        connections.close_all_of_this_thread()

    with psycopg.connect(**connections.Database().parameters()) as other, other.transaction():
        other.execute(statement, params)
        racer = threading.Thread(target=act)
        racer.start()
        racer.join(0.3)
        assert racer.is_alive(), "it did not wait"
        then(other)
    racer.join(10)
    return answers[0]


@pytest.mark.parametrize("how", ["delete", "update", "clear", "remove", "release"])
def test_an_operation_on_a_row_being_changed_waits_and_checks_the_new_version(queue, how):
    """Under READ COMMITTED a row that was waited for is changed in its new version, or not at all; nothing is counted twice."""
    message = put(queue, "a", visibility_timeout=10 * SECOND)
    key = message.message_id, message.pop_receipt
    params = {
        "entity_id": entity_id(queue), "numbers": [1], "message_ids": [message.message_id], "receipts": [message.pop_receipt],
        "actor": "t", "holder": "t", "visibility": 20 * SECOND, "body": b"longer than before",
    }  # fmt: skip
    answer = during_transaction(
        SQL["storage_update"],
        call("storage_update", **params).params,
        {
            "delete": lambda: delete(queue, *key),
            "update": lambda: update(queue, *key, visibility_timeout=SECOND),
            "clear": lambda: queue_storage.clear(queue),
            "remove": lambda: queue_storage.remove(queue, [1]),
            "release": lambda: queue_storage.release(queue, [1]),
        }[how],
    )
    if how in ("delete", "update"):
        assert isinstance(answer, PopReceiptMismatch)
    else:
        assert answer == {"clear": 1, "remove": [1], "release": [1]}[how]
    assert [m.text for m in peek(queue)] == (["longer than before"] if how == "release" else [])
    assert ledger_agrees(queue)


@pytest.mark.parametrize("action", [queue_storage.clear, lambda queue: queue_storage.remove(queue, [1])], ids=["clear", "remove"])
def test_an_operation_that_waited_while_a_message_became_visible_counts_it_once(queue, step, action):
    """Its hold ended before its time, and was counted so by whoever ended it: not once more."""
    message = put(queue, "a", visibility_timeout=10 * SECOND)

    def make_visible(other):
        step(SECOND)
        key = {
            "entity_id": entity_id(queue),
            "numbers": [1],
            "message_ids": [message.message_id],
            "receipts": [message.pop_receipt],
        }
        change = call("storage_update", **key, actor="t", holder="t", visibility=0 * SECOND, body=None)
        other.execute(change.sql, change.params)

    lock = "SELECT FROM vitrine_message WHERE entity_id = %s FOR UPDATE"
    assert during_transaction(lock, [entity_id(queue)], lambda: action(queue), make_visible) in (1, [1])
    assert ledger_agrees(queue)


def test_a_clear_continues_after_a_concurrent_clear(queue):
    """That all of a batch is gone does not say that there are no more (QS-064)."""
    put_all(queue, ["x"] * (BATCH + 10))
    batch = {"entity_id": entity_id(queue), "numbers": [*range(1, BATCH + 1)], "actor": "t", "kind": 14}
    assert during_transaction(SQL["storage_remove"], batch, lambda: queue_storage.clear(queue)) == 10
    assert queue_storage.approximate_count(queue) == 0
    assert ledger_agrees(queue)


def test_concurrent_gets_do_not_wait_for_each_other(queue):
    put_all(queue, [*"ab"])
    params = {"entity_id": entity_id(queue), "max_count": 1, "from_start": True, "holder": "t", "visibility": SECOND}
    with psycopg.connect(**connections.Database().parameters()) as other, other.transaction():
        other.execute(SQL["storage_get"], call("storage_get", **params).params)
        assert [m.text for m in get(queue, 2)] == ["b"]
    assert ledger_agrees(queue)


def test_messages_over_the_dequeue_limit_are_moved_once_by_concurrent_gets(make_queue, step):
    address = make_queue(max_dequeue_count=1)
    put_all(address, ["bad"] * 200)
    for _ in range(7):
        get(address, 32, visibility_timeout=SECOND)
    step(SECOND)
    side_by_side(*[lambda: get(address, 32)] * 3)
    get(address, 32)
    poison = EntityAddress(address.namespace, f"{address.path}-poison")
    assert (queue_storage.approximate_count(address), queue_storage.approximate_count(poison)) == (0, 200)
    assert len({e.details["from"]["sequence_number"] for e in events(poison)}) == 200
    assert ledger_agrees(address) and ledger_agrees(poison)


@pytest.mark.parametrize("dear", [False, True])
def test_a_queue_deleted_by_another_process_is_found_missing(queue, monkeypatch, dear):
    monkeypatch.setattr(getting, "CHEAP_REFRESH", -1.0 if dear else float("inf"))  # also without refreshes of the hint
    monkeypatch.setattr(getting, "REST_FACTOR", 1e6)
    message = put(queue, "a")
    get(queue)
    assert get(queue) == []  # which looked
    connections.current().execute("UPDATE vitrine_entity SET deleted_at = now() WHERE id = %s", [entity_id(queue)])
    for operation in (
        lambda: put(queue, "b"),
        lambda: get(queue),
        lambda: peek(queue),
        lambda: delete(queue, message.message_id, message.pop_receipt),
        lambda: update(queue, message.message_id, message.pop_receipt, visibility_timeout=SECOND),
        lambda: queue_storage.clear(queue),
        lambda: queue_storage.release(queue, [1]),
        lambda: queue_storage.approximate_count(queue),
    ):
        with pytest.raises(QueueNotFound):
            operation()
    assert not issubclass(QueueNotFound, MessageNotFound)


def test_a_queue_that_others_create_and_delete_concurrently_is_created(account):
    """A create that lost to another one, whose queue is deleted before it is looked at, creates it (QS-085)."""
    address = EntityAddress(account, "orders")
    results = []

    def churn(create):
        for _ in range(15):
            results.append(create(address).name)
            with contextlib.suppress(QueueNotFound):
                queue_storage.delete_queue(address)

    answers = side_by_side(*[lambda: churn(queue_storage.create_queue), lambda: churn(queue_storage.ensure_queue)] * 2)
    assert answers == [None] * 4 and len(results) == 60


def test_a_queue_that_another_process_deleted_is_not_found(queue):
    """Also at its first get."""
    put(queue, "m")
    connections.current().execute("UPDATE vitrine_entity SET deleted_at = now() WHERE id = %s", [entity_id(queue)])
    with pytest.raises(QueueNotFound):
        get(queue)


def test_a_sweep_continues_when_an_account_is_deleted_concurrently(account, make_queue):
    spent = make_queue(max_dequeue_count=1)
    put(spent, "m")
    get(spent, visibility_timeout=SECOND)
    namespaces.step_clock(account, 2 * SECOND)
    sweeps_done, mine = [], connections.current()
    waiting = "SELECT FROM pg_locks WHERE NOT granted AND %s = ANY (pg_blocking_pids(pid))"
    sweep = threading.Thread(target=lambda: sweeps_done.append(sweeps.expire_messages()))
    with mine.transaction():
        queue_storage.delete_account(account)
        sweep.start()
        eventually(lambda: mine.execute(waiting, [mine.info.backend_pid]).fetchall())
    sweep.join(10)
    assert sweeps_done == [{"expired": 0}]
