"""Celery no-op tasks on vitrine:// against kombu's SQLAlchemy transport, on the same Postgres, and against Redis with an
append-only file.

Each trial is a separate process: it publishes tasks one by one, then executes them with the solo pool and Celery's defaults.
The trials alternate, so that other load affects both; the result is the median of the ratios.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlencode
from uuid import uuid4

from . import measuring

TASKS, PAIRS = 1000, 5
SMALL_TASKS, SMALL_PAIRS = 100, 1
TARGETS = {  # times the other transport, by kind of work
    "SQLAlchemy": {"publish": 4, "work off": 15},
    "Redis": {"publish": 0.8, "work off": 3},
}
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
    try:
        _compare(report, "SQLAlchemy", ours, (_sqlalchemy_url(parameters), KOMBU_TABLES))
        with _redis() as url:
            if url:
                _compare(report, "Redis", ours, (url, {}))
            else:
                report.line("Celery against Redis", "not measured", "redis-server is not installed")
    finally:
        entities.delete_queue(EntityAddress(namespace, "celery"))
        _drop_kombus_tables(connection)


def _compare(report, other: str, ours: tuple[str, dict], rival: tuple[str, dict]) -> None:
    tasks, rounds = (SMALL_TASKS, SMALL_PAIRS) if measuring.scale is measuring.SMALL else (TASKS, PAIRS)
    pairs = [(_trial(tasks, *ours), _trial(tasks, *rival)) for _ in range(rounds)]
    for work, target in TARGETS[other].items():
        ratio = statistics.median(own_rates[work] / rival_rates[work] for own_rates, rival_rates in pairs)
        own_rate, rival_rate = (statistics.median(rates[work] for rates in side) for side in zip(*pairs, strict=True))
        report.row(f"Celery no-op tasks, solo worker, {work}: times {other}", ratio, "times", target)
        report.line("", f"{own_rate:,.0f}/s", f"against {rival_rate:,.0f}/s")


@contextmanager
def _redis() -> Iterator[str]:
    """The URL of a Redis server of the bench's own with an append-only file; empty if Redis is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="vitrine-bench-") as folder:
        socket = Path(folder) / "redis.sock"
        options = {"--port": "0", "--unixsocket": str(socket), "--dir": folder, "--appendonly": "yes", "--save": ""}
        server = subprocess.Popen([program, *itertools.chain(*options.items())], stdout=subprocess.DEVNULL)
        try:
            while not socket.exists() and server.poll() is None:
                time.sleep(0.05)
            yield f"redis+socket://{socket}"
        finally:
            server.terminate()
            server.wait()


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


def _trial(tasks: int, broker: str, options: dict) -> dict[str, float]:
    """Rates of one trial in a separate process."""
    child = subprocess.run(
        [sys.executable, "-m", "bench.celery", str(tasks), broker, json.dumps(options)],
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


def _in_child(tasks: int, broker: str, options: dict) -> dict[str, float]:
    """Publish all tasks, then execute them until the last one has run."""
    from celery import Celery
    from celery.signals import worker_ready
    from celery.worker import state

    import broker_core.celery_transport  # noqa: F401  (registers vitrine://)

    app = Celery("bench", broker=broker)
    app.conf.update(broker_transport_options=options, task_ignore_result=True, worker_redirect_stdouts=False)
    left, instants = tasks, {}

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
    for number in range(tasks):
        nothing.delay(number)
    published = tasks / (time.perf_counter() - published_from)
    with suppress(SystemExit):
        app.Worker(pool="solo", loglevel="ERROR", quiet=True).start()
    worked_off = tasks / (instants["end"] - instants["begin"])
    return {"publish": published, "work off": worked_off}


if __name__ == "__main__":
    print(json.dumps(_in_child(int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))))
