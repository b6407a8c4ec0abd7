"""The direct path: a named statement outside transactions, through libpq instead of a psycopg cursor.

A cursor looks up an adapter for each value and each column of each call. Here a statement is prepared at its first use on a
connection; the server's description of it gives the types of its parameters, which are written in binary, and its columns, whose
loaders and row class are kept. The rows are those that a cursor returns. What this path does not take (NotDirect) is the
cursor's: statements in a transaction, because a rollback makes psycopg deallocate everything; statements that cannot be prepared
without the types of their parameters; and values of other classes than those a parameter is written from, which the cursor adapts
or refuses.

It is built on `psycopg.pq`, and on a few internals of psycopg that tests/store/test_direct.py pins.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
from psycopg import errors, generators, pq
from psycopg.adapt import Transformer
from psycopg.rows import _make_nt
from psycopg.waiting import Wait

from .statements import Statement

Steps = Generator[Any, Any, list]  # of psycopg: yields what to wait for on the socket
MAX_PREPARED = 100  # statements of one connection; each takes about 0.2 MB of the server's memory
_BINARY = pq.Format.BINARY
_OUTDATED = (errors.InvalidSqlStatementName, errors.FeatureNotSupported)  # deallocated; or a column's type has changed
_PARAMETER = re.compile(r"%\((\w+)\)[sb]|%%")


_READ, _WRITE = int(Wait.R), int(Wait.W)
_SECONDS_TO_CANCEL = 5.0
_MAX_BUSY_SECONDS = 0.002  # that a loop spends with an answer that arrives in pieces


class NotDirect(Exception):
    """Nothing was sent: run the statement with a cursor."""


class Prepared(NamedTuple):
    """A statement prepared on a connection."""

    name: bytes
    parameters: tuple[tuple[str, Callable[[Any], bytes]], ...]
    formats: tuple[pq.Format, ...]
    transformer: Any
    make_row: Callable[[Any], Any]

    def written(self, params: Mapping[str, Any]) -> list[bytes | None]:
        try:
            return [None if (value := params[name]) is None else write(value) for name, write in self.parameters]
        except Exception as exc:
            raise NotDirect from exc

    def rows(self, result: pq.abc.PGresult) -> list:
        self.transformer.set_pgresult(result, set_loaders=False)
        try:
            return self.transformer.load_rows(0, result.ntuples, self.make_row)
        finally:
            self.transformer.set_pgresult(None, set_loaders=False)


class PreparedStatements:
    """The direct path of one connection."""

    def __init__(self, pgconn: pq.abc.PGconn):
        self._pgconn = pgconn
        self._prepared: dict[str, Prepared | None] = {}  # by SQL; None: a statement for cursors
        self._count = 0

    def execute(self, sql: str, params: Mapping[str, Any]) -> Steps:
        """Run a statement; the steps are waited for by the connection. Raises NotDirect, or what the server refuses."""
        for is_last in (False, True):
            prepared = yield from self._prepared_for(sql)
            self._send(prepared, prepared.written(params))
            try:
                result = yield from self._result()
            except _OUTDATED:
                if is_last:
                    raise
                self._prepared.clear()
            else:
                return prepared.rows(result) if result.nfields else []
        raise AssertionError("unreachable")

    def execute_behind(self, before: Statement, statement: Statement, after: Statement) -> Steps:
        """In one round trip, run two statements in a transaction, and another one after its commit. Returns the second one's rows
        when all have succeeded. Raises OperationalError if only the third has failed."""
        for is_last in (False, True):
            prepared = []
            for step in (before, statement, after):
                prepared.append((yield from self._prepared_for(step.sql)))
            values = [p.written(step.params) for p, step in zip(prepared, (before, statement, after), strict=True)]
            committed, afterwards = yield from self._pipeline(prepared, values, commits_after=(2, 3))
            try:
                result = self._checked(committed, 2)[1]
            except _OUTDATED:
                if is_last:
                    raise
                self._prepared.clear()
                continue
            try:
                yield from self._end(afterwards, after)
            except psycopg.Error as exc:
                raise psycopg.OperationalError(f"whether the call was made is unknown: {exc}") from exc
            return prepared[1].rows(result)
        raise AssertionError("unreachable")

    def execute_all(self, statements: Sequence[Statement]) -> Steps:
        """Run statements in one transaction and one round trip. Returns the rows of each. Raises as `execute`."""
        for is_last in (False, True):
            prepared = []
            for statement in statements:
                prepared.append((yield from self._prepared_for(statement.sql)))
            values = [p.written(statement.params) for p, statement in zip(prepared, statements, strict=True)]
            [results] = yield from self._pipeline(prepared, values, commits_after=(len(prepared),))
            try:
                self._checked(results, len(prepared))
            except _OUTDATED:
                if is_last:
                    raise
                self._prepared.clear()
            else:
                return [p.rows(result) if result.nfields else [] for p, result in zip(prepared, results, strict=True)]
        raise AssertionError("unreachable")

    def _end(self, results: list[pq.abc.PGresult], after: Statement) -> Generator[Any, Any, None]:
        try:
            self._checked(results, 1)
        except _OUTDATED:
            self._prepared.clear()
            yield from self.execute(after.sql, after.params)

    def _prepared_for(self, sql: str) -> Generator[Any, Any, Prepared]:
        if self._pgconn.transaction_status != pq.TransactionStatus.IDLE:
            raise NotDirect
        prepared = self._prepared[sql] if sql in self._prepared else (yield from self._prepare(sql))
        if prepared is None:
            raise NotDirect
        return prepared

    def _send(self, prepared: Prepared, values: list[bytes | None]) -> None:
        self._pgconn.send_query_prepared(prepared.name, values, prepared.formats, _BINARY)

    def _prepare(self, sql: str) -> Generator[Any, Any, Prepared | None]:
        if len(self._prepared) >= MAX_PREPARED:
            yield from self._deallocate_oldest()
        self._count += 1
        name, order = b"vitrine_%d" % self._count, dict[str, int]()
        text = _PARAMETER.sub(lambda match: f"${order.setdefault(match[1], len(order) + 1)}" if match[1] else "%", sql)
        self._prepared[sql] = None
        try:
            self._pgconn.send_prepare(name, text.encode())
            yield from self._result()
        except (psycopg.ProgrammingError, psycopg.NotSupportedError):
            return None
        self._pgconn.send_describe_prepared(name)
        prepared = self._prepared[sql] = _described(name, list(order), (yield from self._result()))
        return prepared

    def _deallocate_oldest(self) -> Generator[Any, Any, None]:
        oldest = self._prepared.pop(next(iter(self._prepared)))
        if oldest is not None:
            self._pgconn.send_query(b"DEALLOCATE " + oldest.name)
            yield from self._result()

    def _result(self) -> Generator[Any, Any, pq.abc.PGresult]:
        """The result of what was sent. It counts only when the server has ended its answer: the commit comes after the rows."""
        return self._checked((yield from generators.execute(self._pgconn)), 1)[0]

    def _pipeline(
        self, prepared: Sequence[Prepared], values: Sequence[list[bytes | None]], *, commits_after: tuple[int, ...]
    ) -> Generator[Any, Any, list[list[pq.abc.PGresult]]]:
        """Send statements with a synchronization point, which commits, after some of them. Returns the results before each point.
        They count only when the point is reached: the commit comes after the rows."""
        self._pgconn.enter_pipeline_mode()
        for place, (plan, written) in enumerate(zip(prepared, values, strict=True), 1):
            self._send(plan, written)
            if place in commits_after:
                self._pgconn.pipeline_sync()
        yield from generators.send(self._pgconn)
        results = yield from self._results_until_syncs(len(commits_after))
        self._pgconn.exit_pipeline_mode()
        return results

    def _results_until_syncs(self, count: int) -> Generator[Any, Any, list[list[pq.abc.PGresult]]]:
        results: list[list[pq.abc.PGresult]] = [[]]
        while len(results) <= count:
            result = yield from generators.fetch(self._pgconn)
            if self._pgconn.status != pq.ConnStatus.OK:
                raise psycopg.OperationalError("the connection was lost")
            if result is None:  # the end of a statement's results
                continue
            if result.status == pq.ExecStatus.PIPELINE_SYNC:
                results.append([])
            else:
                results[-1].append(result)
        return results[:count]

    def _checked(self, results: list[pq.abc.PGresult], count: int) -> list[pq.abc.PGresult]:
        for result in results:
            if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
                raise self._error(result)
        if len(results) != count:
            raise psycopg.OperationalError("the connection was lost")
        return results

    def _error(self, result: pq.abc.PGresult) -> psycopg.Error:
        error = errors.error_from_result(result)
        if self._pgconn.status != pq.ConnStatus.OK and not isinstance(error, psycopg.OperationalError):
            return psycopg.OperationalError(str(error) or "the connection was lost")
        return error


async def wait(steps: Steps, connection: Any) -> list:
    """Wait for the steps in the running event loop; a synchronous connection has this method.

    If the awaiting task is cancelled, so is the statement. The connection stays usable if the server confirms that in time; else
    it is closed. A cancellation that arrives while the statement is being prepared has no effect, so it is repeated before that.
    """
    loop, pgconn = asyncio.get_running_loop(), connection.pgconn
    socket, ready = pgconn.socket, _Ready(loop)
    try:
        events = next(steps)
        loop.add_reader(socket, ready.note, _READ)  # once: an answer may come in many pieces
        try:
            while True:
                if events & _WRITE:
                    loop.add_writer(socket, ready.note, _WRITE)
                try:
                    ready_events = await ready.wait()
                finally:
                    if events & _WRITE:
                        loop.remove_writer(socket)
                events = steps.send(ready_events)
                busy_until = time.monotonic() + _MAX_BUSY_SECONDS
                while events == _READ and time.monotonic() < busy_until and connection.readable.poll(1):
                    events = steps.send(_READ)  # the next data arrives sooner than the event loop's next iteration
        finally:
            loop.remove_reader(socket)
    except StopIteration as end:
        return end.value
    except asyncio.CancelledError:
        try:
            await connection.cancel_safe(timeout=_SECONDS_TO_CANCEL)
            await connection.wait(steps, timeout=_SECONDS_TO_CANCEL)
        except errors.QueryCanceled:
            pass
        except BaseException:
            with suppress(psycopg.Error):
                await connection.cancel_safe(timeout=_SECONDS_TO_CANCEL)
            pgconn.finish()
        raise


class _Ready:
    """What the socket has become ready for since the last wait."""

    __slots__ = ("_ready_events", "_loop", "_waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self._loop, self._ready_events = loop, 0
        self._waiter: asyncio.Future[None] | None = None

    def note(self, what: int) -> None:
        self._ready_events |= what
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> int:
        if not self._ready_events:
            self._waiter = self._loop.create_future()
            await self._waiter
        ready_events, self._ready_events = self._ready_events, 0
        return ready_events


def _described(name: bytes, order: list[str], description: pq.abc.PGresult) -> Prepared | None:
    """The prepared statement by the server's description; None if a parameter has a type that is not written here."""
    writers = [_WRITERS.get(description.param_type(i)) for i in range(description.nparams)]
    parameters = tuple((key, write) for key, write in zip(order, writers, strict=True) if write)
    if len(parameters) < len(order):
        return None
    columns = range(description.nfields)
    transformer = Transformer()
    transformer.set_loader_types([description.ftype(i) for i in columns], _BINARY)
    row_class: Any = _make_nt("utf-8", *(description.fname(i) or b"" for i in columns))
    return Prepared(name, parameters, (_BINARY,) * len(order), transformer, row_class._make)


