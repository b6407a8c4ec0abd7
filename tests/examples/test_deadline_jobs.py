"""The example of jobs with a deadline."""

from datetime import timedelta

import deadline_jobs as example
import pytest

from broker_core import service_bus
from broker_core.common.types import EntityAddress
from broker_core.service_bus.transactions import Transaction

HALF_A_MINUTE = timedelta(seconds=30)


@pytest.fixture
def queues(namespace):
    """The queue of jobs, the slower one, the client's replies."""
    addresses = [EntityAddress(namespace, path) for path in ("reports", "at-night", "replies")]
    example.create_queues(*addresses)
    return addresses


def test_job_done_in_time_is_answered(queues):
    reports, at_night, replies = queues
    job = example.ask_for("sales", reports, replies, within=HALF_A_MINUTE)
    assert example.work_off(reports) == 1
    assert example.answers(replies) == [(job, "done", "Report: sales")]
    assert example.watch(reports, at_night) == 0


def test_late_job_is_reported_to_its_client_and_done_by_the_slower_queue(queues, step):
    reports, at_night, replies = queues
    late = example.ask_for("sales", reports, replies, within=HALF_A_MINUTE)
    step(HALF_A_MINUTE)
    in_time = example.ask_for("stock", reports, replies, within=HALF_A_MINUTE)
    assert example.work_off(reports) == 1
    assert example.watch(reports, at_night) == 1
    assert [(job, what) for job, what, _ in example.answers(replies)] == [(in_time, "done"), (late, "expired")]
    step(timedelta(days=1))
    assert example.work_off(at_night) == 1
    assert example.answers(replies) == [(late, "done", "Report: sales")]
    assert [service_bus.peek(queue) for queue in (reports, reports.dead_letter, at_night)] == [[], [], []]


def test_job_that_no_worker_could_do_is_answered_and_not_sent_on(queues):
    reports, at_night, replies = queues
    job = example.ask_for("nonsense", reports, replies, within=HALF_A_MINUTE)
    service_bus.dead_letter(reports, [service_bus.receive(reports)[0].lock_token], "Unreadable", "there is no such report")
    assert example.watch(reports, at_night) == 1
    assert example.answers(replies) == [(job, "failed", "there is no such report")]
    assert service_bus.peek(at_night) == []


def test_work_of_a_watcher_that_died_is_finished_by_the_next_watcher(queues, step, monkeypatch):
    reports, at_night, replies = queues
    job = example.ask_for("sales", reports, replies, within=HALF_A_MINUTE)
    step(HALF_A_MINUTE)
    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "complete", None)  # it dies after its sends
        with pytest.raises(TypeError):
            example.watch(reports, at_night)
    assert example.watch(reports, at_night) == 0
    assert (example.answers(replies), service_bus.peek(at_night)) == ([], [])
    step(timedelta(minutes=1))
    assert example.watch(reports, at_night) == 1
    assert [(answer, what) for answer, what, _ in example.answers(replies)] == [(job, "expired")]
    assert [message.message_id for message in service_bus.peek(at_night)] == [job]
