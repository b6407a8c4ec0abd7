"""An ordinary Celery project outside Django, run by the tests as worker processes.

Each task writes a line to the file PROJECT_LOG, which survives whatever is killed: "<what> <task id> <process> <seconds>".
"""

import os
import signal
import time

from celery import Celery
from celery.exceptions import Reject

import broker_core.celery_transport  # noqa: F401  (registers vitrine://)


def make_app(dsn: str, namespace: str, **options) -> Celery:
    """The project's application; the tests publish with it by task name."""
    app = Celery("project", broker=f"vitrine://local/{namespace}", set_as_current=False)
    app.conf.update(
        broker_transport_options={"dsn": dsn, "lock_duration": 5, **options},
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        task_publish_retry_policy={"max_retries": 60, "interval_start": 0.1, "interval_step": 0.1, "interval_max": 0.5},
        task_ignore_result=True,
        task_create_missing_queues=True,
        worker_prefetch_multiplier=4,
        worker_lost_wait=1.0,  # seconds until a killed child is missed; Celery has 10
        worker_cancel_long_running_tasks_on_connection_loss=False,
    )
    return app


app = make_app(
    os.environ.get("PROJECT_DSN", ""),
    os.environ.get("PROJECT_NAMESPACE", "project"),
    max_delivery_count=int(os.environ.get("PROJECT_MAX_DELIVERY_COUNT", "10")),
)
surviving = {"acks_late": True, "reject_on_worker_lost": True}


def note(what: str, task) -> None:
    with open(os.environ["PROJECT_LOG"], "a") as log:
        log.write(f"{what} {task.request.id} {os.getpid()} {time.time():.3f}\n")


@app.task(name="work", bind=True, **surviving)
def work(self, seconds=0.0):
    note("begin", self)
    time.sleep(seconds)
    note("end", self)


@app.task(name="early", bind=True)
def early(self, seconds=0.0):
    note("begin", self)
    time.sleep(seconds)
    note("end", self)


@app.task(name="flaky", bind=True, max_retries=2, default_retry_delay=0.2, **surviving)
def flaky(self):
    note("begin", self)
    if self.request.retries < self.max_retries:
        raise self.retry()
    note("end", self)


@app.task(name="never_acknowledged", bind=True, **surviving)
def never_acknowledged(self):
    note("begin", self)
    raise Reject("nobody takes this one", requeue=True)


@app.task(name="kills_its_process", bind=True, **surviving)
def kills_its_process(self, times=1000):
    note("begin", self)
    with open(os.environ["PROJECT_LOG"]) as log:
        begun = sum(line.startswith(f"begin {self.request.id} ") for line in log)
    if begun <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    note("end", self)
