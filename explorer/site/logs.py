"""Log format, and limits of what clients cause. An unavailable database is logged as one line without a traceback."""

import logging
import threading
from collections import Counter

import psycopg
from celery.beat import SchedulingError
from django.db import InterfaceError, OperationalError

DATABASE_UNAVAILABLE = (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)
MOST_LINES = 5
WINDOW_SECONDS = 60.0


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


class LimitRepeats(logging.Filter):
    """For a logger whose lines clients cause: lets MOST_LINES of each kind through in WINDOW_SECONDS, and then logs how many
    were left out. A kind is a message before its arguments, and the class of its exception."""

    def __init__(self) -> None:
        super().__init__()
        self._counts: Counter[tuple[str, type | None]] = Counter()
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(record, "is_summary", False):
            return True
        kind = str(record.msg), record.exc_info[0] if record.exc_info else None
        with self._lock:
            self._counts[kind] += 1
            count = self._counts[kind]
        if count == 1:
            timer = threading.Timer(WINDOW_SECONDS, self._summarise, [kind, record.name, record.levelno])
            timer.daemon = True
            timer.start()
        return count <= MOST_LINES

    def _summarise(self, kind: tuple[str, type | None], name: str, level: int) -> None:
        with self._lock:
            left_out = self._counts.pop(kind) - MOST_LINES
        if left_out > 0:
            text = f"{left_out:,} more in {WINDOW_SECONDS:.0f} s: {kind[0].strip()}"
            logging.getLogger(name).log(level, "%s", text, extra={"is_summary": True})
