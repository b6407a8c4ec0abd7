"""Explains a missing or outdated database schema, usually because the command uses another data folder than `make up`."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import ProgrammingError, connection
from django.db.migrations.executor import MigrationExecutor
from psycopg.errors import UndefinedColumn, UndefinedFunction, UndefinedTable

from explorer.site.embedded_postgres.base import DatabaseWrapper, nothing_set_up

_MISSING = (UndefinedTable, UndefinedColumn, UndefinedFunction)


@contextmanager
def explained() -> Iterator[None]:
    """Raise ImproperlyConfigured with an explanation if an error is caused by missing or outdated tables."""
    try:
        yield
    except (ProgrammingError, *_MISSING) as exc:
        if not isinstance(exc, _MISSING) and not isinstance(exc.__cause__, _MISSING):
            raise
        is_set_up, is_current = _tables()
        if is_set_up and is_current:  # a bug
            raise
        if is_set_up:
            raise ImproperlyConfigured("The database schema is out of date. Run make up or manage.py migrate first.") from exc
        if settings.DATABASE_URL:
            raise ImproperlyConfigured("The database that DATABASE_URL names has no Vitrine tables. Run make up first.") from exc
        raise nothing_set_up() from exc


def _tables() -> tuple[bool, bool]:
    """Whether Vitrine's tables exist, and whether all migrations are applied."""
    migrations = MigrationExecutor(connection)
    applied = any(app == "broker_core" for app, _ in migrations.loader.applied_migrations)
    return applied, not migrations.migration_plan(migrations.loader.graph.leaf_nodes())


def refuse_to_set_up() -> None:
    """Do not create a database server from now on: it would be left running, probably in the wrong folder."""
    DatabaseWrapper.may_set_up = False
