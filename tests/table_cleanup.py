"""Empties the tables of the test database, and ends the sessions that would keep it from being dropped."""

import time
from contextlib import suppress

from django.db import OperationalError, connections

# As the migrations left them; no test changes them.
KEPT = {"django_content_type", "auth_permission"}
TRIES = 5
_statements: dict[str, str] = {}


def empty_tables(*aliases: str) -> None:
    """Delete all rows of all models of these databases. Django's `flush` takes far longer: it truncates all tables, and makes the
    permissions anew.

    The last requests of a closed browser may meet it crosswise: then it is done again.
    """
    for alias in aliases:
        for _ in range(TRIES - 1):
            with suppress(OperationalError):
                _empty(alias)
                break
        else:
            _empty(alias)


def _empty(alias: str) -> None:
    connection = connections[alias]
    if alias not in _statements:
        tables = connection.introspection.django_table_names(only_existing=True, include_views=False)
        quote = connection.ops.quote_name
        _statements[alias] = "; ".join(f"DELETE FROM {quote(table)}" for table in sorted(tables) if table not in KEPT)
    with connection.cursor() as cursor:
        cursor.execute(_statements[alias])


def end_other_sessions(cursor, database: str, patience: float = 3.0) -> list[str]:
    """End the sessions of a database that are still there after `patience` seconds, but for the cursor's own, and wait until they
    are gone. Returns what each did last. A closed connection's session takes a moment to end by itself."""
    ends_at = time.monotonic() + patience
    while _other_sessions(cursor, "pid", database) and time.monotonic() < ends_at:
        time.sleep(0.02)
    ended = "concat_ws(': ', application_name, state, left(query, 200)), pg_terminate_backend(pid, 10000)"
    return [text for text, _ in _other_sessions(cursor, ended, database)]


def _other_sessions(cursor, columns: str, database: str) -> list[tuple]:
    cursor.execute(
        f"SELECT {columns} FROM pg_stat_activity"
        " WHERE datname = %s AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
        [database],
    )
    return cursor.fetchall()
