"""Day partitions: made ahead, adopted from the default one, dropped only when the archive has all of them."""

import uuid
from datetime import date, timedelta

import psycopg
import pytest

from broker_core import namespaces, reads, service_bus, sweeps
from broker_core.common.types import EntityAddress, EventKind, Message
from broker_core.history import archive, retention
from broker_core.service_bus import entities
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


def test_partitions_are_made_ahead_once(postgres):
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


def test_sending_goes_on_in_a_new_partition(postgres, happened):
    retention.create_partitions(FIRST_OF_MARCH, days_ahead=0)
    happened(EventKind.SENT, recorded_at="2026-03-01T10:00Z")
    assert rows_in(postgres, FIRST_OF_MARCH) == 1


def test_days_that_are_over_are_indexed_and_the_newest_is_not(postgres, happened):
    """On the newest partition an index would cost every statement; it is read whole, and messages are found in both."""
    retention.create_partitions(FIRST_OF_MARCH, days_ahead=1)
    second = FIRST_OF_MARCH + timedelta(days=1)
    happened(EventKind.SENT, 1, recorded_at="2026-03-01T10:00Z", message_id="old")
    happened(EventKind.SENT, 2, recorded_at="2026-03-02T10:00Z", message_id="new")
    indexed = lambda: {day: found for _, day, found in postgres.execute(SQL["history_partitions"]).fetchall()}  # noqa: E731
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
        assert [one.sequence_number for one in reads.find(message_id).found] == [number]


def test_a_past_day_that_others_write_to_is_indexed_later(postgres, monkeypatch):
    monkeypatch.setattr(retention, "LOCK_TIMEOUT", "50ms")
    retention.create_partitions(FIRST_OF_MARCH, days_ahead=0)
    with psycopg.connect(**connections.Database().parameters()) as other, other.transaction():
        other.execute(f"LOCK TABLE {retention.partition_name(FIRST_OF_MARCH)} IN ROW EXCLUSIVE MODE")
        assert retention.index_closed_partitions(FIRST_OF_MARCH + timedelta(days=1)) == []
    assert retention.index_closed_partitions(FIRST_OF_MARCH + timedelta(days=1)) == [FIRST_OF_MARCH]


@pytest.mark.parametrize("name", ["read_message_events", "read_find_in_events"])
def test_a_message_is_found_by_the_index_of_each_day_that_is_over(postgres, name):
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


def test_an_event_that_came_after_the_archive_keeps_its_day(archive_folder, postgres, happened):
    retention.create_partitions(FIRST_OF_MARCH, days_ahead=0)
    happened(EventKind.SENT, recorded_at="2026-03-01T10:00Z")
    archive.archive_events()
    happened(EventKind.COMPLETED, recorded_at="2026-03-01T10:00Z")
    assert retention.drop_old_partitions(date(2026, 4, 1)).unarchived == ((FIRST_OF_MARCH, 2, 1),)


@pytest.mark.parametrize(("today", "dropped"), [(date(2026, 3, 8), 0), (date(2026, 3, 9), 1)])
def test_seven_whole_days_are_kept(postgres, today, dropped):
    retention.create_partitions(FIRST_OF_MARCH, days_ahead=0)
    assert len(retention.drop_old_partitions(today).dropped) == dropped


def test_a_deleted_queue_is_forgotten_with_the_last_day_that_can_name_it(postgres):
    """And then its namespace can be deleted."""
    name = f"forgotten-{uuid.uuid4().hex[:10]}"
    namespaces.create_namespace(name)
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


def test_making_a_partition_gives_way_to_writers(postgres, queue, monkeypatch):
    monkeypatch.setattr(retention, "LOCK_TIMEOUT", "100ms")
    with psycopg.connect(**connections.Database().parameters() | {"autocommit": False}) as writer:
        writer.execute(
            "INSERT INTO vitrine_message_event (at, entity_id, subqueue, sequence_number, kind) VALUES (now(), %s, 0, 1, 1)",
            (queue.pk,),
        )
        assert retention.create_partitions(FIRST_OF_MARCH, days_ahead=0) == []
    assert retention.create_partitions(FIRST_OF_MARCH, days_ahead=0) == [FIRST_OF_MARCH]
