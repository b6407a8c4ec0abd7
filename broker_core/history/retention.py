"""Day partitions of the event table: made ahead, and dropped when they are older than the retention and safely archived. With the
last one that can tell of a deleted entity its row goes, too.

Days are UTC days of `recorded_at`. A missing partition loses nothing: its events go to the default one and are moved here.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import psycopg
from psycopg import sql
from psycopg.errors import LockNotAvailable

from broker_core.store.statements import SQL

from .archive import connected

TABLE = "vitrine_message_event"
DEFAULT = "vitrine_message_event_default"
DAYS_AHEAD = 7
RETENTION = timedelta(days=7)
ENTITIES = 1_000  # whose rows go in one transaction
LOCK_TIMEOUT = "2s"  # sends wait for us so long at most; the next sweep tries again


@dataclass(frozen=True, slots=True)
class Dropped:
    """What one call did.

    dropped:    days removed.
    unarchived: (day, events, archived events) of days that are old but not wholly in the archive; they stay.
    busy:       days whose partition somebody else held; the next call tries again.
    forgotten:  how many deleted entities no event names any more, so that their rows were removed.
    """

    dropped: tuple[date, ...]
    unarchived: tuple[tuple[date, int, int], ...]
    busy: tuple[date, ...]
    forgotten: int


def create_partitions(today: date | None = None, *, days_before: int = 0, days_ahead: int = DAYS_AHEAD) -> list[date]:
    """Make the day partitions from `days_before` before to `days_ahead` after today, and for days stranded in the default one.

    Returns the days made. One that cannot be made now, because writers hold the table, is left to the next call.
    """
    today = today or datetime.now(UTC).date()
    with connected() as connection:
        present = {day for _, day in connection.execute(SQL["history_partitions"]).fetchall()}
        stranded = {day for (day,) in connection.execute(SQL["history_days_in_default"]).fetchall()}
        wanted = {today + timedelta(days=offset) for offset in range(-days_before, days_ahead + 1)} | stranded
        return [day for day in sorted(wanted - present) if _create(connection, day)]


def drop_old_partitions(today: date | None = None, *, retention: timedelta = RETENTION) -> Dropped:
    """Drop the partitions of days that ended `retention` or longer ago, each only if the archive holds as many events.

    Returns what was dropped, and what was not and why.
    """
    oldest_kept = (today or datetime.now(UTC).date()) - retention
    outcome: dict[str, list] = {"dropped": [], "unarchived": [], "busy": []}
    with connected() as connection:
        for name, day in connection.execute(SQL["history_partitions"]).fetchall():
            if day >= oldest_kept:
                continue
            try:
                counts = _drop_if_archived(connection, name, day)
            except LockNotAvailable:
                outcome["busy"].append(day)
                continue
            outcome["unarchived" if counts else "dropped"].append((day, *counts) if counts else day)
        forgotten = _forget_entities(connection)
    return Dropped(**{name: tuple(found) for name, found in outcome.items()}, forgotten=forgotten)


def _create(connection: psycopg.Connection, day: date) -> bool:
    """Make one day's partition, with the events of that day out of the default one. False if writers did not let us in time.

    Made as a table first and attached last, so that the default partition holds nothing of the day when Postgres checks it.
    """
    partition = sql.Identifier(partition_name(day))
    start, end = _bounds(day)
    names = {"partition": partition, "table": sql.Identifier(TABLE), "default": sql.Identifier(DEFAULT)}
    bounds = {"start": sql.Literal(start), "end": sql.Literal(end)}
    try:
        with _brief_locks(connection):
            connection.execute(sql.SQL("CREATE TABLE {partition} (LIKE {table} INCLUDING DEFAULTS)").format(**names))
            connection.execute(sql.SQL("LOCK TABLE ONLY {table} IN SHARE ROW EXCLUSIVE MODE").format(**names))
            connection.execute(
                sql.SQL(
                    "WITH moved AS (DELETE FROM {default} WHERE recorded_at >= {start} AND recorded_at < {end} RETURNING *) "
                    "INSERT INTO {partition} SELECT * FROM moved"
                ).format(**names, **bounds)
            )
            connection.execute(
                sql.SQL("ALTER TABLE {table} ATTACH PARTITION {partition} FOR VALUES FROM ({start}) TO ({end})").format(
                    **names, **bounds
                )
            )
    except LockNotAvailable:
        return False
    return True


def _drop_if_archived(connection: psycopg.Connection, name: str, day: date) -> tuple[int, int] | None:
    """Drop a partition if it holds as many events as the manifest says of its day; else return both numbers.

    The partition is locked against writers before it is counted, and stays so until it is gone.
    """
    partition = sql.Identifier(name)
    with _brief_locks(connection):
        connection.execute(sql.SQL("LOCK TABLE {} IN SHARE MODE").format(partition))
        [(present,)] = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(partition)).fetchall()
        [(archived,)] = connection.execute(SQL["history_archived_rows"], {"day": day}).fetchall()
        if present != archived:
            return present, archived
        connection.execute(sql.SQL("DROP TABLE {}").format(partition))
    return None


def _forget_entities(connection: psycopg.Connection) -> int:
    """Remove the rows of entities that were deleted before the first day there is, and then of deleted namespaces. Returns how
    many entities those were."""
    total, done = 0, ENTITIES
    days = [day for _, day in connection.execute(SQL["history_partitions"]).fetchall()]
    while days and done == ENTITIES:
        done = connection.execute(SQL["history_forget_entities"], {"first_day": days[0], "max_count": ENTITIES}).rowcount
        total += done
    connection.execute(SQL["history_forget_namespaces"])
    return total


@contextmanager
def _brief_locks(connection: psycopg.Connection) -> Iterator[None]:
    """A transaction that gives up waiting for a lock after LOCK_TIMEOUT."""
    with connection.transaction():
        connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(LOCK_TIMEOUT))
        yield


def partition_name(day: date) -> str:
    return f"{TABLE}_{day:%Y%m%d}"


def _bounds(day: date) -> tuple[datetime, datetime]:
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    return start, start + timedelta(days=1)
