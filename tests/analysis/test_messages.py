"""The messages behind the numbers of an analysis."""

from datetime import timedelta

import pyarrow as pa
import pytest
from django.urls import reverse

from broker_core import namespaces
from broker_core.common.types import EntityAddress
from broker_core.history import archive, schema
from broker_core.models import ArchiveEpoch, ArchiveFile, ArchiveSlice, Entity
from broker_core.service_bus import entities
from explorer.analysis import messages
from explorer.analysis.jobs import outcomes
from explorer.analysis.listing import messages_url
from explorer.roles import VIEWER
from tests.html import body_of

from .conftest import NOON, a_life
from .factories import a_result, a_run
from .test_pages import signed_in

SECOND, HOUR = timedelta(seconds=1), timedelta(hours=1)


@pytest.fixture
def queue(transactional_db, settings, tmp_path):
    """A queue with 6 lives in the archive: 4 completed in the second hour, one expired and one dead-lettered in the first."""
    settings.ARCHIVE_URL = str(tmp_path)
    namespaces.ensure_namespace("demo")
    entities.create_queue(EntityAddress("demo", "orders"))
    queue = Entity.objects.get(path="orders")
    expired = {"outcome": outcomes.DEAD_LETTERED, "reason": "TTLExpiredException", "first_received_at": None}
    rows = [
        *({"first_received_at": NOON + HOUR + i * SECOND, "enqueued_at": NOON + HOUR} for i in (3, 9, 5, 7)),
        expired,
        {"outcome": outcomes.DEAD_LETTERED, "reason": "Bad <payload>"},
        {"outcome": outcomes.CANCELLED},
        {"entity_id": queue.pk + 1},
        {"subqueue": 1},
    ]
    lives = [a_life(entity_id=queue.pk, sequence_number=i) | row for i, row in enumerate(rows, start=1)]
    written = archive.storage.archive_here().write(pa.Table.from_pylist(lives, schema=schema.LIFE), "lives/a.parquet")
    epoch = ArchiveEpoch.objects.create(system_identifier=1, from_xid=1, began_at=NOON)
    done = ArchiveSlice.objects.create(epoch=epoch, from_xid=1, to_xid=2, state="done", opened_at=NOON, done_at=NOON)
    ArchiveFile.objects.create(
        slice=done, content="lives", day=NOON.date(), namespace_id=queue.namespace_id, path="lives/a.parquet", rows=len(lives),
        bytes=written.bytes, schema_version=schema.VERSION, checksum=written.checksum, first_at=NOON, last_at=NOON + HOUR,
    )  # fmt: skip
    yield queue
    for model in (ArchiveFile, ArchiveSlice, ArchiveEpoch):
        model.objects.all().delete()


def numbers(queue, start=NOON, end=NOON + 3 * HOUR, **conditions):
    return [row.sequence_number for row in messages.find([queue.pk], start, end, **conditions).rows]


def test_the_slowest_come_first(queue):
    assert numbers(queue, outcome="completed") == [2, 4, 3, 1]
    assert numbers(queue, outcome="completed", order="enqueued") == [1, 2, 3, 4]
    found = messages.find([queue.pk], NOON, NOON + 3 * HOUR, outcome="completed").rows[0]
    assert (found.waiting, found.outcome) == (9 * SECOND, "completed")


def test_a_number_counts_what_the_job_counts(queue):
    """Not cancelled schedules, dead-letter queues, or other entities; expired is expired wherever the message went."""
    assert messages.find([queue.pk], NOON, NOON + 3 * HOUR).count == 6
    assert numbers(queue, outcome="expired") == [5]
    assert numbers(queue, outcome="dead_lettered", reason="Bad <payload>") == [6]
    assert numbers(queue, reason="TTLExpiredException") == []
    assert numbers(queue, outcome="other") == []
    assert len(numbers(queue, start=NOON, end=NOON + HOUR)) == 2


def test_a_range_with_too_many_lives_is_refused(queue, monkeypatch):
    monkeypatch.setattr(messages, "MOST_LIVES", 5)
    with pytest.raises(messages.TooManyLives, match="9 messages in the archive; at most 5"):
        messages.find([queue.pk], NOON, NOON + 3 * HOUR)


@pytest.fixture
def run(queue):
    run = a_run(queues=[{"id": queue.pk, "namespace": "demo", "path": "orders"}], state="succeeded", messages=6)
    run.save()
    for bucket_at in (None, NOON + HOUR):
        a_result(run=run, entity_id=queue.pk, bucket_at=bucket_at, completed=4, still_there=1).save()
    return run


