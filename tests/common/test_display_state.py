"""What a message is at an instant, as a table; time is an argument."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from broker_core.common.types import MessageState, SubQueue
from broker_core.service_bus.rules.display_state import DisplayState, display_state, next_change_at
from broker_core.service_bus.rules.explaining import why_not
from tests.service_bus.specification import DELIVERABLE

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
BEFORE, AFTER = NOON - timedelta(seconds=5), NOON + timedelta(seconds=5)


@dataclass(frozen=True)
class Facts:
    subqueue: SubQueue = SubQueue.MAIN
    state: MessageState = MessageState.ACTIVE
    delivery_count: int = 0
    max_delivery_count: int = 3
    expires_at: datetime | None = None
    scheduled_enqueue_at: datetime | None = None
    locked_until: datetime | None = None
    session_id: str | None = None
    locked_by: str | None = None
    dead_letter_reason: str | None = None
    expires_by_default: bool = False


DEAD = SubQueue.DEAD_LETTER
DEFERRED, SCHEDULED = MessageState.DEFERRED, MessageState.SCHEDULED


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (Facts(), DisplayState.AVAILABLE),
        (Facts(expires_at=AFTER), DisplayState.AVAILABLE),
        (Facts(expires_at=NOON), DisplayState.EXPIRED),  # at the instant itself it has expired
        (Facts(locked_until=AFTER), DisplayState.LOCKED),
        (Facts(locked_until=NOON), DisplayState.LOCK_ENDED),
        (Facts(locked_until=AFTER, expires_at=BEFORE), DisplayState.LOCKED),  # a lock protects (SB-038)
        (Facts(locked_until=BEFORE, expires_at=BEFORE), DisplayState.EXPIRED),
        (Facts(delivery_count=2), DisplayState.AVAILABLE),
        (Facts(delivery_count=3), DisplayState.SPENT),
        (Facts(delivery_count=2, locked_until=BEFORE), DisplayState.SPENT),  # the ended lock was the third failure (SB-090)
        (Facts(delivery_count=2, locked_until=AFTER), DisplayState.LOCKED),
        (Facts(delivery_count=3, expires_at=BEFORE), DisplayState.EXPIRED),  # SB-920
        (Facts(state=DEFERRED), DisplayState.DEFERRED),
        (Facts(state=DEFERRED, expires_at=BEFORE), DisplayState.DEFERRED_EXPIRED),  # SB-906
        (Facts(state=DEFERRED, locked_until=AFTER), DisplayState.LOCKED),
        (Facts(state=SCHEDULED, scheduled_enqueue_at=AFTER), DisplayState.SCHEDULED),
        (Facts(state=SCHEDULED, scheduled_enqueue_at=NOON), DisplayState.DUE),
        (Facts(subqueue=DEAD, expires_at=BEFORE, delivery_count=9), DisplayState.AVAILABLE),  # SB-035, SB-089
        (Facts(subqueue=DEAD, locked_until=BEFORE), DisplayState.LOCK_ENDED),
    ],
)
def test_the_display_state_follows_from_the_facts(facts, expected):
    assert display_state(facts, NOON) == expected


def all_facts():
    instants = (None, BEFORE, NOON, AFTER)
    for subqueue, state, count, ends, due, locked in product(SubQueue, MessageState, (0, 2, 3), instants, instants, instants):
        if state != SCHEDULED or due is not None:
            yield Facts(subqueue, state, count, 3, ends, due, locked)


def test_a_reason_is_given_exactly_for_messages_that_a_receive_skips():
    for facts in all_facts():
        assert (why_not(facts, NOON) is None) == (display_state(facts, NOON) in DELIVERABLE), facts


def test_a_receive_or_a_sweep_acts_on_pending_messages():
    pending = {state for state in DisplayState if state.is_pending}
    assert pending == {DisplayState.LOCK_ENDED, DisplayState.DUE, DisplayState.EXPIRED, DisplayState.SPENT}


def test_the_next_change_is_in_the_future_and_changes_the_display_state():
    for facts in all_facts():
        at = next_change_at(facts, NOON)
        if at is not None:
            assert at > NOON
            assert display_state(facts, at) != display_state(facts, NOON), facts


def test_without_a_next_change_time_alone_changes_nothing():
    """But for a spent one, which may expire where it waits: the broker acts on it at once either way."""
    for facts in all_facts():
        if next_change_at(facts, NOON) is None and display_state(facts, NOON) != DisplayState.SPENT:
            assert display_state(facts, NOON + timedelta(days=1)) == display_state(facts, NOON), facts


def test_the_holder_is_named():
    assert why_not(replace(Facts(), locked_until=AFTER, locked_by="user:ann"), NOON) == "Locked by ann for another 5 s."
