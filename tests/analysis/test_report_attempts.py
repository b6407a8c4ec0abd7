"""Locks, redelivery and receivers: the computation as tables, and the pages."""

from dataclasses import asdict, replace
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from broker_core import namespaces, service_bus
from broker_core.common.types import Actor, EntityAddress, EventKind, Message, Right
from broker_core.history import archive as archiving
from broker_core.history import schema
from broker_core.models import Entity
from broker_core.service_bus import entities
from explorer.analysis.reports import attempts, lock_losses, receivers, redelivery
from explorer.analysis.reports.attempts import Attempt
from explorer.analysis.reports.drawings import gantt, named_heat_map
from explorer.analysis.reports.redelivery import Resubmitted
from explorer.analysis.reports.scope import Range

from .conftest import NOON

SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
SPAN = Range(NOON, NOON + 4 * HOUR)
COMPLETED, ABANDONED, LOST = EventKind.COMPLETED, EventKind.ABANDONED, EventKind.LOCK_LOST


def held(
    number: int, since: float, length: float, outcome=COMPLETED, *, attempt=1, by="process:w", lock=30, **changes
) -> Attempt:
    """A delivery that began `since` seconds after noon, and lasted `length` seconds."""
    at = NOON + since * SECOND
    until = at + lock * SECOND if lock else None
    values = {"locked_until": until, "lock_ended_at": until, "received_by": by} | changes
    return Attempt(1, number, attempt, outcome, at, at + length * SECOND, **values)


def judged(found: list[Attempt]) -> pa.Table:
    fields = [schema.ATTEMPT.field(name) for name in attempts.COLUMNS if name != "subqueue"]
    return attempts.judged(pa.Table.from_pylist([asdict(one) for one in found], schema=pa.schema(fields)))


def losses(found: list[Attempt]) -> list[lock_losses.Lost]:
    table = judged(found)
    troubled = attempts.listed(attempts.of_messages(table, pc.equal(table["outcome"], LOST)))
    return lock_losses.losses(troubled, lock_losses.receipts(table, {one.received_by for one in troubled}))


@pytest.mark.parametrize(
    ("others", "changes", "cause"),
    [
        ([], {"renewals": 2}, "longer"),
        ([held(1, 40, 45, attempt=2)], {}, "longer"),
        ([held(1, 40, 20, attempt=2, by="process:x")], {}, "gone"),
        ([held(2, 80, 1)], {}, "longer"),
        ([held(2, 5, 1), held(3, 80, 1)], {}, "unsettled"),
        ([held(2, 40, 1)], {"locked_until": None, "lock_ended_at": NOON + 30 * SECOND}, "unsettled"),
        ([held(2, 95, 1)], {}, "gone"),
        ([held(2, 5, 1)], {}, "gone"),
    ],
)
def test_why_a_lock_was_lost(others, changes, cause):
    [lost] = losses([held(1, 0, 500, LOST, **changes), *others])
    assert (lost.cause, lost.at) == (cause, NOON + 30 * SECOND)


def test_lost_locks_by_time_and_in_a_sentence():
    found = [held(1, 0, 30, LOST), held(2, 3600, 30, LOST, renewals=1), held(3, 3700, 30, LOST, renewals=1), held(4, 0, 1)]
    lost = losses(found)
    assert lock_losses.by_bucket(SPAN, lost) == {"longer": [0, 2, 0, 0], "gone": [1, 0, 0, 0]}
    assert lock_losses.sentence(len(found), lost, "their lock ended") == (
        "3 of 4 deliveries (75.0\xa0%) ended because their lock ended: work longer than the lock (2) and receiver stopped (1). "
        "Most were held by w (3), most in the hour from 2026-03-01 13:00 (2)."
    )
    assert lock_losses.sentence(1, [], "their lease ended") == "None of 1 delivery ended because their lease ended."
    assert lock_losses.sentence(0, [], "") == "No deliveries ended in this range."


def test_the_worst_messages_are_those_with_most_failures():
    good, bad = [held(1, 0, 1)], [held(2, 0, 1, ABANDONED), held(2, 5, 1, ABANDONED, attempt=2)]
    assert lock_losses.worst_messages([good, [held(3, 0, 1, LOST)], bad]) == [bad, [held(3, 0, 1, LOST)]]


