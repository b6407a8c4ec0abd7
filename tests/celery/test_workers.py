"""Real workers with processes of their own (prefork), of a Celery project that knows no Django."""

import json
import os
import signal
import time

import psycopg
import pytest
from django.db import connection as django_connection

from broker_core import reads, service_bus
from broker_core.celery_transport.holdings import REJECTED
from broker_core.common.types import EntityAddress, MessageState
from broker_core.service_bus import entities
from tests.eventually import eventually

from .workers import project


@pytest.fixture
def dsn(db):
    """The test database, as a project outside Django names it."""
    parameters = django_connection.get_connection_params()
    return psycopg.conninfo.make_conninfo(host=parameters["host"], user=parameters["user"], dbname=parameters["dbname"])


@pytest.fixture
def shop(dsn, namespace, tmp_path):
    with project(dsn, namespace, tmp_path) as made:
        yield made


@pytest.fixture
def queue(namespace):
    return EntityAddress(namespace, "celery")


def is_empty(queue):
    counts = reads.counts(queue)
    return counts.active == counts.scheduled == 0


def dead_letters(queue):
    return {m.message_id: m for m in service_bus.peek(queue.dead_letter)}


@pytest.mark.slow
def test_a_worker_handles_tasks_retries_countdowns_and_remote_control(shop, queue):
    """Tasks, retries, a countdown, a priority, an unknown task and remote control, with one worker."""
    first = shop.publish("work", 0.5)
    (waiting,) = service_bus.peek(queue)
    assert json.loads(waiting.body)[0] == [0.5]
    assert (waiting.subject, waiting.message_id, waiting.content_type) == ("work", first, "application/json")

    published_at = time.time()
    later = shop.publish("early", countdown=2)
    (scheduled,) = [m for m in service_bus.peek(queue) if m.message_id == later]
    assert scheduled.state is MessageState.SCHEDULED

    plain = [shop.publish(name, priority=9) for name in ["work", "early"] * 20]
    retried = [shop.publish("flaky") for _ in range(5)]
    unknown = shop.publish("no_such_task")
    shop.start_worker()
    wanted = {first, later, *plain, *retried}
    eventually(lambda: set(shop.ran()) >= wanted, 20, "all tasks ran")
    eventually(lambda: is_empty(queue), 5, "the queue is empty")

    assert set(shop.ran().values()) == {1}
    assert {shop.ran("begin")[task] for task in retried} == {3}
    (began_at,) = shop.instants(later)
    assert began_at - published_at >= 1.9
    assert set(dead_letters(queue)) == {unknown}
    assert dead_letters(queue)[unknown].dead_letter_reason == REJECTED

    assert "pong" in shop.command("inspect", "ping")
    assert "exchange" in shop.command("inspect", "active_queues")
    shown = [row.address.path for row in reads.overview(namespace=queue.namespace)]
    assert shown == ["celery"]  # mailboxes are hidden


def test_a_killed_child_counts_as_one_failed_delivery(shop, queue):
    """With acks_late and reject_on_worker_lost the task runs again; its first delivery counts as failed."""
    task = shop.publish("kills_its_process", 1)
    others = [shop.publish("work", 0.01) for _ in range(10)]
    shop.start_worker()
    eventually(lambda: set(shop.ran()) >= {task, *others}, 20, "the task ran again")
    assert shop.ran("begin")[task] == 2
    eventually(lambda: is_empty(queue), 5, "the queue is empty")


def test_idle_children_that_are_killed_are_replaced(shop, queue):
    """No child holds what others need: with one pipe for all of them the worker would run nothing from then on."""
    worker = shop.start_worker()
    for _ in range(2):
        for child in shop.children(worker):
            os.kill(child, signal.SIGKILL)
            tasks = {shop.publish("work", 0.01) for _ in range(20)}
            eventually(lambda tasks=tasks: set(shop.ran()) >= tasks, 10, "the tasks ran")
    eventually(lambda: is_empty(queue), 5, "the queue is empty")


@pytest.mark.slow
def test_remote_control_answers_while_every_process_is_busy_and_tasks_wait(shop, queue):
    shop.start_worker()
    tasks = [shop.publish("work", 60) for _ in range(4)]
    eventually(lambda: len(shop.ran("begin")) == 2, 10, "two tasks run")
    shown = shop.command("inspect", "active", "--timeout", "3")
    assert [shown.count(task) > 0 for task in tasks].count(True) == 2
    assert not shop.ran()


