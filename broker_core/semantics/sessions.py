"""What Service Bus decides about sessions: who may hold one, what it gives out next, when its life is over.

Pure: facts and the time go in, a decision comes out. The statements in `store/sql/session.sql` carry the same rules for whole
sets.
"""

from __future__ import annotations

from collections.abc import Sequence

from .errors import NotAllowed
from .types import EntityAddress, Message


def check_have_session(address: EntityAddress, messages: Sequence[Message]) -> None:
    """Raise NotAllowed, naming the first message without a session id: an entity that requires sessions takes none (SB-008)."""
    for place, message in enumerate(messages, start=1):
        if message.session_id is None:
            raise NotAllowed(
                f"'{address}' requires sessions: message {place} of {len(messages)} has no session id. Nothing was stored; "
                "set session_id, which may be any text of at most 128 characters."
            )
