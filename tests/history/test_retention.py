"""Day partitions: made ahead, adopted from the default one, dropped only when the archive has all of them."""

import random
import uuid
from datetime import UTC, date, datetime, timedelta

import psycopg
import pytest

from broker_core import namespaces, reads, service_bus, sweeps
from broker_core.common.types import EntityAddress, EventKind, Family
from broker_core.history import archive, retention
from broker_core.models import ArchiveFile, ArchiveUnusedFile, Entity, Namespace
from broker_core.reads import searching
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections
from broker_core.store.statements import SQL

FIRST_OF_MARCH = date(2026, 3, 1)  # long past: no partition of the migration is near


def partitions(postgres) -> set[str]:
    found = postgres.execute(
        "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'vitrine_message_event'::regclass"
    )
    return {name for (name,) in found.fetchall()}


def rows_in(postgres, day: date) -> int:
    return postgres.execute(f"SELECT count(*) FROM {retention.partition_name(day)}").fetchone()[0]


@pytest.fixture(autouse=True)
def no_old_partitions(postgres):
    yield
    for name in partitions(postgres):
        if name.startswith("vitrine_message_event_202603"):
            postgres.execute(f"DROP TABLE {name}")


def test_partitions_are_created_ahead_once(postgres):
    made = retention.create_partitions(FIRST_OF_MARCH, days_ahead=2)
    assert made == [FIRST_OF_MARCH, date(2026, 3, 2), date(2026, 3, 3)]
    assert {retention.partition_name(day) for day in made} < partitions(postgres)
    assert retention.create_partitions(FIRST_OF_MARCH, days_ahead=2) == []


def test_events_of_a_day_without_partition_are_moved_into_it(postgres, happened):
    happened(EventKind.SENT, 1, recorded_at="2026-03-05T10:00Z")
    happened(EventKind.SENT, 2, recorded_at="2026-03-06T00:00Z")
    before = postgres.execute("SELECT event_id, xid::text, recorded_at FROM vitrine_message_event ORDER BY 1").fetchall()
    assert set(retention.create_partitions()) >= {date(2026, 3, 5), date(2026, 3, 6)}
    assert (rows_in(postgres, date(2026, 3, 5)), rows_in(postgres, date(2026, 3, 6))) == (1, 1)
    assert postgres.execute("SELECT event_id, xid::text, recorded_at FROM vitrine_message_event ORDER BY 1").fetchall() == before


def test_sends_continue_in_a_new_partition(postgres, happened):
    retention.create_partitions(FIRST_OF_MARCH, days_ahead=0)
    happened(EventKind.SENT, recorded_at="2026-03-01T10:00Z")
    assert rows_in(postgres, FIRST_OF_MARCH) == 1


def test_past_days_are_indexed_and_the_newest_is_not(postgres, happened):
    """On the newest partition an index would cost every statement; it is read whole, and messages are found in both."""
    retention.create_partitions(FIRST_OF_MARCH, days_ahead=1)
    second = FIRST_OF_MARCH + timedelta(days=1)
    happened(EventKind.SENT, 1, recorded_at="2026-03-01T10:00Z", message_id="old")
    happened(EventKind.SENT, 2, recorded_at="2026-03-02T10:00Z", message_id="new")
    indexed = lambda: {  # noqa: E731
        day: set(retention.INDEXES) <= set(index_names)
        for _, day, index_names in postgres.execute(SQL["history_partitions"]).fetchall()
    }
    assert not indexed()[FIRST_OF_MARCH]
    assert retention.index_closed_partitions(second) == [FIRST_OF_MARCH]
    assert indexed()[FIRST_OF_MARCH] and not indexed()[second]
    assert retention.index_closed_partitions(second) == []
    happened(
        EventKind.COMPLETED, 1, recorded_at="2026-03-01T23:59Z", message_id="old"
    )  # a transaction that began before midnight
    entity_id = postgres.execute("SELECT DISTINCT entity_id FROM vitrine_message_event").fetchone()[0]
    for number, message_id, events in ((1, "old", 2), (2, "new", 1)):
        assert len(reads.timeline(entity_id, number)) == events
        assert [match.sequence_number for match in reads.find(message_id).matches] == [number]


def test_a_past_day_that_is_being_written_is_indexed_later(postgres, monkeypatch):
    monkeypatch.setattr(retention, "LOCK_TIMEOUT", "50ms")
    retention.create_partitions(FIRST_OF_MARCH, days_ahead=0)
    with psycopg.connect(**connections.Database().parameters()) as other, other.transaction():
        other.execute(f"LOCK TABLE {retention.partition_name(FIRST_OF_MARCH)} IN ROW EXCLUSIVE MODE")
        assert retention.index_closed_partitions(FIRST_OF_MARCH + timedelta(days=1)) == []
    assert retention.index_closed_partitions(FIRST_OF_MARCH + timedelta(days=1)) == [FIRST_OF_MARCH]


