"""Idle and storage: the computation as tables, and the pages of all families."""

from datetime import timedelta

import pyarrow as pa
import pytest

from broker_core import namespaces, queue_storage, rabbitmq, service_bus
from broker_core.common.types import EntityAddress, Family, Message
from broker_core.history import archive as archiving
from broker_core.history import schema
from broker_core.models import Entity
from broker_core.service_bus import entities
from explorer.analysis.jobs import measures
from explorer.analysis.reports import idle
from explorer.analysis.reports.idle import Queue, Spell

from .conftest import NOON

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NAMES = {1: "orders", 2: "old"}


def spell(since, until, length):
    return Spell(NOON + since * HOUR, None if until is None else NOON + until * HOUR, length * HOUR)


@pytest.mark.parametrize(
    ("used", "found"),
    [
        ([], [(0, None, 10)]),
        ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], []),
        ([0, 4], [(1, 4, 3), (5, None, 5)]),
        ([-5, 2, 9, 20], [(0, 2, 2), (3, 9, 6)]),
    ],
)
def test_times_without_use(used, found):
    given = {NOON + hours * HOUR for hours in used}
    assert idle.spells(given, NOON, NOON + 10 * HOUR) == [spell(*one) for one in found]


def test_a_part_of_an_hour_is_not_idle():
    assert idle.spells([NOON], NOON + HOUR / 2, NOON + 1.9 * HOUR) == []


def rollup(entity_id, measure, hour, end_hour):
    values = {"entity_id": entity_id, "measure": measure, "hour": NOON + hour * HOUR, "end_hour": NOON + end_hour * HOUR}
    return dict.fromkeys(schema.ROLLUP.names) | values | {"messages": 3}


def test_what_counts_as_use():
    rows = pa.Table.from_pylist(
        [rollup(1, measures.LIFE, 0, 5), rollup(2, measures.LIFE, 0, 5), rollup(2, measures.HELD, 3, 4)], schema=schema.ROLLUP
    )
    assert idle.used_hours(rows, [1]) == {1: {NOON}, 2: {NOON + 3 * HOUR, NOON + 4 * HOUR}}


def test_what_deleting_would_have_removed():
    queues = [
        Queue(1, (spell(0, 30, 30), spell(40, None, 2)), 5, 1000), Queue(2, (spell(0, None, 50),), 7, 3000), Queue(3, (), 0, 0),
    ]  # fmt: skip
    assert idle.sentence(queues, 24 * HOUR, "auto-delete on idle") == (
        "Auto-delete on idle after 1 day without use would have removed 2 queues, 1 of which was used again later; now they have "
        "12 messages (3.9\xa0KB)."
    )
    assert idle.sentence(queues, 40 * HOUR, "").startswith(
        "Deleting queues after 1 day 16 h without use would have removed 1 queue;"
    )
    assert "would have removed none" in idle.sentence(queues, 100 * HOUR, "")
    assert idle.sentence(queues, None, "").startswith("2 queues of 3 are idle now, the longest for at least 2 days 2 h;")
    assert idle.sentence(queues[2:], None, "") == "No queue was idle for an hour or more."
    assert idle.storage_sentence(queues, NAMES) == "3.9\xa0KB are stored, 75.0\xa0% of them in old."


@pytest.fixture
def unused(archive):
    """A queue with 3 messages of 100 bytes, 10 days ago; two were completed a day later."""
    address = EntityAddress("reports", "q")
    namespaces.ensure_namespace("reports")
    namespaces.pause_clock("reports")
    entities.create_queue(address)
    service_bus.send(address, [Message(b"x" * 100) for _ in range(3)])
    namespaces.step_clock("reports", DAY)
    service_bus.complete(address, [one.lock_token for one in service_bus.receive(address, 2)])
    namespaces.step_clock("reports", 9 * DAY)
    archiving.archive_events()
    return Entity.objects.get(path="q")


def test_the_page_of_a_queue_and_of_the_namespace(report_of, unused):
    body = report_of("idle", queue=unused.pk, x="7 days", compare="before")
    assert "Auto-delete on idle after 7 days without use would have removed 1 queue; now it has 1 message" in body
    assert "2 messages left." in body and "Archive of this namespace" not in body
    body = report_of("idle", namespace="reports")
    assert "1 queue of 1 is idle now, the longest for at least 8 days" in body and "Files are kept indefinitely." in body


def test_the_mean_counts_messages_in_the_range_that_have_not_left(unused):
    """For a day there were three, then one until now."""

    def mean(**query):
        form = idle.IdleForm({"queue": unused.pk} | query)
        assert form.is_valid(), form.errors
        tables = idle.report(form.scope(), form.cleaned_data).tables
        return tables["storage"].rows[0][1], tables["storage"].rows[0][-1]

    size, now = mean(range="7d")
    assert size > 100 and now == pytest.approx(size, rel=0.01)
    start = unused.created_at.replace(minute=0, second=0, microsecond=0)
    early = {"range": "custom", "start": f"{start:%Y-%m-%dT%H:%M}", "end": f"{start + DAY:%Y-%m-%dT%H:%M}"}
    assert mean(**early)[1] == pytest.approx(3 * size, rel=0.1)


def test_a_queue_that_only_gets_messages_is_unused_in_rabbitmq(report_of, archive):
    rabbitmq.create_vhost("host")
    namespaces.pause_clock("host")
    rabbitmq.declare_queue(EntityAddress("host", "mail"))
    for _ in range(4):
        namespaces.step_clock("host", HOUR)
        rabbitmq.publish("host", [rabbitmq.Publication(b"x", routing_key="mail")])
    archiving.archive_events()
    body = report_of("idle", namespace="host", x="2 h")
    assert "Expiry of unused queues (x-expires) after 2 h without use would have removed 1 queue" in body


def test_storage_queues_can_be_deleted_by_hand(report_of, archive):
    namespaces.create_namespace("jobs", family=Family.QUEUE_STORAGE)
    namespaces.pause_clock("jobs")
    queue_storage.create_queue(EntityAddress("jobs", "work"))
    namespaces.step_clock("jobs", 2 * HOUR)
    assert "they can be deleted by hand" in report_of("idle", namespace="jobs")
