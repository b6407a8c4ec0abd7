"""How log lines look: one line for a database that is away, where its traceback would say the same in fifty."""

import logging

import psycopg
from celery.beat import SchedulingError
from django.db import InterfaceError, OperationalError

DATABASE_IS_AWAY = (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)


class Formatter(logging.Formatter):
    """Time, level, logger, message; a traceback only for what a developer has to look at."""

    default_msec_format = "%s.%03d"

    def formatMessage(self, record: logging.LogRecord) -> str:
        """What comes after a message's first line is left out with the traceback: Celery's beat puts its own stack there."""
        if record.exc_info and _away(record.exc_info[1]):
            record.message = record.message.partition("\n")[0]
        return super().formatMessage(record)

    def formatException(self, ei) -> str:
        if away := _away(ei[1]):
            return f"  {type(away).__name__}: {' '.join(str(away).split())}"
        return super().formatException(ei)


def _away(error: BaseException | None) -> BaseException | None:
    """The error of a database that is away, or the one that `error` was raised in answer to, as Celery's beat wraps it."""
    while error is not None and not isinstance(error, DATABASE_IS_AWAY):
        error = error.__cause__ or (error.__context__ if isinstance(error, SchedulingError) else None)
    return error
