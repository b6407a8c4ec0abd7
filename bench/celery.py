"""Celery no-op tasks on vitrine:// against kombu's SQLAlchemy transport, on the same Postgres.

Each trial is a separate process: it publishes tasks one by one, then executes them with the solo pool and Celery's defaults.
The trials alternate, so that other load affects both; the result is the median of the ratios.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, urlencode
from uuid import uuid4

TASKS = 1000
PAIRS = 5
TARGET = 2.0
KOMBU_TABLES = {"queue_tablename": "bench_kombu_queue", "message_tablename": "bench_kombu_message"}
_MOST_SECONDS = 300


def run(report) -> None:
    """Tasks published and executed per second, relative to the other transport."""
    from django.db import connection

    from broker_core.common.types import EntityAddress
    from broker_core.service_bus import entities

    parameters = connection.get_connection_params()
    namespace = f"bench-{uuid4().hex[:8]}"
    ours = ("vitrine://local/" + namespace, {"dsn": _dsn(parameters)})
    theirs = (_sqlalchemy_url(parameters), KOMBU_TABLES)
    try:
        pairs = [(_trial(*ours), _trial(*theirs)) for _ in range(PAIRS)]
    finally:
        entities.delete_queue(EntityAddress(namespace, "celery"))
        _drop_kombus_tables(connection)
    for work in ("publish", "work off", "publish and work off"):
        ratio = statistics.median(mine[work] / other[work] for mine, other in pairs)
        mine, other = (statistics.median(rates[work] for rates in side) for side in zip(*pairs, strict=True))
        report.line(f"Celery no-op tasks, {work}, on vitrine://", f"{mine:,.0f}/s", f"SQLAlchemy transport {other:,.0f}/s")
        report.row(f"Celery {work}, times the SQLAlchemy transport", ratio, "times", TARGET)


def _dsn(parameters: dict) -> str:
    from psycopg.conninfo import make_conninfo

    names = ("host", "port", "dbname", "user", "password")
    return make_conninfo(**{name: parameters[name] for name in names if parameters.get(name)})


def _sqlalchemy_url(parameters: dict) -> str:
    user, password = (quote(str(parameters.get(name) or ""), safe="") for name in ("user", "password"))
    where = {name: parameters[name] for name in ("host", "port") if parameters.get(name)}
    login = f"{user}:{password}@" if password else f"{user}@"
    return f"sqla+postgresql+psycopg://{login}/{parameters['dbname']}?{urlencode(where)}"


def _drop_kombus_tables(connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS bench_kombu_message, bench_kombu_queue")
        cursor.execute("DROP SEQUENCE IF EXISTS queue_id_sequence, message_id_sequence")


def _trial(broker: str, options: dict) -> dict[str, float]:
    """Rates of one trial in a separate process."""
    child = subprocess.run(
        [sys.executable, "-m", "bench.celery", broker, json.dumps(options)],
        cwd=Path(__file__).resolve().parent.parent,
        env={name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"},
        capture_output=True,
        text=True,
        timeout=_MOST_SECONDS,
        check=False,
    )
    if child.returncode:
        raise RuntimeError(f"a trial on {broker.partition(':')[0]} failed:\n{child.stderr[-2000:]}")
    return json.loads(child.stdout.splitlines()[-1])


def _in_child(broker: str, options: dict) -> dict[str, float]:
    """Publish all tasks, then execute them until the last one has run."""
    from celery import Celery
    from celery.signals import worker_ready
    from celery.worker import state

    import broker_core.celery_transport  # noqa: F401  (registers vitrine://)

    app = Celery("bench", broker=broker)
    app.conf.update(broker_transport_options=options, task_ignore_result=True, worker_redirect_stdouts=False)
    left, instants = TASKS, {}

    @app.task(name="nothing")
    def nothing(number: int) -> None:
        nonlocal left
        left -= 1
        if not left:
            instants["end"] = time.perf_counter()
            state.should_stop = 0

    @worker_ready.connect(weak=False)
    def begin(**_) -> None:
        instants["begin"] = time.perf_counter()

    nothing.delay(0)  # creates the queue and everything else that is created at first use
    app.control.purge()
    published_from = time.perf_counter()
    for number in range(TASKS):
        nothing.delay(number)
    published = TASKS / (time.perf_counter() - published_from)
    with suppress(SystemExit):
        app.Worker(pool="solo", loglevel="ERROR", quiet=True).start()
    worked_off = TASKS / (instants["end"] - instants["begin"])
    return {"publish": published, "work off": worked_off, "publish and work off": 1 / (1 / published + 1 / worked_off)}


if __name__ == "__main__":
    print(json.dumps(_in_child(sys.argv[1], json.loads(sys.argv[2]))))