def test_a_number_of_the_result_leads_to_its_messages(client, queue, run):
    signed_in(client, VIEWER)
    body = body_of(client.get(reverse("explorer:analysis_run", args=(run.pk,))))
    address = messages_url({"queue": queue.pk}, NOON + HOUR, NOON + 2 * HOUR, outcome="completed")
    assert address in body and "outcome=still_there" not in body
    listed = body_of(client.get(address))
    assert "4 messages" in listed and '/messages/demo/orders/2"' in listed
    assert "13:00</time> to" in listed


def test_messages_of_a_namespace_by_when_they_left_and_by_cause(client, queue):
    signed_in(client, VIEWER)
    left = {"left_start": NOON, "left_end": NOON + HOUR}
    listed = body_of(client.get(messages_url({"namespace": "demo"}, NOON - HOUR, NOON + HOUR, **left, cause="")))
    assert "2 messages" in listed and '/messages/demo/orders/6"' in listed and '<td class="name">orders</td>' in listed
    assert "No such messages" in body_of(client.get(messages_url({"namespace": "demo"}, NOON, NOON + HOUR, cause="Bad")))
    left = {"left_start": NOON - HOUR, "left_end": NOON}
    assert "No such messages" in body_of(client.get(messages_url({"queue": queue.pk}, NOON, NOON + HOUR, **left)))


@pytest.mark.parametrize(
    "query",
    ["", "queue=999", "queue=x", "start=", "outcome=no", "end=x", "order=x", "namespace=none"],
)
def test_no_other_number_is_found(client, queue, query):
    signed_in(client, VIEWER)
    given = {} if not query else {"queue": str(queue.pk), "start": "2026-03-01", "end": "2026-03-02"}
    changed = dict([query.split("=")]) if query else {}
    if "namespace" in changed:
        del given["queue"]
    assert client.get(reverse("explorer:analysis_messages"), given | changed).status_code == 404


def test_too_many_messages_are_said_on_the_page(client, queue, monkeypatch):
    signed_in(client, VIEWER)
    monkeypatch.setattr(messages, "MOST_LIVES", 1)
    assert "Open a number of a shorter range" in body_of(client.get(messages_url({"queue": queue.pk}, NOON, NOON + 9 * HOUR)))


def test_what_is_listed_is_one_sentence_and_says_why_numbers_differ(client, queue):
    signed_in(client, VIEWER)
    shown = body_of(client.get(messages_url({"queue": queue.pk}, NOON, NOON + HOUR)))
    assert "UTC that have left the queue. " in shown or "UTC that have left the queue.</p>" in shown
    assert "The number in the analysis can differ: messages that are still in the queue are not listed here" in shown
    assert "with the reason “Bad”." in body_of(client.get(messages_url({"queue": queue.pk}, NOON, NOON + HOUR, reason="Bad")))


def test_an_entity_leads_to_its_analyses(client, queue, run):
    signed_in(client, VIEWER)
    assert f"/analyses/?queue={queue.pk}" in body_of(client.get(reverse("explorer:entity", args=("demo", "orders"))))
    assert f"Analysis {run.pk}" in body_of(client.get(f"/analyses/?queue={queue.pk}"))
    other = Entity.objects.create(namespace=queue.namespace, path="other")
    assert f"Analysis {run.pk}" not in body_of(client.get(f"/analyses/?queue={other.pk}"))


def test_pages_and_jobs_agree_on_outcomes_and_times(lives):
    """The Arrow definitions of this page equal the job's."""
    from explorer.analysis.jobs import transforms

    codes = [*outcomes.COLUMNS.values(), 20]
    reasons = [None, "Bad", *outcomes.BROKER_REASONS]
    rows = [{"outcome": code, "reason": reason} for code in codes for reason in reasons]
    rows += [{"first_received_at": NOON - SECOND}, {"outcome": outcomes.RECEIVED_AND_DELETED, "first_received_at": None}]
    columns = ["sequence_number", "outcome", "reason", "waiting_us", "processing_us"]
    by_spark = transforms.with_time_in_queue(lives(*rows))
    by_spark = transforms.with_expiry(by_spark).select(columns).orderBy("sequence_number").collect()
    table = pa.Table.from_pylist([a_life(sequence_number=i) | row for i, row in enumerate(rows, start=1)], schema=schema.LIFE)
    by_arrow = messages.with_outcome(messages.with_times(table)).select(columns).to_pylist()
    assert [row.asDict() for row in by_spark] == by_arrow
