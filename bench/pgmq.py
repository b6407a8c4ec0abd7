"""PGMQ as a yardstick: its SQL in the bench's own database, called through plain connections with the server's settings.

The SQL comes from the file that PGMQ_SQL names, or from the package `pgmq` (requirements-dev.txt), as its authors released it.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import resources
from pathlib import Path
from uuid import uuid4

import psycopg

from broker_core.store import connections

from .measuring import BATCH, RECEIVE, TEXT

SECONDS = 60  # as long as a lock of a queue of Vitrine's
MISSING = "pip install -r requirements-dev.txt, or PGMQ_SQL=path of its pgmq.sql"
_own: dict[int, psycopg.Connection] = {}  # by process


@cache
def version() -> str:
    """The version of PGMQ that was installed in the bench's database; empty: its SQL is not at hand."""
    extension = _sql()
    if extension is None:
        return ""
    _connection().execute("DROP SCHEMA IF EXISTS pgmq CASCADE")
    _connection().execute(extension[1])
    return extension[0]


def _sql() -> tuple[str, str] | None:
    if path := os.environ.get("PGMQ_SQL"):
        return f"in {path}", Path(path).read_text()
    try:
        folder = resources.files("pgmq") / "sql"
        return (folder / "VERSION").read_text().strip(), (folder / "pgmq.sql").read_text()
    except (ModuleNotFoundError, FileNotFoundError):
        return None


def _connection() -> psycopg.Connection:
    """This process's own connection. The broker's has settings that suit the broker."""
    if os.getpid() not in _own:
        parameters = connections.Database().parameters() | {"options": None}
        _own[os.getpid()] = psycopg.connect(**parameters)
    return _own[os.getpid()]


def a_queue() -> str:
    name = f"q_{uuid4().hex[:8]}"
    _connection().execute("SELECT pgmq.create(%s)", [name])
    return name


def fill(queue: str, messages: int) -> None:
    _connection().execute(
        f"INSERT INTO pgmq.q_{queue} (vt, message) SELECT now(), %s::jsonb FROM generate_series(1, %s)", [TEXT, messages]
    )


def send(queue: str) -> int:
    return len(_rows("SELECT * FROM pgmq.send_batch(%s, %s::jsonb[])", queue, [TEXT] * BATCH))


def read_and_delete(queue: str) -> int:
    """Read RECEIVE messages and delete them in a second call."""
    rows = _rows("SELECT msg_id, read_ct, enqueued_at, vt, message::text FROM pgmq.read(%s, %s, %s)", queue, SECONDS, RECEIVE)
    return len(_rows("SELECT * FROM pgmq.delete(%s, %s::bigint[])", queue, [row.msg_id for row in rows])) if rows else 0


def _rows(statement: str, *parameters: object) -> list:
    return psycopg.Cursor(_connection(), row_factory=_connection().row_factory).execute(statement, parameters).fetchall()