@pytest.mark.parametrize("pool", ["solo", "threads"])
def test_pools_without_processes_run_tasks(shop, queue, pool):
    shop.start_worker("-P", pool)
    tasks = {shop.publish("work", 0.01) for _ in range(60)}
    eventually(lambda: set(shop.ran()) == tasks, 10, "the tasks ran")
    eventually(lambda: is_empty(queue), 5, "the queue is empty")
    assert set(shop.ran().values()) == {1}


@pytest.mark.slow
def test_a_task_that_always_kills_its_process_is_dead_lettered(dsn, namespace, queue, tmp_path):
    with project(dsn, namespace, tmp_path, max_delivery_count=2) as shop:
        task = shop.publish("kills_its_process")
        shop.start_worker(processes=1)
        eventually(lambda: task in dead_letters(queue), 25, "the task is dead-lettered")
        dead = dead_letters(queue)[task]
        assert dead.dead_letter_reason == "MaxDeliveryCountExceeded"
        assert dead.dead_letter_description == "Message could not be consumed after 2 delivery attempts."
        assert shop.ran("begin")[task] == 2


@pytest.mark.slow
def test_the_messages_of_a_killed_worker_are_available_when_their_locks_end(shop, queue):
    """Two tasks run and six are prefetched when it dies; another worker has all of them after one lock's time at most."""
    worker = shop.start_worker()
    tasks = [shop.publish("work", 1) for _ in range(8)]
    eventually(lambda: len(shop.ran("begin")) >= 2, 10, "two tasks run")
    shop.kill(worker)
    killed_at = time.time()
    assert reads.counts(queue).locked > 2
    shop.start_worker()
    eventually(lambda: set(shop.ran("begin")) == set(tasks), 12, "all tasks began")
    taken_back = [instant for task in tasks for instant in shop.instants(task) if instant > killed_at]
    assert min(taken_back) - killed_at < 5 + 2  # the lock, and looking again
    eventually(lambda: set(shop.ran()) == set(tasks), 12, "all tasks ran")
    eventually(lambda: is_empty(queue), 5, "the queue is empty")


@pytest.mark.slow
def test_a_warm_shutdown_releases_prefetched_messages(shop, queue):
    tasks = [shop.publish("work", 1) for _ in range(6)]
    worker = shop.start_worker(processes=1)
    eventually(lambda: len(shop.ran("begin")) == 1, 10, "the first task runs")
    assert reads.counts(queue).locked == 4
    shop.stop(worker)
    left = service_bus.peek(queue)
    assert len(left) == len(tasks) - len(shop.ran())
    assert len(left) >= 3
    assert reads.counts(queue).locked == 0
    assert {m.delivery_count for m in left} == {0}
    assert "pidbox" not in " ".join(q.address.path for q in entities.list_queues(queue.namespace))  # its mailbox went with it


@pytest.mark.slow
def test_a_long_task_keeps_its_lock(shop, queue):
    """Longer than a lock, with another worker waiting to take it."""
    shop.start_worker(processes=1)
    shop.start_worker(processes=1)
    task = shop.publish("work", 7)
    eventually(lambda: shop.ran("begin")[task], 10, "it runs")
    began = shop.instants(task)[0]
    eventually(lambda: reads.list_messages(queue).rows[0].locked_until.timestamp() > began + 6, 7, "its lock was renewed")
    eventually(lambda: shop.ran()[task], 10, "it ended")
    assert shop.ran("begin")[task] == 1


@pytest.mark.slow
def test_two_projects_in_two_namespaces_do_not_see_each_other(dsn, namespace, tmp_path):
    with project(dsn, namespace, tmp_path) as shop, project(dsn, f"{namespace}-b", tmp_path) as bank:
        mine = shop.publish("work")
        theirs = [bank.publish("work") for _ in range(5)]
        shop.start_worker()
        eventually(lambda: shop.ran()[mine], 10, "its own task ran")
        assert not bank.ran()
        assert "pong" not in bank.command("inspect", "ping")
        bank.start_worker()
        eventually(lambda: set(bank.ran()) == set(theirs), 10, "the other's tasks ran")
        assert set(shop.ran()) == {mine}
