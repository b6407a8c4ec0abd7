"""The example of a job queue that does each job once, in Python and over HTTP."""

import sqlite3
from datetime import timedelta

import job_queue as example
import job_queue_over_http as over_http
import pytest

from broker_core import namespaces, service_bus
from broker_core.common.types import EntityAddress
from broker_core.service_bus.entities import shared_access


@pytest.fixture
def jobs(namespace):
    address = EntityAddress(namespace, "payouts")
    example.create_queue(address)
    return address


@pytest.fixture
def books(tmp_path):
    return example.Books(str(tmp_path / "books.sqlite"))


def test_job_sent_twice_is_stored_once(jobs, books):
    assert [example.order_payout(jobs, "4711", "alice", 1999) for _ in range(2)] == [True, False]
    assert example.order_payout(jobs, "4712", "alice", 1) is True
    assert [example.do_next_job(jobs, books) for _ in range(3)] == ["done", "done", None]
    assert books.balance("alice") == 2000


def test_message_id_is_remembered_for_the_length_of_the_window(jobs, books, step):
    example.order_payout(jobs, "4711", "alice", 1999)
    example.do_next_job(jobs, books)
    step(timedelta(minutes=9))
    assert example.order_payout(jobs, "4711", "alice", 1999) is False  # although it was done meanwhile
    step(timedelta(minutes=2))
    assert example.order_payout(jobs, "4711", "alice", 1999) is True
    assert example.do_next_job(jobs, books) == "skipped"  # the worker's books have no window
    assert books.balance("alice") == 1999


def test_job_whose_worker_died_after_the_work_is_not_done_again(jobs, books, step):
    example.order_payout(jobs, "4711", "alice", 1999)
    with pytest.raises(example.PowerCut):
        example.do_next_job(jobs, books, power_cut=True)
    assert example.do_next_job(jobs, books) is None  # locked still
    step(timedelta(seconds=5))
    assert example.do_next_job(jobs, books) == "skipped"
    assert example.do_next_job(jobs, books) is None
    assert (books.balance("alice"), service_bus.peek(jobs)) == (1999, [])


def test_job_whose_worker_died_during_the_work_is_done_by_the_next(jobs, books, step, monkeypatch):
    example.order_payout(jobs, "4711", "alice", 1999)
    with monkeypatch.context() as patch:
        patch.setattr(example.json, "loads", lambda text: {"account": "alice", "cents": None})  # the database refuses the work
        with pytest.raises(sqlite3.IntegrityError):
            example.do_next_job(jobs, books)
    step(timedelta(seconds=5))
    assert example.do_next_job(jobs, books) == "done"  # the id was not written without the work
    assert books.balance("alice") == 1999


@pytest.fixture
def http_jobs(live_site):
    """The queue of the example as an HTTP client has it, and its address."""
    address = EntityAddress("http-examples", "payouts")
    example.create_queue(address)
    key = shared_access.get_policy(address.namespace, shared_access.ROOT_POLICY).primary_key
    endpoint = f"{live_site.replace('http', 'sb')}/servicebus/{address.namespace}/"
    parts = f"Endpoint={endpoint};SharedAccessKeyName={shared_access.ROOT_POLICY};SharedAccessKey={key}"
    return over_http.HttpQueue(parts, "payouts"), address


def test_job_queue_works_over_http(http_jobs, books):
    jobs, address = http_jobs
    for _ in range(2):
        over_http.order_payout(jobs, "4711", "alice", 1999)
    assert len(service_bus.peek(address)) == 1
    assert [over_http.do_next_job(jobs, books) for _ in range(2)] == ["done", None]
    assert (books.balance("alice"), service_bus.peek(address)) == (1999, [])


def test_worker_over_http_completes_each_job_with_its_next_request(http_jobs, books):
    jobs, address = http_jobs
    for order in ("4711", "4712", "4713"):
        over_http.order_payout(jobs, order, "alice", 100)
    assert over_http.do_all_jobs(jobs, books) == ["done"] * 3
    assert (books.balance("alice"), service_bus.peek(address)) == (300, [])


def test_worker_over_http_is_notified_that_its_lock_was_lost(http_jobs, books):
    jobs, address = http_jobs
    namespaces.pause_clock(address.namespace)
    over_http.order_payout(jobs, "4711", "alice", 1999)
    slow = jobs.receive(wait_seconds=0)
    assert books.pay(slow.message_id, "alice", 1999)
    namespaces.step_clock(address.namespace, timedelta(seconds=5))
    assert over_http.do_next_job(jobs, books) == "skipped"
    assert jobs.complete(slow) is False
    assert books.balance("alice") == 1999
