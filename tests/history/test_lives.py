"""What a life and an attempt say, within a slice and across slices."""

import json
import uuid
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from broker_core import namespaces, rabbitmq, service_bus
from broker_core.common.types import EntityAddress, EventKind, Message, SubQueue, TopicSettings
from broker_core.history import archive, lives, schema
from broker_core.models import ArchiveFile, ArchiveSlice, Entity
from broker_core.service_bus import entities
from tests.looking import entity_id

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def events(*rows: dict) -> pa.Table:
    """Events in the order given, each of message 1 and of a transaction of its own, with their day."""
    default = dict.fromkeys(schema.EVENT.names) | {
        "recorded_at": NOON, "at": NOON, "entity_id": 1, "subqueue": 0, "sequence_number": 1, "kind": 1, "day": NOON.date(),
    }  # fmt: skip
    with_day = schema.EVENT.append(pa.field("day", pa.date32()))
    return pa.Table.from_pylist([default | {"event_id": i, "xid": i} | row for i, row in enumerate(rows)], schema=with_day)


def nothing_earlier(wanted):
    return events().select(lives.READ)


def derived(*rows):
    """(lives, attempts) of these events."""
    ended, attempts = lives.lives(events(*rows), nothing_earlier)
    return ended.to_pylist(), attempts.to_pylist()


@pytest.mark.parametrize("kind", EventKind)
def test_what_takes_a_message_away_ends_its_life_but_activation_does_not(kind):
    ends = kind is EventKind.DEAD_LETTERED or (kind.is_terminal and kind is not EventKind.ACTIVATED)
    assert len(derived({"kind": kind})[0]) == ends


def test_a_life_repeats_what_its_last_event_says():
    [life], _ = derived(
        {"kind": EventKind.COMPLETED, "enqueued_at": NOON, "reason": "r", "message_id": "m", "delivery_count": 2, "xid": 9,
         "actor": "user:alice"}
    )  # fmt: skip
    assert (life["outcome"], life["enqueued_at"], life["ended_at"], life["xid"]) == (6, NOON, NOON, 9)
    assert (life["reason"], life["message_id"], life["delivery_count"], life["generated"]) == ("r", "m", 2, False)
    assert (life["settled_by"], life["deliveries"]) == ("user:alice", None), "its beginning is not known"


def test_a_life_that_an_undo_returned_in_the_same_slice_goes_on():
    """What ended it before the undo is no end; what it had been before, such as dead-lettered, remains one."""
    restored, purged = {"kind": EventKind.RESTORED}, {"kind": EventKind.PURGED}
    assert derived({"kind": 1}, purged, restored) == ([], [])
    rows, _ = derived({"kind": 1}, purged, restored, {"kind": EventKind.RECEIVED}, {"kind": EventKind.COMPLETED})
    assert [(row["outcome"], row["deliveries"]) for row in rows] == [(EventKind.COMPLETED, 1)]
    dead = {"kind": EventKind.DEAD_LETTERED, "subqueue": int(SubQueue.DEAD_LETTER)}
    rows, _ = derived({"kind": 1}, dead, purged, restored, purged)
    assert [row["outcome"] for row in rows] == [EventKind.DEAD_LETTERED, EventKind.PURGED]
    rows, _ = derived({"kind": 1}, purged, restored | {"sequence_number": 2})
    assert [row["outcome"] for row in rows] == [EventKind.PURGED], "of another message"


def test_a_dead_letter_lived_in_the_main_queue_and_what_ends_there_in_the_dead_letter_queue():
    rows, _ = derived(
        {"kind": EventKind.DEAD_LETTERED, "subqueue": int(SubQueue.DEAD_LETTER)},
        {"kind": EventKind.COMPLETED, "subqueue": int(SubQueue.DEAD_LETTER)},
    )
    assert [(row["outcome"], row["subqueue"]) for row in rows] == [(10, 0), (6, 1)]


def test_generated_history_is_labelled():
    rows, _ = derived(*({"kind": 6, "actor": actor, "sequence_number": i} for i, actor in enumerate(["generated", "u", None])))
    assert [row["generated"] for row in rows] == [True, False, False]


