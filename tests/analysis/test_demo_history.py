"""Generated history: its shape, its label, and that its lives add up."""

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from broker_core.common.errors import EntityNotFound
from broker_core.common.types import EventKind
from broker_core.models import Entity, EntityCounter, MessageEvent, Namespace
from explorer.analysis import demo_history

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_slots_cover_the_hours_and_hold_the_messages():
    slots = list(demo_history.slots(NOON, NOON + timedelta(hours=24), 10_000, demo_history.PROFILES[0]))
    assert len(slots) == 141
    assert slots[0].start_at == NOON
    assert slots[-1].start_at + demo_history.SLOT == NOON + timedelta(hours=23, minutes=30)
    assert sum(slot.count for slot in slots) == pytest.approx(10_000, rel=0.01)


def test_in_the_incident_messages_wait_longer_and_fail_more():
    slots = list(demo_history.slots(NOON, NOON + timedelta(hours=24), 10_000, demo_history.PROFILES[0]))
    usual, worst = slots[0], max(slots, key=lambda slot: slot.dead_share)
    assert worst.dead_share > 5 * usual.dead_share
    assert worst.wait > 3 * usual.wait


@pytest.fixture
def generated(transactional_db):
    """A queue with 500 generated lives; gives it and the number of events."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE vitrine_message_event")
    queue = Entity.objects.create(namespace=Namespace.objects.create(name="demo"), path="orders")
    EntityCounter.objects.create(entity=queue)
    yield queue, demo_history.generate("demo", ["orders"], messages=500)
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE vitrine_message_event")
        cursor.execute("DELETE FROM vitrine_entity_counter WHERE entity_id = %s", [queue.pk])


def test_every_generated_event_says_what_it_is(generated):
    queue, written = generated
    events = MessageEvent.objects.filter(entity=queue)
    assert events.count() == written
    assert not events.exclude(actor="generated", details={"generated": True}).exists()
    assert not events.exclude(message_id__startswith="generated-").exists()


def test_every_generated_message_is_sent_once_and_ends_once_in_the_past(generated):
    queue, _ = generated
    by_kind = {kind: MessageEvent.objects.filter(entity=queue, kind=kind) for kind in EventKind}
    sent = by_kind[EventKind.SENT].count()
    ended = by_kind[EventKind.COMPLETED].count() + by_kind[EventKind.EXPIRED].count() + by_kind[EventKind.PURGED].count()
    assert sent == ended
    assert by_kind[EventKind.DEAD_LETTERED].count() == by_kind[EventKind.PURGED].count()
    assert not MessageEvent.objects.filter(entity=queue, at__gt=datetime.now(UTC)).exists()
    numbers = list(by_kind[EventKind.SENT].order_by("at").values_list("sequence_number", flat=True))
    assert numbers == list(range(1, sent + 1))
    assert EntityCounter.objects.get(entity=queue).next_number == sent + 1


def test_generated_events_lie_in_day_partitions(generated):
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM vitrine_message_event_default")
        assert cursor.fetchone() == (0,)


@pytest.mark.django_db
def test_an_unknown_queue_is_named():
    with pytest.raises(EntityNotFound, match="nowhere"):
        demo_history.generate("demo", ["nowhere"])
