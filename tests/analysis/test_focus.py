"""What the answers say of the receiver or the reason that a page is about."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from explorer.analysis.jobs import outcomes
from explorer.analysis.pages.focus import chosen, of_reason, of_receiver

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SCOPE: Any = SimpleNamespace(
    name="demo/orders", query={"queue": 7}, range=SimpleNamespace(start=NOON, end=NOON + timedelta(hours=1))
)  # fmt: skip


def a_receiver(name, deliveries, lost=0, work_us=2_000_000):
    return SimpleNamespace(receiver=name, deliveries=deliveries, lost=lost, rejected=0, failed=0, work_us=work_us)


def a_cause(outcome, cause, messages):
    return SimpleNamespace(
        entity_id=7, outcome=outcome, cause=cause, messages=messages, entered_at=NOON, since=NOON, first_at=NOON, last_at=NOON
    )


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (
            [a_receiver("process:orders-1", 40, lost=10), a_receiver("process:orders-2", 60, lost=3)],
            "orders-1 had 40 deliveries of demo/orders, half processed within 2.0 s; 25.0\xa0% did not succeed, of the others' "
            "5.0\xa0%.",
        ),
        (
            [a_receiver("process:orders-1", 1, work_us=None)],
            "orders-1 had 1 delivery of demo/orders; 0.0\xa0% did not succeed.",
        ),
        ([a_receiver("process:orders-2", 60)], "orders-1 received nothing of demo/orders in this range."),
    ],
)
def test_a_receiver_is_compared_with_the_others(rows, sentence):
    everything = SimpleNamespace(deliveries=sum(row.deliveries for row in rows), unsuccessful=sum(row.lost for row in rows))
    focus = of_receiver("process:orders-1", SCOPE, rows, everything)
    assert focus.sentence == sentence
    assert ("receiver=process%3Aorders-1" in focus.url) == (rows[0].receiver == "process:orders-1")


@pytest.mark.parametrize(
    ("reason", "sentence", "outcome"),
    [
        ("Schema", "Schema: 30 messages of demo/orders, 75.0\xa0% of what was lost", "outcome=dead_lettered&cause=Schema"),
        ("TTLExpiredException", "TTLExpiredException: 10 messages of demo/orders, 25.0\xa0%", "outcome=expired"),
        ("Late", "No messages of demo/orders were lost for the reason Late in this range.", ""),
    ],
)
def test_a_reason_has_its_share_of_the_losses(reason, sentence, outcome):
    causes = [a_cause(outcomes.DEAD_LETTERED, "Schema", 30), a_cause(outcomes.EXPIRED, None, 10)]
    focus = of_reason(reason, SCOPE, causes, 40)
    assert focus.sentence.startswith(sentence) and outcome in focus.url and bool(focus.url) == bool(outcome)


def test_only_the_receiver_and_the_reason_are_taken_from_the_address():
    assert chosen({"receiver": "process:a", "reason": "", "queue": "7"}) == {"receiver": "process:a"}
    assert chosen({"reason": "x" * 600}) == {"reason": "x" * 512}
