"""The messages and deliveries behind the numbers of an analysis."""

import html
from datetime import timedelta

import pyarrow as pa
import pytest
from django.urls import reverse

from broker_core import namespaces
from broker_core.common.types import EntityAddress, Family
from broker_core.history import storage
from broker_core.models import ArchiveFile, Entity
from broker_core.service_bus import entities
from explorer.analysis.jobs import outcomes
from explorer.analysis.reports import messages
from explorer.analysis.reports.listing import messages_url
from tests.html import body_of

from .factories import NOON

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)
END = NOON + 3 * HOUR
LIFE = {
    "subqueue": 0, "outcome": outcomes.COMPLETED, "result": outcomes.COMPLETED, "enqueued_at": NOON, "ended_at": NOON + SECOND,
    "waiting_us": 1_000_000, "deliveries": 1, "size": 100, "message_id": "m", "settled_by": "user:a",
}  # fmt: skip
ATTEMPT = {
    "attempt_subqueue": 0, "attempt": 1, "attempt_outcome": 6, "attempt_received_at": NOON, "attempt_held_us": 1_000_000,
    "attempt_received_by": "process:w", "attempt_well": True, "attempt_lost": False, "attempt_rejected": False,
    "attempt_failed": False,
}  # fmt: skip
LOST = {"attempt_outcome": 12, "attempt_well": False, "attempt_lost": True, "attempt_failed": True}


@pytest.fixture
def queue(transactional_db, settings, tmp_path):
    """A queue in an empty archive."""
    settings.ARCHIVE_URL = str(tmp_path)
    namespaces.ensure_namespace("demo", Family.SERVICE_BUS)
    entities.create_queue(EntityAddress("demo", "orders"))
    yield Entity.objects.get(path="orders")
    ArchiveFile.objects.all().delete()


def write(queue, content, *rows, columns=messages.LIFE, defaults=LIFE, path=""):
    """A file of the archive, of the hours from NOON on, with these rows, numbered from 1; and a column that nobody reads."""
    path = path or f"{content}/a.parquet"
    numbered = [{"entity_id": queue.pk, "sequence_number": i} | defaults | row for i, row in enumerate(rows, start=1)]
    table = pa.Table.from_pylist(numbered, schema=columns).append_column("more", pa.nulls(len(rows), pa.int32()))
    written = storage.current_archive().write(table, path)
    ArchiveFile.objects.create(
        content=content, day=NOON.date(), namespace_id=queue.namespace_id, path=path, rows=len(rows), bytes=written.bytes,
        checksum=written.checksum, first_at=NOON, last_at=NOON + HOUR,
    )  # fmt: skip


@pytest.fixture
def lives(queue):
    """4 messages that completed in the second hour, one that expired and one that was dead-lettered in the first; others."""
    expired = {"outcome": outcomes.DEAD_LETTERED, "result": outcomes.EXPIRED, "reason": "TTLExpiredException", "waiting_us": None}
    later = NOON + HOUR
    write(
        queue, "lives",
        *({"enqueued_at": later, "ended_at": later + SECOND, "waiting_us": i * 10**6} for i in (3, 9, 5, 7)),
        expired,
        {"outcome": outcomes.DEAD_LETTERED, "result": outcomes.DEAD_LETTERED, "reason": "Bad <5>", "cause": "Bad <#>"},
        {"outcome": outcomes.CANCELLED, "result": outcomes.CANCELLED},
        {"entity_id": queue.pk + 1},
        {"subqueue": 1},
    )  # fmt: skip
    return queue


def numbers(queue, start=NOON, end=END, **conditions):
    return [row.sequence_number for row in messages.find([queue.pk], (start, end), **conditions).rows]


def test_the_slowest_come_first(lives):
    assert numbers(lives, outcome="completed") == [2, 4, 3, 1]
    assert numbers(lives, outcome="completed", order="enqueued") == [1, 2, 3, 4]
    message = messages.find([lives.pk], (NOON, END), outcome="completed").rows[0]
    assert (message.waiting, message.outcome, message.settled_by) == (9 * SECOND, "completed", "user:a")


