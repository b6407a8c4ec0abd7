"""Flow, backlog and losses by hour: the computation as tables, and the page."""

from collections import Counter
from datetime import timedelta

import pytest
from django.urls import reverse

from broker_core import namespaces, service_bus
from broker_core.common.types import EntityAddress, Message
from broker_core.history import archive
from broker_core.models import ArchiveEpoch, ArchiveFile, ArchiveSlice, Entity
from broker_core.service_bus import entities
from explorer.analysis import flow, messages
from explorer.analysis.jobs import outcomes
from explorer.roles import VIEWER
from tests.html import body_of

from .conftest import NOON
from .test_pages import signed_in

HOUR = timedelta(hours=1)
HOURS = [NOON + i * HOUR for i in range(4)]


def lived(began: int, ended: int, count: int = 1, outcome: int = outcomes.COMPLETED, cause=None):
    return (NOON + began * HOUR, NOON + ended * HOUR, outcome, cause, count)


def test_an_outage_is_a_peak_of_the_backlog_and_of_the_age():
    found = flow.of_hours(HOURS, [lived(0, 0, 5), lived(0, 2, 3), lived(1, 2, 4), lived(2, 2, 9)], {})
    assert (found.entered, found.left) == ([8, 4, 9, 0], [5, 0, 16, 0])
    assert found.depth == [3, 7, 0, 0]
    assert found.oldest == [HOUR, 2 * HOUR, None, None]


def test_messages_from_before_the_range_and_present_ones_are_in_the_backlog():
    found = flow.of_hours(HOURS, [lived(-5, 1, 2), lived(-9, -8, 7)], Counter({NOON - 2 * HOUR: 4, HOURS[2]: 1}))
    assert found.depth == [6, 4, 5, 5]
    assert (found.entered, found.left) == ([0, 0, 1, 0], [0, 2, 0, 0])
    assert found.oldest == [6 * HOUR, 4 * HOUR, 5 * HOUR, 6 * HOUR]


def test_losses_are_by_the_hour_of_the_loss_and_by_cause():
    lives = [
        lived(0, 1, 3, outcomes.EXPIRED), lived(0, 2, 2, outcomes.DEAD_LETTERED, "Bad #"), lived(1, 3, 4, outcomes.DEAD_LETTERED,
        "Bad #"), lived(0, 0, 50), lived(-3, -1, 8, outcomes.EXPIRED), lived(0, 1, 9, outcomes.FORWARDED),
    ]  # fmt: skip
    found, causes = flow.of_hours(HOURS, lives, {}), flow.causes(HOURS, lives)
    assert found.losses == {"expired": [0, 3, 0, 0], "dead_lettered": [0, 0, 2, 4]}
    assert [(loss.outcome, loss.cause, loss.messages) for loss in causes] == [("dead_lettered", "Bad #", 6), ("expired", "", 3)]
    assert (causes[0].first_at, causes[0].last_at) == (HOURS[2], HOURS[3])
    assert flow.loss_sentence(found, causes) == "9 messages were lost. Most frequent: dead-lettered (Bad #), 6."
    assert flow.loss_sentence(found, []) == "No messages were lost in this time."


@pytest.mark.parametrize(
    ("lives", "there", "said"),
    [
        ([], {}, "No messages entered, left or waited in this time."),
        ([lived(0, 0, 5)], {}, "5 messages entered; at the end of no hour was one waiting."),
        (
            [lived(0, 2, 5)], {},
            "The backlog was largest at the end of the hour 2026-03-01 12:00: 5 messages; the oldest had waited at most 1 h. The "
            "queue is empty now.",
        ),
        (
            [lived(0, 3, 4)], {NOON: 6},
            "The backlog was largest at the end of the hour 2026-03-01 12:00: 10 messages; the oldest had waited at most 1 h. 6 "
            "are in the queue now; at this hour's pace it is empty in 1.5 h.",
        ),
    ],
)  # fmt: skip
def test_the_sentence(lives, there, said):
    assert flow.flow_sentence(flow.of_hours(HOURS, lives, there)) == said


@pytest.mark.parametrize(("minutes", "count"), [(0, 2), (1, 3), (59, 3)])
def test_every_hour_that_a_range_touches(minutes, count):
    found = flow.hours_between(NOON, NOON + 2 * HOUR + timedelta(minutes=minutes))
    assert found == [NOON + i * HOUR for i in range(count)]


@pytest.fixture
def queue(transactional_db, settings, tmp_path):
    """A queue with 3 completed, 2 dead-lettered and 1 present message, and a clock stepped by two hours in between."""
    settings.ARCHIVE_URL = str(tmp_path)
    address = EntityAddress("flow", "q")
    namespaces.ensure_namespace("flow")
    namespaces.pause_clock("flow")
    entities.create_queue(address)
    service_bus.send(address, [Message(b"x") for _ in range(6)])
    namespaces.step_clock("flow", 2 * HOUR)
    service_bus.complete(address, [message.lock_token for message in service_bus.receive(address, 3)])
    service_bus.dead_letter(address, [message.lock_token for message in service_bus.receive(address, 2)], reason="Order 17")
    archive.archive_events()
    yield Entity.objects.get(path="q")
    for model in (ArchiveFile, ArchiveSlice, ArchiveEpoch):
        model.objects.all().delete()


def test_the_page_shows_backlog_and_losses_without_spark(client, queue):
    signed_in(client, VIEWER)
    url = reverse("explorer:flow_and_losses")
    body = body_of(client.get(url, {"queue": queue.pk}))
    assert ": 6 messages; the oldest had waited at most 1 h. 1 is in the queue now" in body
    assert "2 messages were lost. Most frequent: dead-lettered (Order #), 2." in body
    assert f"{url}?queue={queue.pk}" in body_of(client.get(reverse("explorer:analysis_runs"), {"queue": queue.pk}))
    assert b"<html" not in client.get(url, {"queue": queue.pk, "range": "7d"}, headers={"HX-Request": "true"}).content
    assert client.get(url, {"queue": queue.pk, "range": "1y"}).status_code == 400
    assert client.get(url, {"queue": "x"}).status_code == 404


def test_a_long_tail_is_refused_with_what_to_do(client, queue, monkeypatch):
    signed_in(client, VIEWER)
    monkeypatch.setattr(messages, "MOST_LIVES", 1)
    assert "manage.py roll_up_history" in body_of(client.get(reverse("explorer:flow_and_losses"), {"queue": queue.pk}))
