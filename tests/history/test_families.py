"""Messages of storage queues and virtual hosts live, and end, in the archive as those of Service Bus do."""

import uuid
from datetime import timedelta

import pyarrow.parquet as pq
import pytest

from broker_core import namespaces, rabbitmq
from broker_core import queue_storage as storage
from broker_core.common.types import EntityAddress, EventKind
from broker_core.history import archive
from broker_core.models import ArchiveFile
from broker_core.queue_storage import tidying
from broker_core.store.driver import run
from tests.broker_state import entity_id, events

from .derived import derived

SECOND = timedelta(seconds=1)


@pytest.fixture
def vhost(postgres):
    name = f"h {uuid.uuid4().hex[:8]}"
    rabbitmq.create_vhost(name)
    namespaces.pause_clock(name)
    return name


@pytest.fixture
def account(postgres):
    name = f"h{uuid.uuid4().hex[:8]}"
    storage.create_account(name)
    namespaces.pause_clock(name)
    return name


def archived_lives(folder, queue):
    """The archived lives of a queue, by number."""
    archive.archive_events()
    return {row["sequence_number"]: row for row in derived(folder)[0] if row["entity_id"] == entity_id(queue)}


def ends(found):
    return {number: (EventKind(life["outcome"]), life["reason"]) for number, life in found.items()}


def publish(queue, body, **properties):
    message = rabbitmq.Publication(body, routing_key=queue.path, properties=rabbitmq.Properties(**properties))
    rabbitmq.publish(queue.namespace, [message])


def test_a_dead_lettered_message_ends_in_its_queue_and_begins_in_the_target(archive_folder, vhost):
    queue, dead = EntityAddress(vhost, "work"), EntityAddress(vhost, "dead")
    rabbitmq.declare_queue(queue, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    rabbitmq.declare_queue(dead)
    with rabbitmq.connect(vhost) as connection, connection.channel() as channel:
        for body in (b"good", b"bad", b"late"):
            publish(queue, body, expiration="60000" if body == b"late" else None)
        namespaces.step_clock(vhost, SECOND)
        channel.ack(channel.get("work").delivery_tag)
        channel.reject(channel.get("work").delivery_tag, requeue=False)
        namespaces.step_clock(vhost, 60 * SECOND)
        assert channel.get("work") is None
        channel.ack(channel.get("dead").delivery_tag)
    lives = archived_lives(archive_folder, queue)
    assert ends(lives) == {
        1: (EventKind.COMPLETED, None), 2: (EventKind.MOVED, "rejected"), 3: (EventKind.MOVED, "expired")
    }  # fmt: skip
    assert lives[2]["first_received_at"] == lives[2]["enqueued_at"] + SECOND == lives[2]["ended_at"]
    assert (lives[3]["first_received_at"], lives[3]["ended_at"]) == (None, lives[3]["enqueued_at"] + 61 * SECOND)
    assert ends(archived_lives(archive_folder, dead)) == {1: (EventKind.COMPLETED, None)}
    moved = [e for e in events(queue) if e.kind == EventKind.MOVED][0]
    assert moved.details["to"] == [{"entity": entity_id(dead), "path": "dead", "sequence_number": 1}]
    sent = events(dead, 1)[0]
    assert sent.details["from"] == {"entity": entity_id(queue), "path": "work", "sequence_number": 2, "reason": "rejected"}


def test_a_message_without_a_dead_letter_target_ends_in_its_queue(archive_folder, vhost):
    queue = EntityAddress(vhost, "short")
    rabbitmq.declare_queue(queue, arguments={"x-max-length": 1})
    publish(queue, b"1")
    publish(queue, b"2", expiration="1000")
    namespaces.step_clock(vhost, 2 * SECOND)
    assert rabbitmq.get(queue, no_ack=True) is None
    publish(queue, b"3")
    assert rabbitmq.get(queue, no_ack=True).number == 3
    publish(queue, b"4")
    assert rabbitmq.purge_queue(queue) == 1
    assert ends(archived_lives(archive_folder, queue)) == {
        1: (EventKind.DROPPED, "maxlen"),
        2: (EventKind.EXPIRED, "expired"),
        3: (EventKind.RECEIVED_AND_DELETED, None),
        4: (EventKind.PURGED, None),
    }


def test_storage_messages_end_by_delete_clear_expiry_and_poison(archive_folder, account):
    jobs = EntityAddress(account, "jobs")
    storage.create_queue(jobs, max_dequeue_count=1, expiry_grace=timedelta(0))
    done = storage.put(jobs, "done")
    storage.delete(jobs, done.message_id, done.pop_receipt)
    storage.put(jobs, "spent")
    storage.get(jobs, visibility_timeout=SECOND)
    namespaces.step_clock(account, 2 * SECOND)
    assert storage.get(jobs) == []  # it is moved
    storage.put(jobs, "late", time_to_live=5 * SECOND)
    namespaces.step_clock(account, 6 * SECOND)
    run(tidying.expire_batch(entity_id(jobs)))
    storage.put(jobs, "cleared")
    storage.clear(jobs)
    lives = archived_lives(archive_folder, jobs)
    assert {number: kind for number, (kind, _) in ends(lives).items()} == {
        1: EventKind.COMPLETED, 2: EventKind.MOVED, 3: EventKind.EXPIRED, 4: EventKind.PURGED
    }  # fmt: skip
    assert lives[2]["reason"] == "MaxDequeueCountExceeded"
    assert lives[2]["delivery_count"] == 1
    assert archived_lives(archive_folder, EntityAddress(account, "jobs-poison")) == {}


def test_a_time_to_live_beyond_64_bits_is_archived_as_the_maximum(archive_folder, account):
    queue = EntityAddress(account, "long")
    storage.create_queue(queue)
    put = storage.put(queue, "almost for ever", time_to_live=timedelta.max)
    storage.delete(queue, put.message_id, put.pop_receipt)
    archive.archive_events()
    files = ArchiveFile.objects.filter(content=ArchiveFile.EVENTS)
    rows = [row for file in files for row in pq.read_table(archive_folder / file.path).to_pylist()]
    assert [row["time_to_live_us"] for row in rows if row["kind"] == EventKind.SENT] == [2**63 - 1]
