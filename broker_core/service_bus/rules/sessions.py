"""Checks of sessions before a statement runs: whether an entity has sessions, and valid session ids and states.

When a session expires and which message it delivers next is decided by sql/session.sql, and specified in
tests/service_bus/specification.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker_core.common.errors import InvalidArgument, MessageTooLarge, NotAllowed
from broker_core.common.types import EntityAddress, SubQueue

from .limits import STRICT, Limits
from .values import Message


def check_have_session(address: EntityAddress, messages: Sequence[Message]) -> None:
    """Raise NotAllowed with the first message without a session id; for entities that require sessions (SB-008)."""
    for place, message in enumerate(messages, start=1):
        if message.session_id is None:
            raise NotAllowed(
                f"'{address}' requires sessions: message {place} of {len(messages)} has no session id. Nothing was stored; "
                "set session_id to a string of at most 128 characters."
            )


def check_received_with(address: EntityAddress, requires_session: bool, *, session: bool) -> None:
    """Raise NotAllowed for a receive with a session from an entity without sessions, or the reverse (SB-110).

    Only the main list has sessions; a dead-letter queue is received from without (SB-102).
    """
    has_sessions = requires_session and address.subqueue is SubQueue.MAIN
    if has_sessions and not session:
        raise NotAllowed(f"'{address}' requires sessions: accept a session and receive from it.")
    if session and not has_sessions:
        raise NotAllowed(f"'{address}' does not use sessions: receive from it directly.")


def check_renewed_alone(address: EntityAddress, requires_session: bool) -> None:
    """Raise NotAllowed for messages of a session, whose locks end with the session's (SB-065)."""
    if requires_session and address.subqueue is SubQueue.MAIN:
        raise NotAllowed(f"Locks on messages of '{address}' are renewed with their session; renew the session.")


def check_session_id(session_id: str) -> None:
    """Raise InvalidArgument for an invalid session id."""
    if not isinstance(session_id, str) or "\x00" in session_id or len(session_id) > STRICT.message_id:
        raise InvalidArgument("session_id", f"must be a string of at most {STRICT.message_id} characters, without NUL")


def check_state(state: bytes | bytearray | memoryview | None, limits: Limits) -> None:
    """Raise InvalidArgument or MessageTooLarge for an invalid session state (SB-119)."""
    if state is not None and not isinstance(state, (bytes, bytearray, memoryview)):
        raise InvalidArgument("state", f"must be bytes or None, not {type(state).__name__}; encode text first")
    if state is not None and len(state) > limits.session_state:
        raise MessageTooLarge("session state", len(state), limits.session_state)
