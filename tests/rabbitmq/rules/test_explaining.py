"""Why a message waits: every reason, and the instant that ends it."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest

from broker_core.common.explanations import QueuePosition, is_deliverable
from broker_core.rabbitmq.rules import explaining
from broker_core.rabbitmq.rules.display_state import DisplayState, display_state, next_change_at
from broker_core.rabbitmq.rules.explaining import Code, ConsumerFacts, HeadFacts, QueueFacts

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOON, AGO = NOON + timedelta(minutes=5), NOON - timedelta(minutes=5)
FULL, FREE = ConsumerFacts("full", "c1", 2, 2), ConsumerFacts("free", "c2", 2, 1)


@dataclass(frozen=True)
class A:
    """A message; ready unless said otherwise."""

    owner_id: int | None = None
    expires_at: datetime | None = None
    delivery_count: int = 0
    held_since: datetime | None = None
    locked_by: str | None = None


READY, UNACKED, EXPIRED = A(), A(owner_id=7, held_since=AGO, locked_by="worker"), A(expires_at=AGO)


@pytest.mark.parametrize(
    ("message", "queue", "codes"),
    [
        (READY, QueueFacts(), [Code.NO_CONSUMER, Code.NEXT]),
        (READY, QueueFacts(consumers=(FREE,)), [Code.NEXT]),
        (READY, QueueFacts(consumers=(ConsumerFacts("unlimited", "c", 0, 99),)), [Code.NEXT]),
        (READY, QueueFacts(consumers=(FULL, FULL)), [Code.CONSUMERS_FULL, Code.NEXT]),
        (READY, QueueFacts(consumers=(FULL, FREE)), [Code.NEXT]),
        (READY, QueueFacts(consumers=(FULL, FREE), single_active=True), [Code.ACTIVE_CONSUMER_FULL, Code.NEXT]),
        (READY, QueueFacts(consumers=(FREE, FULL), single_active=True), [Code.NEXT]),
        (UNACKED, QueueFacts(), [Code.UNACKED]),
        (replace(UNACKED, expires_at=AGO), QueueFacts(), [Code.UNACKED, Code.EXPIRES_ON_RETURN]),
        (EXPIRED, QueueFacts(), [Code.EXPIRED]),
        (EXPIRED, QueueFacts(head=HeadFacts(3, SOON)), [Code.EXPIRED_BEHIND_HEAD]),
        (EXPIRED, QueueFacts(head=HeadFacts(3, SOON), exact_expiry=True), [Code.EXPIRED]),
        (A(expires_at=SOON), QueueFacts(consumers=(FREE,)), [Code.NEXT, Code.WILL_EXPIRE]),
        (A(delivery_count=2), QueueFacts(consumers=(FREE,), delivery_limit=2), [Code.NEXT, Code.LAST_DELIVERY]),
        (A(delivery_count=1), QueueFacts(consumers=(FREE,), delivery_limit=2), [Code.NEXT]),
        (READY, QueueFacts(unused_until=SOON), [Code.NO_CONSUMER, Code.NEXT, Code.QUEUE_EXPIRES]),
    ],
)
def test_every_reason_is_explained(message, queue, codes):
    reasons = explaining.explain(message, queue, NOON)
    assert [reason.code for reason in reasons] == codes
    assert is_deliverable(reasons) == (display_state(message, NOON) is DisplayState.READY)
    assert (explaining.why_not(message, NOON) is None) == is_deliverable(reasons)


def test_explanations_name_instants_and_holders():
    (unacked,) = explaining.explain(UNACKED, QueueFacts(acknowledgement_timeout_at=SOON), NOON)
    assert unacked.ends_at == SOON and "worker" in unacked.text and "5 min" in unacked.text
    (behind,) = explaining.explain(EXPIRED, QueueFacts(head=HeadFacts(3, SOON)), NOON)
    assert behind.ends_at == SOON and "message 3" in behind.text
    place = explaining.explain(READY, QueueFacts(consumers=(FREE,)), NOON, place=QueuePosition(1000, capped=True))[-1]
    assert place.text == "1,000 or more messages ahead."


@pytest.mark.parametrize(
    ("before", "capped", "text"),
    [
        (0, False, "Next in line."),
        (1, False, "1 message ahead."),
        (1, True, "1 or more messages ahead."),
        (2, False, "2 messages ahead."),
    ],
)
def test_an_explanation_gives_the_position_in_the_queue(before, capped, text):
    queue = QueueFacts(consumers=(FREE,))
    assert [reason.text for reason in explaining.explain(READY, queue, NOON, place=QueuePosition(before, capped))] == [text]


@pytest.mark.parametrize(
    ("queue", "text"),
    [
        (
            QueueFacts(consumers=(FULL,)),
            "The only consumer holds as many unacknowledged messages as the prefetch allows (RMQ-140).",
        ),
        (
            QueueFacts(consumers=(FULL, FULL)),
            "All 2 consumers hold as many unacknowledged messages as the prefetch allows (RMQ-140).",
        ),
        (
            QueueFacts(consumers=(FULL, FREE, FREE), single_active=True),
            "Only the active consumer 'full' of c1 is served, and it holds 2 messages, its prefetch limit; 2 more are on standby "
            "(RMQ-148).",
        ),
    ],
)
def test_an_explanation_names_consumers_without_capacity(queue, text):
    assert explaining.explain(READY, queue, NOON)[0].text == text


@pytest.mark.parametrize(
    ("expires_at", "when", "ends_at"), [(AGO, "has ended", None), (NOON, "has ended", None), (SOON, "ends in 5 min", SOON)]
)
def test_an_unacknowledged_message_expires_on_return(expires_at, when, ends_at):  # RMQ-020
    _, reason = explaining.explain(replace(UNACKED, expires_at=expires_at), QueueFacts(), NOON)
    assert (reason.text.partition(".")[0], reason.ends_at) == (f"Its time-to-live {when}", ends_at)


def test_an_explanation_says_what_happens_to_the_dead_letter():
    message = A(expires_at=SOON)

    def fate(**facts):
        return explaining.explain(message, QueueFacts(consumers=(FREE,), **facts), NOON)[-1].text

    assert "it is dropped once" in fate()
    assert "to the dead-letter exchange 'dlx'" in fate(dead_letter_exchange="dlx")
    assert "dropped because the dead-letter exchange 'dlx' does not exist" in fate(
        dead_letter_exchange="dlx", dead_letters_lost=True
    )


@pytest.mark.parametrize(
    ("message", "wanted", "changes_at"),
    [
        (READY, DisplayState.READY, None),
        (A(expires_at=SOON), DisplayState.READY, SOON),
        (A(expires_at=NOON), DisplayState.EXPIRED, None),
        (EXPIRED, DisplayState.EXPIRED, None),
        (replace(UNACKED, expires_at=AGO), DisplayState.UNACKED, None),
    ],
)
def test_the_display_state_follows_from_the_facts(message, wanted, changes_at):
    assert display_state(message, NOON) is wanted
    assert next_change_at(message, NOON) == changes_at
    assert wanted.is_pending is (wanted is DisplayState.EXPIRED)
