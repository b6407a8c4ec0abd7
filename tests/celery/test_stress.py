"""2,000 tasks while children, a whole worker and the database are killed under them. It has a database server of its own."""

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from broker_core import reads, service_bus
from broker_core.common.types import EntityAddress
from broker_core.store.connections import Database, close_all, using
from explorer.site.embedded_postgres import server
from tests.eventually import eventually

from .workers import ROOT, project

NAMESPACE = "storm"
MOST_RUN_TWICE = 40  # what runs or waits for its acknowledgement at two kills


@pytest.fixture
def data():
    """A migrated database server in a data folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="vitrine-storm-"))
    folder.chmod(0o755)
    server.ensure_running(folder / "postgres")
    environment = {**os.environ, "VITRINE_DATA": str(folder), "DATABASE_URL": server.url(folder / "postgres")}
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=environment, check=True)
    yield folder
    close_all()
    server.stop(folder / "postgres")
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.slow
def test_no_task_is_lost_while_workers_are_killed(data):
    dsn = f"host={data / 'postgres'} user={server.SUPERUSER} dbname={server.DATABASE}"
    queue, long_queue = EntityAddress(NAMESPACE, "celery"), EntityAddress(NAMESPACE, "long")
    with project(dsn, NAMESPACE, data) as shop, using(Database(dsn=dsn)):
        tasks = publish(shop)
        poison = [shop.publish("never_acknowledged") for _ in range(3)]
        first, second = shop.start_worker(), shop.start_worker()
        patient = shop.start_worker("-Q", "long")

        eventually(lambda: len(shop.ran()) > 200, 20, "200 tasks ran")
        os.kill(random.choice(shop.children(first)), signal.SIGKILL)
        eventually(lambda: len(shop.ran()) > 600, 20, "600 tasks ran")
        shop.kill(second)
        shop.start_worker()
        long_tasks = [shop.publish("work", 4, queue="long") for _ in range(2)]
        eventually(lambda: set(shop.ran("begin")) >= set(long_tasks), 10, "the long tasks run")
        assert len(shop.ran()) < 1900, "the storm is over before the database is restarted"
        server.stop(data / "postgres")
        server.ensure_running(data / "postgres")

        eventually(lambda: not {*tasks, *long_tasks} - {*shop.ran()}, 60, "every task ran to its end")
        eventually(lambda: all(remaining(q) == 0 for q in (queue, long_queue)), 15, "all is settled")
        dead = {m.message_id: m for m in service_bus.peek(queue.dead_letter)}
        assert set(dead) == set(poison)
        assert {m.dead_letter_reason for m in dead.values()} == {"MaxDeliveryCountExceeded"}
        assert {m.dead_letter_description for m in dead.values()} == {"Message could not be consumed after 10 delivery attempts."}
        assert {shop.ran("begin")[task] for task in long_tasks} == {1}, "a task that ran over the restart was not run again"
        again = sum(count - 1 for task, count in shop.ran().items() if task in tasks)
        assert again <= MOST_RUN_TWICE
        for worker in (first, patient, shop.workers[-1]):
            assert worker.poll() is None, worker.output.read_text()[-2000:]


def remaining(queue):
    counts = reads.counts(queue)
    return counts.active + counts.scheduled


def publish(shop):
    """2,000 tasks in random order; their ids."""
    kinds = [("work", (0.01,), {})] * 1780 + [("flaky", (), {})] * 100 + [("kills_its_process", (1,), {})] * 3
    kinds += [("work", (), {"countdown": random.uniform(1, 6)}) for _ in range(100)]
    kinds += [("work", (0.5,), {"priority": 9})] * 17
    random.shuffle(kinds)
    return {shop.publish(name, *args, **options) for name, args, options in kinds}
