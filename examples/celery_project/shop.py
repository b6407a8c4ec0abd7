"""The tasks of a small shop."""

import os
import time
from pathlib import Path

from celery import Celery
from celery.exceptions import Reject
from psycopg.conninfo import make_conninfo

import broker_core.celery_transport  # noqa: F401  (registers vitrine://)

# The database of `make up`, in its data folder. VITRINE_DSN names another one.
DATA = Path(os.environ.get("VITRINE_DATA") or Path(__file__).resolve().parents[2] / ".vitrine").expanduser()
HERE = make_conninfo(host=DATA / "postgres", user="postgres", dbname="vitrine")

app = Celery("shop", broker="vitrine://local/example-shop")
app.conf.update(
    broker_transport_options={"dsn": os.environ.get("VITRINE_DSN") or HERE},
    broker_connection_retry_on_startup=True,
    task_ignore_result=True,
    task_acks_late=True,  # a task survives the death of its process
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
)


@app.task
def send_receipt(order: int) -> None:
    print(f"receipt for order {order}")


@app.task(bind=True, max_retries=3, default_retry_delay=2)
def charge(self, order: int, cents: int) -> None:
    """Fails at the first attempt and succeeds at the second."""
    time.sleep(0.5)
    if self.request.retries == 0:
        raise self.retry()
    send_receipt.delay(order)


@app.task
def remind(order: int) -> None:
    print(f"order {order} is waiting to be picked up")


@app.task
def deliver_to_the_moon(order: int) -> None:
    """Always fails: the task is requeued each time, until the broker dead-letters it."""
    raise Reject(f"no way to the moon for order {order}", requeue=True)