def test_each_missing_index_is_created_in_its_own_transaction(postgres, monkeypatch):
    """Of a day that has some of them, too; so that the archive waits for one only."""
    retention.create_partitions(FIRST_OF_MARCH, days_ahead=0)
    name, made, second = retention.partition_name(FIRST_OF_MARCH), [], FIRST_OF_MARCH + timedelta(days=1)
    assert retention.index_closed_partitions(second) == [FIRST_OF_MARCH]
    postgres.execute(f"DROP INDEX {name}_message_id, {name}_entity")
    brief_locks = retention._brief_locks
    monkeypatch.setattr(retention, "_brief_locks", lambda connection: made.append(1) or brief_locks(connection))
    assert retention.index_closed_partitions(second) == [FIRST_OF_MARCH] and len(made) == 2
    present = {
        index_name
        for (index_name,) in postgres.execute("SELECT indexname FROM pg_indexes WHERE tablename = %s", [name]).fetchall()
    }
    assert {name + suffix for suffix in retention.INDEXES} <= present
    assert retention.index_closed_partitions(second) == [] and len(made) == 2


@pytest.mark.parametrize("name", ["read_message_events", "read_find_in_events"])
def test_a_message_is_found_by_the_index_of_each_past_day(postgres, name):
    """Not by reading days of events (docs/design.md D7)."""
    retention.create_partitions(FIRST_OF_MARCH, days_ahead=1)
    retention.index_closed_partitions(FIRST_OF_MARCH + timedelta(days=1))
    cursor = psycopg.ClientCursor(connections.current())
    params = {"entity_id": 1, "sequence_number": 2, "message_id": "x", "max_count": 3}
    with cursor.connection.transaction():
        cursor.execute(SQL["allow_bitmap_scans"])
        plan = "\n".join(line for [line] in cursor.execute(f"EXPLAIN {SQL[name]}", params).fetchall())
    assert "Bitmap Index Scan on vitrine_message_event_20260301_message" in plan
    assert "Seq Scan on vitrine_message_event_20260302" in plan


def test_a_search_within_an_entity_uses_the_index_of_each_past_day(postgres, happened):
    """And of the newest days it passes the events of other entities. It finds the same as a search without the index."""
    retention.create_partitions(FIRST_OF_MARCH, days_ahead=1)
    second = FIRST_OF_MARCH + timedelta(days=1)
    for number in range(1, 4):
        happened(EventKind.SENT, number, recorded_at="2026-03-01T10:00Z", message_id=f"old-{number}")
        happened(EventKind.SENT, 10 + number, recorded_at="2026-03-02T10:00Z", message_id=f"new-{number}")
    [[path]] = postgres.execute(
        "SELECT path FROM vitrine_entity WHERE id IN (SELECT entity_id FROM vitrine_message_event)"
    ).fetchall()
    wanted = reads.parse_filter(f"entity:{path} id:-", now=datetime.now(UTC))
    for indexed in ([], [FIRST_OF_MARCH]):
        assert retention.index_closed_partitions(second if indexed else FIRST_OF_MARCH) == indexed
        statement = reads.search_slice(wanted)
        assert [message.message_id for message in statement.messages] == ["new-3", "old-3", "new-2", "old-2", "new-1", "old-1"]
    postgres.execute(
        "INSERT INTO vitrine_message_event (recorded_at, at, entity_id, subqueue, sequence_number, kind)"
        " SELECT '2026-03-01T10:00Z', now(), -n, 0, n, 1 FROM generate_series(1, 5000) AS n"
    )
    postgres.execute("ANALYZE vitrine_message_event_20260301")
    statement = searching._Search(wanted, None, False, None, (), 0).statement((2**64 - 1, 2**63 - 1), 100, [1])
    cursor = psycopg.ClientCursor(connections.current())
    plan = "\n".join(line for [line] in cursor.execute(f"EXPLAIN {SQL[statement.name]}", statement.params).fetchall())
    assert "Scan Backward using vitrine_message_event_20260301_entity" in plan


