"""What a command says where nothing is set up, which mostly means that it looked in another place than `make up`."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import ProgrammingError
from psycopg.errors import UndefinedTable


@contextmanager
def explained() -> Iterator[None]:
    """Raise ImproperlyConfigured with the place that was looked at where the database has no tables."""
    try:
        yield
    except (ProgrammingError, UndefinedTable) as exc:
        if not isinstance(exc, UndefinedTable) and not isinstance(exc.__cause__, UndefinedTable):
            raise
        if settings.DATABASE_URL:
            raise ImproperlyConfigured("The database that DATABASE_URL names has no Vitrine tables. Run make up first.") from exc
        raise nothing_set_up() from exc


def nothing_set_up() -> ImproperlyConfigured:
    """The refusal, with the place that was looked at."""
    return ImproperlyConfigured(
        f"Nothing is set up in {settings.VITRINE_DATA}. Run make up first, or set VITRINE_DATA as it is for make up."
    )


def refuse_to_set_up() -> None:
    """From now on this process starts no database server where there is none: it would be left running in a folder that was meant
    by nobody."""
    from explorer.site.embedded_postgres.base import DatabaseWrapper

    DatabaseWrapper.may_set_up = False
