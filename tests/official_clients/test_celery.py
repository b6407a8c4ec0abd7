"""kombu and Celery with `azurestoragequeues://`, unmodified."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from queue import Empty

import kombu
import pytest
from azure.storage.queue import AccountSasPermissions, ResourceTypes, generate_account_sas

from broker_core import queue_storage
from broker_core.common.types import EntityAddress
from tests.eventually import eventually

from .celery_app import make_app

ROOT = Path(__file__).resolve().parents[2]
TASKS = 100


@pytest.fixture(params=["key", "sas"])
def url(request, development_storage, storage):
    """kombu signs with a key only for devstoreaccount1; any other account needs a shared access signature."""
    if request.param == "key":
        return f"azurestoragequeues://{development_storage.key}@{development_storage.url}"
    letters = AccountSasPermissions(list=True, create=True, read=True, add=True, process=True, delete=True)
    types, expiry = ResourceTypes(service=True, container=True, object=True), datetime.now(UTC) + timedelta(hours=1)
    token = generate_account_sas(storage.name, storage.key, types, letters, expiry)
    return f"azurestoragequeues://{token}@{storage.url}"


def test_a_kombu_queue(url):
    with kombu.Connection(url) as connection:
        queue = connection.SimpleQueue("orders.by_day", no_ack=True)
        queue.put({"order": 4711})
        queue.put("h\u00e9 <&>")
        assert queue.qsize() == 2
        account = url.rpartition("/")[2]
        assert queue_storage.approximate_count(EntityAddress(account, "orders-by-day")) == 2  # punctuation becomes a dash
        assert [queue.get(timeout=10).payload for _ in range(2)] == [{"order": 4711}, "h\u00e9 <&>"]
        queue.put("x")
        assert queue.clear() == 1
        with pytest.raises(Empty):
            queue.get(block=False)
        queue.close()


@pytest.fixture
def worker(url, tmp_path):
    """A worker that is ready; its log of tasks."""
    log, output = tmp_path / "tasks.log", tmp_path / "worker.out"
    log.touch()
    environment = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    environment |= {"CELERY_URL": url, "TASK_LOG": str(log), "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "celery", "-A", "tests.official_clients.celery_app", "worker", "-P", "threads", "-c", "4"]
    options = ["-l", "INFO", "--without-gossip", "--without-mingle", "--without-heartbeat"]  # these need fanout
    with output.open("w") as written:
        process = subprocess.Popen(
            [*command, *options], env=environment, cwd=ROOT, stdout=written, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        eventually(lambda: "ready." in output.read_text() or process.poll() is not None, 60, "the worker is ready")
        assert process.poll() is None, output.read_text()
        yield log
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, output.read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)


@pytest.mark.timeout(280)
def test_a_celery_worker_runs_each_of_a_hundred_tasks_once(url, worker):
    app = make_app(url)
    sent = [app.send_task("add", (number, 1)).id for number in range(TASKS)]
    app.close()
    ran = eventually(lambda: len(lines := worker.read_text().splitlines()) >= TASKS and lines, 240, "all tasks have run")
    assert Counter(line.split()[0] for line in ran) == Counter(sent)
    assert sorted(int(line.split()[1]) for line in ran) == list(range(1, TASKS + 1))
    assert queue_storage.approximate_count(EntityAddress(url.rpartition("/")[2], "celery")) == 0