def test_a_life_says_what_its_earlier_events_know():
    rows = [
        {"kind": EventKind.SENT, "session_id": "s", "size": 7, "link": "activated_from", "linked_entity_id": 1,
         "linked_sequence_number": 5},
        {"kind": EventKind.RECEIVED, "locked_until": NOON + SECOND},
        {"kind": EventKind.RENEWED, "locked_until": NOON + 2 * SECOND},
        {"kind": EventKind.LOCK_LOST},
        {"kind": EventKind.RECEIVED},
        {"kind": EventKind.FORWARDED, "link": "to", "linked_entity_id": 4, "linked_sequence_number": 9, "last_received_at": NOON},
    ]  # fmt: skip
    [life], _ = derived(*rows)
    assert (life["session_id"], life["size"], life["scheduled"]) == ("s", 7, True)
    assert (life["deliveries"], life["renewals"], life["locks_lost"]) == (2, 1, 1)
    assert (life["from_entity_id"], life["from_sequence_number"]) == (1, 5)
    assert (life["to_entity_id"], life["to_sequence_number"]) == (4, 9)


def test_deliveries_are_unknown_where_receives_are_not_recorded():
    [life], attempts = derived({"kind": 1}, {"kind": EventKind.COMPLETED, "last_received_at": NOON})
    assert (life["deliveries"], attempts) == (None, [])


@pytest.mark.parametrize(
    ("sent", "end", "in_force", "source"),
    [
        ({}, {}, None, None),
        ({"time_to_live_us": 5}, {}, 5, "own"),
        ({}, {"entity_time_to_live_us": 9}, 9, "entity"),
        ({}, {"entity_time_to_live_us": 9, "topic_time_to_live_us": 4}, 4, "topic"),
        ({"time_to_live_us": 9, "entity_time_to_live_us": 9}, {"entity_time_to_live_us": 3}, 9, "entity"),  # limited when sent
        ({"time_to_live_us": 5}, {"entity_time_to_live_us": 3}, 5, "own"),  # a later default does not limit it
        ({"time_to_live_us": 5}, {"entity_time_to_live_us": 3, "default_limits_own": True}, 3, "entity"),  # it does
    ],
)
def test_the_time_to_live_in_force_and_its_source(sent, end, in_force, source):
    [life], _ = derived({"kind": 1} | sent, {"kind": EventKind.EXPIRED} | end)
    assert (life["time_to_live_in_force_us"], life["time_to_live_source"]) == (in_force, source)
    assert life["time_to_live_us"] == sent.get("time_to_live_us")


def test_no_time_to_live_is_in_force_in_a_dead_letter_queue():
    rows, _ = derived({"kind": 1, "time_to_live_us": 5}, {"kind": EventKind.PURGED, "subqueue": 1})
    assert rows[0]["time_to_live_in_force_us"] is None


def test_each_delivery_is_an_attempt_with_its_lock_and_its_end():
    def received(at, until):
        return {"kind": EventKind.RECEIVED, "at": NOON + at * SECOND, "locked_until": NOON + until * SECOND, "actor": "user:a"}

    _, found = derived(
        {"kind": 1},
        received(1, 6),
        {"kind": EventKind.SETTLE_REFUSED},
        {"kind": EventKind.RENEWED, "locked_until": NOON + 9 * SECOND},
        {"kind": EventKind.LOCK_LOST, "at": NOON + 10 * SECOND},
        received(12, 17),
        {
            "kind": EventKind.ABANDONED,
            "at": NOON + 13 * SECOND,
            "actor": "user:b",
            "reason": "Order 17 of 12",
            "delivery_count": 2,
        },
        received(20, 25),
    )
    assert [(row["attempt"], row["outcome"], row["renewals"]) for row in found] == [(1, 12, 1), (2, 7, 0)]
    assert [(row["received_at"], row["ended_at"]) for row in found] == [
        (NOON + SECOND, NOON + 10 * SECOND), (NOON + 12 * SECOND, NOON + 13 * SECOND)
    ]  # fmt: skip
    assert [(row["locked_until"], row["lock_ended_at"]) for row in found] == [
        (NOON + 6 * SECOND, NOON + 9 * SECOND), (NOON + 17 * SECOND, NOON + 17 * SECOND)
    ]  # fmt: skip
    assert (found[1]["received_by"], found[1]["ended_by"]) == ("user:a", "user:b")
    assert (found[1]["reason"], found[1]["error"], found[1]["delivery_count"]) == ("Order 17 of 12", "Order # of #", 2)