def test_the_counts_equal_those_of_the_jobs(lives):
    """Not cancelled schedules, dead-letter queues, or other entities; by the result and cause of the row."""
    assert messages.find([lives.pk], (NOON, END)).count == 6
    assert numbers(lives, outcome="expired") == [5]
    assert numbers(lives, outcome="dead_lettered", cause="Bad <#>") == [6]
    assert numbers(lives, outcome="expired", cause="") == [5] and numbers(lives, outcome="other") == []
    assert sorted(numbers(lives, end=NOON + HOUR)) == [5, 6]
    assert numbers(lives, left=(NOON + HOUR, END), order="enqueued") == [1, 2, 3, 4]
    assert messages.find([lives.pk], None, left=(NOON, NOON + HOUR)).count == 2


def test_only_the_first_messages_are_listed_and_all_are_counted(queue, monkeypatch):
    monkeypatch.setattr(messages, "MOST", 3)
    monkeypatch.setattr(messages, "BATCH_ROWS", 4)
    write(queue, "lives", *({"waiting_us": i % 7} for i in range(20)))
    write(queue, "lives", {"waiting_us": 9, "sequence_number": 99}, path="lives/b.parquet")
    page = messages.find([queue.pk], (NOON, END))
    assert (page.count, [row.sequence_number for row in page.rows]) == (21, [99, 7, 14])


def test_messages_still_in_the_queue_are_listed(lives):
    columns = pa.schema([field for field in messages.LIFE if field.name not in ("outcome", "result", "ended_at", "waiting_us")])
    there = {"enqueued_at": NOON, "is_waiting": False, "first_received_at": NOON + 4 * SECOND, "sequence_number": 20}
    unread = there | {"first_received_at": None, "sequence_number": 21, "session_id": "s"}
    rows = (there, unread, there | {"is_waiting": True}, there | {"subqueue": 1}, there | {"enqueued_at": END})
    write(lives, "open", *rows, columns=columns, defaults={"subqueue": 0, "deliveries": 1})
    page = messages.find([lives.pk], (NOON, END), outcome="still_there")
    assert [(row.sequence_number, row.outcome, row.waiting, row.ended_at) for row in page.rows] == [
        (20, "still_there", 4 * SECOND, None), (21, "still_there", None, None),
    ]  # fmt: skip
    assert messages.find([lives.pk], (NOON, END)).count == 8
    assert numbers(lives, key="session", value="s") == [21]
    assert len(numbers(lives, left=(NOON, END))) == 6 and numbers(lives, outcome="expired") == [5]


def test_messages_are_listed_by_property_value(queue):
    rows = (
        {"size": 512, "session_id": "s"}, {"size": 1023}, {"size": 1024, "time_to_live_in_force_us": 90_000_000}, {"size": 0},
        {"size": None, "chosen_properties": '{"region": "eu", "n": "1"}'}, {"chosen_properties": '{"n": "eu"}'},
    )  # fmt: skip
    write(queue, "lives", *rows)
    for key, value, expected in (
        ("size", "512", [1, 2]), ("size", "1", [4]), ("size", "x", []), ("time-to-live", "90000000", [3]), ("session", "s", [1]),
        ("property:region", "eu", [5]), ("property:n", "eu", [6]), ("property:other", "eu", []),
    ):  # fmt: skip
        assert sorted(numbers(queue, key=key, value=value)) == expected, (key, value)


def test_copies_are_listed_by_source_and_target(queue):
    write(queue, "lives", {"from_entity_id": 7}, {"to_entity_id": 8}, {})
    assert (numbers(queue, origin=7), numbers(queue, destination=8)) == ([1], [2])
    assert sorted(numbers(queue, origin=0, destination=0)) == [3]


