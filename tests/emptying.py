"""Empties the tables of the test database."""

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
