"""Log format. An unavailable database is logged as one line without a traceback."""

import logging

import psycopg
from celery.beat import SchedulingError
from django.db import InterfaceError, OperationalError

DATABASE_UNAVAILABLE = (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)


class Formatter(logging.Formatter):
    """Time, level, logger, message; a traceback only for unexpected errors."""

    default_msec_format = "%s.%03d"

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Without the traceback, also leave out a message's further lines: Celery's beat puts its own stack there."""
        if record.exc_info and _database_error(record.exc_info[1]):
            record.message = record.message.partition("\n")[0]
        return super().formatMessage(record)

    def formatException(self, ei) -> str:
        if away := _database_error(ei[1]):
            return f"  {type(away).__name__}: {' '.join(str(away).split())}"
        return super().formatException(ei)


def _database_error(error: BaseException | None) -> BaseException | None:
    """The error of an unavailable database in the chain of causes, which includes the context of beat's SchedulingError."""
    while error is not None and not isinstance(error, DATABASE_UNAVAILABLE):
        error = error.__cause__ or (error.__context__ if isinstance(error, SchedulingError) else None)
    return error