@pytest.mark.parametrize("damage", ["missing", "empty", "truncated"])
def test_a_damaged_file_is_reported_and_the_other_days_are_shown(viewer, lives, tmp_path, damage):
    write(lives, "lives", {"sequence_number": 50}, path="lives/b.parquet")
    file = tmp_path / "lives/b.parquet"
    file.unlink() if damage == "missing" else file.write_bytes(b"" if damage == "empty" else file.read_bytes()[:-40])
    page = messages.find([lives.pk], (NOON, END))
    assert (page.count, page.damaged) == (6, ["lives/b.parquet"])
    body = body_of(viewer.get(messages_url({"queue": lives.pk}, NOON, END)))
    assert "1 archive file is damaged or missing." in body and "lives/b.parquet" in body and "verify_archive --repair" in body
    assert '/messages/demo/orders/6"' in body


@pytest.fixture
def attempts(queue):
    """Deliveries from the main list, one from another, and a life that ended without one."""
    bad = {"attempt_well": False}
    rows = (
        {}, LOST, LOST | {"attempt_received_by": "process:x"}, LOST | {"attempt_received_by": None},
        bad | {"attempt_failed": True, "attempt_outcome": 7, "attempt_received_at": NOON + HOUR},
        bad | {"attempt_rejected": True, "attempt_outcome": 10}, bad | {"attempt_outcome": 8}, {"attempt_subqueue": 1},
        {"entity_id": queue.pk + 1}, {"attempt_received_at": END}, dict.fromkeys(ATTEMPT),
    )  # fmt: skip
    write(queue, "lives", *rows, columns=messages.ATTEMPT, defaults=ATTEMPT)
    return queue


def test_deliveries_are_listed_by_receiver_and_outcome(attempts):
    def found(**conditions):
        return [row.sequence_number for row in messages.find_deliveries([attempts.pk], NOON, END, **conditions).rows]

    assert found() == [5, 1, 2, 3, 4, 6, 7], "the latest first"
    by_ending = {ending: found(ending=ending) for ending in messages.ENDINGS if ending != "all"}
    assert by_ending == {"succeeded": [1], "lost": [2, 3, 4], "rejected": [6], "failed": [5], "other": [7]}
    assert found(ending="lost", receiver="process:w") == [2] and found(receiver="") == [4]
    assert messages.find([attempts.pk], (NOON, END)).count == 0, "no life ended"


def test_the_page_lists_deliveries(viewer, attempts):
    url = messages_url({"namespace": "demo"}, NOON, END, deliveries="lost", receiver="process:x")
    body = body_of(viewer.get(url))
    assert "Deliveries to x whose lock was lost, received from" in body and "1 delivery" in body
    assert '/messages/demo/orders/3"' in body and "lock ended" in body and '<td class="name">orders</td>' in body
    assert "3 deliveries" in body_of(viewer.get(messages_url({"queue": attempts.pk}, NOON, END, deliveries="lost")))
    url = messages_url({"queue": attempts.pk}, END, END + HOUR, deliveries="lost")
    assert "No such deliveries" in body_of(viewer.get(url))


def test_the_page_lists_messages(viewer, lives):
    body = body_of(viewer.get(messages_url({"queue": lives.pk}, NOON, END, outcome="completed")))
    assert "4 messages" in body and '/messages/demo/orders/2"' in body and "Completed: demo/orders" in body
    left = {"left_start": NOON, "left_end": NOON + HOUR}
    body = body_of(viewer.get(messages_url({"namespace": "demo"}, None, None, **left, cause="Bad <#>")))
    said = "Messages that left the queue from 2026-03-01 12:00 to 2026-03-01 13:00 UTC, with the reason “Bad <#>”."
    assert "1 message" in body and said in " ".join(html.unescape(body).split())
    assert "No such messages" in body_of(viewer.get(messages_url({"queue": lives.pk}, NOON, END, cause="Good")))


@pytest.mark.parametrize(
    "query",
    [
        "", "queue=999", "queue=x", "start=", "outcome=no", "end=x", "order=x", "namespace=none",
        "deliveries=no", "key=colour", "end=",
    ],
)  # fmt: skip
def test_an_unknown_number_is_not_found(viewer, queue, query):
    values = {} if not query else {"queue": str(queue.pk), "start": "2026-03-01", "end": "2026-03-02"}
    changed = dict([query.split("=")]) if query else {}
    if "namespace" in changed:
        del values["queue"]
    assert viewer.get(reverse("explorer:analysis_messages"), values | changed).status_code == 404