def test_a_receive_that_ends_the_previous_lock_may_come_first_in_its_transaction():
    _, found = derived(
        {"kind": EventKind.RECEIVED, "at": NOON},
        {"kind": EventKind.RECEIVED, "xid": 9, "at": NOON + 5 * SECOND},
        {"kind": EventKind.LOCK_LOST, "xid": 9, "at": NOON + 5 * SECOND},
        {"kind": EventKind.COMPLETED, "at": NOON + 6 * SECOND},
    )
    assert [(row["attempt"], row["outcome"]) for row in found] == [(1, EventKind.LOCK_LOST), (2, EventKind.COMPLETED)]


def test_the_lock_of_one_message_is_not_anothers():
    _, found = derived(
        {"kind": EventKind.RECEIVED, "locked_until": NOON + SECOND, "sequence_number": 1},
        {"kind": EventKind.COMPLETED, "sequence_number": 1},
        {"kind": EventKind.RECEIVED, "sequence_number": 2},
        {"kind": EventKind.COMPLETED, "sequence_number": 2},
    )
    assert [(row["attempt"], row["lock_ended_at"]) for row in found] == [(1, NOON + SECOND), (1, None)]


def test_receive_and_delete_is_a_delivery_that_ends_at_once():
    [life], [attempt] = derived({"kind": 1}, {"kind": EventKind.RECEIVED_AND_DELETED, "actor": "user:a"})
    assert (attempt["received_at"], attempt["ended_at"], attempt["attempt"]) == (NOON, NOON, None)


@pytest.mark.parametrize(
    ("reason", "same"),
    [
        (None, None),
        ("Timeout after 30 s", "Timeout after # s"),
        ("no order 6f9619ff-8b86-d011-b42d-00c04fc964ff  here", "no order # here"),
        ("at 0123456789abcdef: bad", "at #: bad"),
        ("defaced", "defaced"),
        ("x" * 500, "x" * lives.MOST_CHARACTERS),
    ],
)
def test_errors_are_compared_without_numbers_and_ids(reason, same):
    assert lives.normalised(reason) == same


def rows_of(folder, content):
    files = ArchiveFile.objects.filter(content=content, slice__state=ArchiveSlice.DONE).order_by("slice_id")
    return [row for file in files for row in pq.read_table(folder / file.path).to_pylist()]


def test_what_an_earlier_slice_knows_is_read_from_its_file(archive_folder, happened, queue):
    happened(EventKind.SENT, 1, time_to_live=5 * SECOND, size=9, enqueued_at="2026-03-01T12:00Z")
    happened(EventKind.SENT, 2, size=8)
    happened(EventKind.RECEIVED, 1, locked_until="2026-03-01T12:00:30Z")
    archive.archive_events()
    happened(EventKind.RENEWED, 1, locked_until="2026-03-01T12:00:50Z", at="2026-03-01T12:00:20Z")
    archive.archive_events()
    happened(EventKind.COMPLETED, 1, enqueued_at="2026-03-01T12:00Z", at="2026-03-01T12:00:40Z")
    archive.archive_events()
    [life] = rows_of(archive_folder, ArchiveFile.LIVES)
    assert (life["time_to_live_us"], life["time_to_live_in_force_us"], life["time_to_live_source"]) == (5_000_000,) * 2 + ("own",)
    assert (life["size"], life["deliveries"], life["renewals"]) == (9, 1, 1)
    [attempt] = rows_of(archive_folder, ArchiveFile.ATTEMPTS)
    assert (attempt["attempt"], attempt["renewals"]) == (1, 1)
    assert (attempt["received_at"], attempt["ended_at"]) == (NOON, NOON + 40 * SECOND)
    assert (attempt["locked_until"], attempt["lock_ended_at"]) == (NOON + 30 * SECOND, NOON + 50 * SECOND)


def test_only_the_files_that_can_know_more_are_read(archive_folder, happened, monkeypatch):
    """Of a message that was enqueued after a file's last event, and of one whose beginning was found, nothing older is read."""
    for hour in (8, 9, 10):
        happened(EventKind.SENT, hour, at=f"2026-03-01T{hour:02}:00Z", enqueued_at=f"2026-03-01T{hour:02}:00Z")
        archive.archive_events()
    read, real = [], lives._events_of
    monkeypatch.setattr(lives, "_events_of", lambda *of: read.append(of[1].first_at.hour) or real(*of))
    happened(EventKind.COMPLETED, 9, enqueued_at="2026-03-01T09:00Z")
    archive.archive_events()
    assert read == [10, 9]
    assert rows_of(archive_folder, ArchiveFile.LIVES)[0]["deliveries"] == 0