# Parameters as PostgreSQL reads them in binary. A writer raises an exception for a value of any other class.

_INT2, _INT4, _INT8, _FLOAT8 = Struct("!h"), Struct("!i"), Struct("!q"), Struct("!d")
_INTERVAL = Struct("!qii")  # microseconds, days, months
_ARRAY = Struct("!iIIii")  # dimensions, whether there may be nulls, type of the elements, number of elements, index of the first
_EMPTY_ARRAY = Struct("!iII")
_NULL = _INT4.pack(-1)
_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


def _integer(struct: Struct) -> Callable[[int], bytes]:
    pack = struct.pack

    def write(value: int) -> bytes:
        if value.__class__ is not int and (not isinstance(value, int) or isinstance(value, bool)):
            raise TypeError(value)
        return pack(value)

    return write


def _bool(value: bool) -> bytes:
    return {True: b"\x01", False: b"\x00"}[_of(bool, value)]


def _float(value: float) -> bytes:
    if isinstance(value, bool):
        raise TypeError(value)
    return _FLOAT8.pack(value)


def _text(value: str) -> bytes:
    return str.encode(value)


def _jsonb(value: str) -> bytes:
    return b"\x01" + str.encode(value)  # the version of the format, then the text


def _bytea(value: bytes | bytearray | memoryview) -> bytes:
    return value if value.__class__ is bytes else bytes(_of((bytes, bytearray, memoryview), value))


