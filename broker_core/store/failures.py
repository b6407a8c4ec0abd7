"""Translates database exceptions into the broker's own errors, keeping their cause."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors

from broker_core.common.arguments import storage_problem
from broker_core.common.errors import BrokerError, BrokerUnavailable, InvalidArgument, ServerBusy, StorageFull

DATABASE_ERRORS = (psycopg.Error, UnicodeEncodeError)
# Nothing was changed, and the same statement may succeed at once.
TRANSIENT = (errors.DeadlockDetected, errors.SerializationFailure)
# Values that the database cannot store, or that are of the wrong type for the statement: the caller's mistake.
_INVALID_DATA = (psycopg.DataError, errors.CharacterNotInRepertoire, UnicodeEncodeError)
_WRONG_TYPE = (errors.CannotCoerce, errors.DatatypeMismatch, errors.NotNullViolation, errors.UndefinedFunction)
UNSTORABLE = (*_INVALID_DATA, *_WRONG_TYPE, psycopg.ProgrammingError)  # if `is_unstorable` confirms it
_ESCAPED = re.compile(r"\\u(0000|[dD][89a-fA-F])")  # how JSON writes what cannot be stored
_BUSY = {
    errors.TooManyConnections: "The database has no free connections. Try again shortly, or raise max_connections.",
    errors.LockNotAvailable: "Another transaction holds a required lock. Retry; the Sweeps page shows the oldest transaction.",
    errors.QueryCanceled: "The database cancelled the call after its time limit. Nothing was changed; try again.",
    errors.DeadlockDetected: "Deadlock with a concurrent operation; nothing was changed. Retry.",
    errors.SerializationFailure: "Conflict with a concurrent change; nothing was changed. Retry.",
    errors.OutOfMemory: "The database is out of memory. Nothing was changed; try again with smaller batches.",
}


@contextmanager
def translated() -> Iterator[None]:
    """Raise BrokerError in place of what psycopg raises in the block; programming errors pass unchanged."""
    try:
        yield
    except DATABASE_ERRORS as exc:
        refusal = as_broker_error(exc)
        if refusal is None:
            raise
        raise refusal from exc


def refusal(exc: Exception) -> Exception:
    """The exception that steps receive: the BrokerError for a database error, any other exception unchanged."""
    error = as_broker_error(exc) if isinstance(exc, DATABASE_ERRORS) else None
    if error is None:
        return exc
    error.__cause__ = exc
    return error


def as_broker_error(exc: psycopg.Error | UnicodeEncodeError) -> BrokerError | None:
    """The BrokerError that a database error means to a caller; None if the error is a bug in the broker."""
    for kind, text in _BUSY.items():
        if isinstance(exc, kind):
            return ServerBusy(text)
    if isinstance(exc, errors.DiskFull):
        return StorageFull("The database's disk is full. Nothing was stored; free some space and try again.")
    if is_unstorable(exc):
        return InvalidArgument("value", f"cannot be stored: {_first_line(exc)}")
    if "too many clients" in str(exc) or "remaining connection slots" in str(exc):
        return ServerBusy(_BUSY[errors.TooManyConnections])
    if isinstance(exc, (psycopg.OperationalError, psycopg.InterfaceError)):
        return BrokerUnavailable(f"The database does not respond ({_first_line(exc)}). Start it, or try again in a moment.")
    return None


def is_unstorable(exc: Exception) -> bool:
    """Whether the error is about a parameter's value. (psycopg's refusal to adapt a class has no SQLSTATE.)"""
    if isinstance(exc, psycopg.ProgrammingError) and exc.sqlstate is None:
        return "adapt" in str(exc)
    return isinstance(exc, (*_INVALID_DATA, *_WRONG_TYPE))


def unstorable(exc: Exception, params: Mapping[str, Any]) -> InvalidArgument:
    """The error for a statement's parameters; names the first parameter that contains a value that cannot be stored."""
    for name, value in params.items():
        if problem := next(filter(None, map(_problem, _flattened(value))), None):
            return InvalidArgument(name, problem)
    return InvalidArgument(", ".join(params) or "value", f"cannot be stored: {_first_line(exc)}")


def _flattened(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from _flattened(item)
    else:
        yield value


def _problem(value: Any) -> str | None:
    """Why a value cannot be stored; None if it can."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return f"{value} must be a whole number from -2^63 to 2^63 - 1"
    if not isinstance(value, str):
        return None
    if _ESCAPED.search(value):
        return f"{value[:80]!r} contains a NUL character or an unpaired surrogate, which cannot be stored"
    return storage_problem(value)


def _first_line(exc: Exception) -> str:
    return str(exc).strip().split("\n")[0]