def test_the_default_in_force_is_that_of_the_time(archive_folder, happened, queue, postgres):
    def revise(at, time_to_live):
        columns = json.dumps({"default_message_time_to_live": time_to_live})
        postgres.execute(
            "INSERT INTO vitrine_entity_revision (entity_id, at, actor, settings) VALUES (%s, %s, 'user:a', %s)",
            (queue.pk, at, columns),
        )

    revise("2026-03-01T12:00Z", "00:00:10")
    revise("2026-03-01T13:00Z", "00:00:20")
    for number, at in enumerate(("11:59", "12:30", "13:00"), start=1):
        happened(EventKind.SENT, number, recorded_at=f"2026-03-01T{at}Z")
        happened(EventKind.EXPIRED, number, recorded_at=f"2026-03-01T{at}Z")
    archive.archive_events()
    assert [row["time_to_live_in_force_us"] for row in rows_of(archive_folder, ArchiveFile.LIVES)] == [10**7, 10**7, 2 * 10**7]


def test_service_bus_says_whose_time_to_live_was_in_force(archive_folder, postgres):
    name = f"l{uuid.uuid4().hex[:8]}"
    namespaces.ensure_namespace(name)
    topic = EntityAddress(name, "t")
    entities.create_topic(topic, TopicSettings(default_message_time_to_live=20 * SECOND))
    subscription = topic.subscription("s")
    entities.create_subscription(subscription)
    service_bus.send(topic, [Message(b"default"), Message(b"own", time_to_live=5 * SECOND)])
    service_bus.complete(subscription, [m.lock_token for m in service_bus.receive(subscription, 2)])
    archive.archive_events()
    of_subscription = [r for r in rows_of(archive_folder, ArchiveFile.LIVES) if r["entity_id"] == entity_id(subscription)]
    assert [(r["time_to_live_in_force_us"], r["time_to_live_source"]) for r in of_subscription] == [
        (20_000_000, "topic"), (5_000_000, "own")
    ]  # fmt: skip
    assert {r["from_entity_id"] for r in of_subscription} == {entity_id(topic)}
    attempts = [r for r in rows_of(archive_folder, ArchiveFile.ATTEMPTS) if r["entity_id"] == entity_id(subscription)]
    assert [(r["attempt"], r["outcome"]) for r in attempts] == [(1, EventKind.COMPLETED)] * 2
    assert all(r["received_at"] <= r["ended_at"] < r["locked_until"] for r in attempts)


def test_a_lost_lock_is_an_attempt_whichever_statement_ends_it(archive_folder, postgres):
    name = f"l{uuid.uuid4().hex[:8]}"
    namespaces.ensure_namespace(name)
    namespaces.pause_clock(name)
    queue = EntityAddress(name, "q")
    entities.create_queue(queue)
    service_bus.send(queue, [Message(b"x")])
    service_bus.receive(queue, 1)
    namespaces.step_clock(name, timedelta(minutes=2))
    service_bus.complete(queue, [service_bus.receive(queue, 1)[0].lock_token])
    archive.archive_events()
    found = [r for r in rows_of(archive_folder, ArchiveFile.ATTEMPTS) if r["entity_id"] == entity_id(queue)]
    assert [(r["attempt"], r["outcome"]) for r in found] == [(1, EventKind.LOCK_LOST), (2, EventKind.COMPLETED)]
    [life] = [r for r in rows_of(archive_folder, ArchiveFile.LIVES) if r["entity_id"] == entity_id(queue)]
    assert (life["deliveries"], life["locks_lost"]) == (2, 1)


def test_rabbitmq_limits_what_was_sent_by_the_queues_argument(archive_folder, postgres):
    name = f"l {uuid.uuid4().hex[:8]}"
    rabbitmq.create_vhost(name)
    queue = EntityAddress(name, "q")
    rabbitmq.declare_queue(queue, arguments={"x-message-ttl": 60_000})
    for expiration in (None, "1000"):
        publication = rabbitmq.Publication(b"x", routing_key="q", properties=rabbitmq.Properties(expiration=expiration))
        rabbitmq.publish(name, [publication])
        rabbitmq.purge_queue(queue)
    archive.archive_events()
    of_queue = [r for r in rows_of(archive_folder, ArchiveFile.LIVES) if r["entity_id"] == Entity.objects.get(path="q").pk]
    assert [(r["time_to_live_in_force_us"], r["time_to_live_source"]) for r in of_queue] == [
        (60_000_000, "entity"), (1_000_000, "own")
    ]  # fmt: skip
