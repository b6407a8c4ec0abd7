"""The specification as tables: no database, no clock."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.common.errors import BrokerError, NotAllowed
from broker_core.common.types import MessageState, SubQueue
from broker_core.service_bus.rules.values import QueueSettings

from . import specification as sb
from .specification import Facts, MakeAvailable, MoveToDeadLetter, Refuse, Remove, Settlement, settle

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
BEFORE, AFTER = NOON - MINUTE, NOON + MINUTE
SETTINGS = QueueSettings()
DEAD_LETTERING = QueueSettings(dead_lettering_on_message_expiration=True)


def a_message(**changes):
    facts: dict[str, Any] = {
        "subqueue": SubQueue.MAIN,
        "state": MessageState.ACTIVE,
        "delivery_count": 0,
        "enqueued_at": NOON - timedelta(minutes=1),
        "locked_until": NOON + SECOND,
    }
    return Facts(**(facts | changes))


TOO_OFTEN = MoveToDeadLetter("MaxDeliveryCountExceeded", "Message could not be consumed after 10 delivery attempts.")
EXPIRED = MoveToDeadLetter("TTLExpiredException", "The message expired and was dead lettered.")


@pytest.mark.parametrize(
    ("how", "changes", "settings", "expected"),
    [
        (Settlement.COMPLETE, {}, SETTINGS, Remove()),  # SB-080
        (Settlement.COMPLETE, {"expires_at": NOON - SECOND}, SETTINGS, Remove()),  # SB-026: a valid lock outlives the life
        (Settlement.COMPLETE, {"locked_until": NOON}, SETTINGS, Refuse()),  # SB-070: at the instant it is lost
        (Settlement.COMPLETE, {"locked_until": None}, SETTINGS, Refuse()),  # SB-071
        (Settlement.ABANDON, {}, SETTINGS, MakeAvailable(1)),  # SB-081, SB-090
        (Settlement.ABANDON, {"delivery_count": 8}, SETTINGS, MakeAvailable(9)),
        (Settlement.ABANDON, {"delivery_count": 9}, SETTINGS, TOO_OFTEN),  # SB-091: the tenth failure of ten allowed
        (Settlement.ABANDON, {"expires_at": NOON}, SETTINGS, Remove()),  # SB-027, SB-034
        (Settlement.ABANDON, {"expires_at": NOON, "delivery_count": 9}, DEAD_LETTERING, EXPIRED),  # SB-920: expiry first
        (Settlement.ABANDON, {"expires_at": NOON, "state": MessageState.DEFERRED}, SETTINGS, MakeAvailable(1)),  # SB-036
        (Settlement.ABANDON, {"subqueue": SubQueue.DEAD_LETTER, "delivery_count": 0}, SETTINGS, MakeAvailable(0)),  # SB-089
        (Settlement.RELEASE, {"delivery_count": 9}, SETTINGS, MakeAvailable(9)),  # SB-926
        (Settlement.DEFER, {}, SETTINGS, sb.SetAside()),  # SB-083
        (Settlement.DEAD_LETTER, {}, SETTINGS, MoveToDeadLetter(None)),  # SB-082
        (Settlement.RENEW, {}, SETTINGS, sb.KeepLocked(NOON + timedelta(minutes=1))),  # SB-064
        (Settlement.RENEW, {"locked_until": NOON}, SETTINGS, Refuse()),
    ],
)
def test_a_settlement_has_the_specified_outcome(how, changes, settings, expected):
    assert settle(a_message(**changes), how, now=NOON, settings=settings) == expected


def test_dead_lettering_a_dead_letter_is_not_allowed():
    """SB-089."""
    with pytest.raises(NotAllowed, match="again"):
        settle(a_message(subqueue=SubQueue.DEAD_LETTER), Settlement.DEAD_LETTER, now=NOON, settings=SETTINGS)


@pytest.mark.parametrize(
    ("changes", "settings", "available"),
    [
        ({"locked_until": None}, SETTINGS, True),
        ({}, SETTINGS, False),  # SB-061
        ({"locked_until": NOON}, SETTINGS, True),  # SB-063
        ({"locked_until": NOON, "delivery_count": 9}, SETTINGS, False),  # SB-091: spent, pending
        ({"locked_until": None, "delivery_count": 9}, SETTINGS, True),
        ({"locked_until": None, "expires_at": NOON}, SETTINGS, False),  # SB-025
        ({"locked_until": None, "expires_at": NOON + SECOND}, SETTINGS, True),
        ({"locked_until": None}, QueueSettings(default_message_time_to_live=timedelta(minutes=1)), False),  # SB-020, SB-921
        ({"locked_until": None}, QueueSettings(default_message_time_to_live=timedelta(minutes=1, seconds=1)), True),
        ({"locked_until": None, "expires_at": NOON, "subqueue": SubQueue.DEAD_LETTER}, SETTINGS, True),  # SB-035
        ({"locked_until": None, "state": MessageState.DEFERRED}, SETTINGS, False),
        ({"locked_until": None, "state": MessageState.SCHEDULED, "scheduled_enqueue_at": NOON}, SETTINGS, False),
    ],
)
def test_a_message_is_available_by_its_facts(changes, settings, available):
    assert sb.is_available(a_message(**changes), NOON, settings) is available


def test_a_scheduled_message_has_no_expiry_yet():
    """SB-024."""
    message = a_message(state=MessageState.SCHEDULED, scheduled_enqueue_at=NOON, locked_until=None)
    assert sb.ends_at(message, QueueSettings(default_message_time_to_live=SECOND)) is None


@pytest.mark.parametrize(
    ("asked", "default", "stored"),
    [
        (None, SECOND, None),
        (2 * SECOND, SECOND, SECOND),  # SB-020: lowered without an error
        (SECOND, 2 * SECOND, SECOND),
        (SECOND, None, SECOND),
    ],
)
def test_the_time_to_live_of_a_message_is_limited_by_the_entity(asked, default, stored):
    assert sb.own_time_to_live(asked, QueueSettings(default_message_time_to_live=default)) == stored


INSTANTS = st.none() | st.integers(-5, 5).map(lambda n: NOON + n * SECOND)
FACTS = st.builds(
    Facts,
    subqueue=st.sampled_from(SubQueue),
    state=st.sampled_from(MessageState),
    delivery_count=st.integers(0, 12),
    enqueued_at=st.integers(1, 9).map(lambda n: NOON - n * SECOND),
    expires_at=INSTANTS,
    scheduled_enqueue_at=INSTANTS,
    locked_until=INSTANTS,
)


@given(message=FACTS, how=st.sampled_from(Settlement))
def test_every_settlement_of_every_state_is_an_outcome_or_a_refusal(message, how):
    try:
        outcome = settle(message, how, now=NOON, settings=SETTINGS)
    except BrokerError:
        return
    assert isinstance(outcome, sb.Outcome)
    if not sb.is_locked(message, NOON):
        assert outcome == Refuse()


@given(message=FACTS)
def test_an_available_message_is_neither_locked_nor_expired_nor_spent(message):
    """Invariant 4."""
    if sb.is_available(message, NOON, SETTINGS):
        assert not sb.is_locked(message, NOON)
        assert not sb.has_expired(message, NOON, SETTINGS)
        assert message.state is MessageState.ACTIVE


# Sessions


WHOLE = QueueSettings(requires_session=True, default_message_time_to_live=10 * MINUTE)
EACH = replace(WHOLE, expires_whole_sessions=False)

LIVING = Facts(SubQueue.MAIN, MessageState.ACTIVE, 0, NOON - 5 * MINUTE)
OLD = replace(LIVING, enqueued_at=NOON - 10 * MINUTE)  # expires at noon, by the default
OWN = replace(LIVING, expires_at=NOON)
LONG = replace(OLD, expires_at=AFTER)
HELD = replace(OLD, locked_until=AFTER)
LAPSED = replace(LIVING, locked_until=NOON)
DEFERRED = replace(OWN, state=MessageState.DEFERRED)
SCHEDULED = replace(LIVING, state=MessageState.SCHEDULED, scheduled_enqueue_at=BEFORE)
DEAD = replace(OWN, subqueue=SubQueue.DEAD_LETTER)
SPENT = replace(LIVING, delivery_count=10)


@pytest.mark.parametrize(
    ("messages", "over"),
    [
        ([], False),
        ([LIVING, LAPSED], False),
        ([OLD, LIVING], True),
        ([LIVING, OWN], True),
        ([LIVING, OLD], False),  # of those that live by the default the first decides
        ([HELD, OLD], True),
        ([HELD, LIVING], False),  # what somebody holds does not expire
        ([replace(OWN, locked_until=AFTER)], False),
        ([LONG, LIVING], False),
        ([LONG, OLD], True),
        ([DEFERRED, SCHEDULED, DEAD], False),
    ],
)
def test_an_expired_unlocked_message_expires_its_session(messages, over):
    """SB-037, SB-901."""
    assert sb.session_is_over(messages, NOON, WHOLE) is over
    assert not sb.session_is_over(messages, NOON - timedelta(microseconds=1), WHOLE)
    assert not sb.session_is_over(messages, NOON, EACH)


@pytest.mark.parametrize(
    ("messages", "of_whole", "of_each"),
    [
        ([LIVING, HELD, LAPSED, SPENT, DEFERRED, SCHEDULED, DEAD], [LIVING, LAPSED], [LIVING, LAPSED]),
        ([LIVING, OWN, LAPSED], [], [LIVING, LAPSED]),
        ([OLD, LONG], [], [LONG]),
    ],
)
def test_the_session_holder_gets_unlocked_messages_in_order(messages, of_whole, of_each):
    """SB-114, SB-037."""
    assert sb.deliverable(messages, NOON, WHOLE) == of_whole
    assert sb.deliverable(messages, NOON, EACH) == of_each


def test_expiry_removes_a_whole_session_except_locked_and_deferred_messages():
    messages = [LIVING, HELD, OWN, SPENT, DEFERRED, DEAD]
    assert sb.taken_by_expiry(messages, NOON, WHOLE) == [LIVING, OWN, SPENT]
    assert sb.taken_by_expiry(messages, NOON, EACH) == [OWN]
    assert sb.taken_by_expiry([LIVING, SPENT], NOON, WHOLE) == []


def test_an_expired_message_with_a_failed_delivery_expires_with_its_session():
    """SB-027, SB-037: also when it was the last one allowed."""
    each = replace(EACH, dead_lettering_on_message_expiration=True)
    assert sb.after_failed_delivery(OWN, 10, NOON, WHOLE) == MakeAvailable(10)
    assert sb.after_failed_delivery(OWN, 1, NOON, each).reason == "TTLExpiredException"
    assert isinstance(sb.after_failed_delivery(LIVING, 10, NOON, WHOLE), MoveToDeadLetter)


def test_a_lock_is_valid_before_the_instant_it_ends():
    assert [sb.session_is_held(until, NOON) for until in (None, BEFORE, NOON, AFTER)] == [False, False, False, True]
