"""What a command says where nothing is set up, which mostly means that it looked in another place than `make up`,
and where what is set up is of an older version."""

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
    """Raise ImproperlyConfigured where the database lacks what was asked for because it has no tables, with the place that was
    looked at, or older ones."""
    try:
        yield
    except (ProgrammingError, *_MISSING) as exc:
        if not isinstance(exc, _MISSING) and not isinstance(exc.__cause__, _MISSING):
            raise
        is_set_up, is_current = _tables()
        if is_set_up and is_current:  # a mistake of ours
            raise
        if is_set_up:
            raise ImproperlyConfigured("The database schema is out of date. Run make up or manage.py migrate first.") from exc
        if settings.DATABASE_URL:
            raise ImproperlyConfigured("The database that DATABASE_URL names has no Vitrine tables. Run make up first.") from exc
        raise nothing_set_up() from exc


def _tables() -> tuple[bool, bool]:
    """Whether there are any of Vitrine's, and whether all are as this version wants them."""
    migrations = MigrationExecutor(connection)
    applied = any(app == "broker_core" for app, _ in migrations.loader.applied_migrations)
    return applied, not migrations.migration_plan(migrations.loader.graph.leaf_nodes())


def refuse_to_set_up() -> None:
    """From now on this process starts no database server where there is none: it would be left running in a folder that was meant
    by nobody."""
    DatabaseWrapper.may_set_up = False