def test_deliveries_of_each_entity_are_slices_without_a_copy():
    table = judged([replace(held(i, i, 1), entity_id=entity_id) for i, entity_id in enumerate([7, 3, 7, 5, 7])])
    parts = {entity_id: each["sequence_number"].to_pylist() for entity_id, each in attempts.by_entity(table)}
    assert parts == {3: [1], 5: [3], 7: [0, 2, 4]}


def test_a_gantt_chart_has_a_row_for_each_message():
    drawn = gantt([("#1", [("abandoned", 0 * SECOND, 10 * SECOND, "x"), ("completed", 30 * SECOND, 40 * SECOND, "y")])], "wide")
    assert [bar.path for bar in drawn.bars] == ["M52.0 14H167.0v14H52.0z", "M397.0 14H512.0v14H397.0z"]
    assert [tick.text for tick in drawn.chart.x_ticks] == ["0", "10 s", "20 s", "30 s", "40 s"]
    longer = gantt([("dead letters of invoices", []), ("a" * 40, [])], "narrow").chart
    assert [len(tick.text) for tick in longer.y_ticks] == [15, 15] and longer.left == 106


def test_success_by_attempt():
    found = [held(i, 0, 1, COMPLETED if i else ABANDONED) for i in range(4)] + [held(9, 0, 1, attempt=n) for n in (11, 15)]
    assert [(one.name, one.deliveries, one.succeeded) for one in redelivery.by_attempt(judged(found))] == [
        ("1", 4, 3),
        ("11+", 2, 2),
    ]


@pytest.mark.parametrize(("count", "of", "band"), [(0, 0, (0, 1)), (5, 10, (0.237, 0.763)), (10, 10, (0.722, 1))])
def test_the_band_of_a_share(count, of, band):
    assert attempts.wilson(count, of) == pytest.approx(band, abs=0.001)


def test_reasons_say_how_many_messages_succeeded_later():
    found = [
        held(1, 0, 2, ABANDONED, error="Bad #"), held(1, 5, 2, ABANDONED, attempt=2, error="Bad #"), held(1, 9, 1, attempt=3),
        held(2, 0, 3, ABANDONED, error="Bad #"), held(2, 4, 1, LOST, attempt=2),
    ]  # fmt: skip
    first, second = redelivery.reasons(found)
    assert (first.error, first.deliveries, first.messages, first.later, first.time) == ("Bad #", 3, 2, 1, 7 * SECOND)
    assert (second.outcome, second.deliveries, second.later, second.latest) == (LOST, 1, 0, 2)
    said = redelivery.sentence(judged(found), redelivery.by_attempt(judged(found)), [first, second])
    assert said.startswith("4 of 5 deliveries (80.0\xa0%) did not succeed; 2 of 2 messages were delivered more than once.")
    assert said.endswith("Most frequent: abandoned (Bad #), 3.")
    assert redelivery.sentence(judged(found[2:3]), [], []) == "All 1 delivery succeeded."


def test_what_became_of_resubmitted_messages():
    ends = {(1, 10): EventKind.DEAD_LETTERED, (1, 11): COMPLETED, (1, 12): EventKind.EXPIRED}
    moved = [(1, 1, 10), (1, 1, 11), (1, 1, 12), (1, 1, 13), (2, 1, 11)]
    assert redelivery.resubmitted(moved, ends) == [Resubmitted(1, 4, 2, 1), Resubmitted(2, 1, 0, 1)]


def test_cards_of_receivers():
    found = [
        held(1, 0, 10), held(2, 5, 10), held(3, 60, 40, ABANDONED), held(4, 0, 1, LOST, by="process:x"),
        held(5, 1, 1, EventKind.DEAD_LETTERED, by="process:x"),
    ]  # fmt: skip
    first, second = receivers.cards(judged(found))
    assert (first.name, first.deliveries, first.succeeded, first.returned, first.failed) == ("w", 3, 2, 1, 1)
    assert (first.busy, first.held, first.idle) == (55 * SECOND, 60 * SECOND, pytest.approx(0.45))
    assert (second.lost, second.rejected, second.idle) == (1, 1, 0.0)


