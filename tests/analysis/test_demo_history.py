"""Generated history: its shape, its label, and that its lives add up."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from django.db import connection

from broker_core.common.errors import EntityNotFound
from broker_core.common.types import EventKind
from broker_core.models import Entity, EntityCounter, MessageEvent, Namespace
from explorer.analysis import demo_history
from explorer.analysis.demo_history import Rules, Slot

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_slots_cover_the_hours_and_hold_the_messages():
    slots = list(demo_history.slots(NOON, NOON + timedelta(hours=24), 10_000, demo_history.PROFILES[0]))
    assert len(slots) == 143
    assert slots[0].start_at == NOON + timedelta(minutes=8)
    assert slots[-1].start_at + demo_history.SLOT == NOON + timedelta(hours=23, minutes=58)
    assert sum(slot.count for slot in slots) == pytest.approx(10_000, rel=0.01)


@pytest.mark.parametrize("days", [1, 3])
def test_the_incident_is_within_the_last_day(days):
    slots = list(demo_history.slots(NOON, NOON + timedelta(days=days), 10_000, demo_history.PROFILES[0]))
    worst = [slot.start_at for slot in slots if slot.fails > slots[0].fails]
    assert worst[0] == NOON + timedelta(days=days, minutes=-2) - demo_history.INCIDENT_BEFORE_END
    assert len(worst) == 7


def test_in_the_incident_work_takes_longer_and_fails_more():
    slots = list(demo_history.slots(NOON, NOON + timedelta(hours=24), 10_000, demo_history.PROFILES[0]))
    usual, worst = slots[0], max(slots, key=lambda slot: slot.poison_share)
    assert worst.poison_share > 5 * usual.poison_share and worst.fails > 5 * usual.fails
    assert worst.work > 3 * usual.work


def played(**changes):
    """A slot of 200 messages that each take about 1 s, for one consumer."""
    slot = Slot(NOON, 200, 1.0, 0.0, 0.0, 0.0)
    rules = Rules(timedelta(seconds=30), 3, None, False, 1)
    slot = replace(slot, **{name: value for name, value in changes.items() if hasattr(slot, name)})
    rules = replace(rules, **{name: value for name, value in changes.items() if hasattr(rules, name)})
    return demo_history.play([slot], rules, changes.get("away", ()), Random(1))


def test_all_consumers_are_away_at_times_and_when_the_incident_begins():
    slots = list(demo_history.slots(NOON, NOON + timedelta(hours=5), 1000, demo_history.PROFILES[0]))
    worst = max(slots, key=lambda slot: slot.fails).start_at
    assert demo_history.absences(slots, 0) == [(worst, worst + demo_history.OUTAGE)]
    assert [since for since, _ in demo_history.absences(slots, 45)] == sorted(
        [*(slots[0].start_at + timedelta(hours=hours) for hours in (2, 4)), worst]
    )


def test_a_consumer_works_on_one_message_at_a_time_and_all_end():
    lives = played()
    held = sorted(each for one in lives for each in one.deliveries)
    assert len(held) == 200 and all(before[1] < after[0] for before, after in zip(held, held[1:], strict=False))
    assert all(one.kind is EventKind.COMPLETED and one.ended_at > one.enqueued_at for one in lives)


def test_poison_messages_reach_the_limit_and_lost_locks_count():
    for lives, how in ((played(fails=1.0), EventKind.ABANDONED), (played(work=99.0), EventKind.LOCK_LOST)):
        assert {len(one.deliveries) for one in lives} <= {1, 2, 3}
        dead = [one for one in lives if one.reason == "MaxDeliveryCountExceeded"]
        assert dead and all([each[2] for each in one.deliveries] == [how, how, EventKind.DEAD_LETTERED] for one in dead)


def test_messages_expire_while_all_consumers_are_away():
    away = [(NOON, NOON + timedelta(minutes=5))]
    lives = played(work=0.01, away=away, time_to_live=timedelta(seconds=20))
    expired = [one for one in lives if one.kind is EventKind.EXPIRED]
    assert expired and all(one.ended_at - one.enqueued_at == timedelta(seconds=20) and not one.deliveries for one in expired)
    assert {one.reason for one in played(away=away, time_to_live=timedelta(seconds=20), dead_letters_expired=True)} >= {
        "TTLExpiredException"
    }


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


def test_generated_messages_that_expired_were_never_received(generated):
    queue, _ = generated
    queue.default_message_time_to_live = timedelta(seconds=20)
    queue.save(update_fields=["default_message_time_to_live"])
    demo_history.generate("demo", ["orders"], messages=500)
    counted = "SELECT count(*), count(first_received_at), count(last_received_at) FROM vitrine_message_event WHERE kind = %s"
    with connection.cursor() as cursor:
        expired, *received = cursor.execute(counted, [int(EventKind.EXPIRED)]).fetchone()
    assert expired and received == [0, 0]


def test_generated_events_lie_in_day_partitions(generated):
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM vitrine_message_event_default")
        assert cursor.fetchone() == (0,)


@pytest.mark.django_db
def test_an_unknown_queue_is_named():
    with pytest.raises(EntityNotFound, match="nowhere"):
        demo_history.generate("demo", ["nowhere"])