@pytest.mark.parametrize("seed", range(6))
def test_slices_of_a_search_within_entities_contain_each_event_once(postgres, queue, monkeypatch, seed):
    """Newest first, whatever each statement reads at most; some entities have no events in a day, others most of them."""
    chance = random.Random(seed)
    retention.create_partitions(FIRST_OF_MARCH, days_ahead=2)
    others = [Entity.objects.create(namespace=queue.namespace, path=f"{name}-{n}") for n in range(3) for name in ("orders", "no")]
    written = []
    for number in range(120):
        entity = chance.choice([*others, queue, queue, queue])
        xid, day = (900 + number) // chance.choice([1, 1, 4]), FIRST_OF_MARCH + timedelta(days=number // 45)
        kind = chance.choice([EventKind.SENT, EventKind.SENT, EventKind.COMPLETED])
        [[event_id]] = postgres.execute(
            "INSERT INTO vitrine_message_event (xid, recorded_at, at, entity_id, subqueue, sequence_number, kind)"
            " VALUES (%s::text::xid8, %s, now(), %s, 0, %s, %s) RETURNING event_id",
            [xid, f"{day}T10:00Z", entity.pk, number, int(kind)],
        )
        if entity.path.startswith("orders") and kind is EventKind.SENT:
            written.append((xid, event_id, number))
    retention.index_closed_partitions(FIRST_OF_MARCH + timedelta(days=chance.choice([1, 2, 3])))
    monkeypatch.setattr(searching, "SLICE_SECONDS", 0)
    monkeypatch.setattr(searching, "SLICE_ROWS", chance.choice([3, 10, 40]))
    monkeypatch.setattr(searching, "ROWS_OF_EACH", chance.choice([1, 2, 5]))
    monkeypatch.setattr(searching, "ROWS_PASSED", chance.choice([4, 30, 1_000]))
    monkeypatch.setattr(searching, "SLICE_FOUND", chance.choice([2, 50]))
    wanted, cursor, numbers = reads.parse_filter("entity:orders", now=datetime.now(UTC)), None, []
    for _ in range(len(written) * 60):
        part = reads.search_slice(wanted, cursor)
        numbers += [message.sequence_number for message in part.messages]
        cursor = part.cursor
        if cursor is None:
            break
    assert cursor is None and numbers == [number for _, _, number in sorted(written, reverse=True)]


def test_a_statement_reads_few_events_of_each_entity(postgres, queue, happened, monkeypatch):
    retention.create_partitions(FIRST_OF_MARCH, days_ahead=0)
    other = Entity.objects.create(namespace=queue.namespace, path="orders-2")
    for number in range(1, 6):
        happened(EventKind.SENT, number, recorded_at="2026-03-01T10:00Z")
        happened(EventKind.SENT, number, recorded_at="2026-03-01T10:00Z", entity_id=other.pk)
    retention.index_closed_partitions(FIRST_OF_MARCH + timedelta(days=1))
    monkeypatch.setattr(searching, "SLICE_ROWS", 8)
    monkeypatch.setattr(searching, "SLICE_SECONDS", 0)
    monkeypatch.setattr(searching, "ROWS_OF_EACH", 1)
    part = reads.search_slice(reads.parse_filter("entity:orders", now=datetime.now(UTC)))
    assert (part.scanned, [message.sequence_number for message in part.messages]) == (7, [5, 5, 4, 4, 3, 3, 2])


def test_an_old_day_is_dropped_once_it_is_archived(archive_folder, postgres, happened):
    retention.create_partitions(FIRST_OF_MARCH, days_ahead=1)
    happened(EventKind.SENT, recorded_at="2026-03-01T10:00Z")
    today = FIRST_OF_MARCH + timedelta(days=8)
    kept = retention.drop_old_partitions(today)
    assert kept.dropped == ()
    assert kept.unarchived == ((FIRST_OF_MARCH, 1, 0),)
    archive.archive_events()
    assert retention.drop_old_partitions(today).dropped == (FIRST_OF_MARCH,)
    assert retention.partition_name(FIRST_OF_MARCH) not in partitions(postgres)
    assert retention.partition_name(FIRST_OF_MARCH + timedelta(days=1)) in partitions(postgres)


