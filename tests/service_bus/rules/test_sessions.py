"""What Service Bus decides about sessions, as tables; time is an argument."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker_core.common.errors import InvalidArgument, MessageTooLarge, NotAllowed
from broker_core.common.limits import STRICT, of_tier
from broker_core.common.types import EntityAddress, Message, MessageState, QueueSettings, SubQueue, Tier
from broker_core.service_bus.rules import sessions
from broker_core.service_bus.rules.messages import Facts, MakeAvailable, MoveToDeadLetter, after_failed_delivery

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
BEFORE, AFTER = NOON - MINUTE, NOON + MINUTE
QUEUE = EntityAddress("ns", "q")
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
def test_one_expired_message_that_nobody_holds_ends_a_session(messages, over):
    """SB-037, SB-901."""
    assert sessions.is_over(messages, NOON, WHOLE) is over
    assert not sessions.is_over(messages, NOON - timedelta(microseconds=1), WHOLE)
    assert not sessions.is_over(messages, NOON, EACH)


@pytest.mark.parametrize(
    ("messages", "of_whole", "of_each"),
    [
        ([LIVING, HELD, LAPSED, SPENT, DEFERRED, SCHEDULED, DEAD], [LIVING, LAPSED], [LIVING, LAPSED]),
        ([LIVING, OWN, LAPSED], [], [LIVING, LAPSED]),
        ([OLD, LONG], [], [LONG]),
    ],
)
def test_the_holder_gets_what_nobody_holds_in_order(messages, of_whole, of_each):
    """SB-114, SB-037."""
    assert sessions.deliverable(messages, NOON, WHOLE) == of_whole
    assert sessions.deliverable(messages, NOON, EACH) == of_each


def test_expiry_takes_a_whole_session_but_what_is_held_or_deferred():
    messages = [LIVING, HELD, OWN, SPENT, DEFERRED, DEAD]
    assert sessions.taken_by_expiry(messages, NOON, WHOLE) == [LIVING, OWN, SPENT]
    assert sessions.taken_by_expiry(messages, NOON, EACH) == [OWN]
    assert sessions.taken_by_expiry([LIVING, SPENT], NOON, WHOLE) == []


def test_a_failed_delivery_of_an_expired_message_leaves_it_to_its_session():
    """SB-027, SB-037: also when it was the last one allowed."""
    each = replace(EACH, dead_lettering_on_message_expiration=True)
    assert after_failed_delivery(OWN, 10, NOON, WHOLE) == MakeAvailable(10)
    assert after_failed_delivery(OWN, 1, NOON, each).reason == "TTLExpiredException"
    assert isinstance(after_failed_delivery(LIVING, 10, NOON, WHOLE), MoveToDeadLetter)


def test_a_lock_is_valid_before_the_instant_it_ends():
    assert [sessions.is_held(until, NOON) for until in (None, BEFORE, NOON, AFTER)] == [False, False, False, True]


def test_the_first_message_without_a_session_is_named():
    """SB-008: an empty session id is an id."""
    sessions.check_have_session(QUEUE, [Message(session_id="a"), Message(session_id="")])
    with pytest.raises(NotAllowed, match="message 2 of 3"):
        sessions.check_have_session(QUEUE, [Message(session_id="a"), Message(), Message()])


@pytest.mark.parametrize(
    ("address", "requires_session", "session", "refused"),
    [
        (QUEUE, True, True, False),
        (QUEUE, True, False, True),
        (QUEUE, False, True, True),
        (QUEUE, False, False, False),
        (QUEUE.dead_letter, True, False, False),
        (QUEUE.dead_letter, True, True, True),
    ],
)
def test_only_the_main_list_of_an_entity_that_requires_sessions_has_them(address, requires_session, session, refused):
    """SB-110, SB-102."""
    if refused:
        with pytest.raises(NotAllowed):
            sessions.check_received_with(address, requires_session, session=session)
    else:
        sessions.check_received_with(address, requires_session, session=session)


@pytest.mark.parametrize("session_id", [None, 5, "x" * 129, "\x00"])
def test_a_session_id_that_no_message_could_have_is_refused(session_id):
    with pytest.raises(InvalidArgument):
        sessions.check_session_id(session_id)


def test_a_state_is_bytes_up_to_the_limit_of_the_tier():
    """SB-119."""
    for state in (None, b"", bytearray(b"x" * 256 * 1024)):
        sessions.check_state(state, of_tier(STRICT, Tier.STANDARD))
    large = b"x" * (256 * 1024 + 1)
    sessions.check_state(large, of_tier(STRICT, Tier.PREMIUM))
    with pytest.raises(MessageTooLarge):
        sessions.check_state(large, of_tier(STRICT, Tier.STANDARD))
    text: Any = "text"
    with pytest.raises(InvalidArgument):
        sessions.check_state(text, STRICT)
