"""What if the time-to-live had been X: the page, and what it counts."""

from datetime import timedelta

import pytest
from django.urls import reverse

from broker_core import namespaces, service_bus, sweeps
from broker_core.common.types import EntityAddress, EventKind, Message
from broker_core.history import archive as archiving
from broker_core.models import Entity
from broker_core.service_bus import entities
from explorer.analysis.jobs.measures import bin_of, lower_bound
from explorer.analysis.reports import time_to_live
from explorer.analysis.reports.scope import Range
from tests.looking import events

from .conftest import NOON

SECOND = timedelta(seconds=1)
QUEUE = EntityAddress("what-if", "q")


@pytest.fixture
def queue(archive):
    """A queue with 40 messages received after 10 s, 10 that expired after 20 s, and 5 that have been there for 60 s."""
    namespaces.ensure_namespace(QUEUE.namespace)
    namespaces.pause_clock(QUEUE.namespace)
    entities.create_queue(QUEUE)
    service_bus.send(QUEUE, [Message(b"x") for _ in range(40)])
    namespaces.step_clock(QUEUE.namespace, 10 * SECOND)
    service_bus.complete(QUEUE, [message.lock_token for message in service_bus.receive(QUEUE, 40)])
    service_bus.send(QUEUE, [Message(b"x", time_to_live=20 * SECOND) for _ in range(10)])
    service_bus.send(QUEUE, [Message(b"x") for _ in range(5)])
    namespaces.step_clock(QUEUE.namespace, 60 * SECOND)
    sweeps.expire_messages()
    assert sum(event.kind == EventKind.EXPIRED for event in events(QUEUE)) == 10
    archiving.archive_events()
    return Entity.objects.get(path="q")


def found_for(queue):
    form = time_to_live.TimeToLiveForm({"queue": queue.pk, "range": "1d"})
    assert form.is_valid()
    return time_to_live.history(form.scope())


def end_of_bin(duration):
    return lower_bound(bin_of(round(duration / timedelta(microseconds=1))) + 1)


def test_expired_and_waiting_messages_count_as_long_as_they_were_there(queue):
    found = found_for(queue)
    assert (found.curve.received, found.curve.not_received, found.expired, found.still_there) == (40, 15, 10, 5)
    assert found.curve.at(end_of_bin(10 * SECOND)).share == pytest.approx(15 / 55)
    assert [(step.until_us, step.at_risk) for step in found.curve._steps] == [
        (end_of_bin(10 * SECOND), 55), (end_of_bin(20 * SECOND), 15), (end_of_bin(60 * SECOND), 5)
    ]  # fmt: skip
    assert found.classes == {None: 40, bin_of(20_000_000): 10}


def test_the_sentence_states_the_band_the_assumption_and_the_difference(queue):
    said = time_to_live.sentence(found_for(queue), 15 * SECOND)
    assert "time-to-live of 15 s, an estimated 27.3\xa0% (" in said and said.endswith("if consumers had behaved the same.")
    assert "about 5 more than the 10 that did" in said


def test_the_page_estimates_without_spark(report_of, viewer, queue):
    body = report_of("time-to-live", queue=queue.pk, x="15 s")
    assert "an estimated 27.3 %" in body and "55 messages that entered" in body and "2 different times-to-live" in body
    assert "for so long, so its history cannot tell" in report_of("time-to-live", queue=queue.pk, x="2 h")
    url = reverse("explorer:analysis_report", args=("time-to-live",))
    assert viewer.get(url, {"queue": queue.pk, "x": "soon"}).status_code == 400


def test_too_few_messages_are_said(report_of, queue):
    entities.create_queue(EntityAddress(QUEUE.namespace, "empty"))
    assert "Only 0 messages were received" in report_of("time-to-live", queue=Entity.objects.get(path="empty").pk, x="1 s")


def test_the_estimate_of_another_range(report_of, queue):
    found, span = found_for(queue), Range(NOON, NOON + timedelta(days=1))
    assert time_to_live.compared(found, span, 15 * SECOND).startswith(
        "From 2026-03-01 12:00 to 2026-03-02 12:00 it would have been 27.3\xa0% ("
    )
    assert "it cannot be told: No message" in time_to_live.compared(found, span, timedelta(hours=2))
    assert [key for key, _ in time_to_live.figures(found, None, found)[0].keys] == ["share", "before"]
    body = report_of("time-to-live", queue=queue.pk, x="15 s", compare="before")
    assert "In the other range" in body and "it cannot be told: Only 0 messages were received" in body