def test_archived_days_beyond_the_retention_of_their_namespace_are_removed(archive_folder, postgres, happened, queue):
    """Events and lives of days that the event table no longer has; counts and settings stay."""
    happened(EventKind.SENT, recorded_at="2026-03-01T10:00Z")
    happened(EventKind.SENT, 2, recorded_at="2026-03-02T10:00Z")
    archive.archive_events()
    values = {"day": FIRST_OF_MARCH, "namespace_id": queue.namespace_id, "rows": 1, "bytes": 1}
    for content in ("lives", "counts", "settings"):
        ArchiveFile.objects.create(content=content, path=content, **values)
    Namespace.objects.filter(pk=queue.namespace_id).update(archive_days=3)
    today = FIRST_OF_MARCH + timedelta(days=4)
    assert retention.forget_archived_days(today) == [], "the event table still has the day"
    retention.create_partitions(FIRST_OF_MARCH, days_ahead=1)
    postgres.execute(f"DROP TABLE {retention.partition_name(FIRST_OF_MARCH)}")
    assert retention.forget_archived_days(today - timedelta(days=1)) == []
    assert retention.forget_archived_days(today) == ["history-tests: 2 files of 2026-03-01 to 2026-03-01"]
    left = ArchiveFile.objects.order_by("content").values_list("content", "day")
    assert list(left) == [("counts", FIRST_OF_MARCH), ("events", date(2026, 3, 2)), ("settings", FIRST_OF_MARCH)]
    assert {path.partition("/")[0] for path in ArchiveUnusedFile.objects.values_list("path", flat=True)} == {"lives", "events"}


def test_an_event_that_is_not_archived_keeps_its_day(archive_folder, postgres, happened):
    retention.create_partitions(FIRST_OF_MARCH, days_ahead=0)
    happened(EventKind.SENT, recorded_at="2026-03-01T10:00Z")
    archive.archive_events()
    happened(EventKind.COMPLETED, recorded_at="2026-03-01T10:00Z")
    assert retention.drop_old_partitions(date(2026, 4, 1)).unarchived == ((FIRST_OF_MARCH, 2, 1),)


@pytest.mark.parametrize(("today", "dropped"), [(date(2026, 3, 8), 0), (date(2026, 3, 9), 1)])
def test_seven_whole_days_are_kept(postgres, today, dropped):
    retention.create_partitions(FIRST_OF_MARCH, days_ahead=0)
    assert len(retention.drop_old_partitions(today).dropped) == dropped


def test_a_deleted_queue_is_removed_with_the_last_day_of_its_events(postgres):
    """And then its namespace can be deleted."""
    name = f"forgotten-{uuid.uuid4().hex[:10]}"
    namespaces.create_namespace(name, Family.SERVICE_BUS)
    address = EntityAddress(name, "q")
    entity_id = entities.create_queue(address).id
    service_bus.send(address, [Message(b"a")])
    entities.delete_queue(address)

    def is_there():
        return postgres.execute("SELECT 1 FROM vitrine_entity WHERE id = %s", (entity_id,)).fetchone() is not None

    long_ago = "UPDATE vitrine_entity SET deleted_at = %s, updated_at = %s WHERE id = %s"
    postgres.execute(long_ago, ("2026-01-01", "2026-01-01", entity_id))
    retention.drop_old_partitions()
    assert is_there()  # its message is
    sweeps.remove_deleted_entities()
    retention.drop_old_partitions()
    assert is_there()  # what happened to that was today
    namespaces.delete_namespace(name)
    assert is_there()  # its namespace keeps its name for it
    postgres.execute(long_ago, ("2026-01-01", "2026-01-01", entity_id))
    assert retention.drop_old_partitions().forgotten >= 1
    assert not is_there()
    named = postgres.execute("SELECT name FROM vitrine_namespace WHERE starts_with(name, %s)", (name,)).fetchall()
    assert named == []


def test_a_partition_in_use_is_left_for_the_next_time(archive_folder, postgres, queue, monkeypatch):
    monkeypatch.setattr(retention, "LOCK_TIMEOUT", "100ms")
    retention.create_partitions(FIRST_OF_MARCH, days_ahead=0)
    with psycopg.connect(**connections.Database().parameters() | {"autocommit": False}) as reader:
        reader.execute("SELECT count(*) FROM vitrine_message_event")
        assert retention.drop_old_partitions(date(2026, 4, 1)).busy == (FIRST_OF_MARCH,)
    assert retention.drop_old_partitions(date(2026, 4, 1)).dropped == (FIRST_OF_MARCH,)


def test_creating_a_partition_yields_to_writers(postgres, queue, monkeypatch):
    monkeypatch.setattr(retention, "LOCK_TIMEOUT", "100ms")
    with psycopg.connect(**connections.Database().parameters() | {"autocommit": False}) as writer:
        writer.execute(
            "INSERT INTO vitrine_message_event (at, entity_id, subqueue, sequence_number, kind) VALUES (now(), %s, 0, 1, 1)",
            (queue.pk,),
        )
        assert retention.create_partitions(FIRST_OF_MARCH, days_ahead=0) == []
    assert retention.create_partitions(FIRST_OF_MARCH, days_ahead=0) == [FIRST_OF_MARCH]
