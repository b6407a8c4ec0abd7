"""Creates the day partitions of the event table ahead of time, indexes those of days that are over, and drops those that are
older than the retention and archived. Then removes the rows of deleted entities that no event refers to any more, and the
archived days that their namespaces do not keep.

Days are UTC days of `recorded_at`. Events of a day without a partition go to the default partition and are moved from there.
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
INDEXES = {
    "_message": (
        "brin (hashint8extended(sequence_number, entity_id) int8_bloom_ops) WITH (pages_per_range = 32, autosummarize = on)"
    ),
    "_message_id": "brin (message_id text_bloom_ops) WITH (pages_per_range = 32, autosummarize = on)",
    # Not a bloom filter, since most blocks have events of all busy entities; + 0, so that only statements that write it use it.
    "_entity": "btree ((entity_id + 0), xid)",
}
# A day's partition, with the events of that day from the default partition.
CREATE = (
    "CREATE TABLE {partition} (LIKE {table} INCLUDING DEFAULTS)",
    "LOCK TABLE ONLY {table} IN SHARE ROW EXCLUSIVE MODE",
    "WITH moved AS (DELETE FROM {default} WHERE recorded_at >= {start} AND recorded_at < {end} RETURNING *) "
    "INSERT INTO {partition} SELECT * FROM moved",
    "ALTER TABLE {table} ATTACH PARTITION {partition} FOR VALUES FROM ({start}) TO ({end})",
)
DAYS_AHEAD = 7
RETENTION = timedelta(days=7)
ENTITIES = 1_000  # deleted per transaction
CLOSED_AFTER = timedelta(hours=1)  # from the end of a day; later events of it are rare, and wait while its indexes are built
LOCK_TIMEOUT = "2s"  # the longest that sends wait for this; the next sweep tries again


@dataclass(frozen=True, slots=True)
class Dropped:
    """The result of drop_old_partitions.

    dropped:    days whose partition was dropped.
    unarchived: (day, events, archived events) of old days that are not completely archived; they are kept.
    busy:       days whose partition was locked by others; the next call tries again.
    forgotten:  the number of deleted entities whose rows were removed because no event refers to them any more.
    """

    dropped: tuple[date, ...]
    unarchived: tuple[tuple[date, int, int], ...]
    busy: tuple[date, ...]
    forgotten: int


def create_partitions(today: date | None = None, *, days_before: int = 0, days_ahead: int = DAYS_AHEAD) -> list[date]:
    """Create the partitions from `days_before` before to `days_ahead` after today, and those of days in the default partition.

    Returns the days created. A partition that cannot be created because writers lock the table is left to the next call.
    """
    today = today or datetime.now(UTC).date()
    with connected() as connection:
        present = {day for _, day, _ in connection.execute(SQL["history_partitions"]).fetchall()}
        stranded = {day for (day,) in connection.execute(SQL["history_days_in_default"]).fetchall()}
        needed = {today + timedelta(days=offset) for offset in range(-days_before, days_ahead + 1)} | stranded
        return [day for day in sorted(needed - present) if _create(connection, day)]


def index_closed_partitions(today: date | None = None) -> list[date]:
    """Create the indexes of partitions of days that are over. Returns these days.

    They find the events of a message and of an entity, and messages by id; the partitions without them are read whole. A
    partition that others lock is left to the next call.
    """
    today = today or (datetime.now(UTC) - CLOSED_AFTER).date()
    with connected() as connection:
        partitions = connection.execute(SQL["history_partitions"]).fetchall()
        missing = {day: (name, INDEXES.keys() - set(indexes)) for name, day, indexes in partitions if day < today}
        return [
            day
            for day, (name, missing_indexes) in missing.items()
            if missing_indexes and all(_index(connection, name, index) for index in sorted(missing_indexes))
        ]


def drop_old_partitions(today: date | None = None, *, retention: timedelta = RETENTION) -> Dropped:
    """Drop the partitions of days that ended at least `retention` ago, each only if the archive has as many events."""
    oldest_kept = (today or datetime.now(UTC).date()) - retention
    outcome: dict[str, list] = {"dropped": [], "unarchived": [], "busy": []}
    with connected() as connection:
        for name, day, _ in connection.execute(SQL["history_partitions"]).fetchall():
            if day >= oldest_kept:
                continue
            try:
                counts = _drop_if_archived(connection, name, day)
            except LockNotAvailable:
                outcome["busy"].append(day)
                continue
            outcome["unarchived" if counts else "dropped"].append((day, *counts) if counts else day)
        forgotten = _forget_entities(connection)
    return Dropped(**{name: tuple(partitions) for name, partitions in outcome.items()}, forgotten=forgotten)


def forget_archived_days(today: date | None = None) -> list[str]:
    """Delete the archived days that their namespace does not keep; roll-ups stay. Returns a sentence for each namespace.

    A day is kept as long as the event table has events of it. Its files are deleted by a later clean-up, once no longer read.
    """
    today = today or datetime.now(UTC).date()
    with connected() as connection:
        days = [day for _, day, _ in connection.execute(SQL["history_partitions"]).fetchall()]
        days += [day for (day,) in connection.execute(SQL["history_days_in_default"]).fetchall()]
        params = {"today": today, "first_day": min(days, default=today)}
        deleted = connection.execute(SQL["history_forget_days"], params).fetchall()
    return [f"{name}: {files:,} files of {first_day} to {last_day}" for name, first_day, last_day, files in deleted]


def _create(connection: psycopg.Connection, day: date) -> bool:
    """Create one day's partition with that day's events from the default partition. False if the table lock timed out.

    Created as a table and attached last: Postgres checks that the default partition has no event of the day.
    """
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    names = {"partition": partition_name(day), "table": TABLE, "default": DEFAULT}
    parts: dict[str, sql.Composable] = {name: sql.Identifier(value) for name, value in names.items()}
    parts |= {"start": sql.Literal(start), "end": sql.Literal(start + timedelta(days=1))}
    try:
        with _brief_locks(connection):
            for statement in CREATE:
                connection.execute(sql.SQL(statement).format(**parts))
    except LockNotAvailable:
        return False
    return True


def _index(connection: psycopg.Connection, name: str, suffix: str) -> bool:
    """Create an index of a partition, in a transaction of its own, since the archive waits for each that is open. False if the
    table lock timed out."""
    create = sql.SQL("CREATE INDEX {} ON {} USING {}")
    try:
        with _brief_locks(connection):
            connection.execute(create.format(sql.Identifier(name + suffix), sql.Identifier(name), sql.SQL(INDEXES[suffix])))
    except LockNotAvailable:
        return False
    return True


def _drop_if_archived(connection: psycopg.Connection, name: str, day: date) -> tuple[int, int] | None:
    """Drop a partition if it has as many events as the manifest records for its day; otherwise return both numbers.

    The partition is locked against writers from before the count until it is dropped.
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
    """Remove the rows of entities that were deleted before the first remaining day, then those of deleted namespaces. Returns the
    number of entities."""
    total, done = 0, ENTITIES
    days = [day for _, day, _ in connection.execute(SQL["history_partitions"]).fetchall()]
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
