"""What Service Bus decides about sessions: who may hold one, what it gives out next, when its life is over.

Pure: facts and the time go in, a decision comes out. The statements in `store/sql/session.sql` carry the same rules for whole
sets; a test compares the two on generated cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from broker_core.common.errors import InvalidArgument, MessageTooLarge, NotAllowed
from broker_core.common.limits import STRICT, Limits
from broker_core.common.types import EntityAddress, Message, MessageState, QueueSettings, SubQueue

from .messages import Facts, has_expired, is_available, is_locked


def check_have_session(address: EntityAddress, messages: Sequence[Message]) -> None:
    """Raise NotAllowed, naming the first message without a session id: an entity that requires sessions takes none (SB-008)."""
    for place, message in enumerate(messages, start=1):
        if message.session_id is None:
            raise NotAllowed(
                f"'{address}' requires sessions: message {place} of {len(messages)} has no session id. Nothing was stored; "
                "set session_id to a string of at most 128 characters."
            )


def check_received_with(address: EntityAddress, requires_session: bool, *, session: bool) -> None:
    """Raise NotAllowed where a receiver has a session and the entity none, or the reverse (SB-110).

    Only the main list has sessions: a dead-letter queue is received from as anywhere else (SB-102).
    """
    has_sessions = requires_session and address.subqueue is SubQueue.MAIN
    if has_sessions and not session:
        raise NotAllowed(f"'{address}' requires sessions: accept a session and receive from it.")
    if session and not has_sessions:
        raise NotAllowed(f"'{address}' does not use sessions: receive from it directly.")


def check_renewed_alone(address: EntityAddress, requires_session: bool) -> None:
    """Raise NotAllowed for a message of a session: its lock ends with the session's (SB-065)."""
    if requires_session and address.subqueue is SubQueue.MAIN:
        raise NotAllowed(f"Locks on messages of '{address}' are renewed with their session; renew the session.")


def check_session_id(session_id: str) -> None:
    """Raise InvalidArgument for what no message could have as its session id (1.2)."""
    if not isinstance(session_id, str) or "\x00" in session_id or len(session_id) > STRICT.message_id:
        raise InvalidArgument("session_id", f"must be a string of at most {STRICT.message_id} characters, without NUL")


def check_state(state: bytes | bytearray | memoryview | None, limits: Limits) -> None:
    """Raise InvalidArgument or MessageTooLarge for what cannot be a session's state (SB-119)."""
    if state is not None and not isinstance(state, (bytes, bytearray, memoryview)):
        raise InvalidArgument("state", f"must be bytes or None, not {type(state).__name__}; encode text first")
    if state is not None and len(state) > limits.session_state:
        raise MessageTooLarge("session state", len(state), limits.session_state)


def is_held(locked_until: datetime | None, now: datetime) -> bool:
    """Whether somebody holds the session: its lock is valid before the instant it ends (SB-112)."""
    return locked_until is not None and now < locked_until


def is_over(messages: Iterable[Facts], now: datetime, settings: QueueSettings) -> bool:
    """Whether the life of a whole session has ended, where its entity wants it so (SB-037, SB-901).

    messages: the session's, in the order of their numbers. One active message decides that nobody holds and that has expired: any
    with a time-to-live of its own; of those that live by the entity's default the first, which is the oldest.
    """
    if not settings.expires_whole_sessions:
        return False
    free = [m for m in messages if _is_active(m) and not is_locked(m, now)]
    by_default = [m for m in free if m.expires_at is None][:1]
    return any(has_expired(m, now, settings) for m in [*by_default, *(m for m in free if m.expires_at is not None)])


def deliverable(messages: Iterable[Facts], now: datetime, settings: QueueSettings) -> list[Facts]:
    """What the session's holder may receive now, in order (SB-114): nothing once the session is over."""
    messages = list(messages)
    if is_over(messages, now, settings):
        return []
    return [m for m in messages if _is_active(m) and is_available(m, now, settings)]


def taken_by_expiry(messages: Iterable[Facts], now: datetime, settings: QueueSettings) -> list[Facts]:
    """What expiry takes of a session's active messages: all that nobody holds once it is over, and each expired one where the
    entity lets sessions live on (SB-033, SB-034, SB-037)."""
    free = [m for m in messages if _is_active(m) and not is_locked(m, now)]
    if settings.expires_whole_sessions:
        return free if is_over(free, now, settings) else []
    return [m for m in free if has_expired(m, now, settings)]


def _is_active(message: Facts) -> bool:
    return message.subqueue is SubQueue.MAIN and message.state is MessageState.ACTIVE
