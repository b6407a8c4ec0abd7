"""What Service Bus checks of sessions, as tables."""

from typing import Any

import pytest

from broker_core.common.errors import InvalidArgument, MessageTooLarge, NotAllowed
from broker_core.common.types import EntityAddress, Tier
from broker_core.service_bus.rules import sessions
from broker_core.service_bus.rules.limits import STRICT, of_tier
from broker_core.service_bus.rules.values import Message

QUEUE = EntityAddress("ns", "q")


def test_the_error_names_the_first_message_without_a_session():
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
def test_an_invalid_session_id_is_refused(session_id):
    with pytest.raises(InvalidArgument):
        sessions.check_session_id(session_id)


@pytest.mark.parametrize("session_id", ["", "x" * 128])
def test_a_session_id_has_up_to_128_characters(session_id):
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
