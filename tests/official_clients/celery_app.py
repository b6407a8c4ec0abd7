"""A Celery project outside Django, whose broker is named by CELERY_URL. Each task writes a line to the file TASK_LOG."""

import os

from celery import Celery


def make_app(url: str) -> Celery:
    """The project's application; the tests publish with it by the name of a task."""
    app = Celery("clients", broker=url, set_as_current=False)
    app.conf.update(
        broker_connection_retry_on_startup=True,
        task_ignore_result=True,
        worker_enable_remote_control=False,  # needs fanout, which storage queues have not
        broker_transport_options={"polling_interval": 0.05},
    )
    return app


app = make_app(os.environ.get("CELERY_URL", "memory://"))


@app.task(name="add", bind=True)
def add(self, left: int, right: int) -> None:
    with open(os.environ["TASK_LOG"], "a") as log:
        log.write(f"{self.request.id} {left + right}\n")