def test_busy_shares_count_overlaps_once_and_stay_in_the_range():
    found = [held(1, -600, 2400), held(2, 0, 600), held(3, 3 * 3600 + 1800, 9000)]
    [card] = receivers.cards(judged(found))
    assert card.spans.shares(SPAN) == [0.5, 0, 0, 0.5]
    drawn = named_heat_map(SPAN.buckets, [("w", [0.5, 0, 0, 1]), ("w", [0, 1, 0, 0])], "wide", SPAN.partial)
    assert [(shape.name, shape.path) for shape in drawn.cells] == [("heat-2", "M0 0.5h1"), ("heat-4", "M3 0.5h1M1 1.5h1")]


def test_a_receiver_that_fails_clearly_more_often_is_named():
    good = [held(i, i, 1) for i in range(100)]
    bad = [held(i, i, 1, ABANDONED if i % 2 else COMPLETED, by="process:x") for i in range(60)]
    said = receivers.sentence(receivers.cards(judged(good + bad)), "consumer")
    assert said.startswith("2 consumers received 160 messages; w took 62.5\xa0%, half in 1.0 s.")
    assert said.endswith("x did not complete 50.0\xa0%, the others 0.0\xa0%.")
    assert (
        receivers.sentence(receivers.cards(judged(good)), "receiver") == "One receiver, w, received 100 messages, half in 1.0 s."
    )
    same = receivers.cards(judged(good + [held(i, i, 1, by="process:x") for i in range(60)]))
    assert "None differs clearly" in receivers.sentence(same, "receiver")


@pytest.fixture
def worked(archive):
    """A queue with a message whose lock was lost, which was abandoned, dead-lettered, resubmitted and dead-lettered again."""
    address, worker = EntityAddress("plant", "q"), Actor("process", "worker", Right.ALL)
    namespaces.ensure_namespace("plant")
    namespaces.pause_clock("plant")
    entities.create_queue(address, lock_duration=30 * SECOND)
    service_bus.send(address, [Message(b"x")])
    service_bus.receive(address, 1, actor=worker)
    namespaces.step_clock("plant", 2 * MINUTE)
    for settle in (service_bus.abandon, service_bus.dead_letter):
        [message] = service_bus.receive(address, 1, actor=worker)
        settle(address, [message.lock_token], actor=worker)
    service_bus.resubmit(address, [message.sequence_number])
    [message] = service_bus.receive(address, 1, actor=worker)
    service_bus.dead_letter(address, [message.lock_token], reason="Order 5", actor=worker)
    archiving.archive_events()
    return Entity.objects.get(path="q")


def test_the_pages_lead_to_the_messages(report_of, worked):
    body = report_of("locks", queue=worked.pk, compare="week")
    assert "1 of 4 deliveries (25.0 %) ended because their lock ended" in body and "no deliveries in the range to compare" in body
    assert '<a href="/messages/plant/q/1">#1</a>' in body and body.count('<svg class="chart gantt') == 2
    body = report_of("redelivery", namespace="plant", compare="week")
    assert "4 of 4 deliveries (100.0 %) did not succeed" in body and "Order #" in body
    assert "1 message was resubmitted; 1 was lost again." in body
    body = report_of("receivers", queue=worked.pk, compare="before")
    assert "One receiver, worker, received 4 messages" in body and "there were no deliveries" in body


def test_the_messages_of_a_queue_that_was_deleted_are_not_those_of_the_next_one(report_of, worked):
    address = EntityAddress("plant", "q")
    entities.delete_queue(address)
    entities.create_queue(address)
    archiving.archive_events()
    assert f'href="/messages/plant/q/2?of={worked.pk}"' in report_of("redelivery", queue=worked.pk)
    assert f'href="/messages/plant/q/1?of={worked.pk}"' in report_of("locks", namespace="plant")


def test_too_many_deliveries_are_refused(report_of, worked, monkeypatch):
    monkeypatch.setattr(attempts, "MOST_LISTED", 2)
    for slug, count in (("locks", 3), ("redelivery", 4)):
        said = f"{count} deliveries of this range have to be examined one by one; at most 2 are"
        assert said in report_of(slug, queue=worked.pk)
    assert "received 4 messages" in report_of("receivers", queue=worked.pk)