def _uuid(value: UUID) -> bytes:
    return _of(UUID, value).bytes


def _interval(value: timedelta) -> bytes:
    value = _of(timedelta, value)
    return _INTERVAL.pack(value.seconds * 1_000_000 + value.microseconds, value.days, 0)


def _timestamptz(value: datetime) -> bytes:
    since = value - _EPOCH  # TypeError without a time zone
    return _INT8.pack((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)


def _of(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(value)
    return value


def _array(oid: int, write: Callable[[Any], bytes]) -> Callable[[list], bytes]:
    empty, length = _EMPTY_ARRAY.pack(0, 0, oid), _INT4.pack

    def write_all(values: list) -> bytes:
        if not _of(list, values):
            return empty
        parts = [_ARRAY.pack(1, 1, oid, len(values), 1)]
        for value in values:
            if value is None:
                parts.append(_NULL)
            else:
                written = write(value)
                parts.append(length(len(written)))
                parts.append(written)
        return b"".join(parts)

    return write_all


_SCALARS: dict[str, Callable[[Any], bytes]] = {
    "bool": _bool,
    "bytea": _bytea,
    "float8": _float,
    "int2": _integer(_INT2),
    "int4": _integer(_INT4),
    "int8": _integer(_INT8),
    "interval": _interval,
    "jsonb": _jsonb,
    "text": _text,
    "timestamptz": _timestamptz,
    "uuid": _uuid,
    "varchar": _text,
}
_WRITERS: dict[int, Callable[[Any], bytes]] = {}
for _name, _write in _SCALARS.items():
    _info = psycopg.adapters.types[_name]
    _WRITERS[_info.oid], _WRITERS[_info.array_oid] = _write, _array(_info.oid, _write)
