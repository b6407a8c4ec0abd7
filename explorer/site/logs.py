"""How log lines look: one line for a database that is away, where its traceback would say the same in fifty."""

import logging

import psycopg
from django.db import InterfaceError, OperationalError

DATABASE_IS_AWAY = (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)


class Formatter(logging.Formatter):
    """Time, level, logger, message; a traceback only for what a developer has to look at."""

    default_msec_format = "%s.%03d"

    def formatException(self, ei) -> str:
        if isinstance(ei[1], DATABASE_IS_AWAY):
            return f"  {type(ei[1]).__name__}: {' '.join(str(ei[1]).split())}"
        return super().formatException(ei)
