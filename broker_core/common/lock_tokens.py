"""Lock tokens, which carry the sequence number of their message, and what settling by them reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from .errors import InvalidArgument, LockLost, SessionLockLost

Tokens = UUID | Sequence[UUID]  # one lock token or a list of them; a token may also be given as a string


def sequence_number_of(token: UUID) -> int:
    """The sequence number in the last 60 bits of a lock token.

    A token thus identifies its message, and settling needs no index on tokens, which each lock would have to update.
    """
    return token.int & ((1 << 60) - 1)


def is_one_token(tokens: Tokens | str | Sequence[str]) -> bool:
    """Whether a single token was given rather than a list: a lost lock is then an error."""
    return isinstance(tokens, (UUID, str))


def unique_tokens(tokens: Tokens | str | Sequence[str]) -> list[UUID]:
    """The tokens as UUIDs without duplicates, in the order given. Raises InvalidArgument for an invalid UUID."""
    token_list: Any = [tokens] if is_one_token(tokens) else tokens
    try:
        tokens = [t if isinstance(t, UUID) else UUID(t) for t in token_list]
    except (ValueError, AttributeError, TypeError) as exc:
        raise InvalidArgument("lock_token", "must be a UUID as a receive returned it, or a list of them") from exc
    return list({t.int: t for t in tokens}.values())  # hashing a UUID itself is slow


@dataclass(frozen=True, slots=True)
class SettleReport:
    """The result of a settle or renew call for each token.

    A call with a single token raises LockLost instead of reporting it as lost; `require_all()` does so for a list.

    settled: (token, sequence number) of the tokens whose lock was valid.
    lost:    tokens whose lock had ended (SB-070, SB-071): nothing was changed for them.
    locked_until, lock_duration: after a renew: when the locks in `settled` end, and their duration.
    lost_sessions: (token, entity, session) of those in `lost` whose session lock had ended (SB-117).
    """

    settled: tuple[tuple[UUID, int], ...]
    lost: tuple[UUID, ...]
    locked_until: datetime | None = None
    lock_duration: timedelta | None = None
    lost_sessions: tuple[tuple[UUID, str, str], ...] = ()

    def require_all(self) -> SettleReport:
        """Raise LockLost if any lock was lost, or SessionLockLost if it was a session's; else return self."""
        for token, entity, session_id in self.lost_sessions:
            if token in self.lost:
                raise SessionLockLost(entity, session_id)
        if self.lost:
            raise LockLost(self.lost)
        return self


def settle_report(tokens: list[UUID], rows: list) -> SettleReport:
    """The tokens as settled (those that the statement returned) or lost, in the order given."""
    numbers = {row.lock_token.int: row.sequence_number for row in rows}  # hashing a UUID itself is slow
    return SettleReport(
        settled=tuple((token, numbers[token.int]) for token in tokens if token.int in numbers),
        lost=tuple(token for token in tokens if token.int not in numbers) if len(numbers) < len(tokens) else (),
        locked_until=getattr(rows[0], "locked_until", None) if rows else None,
        lock_duration=getattr(rows[0], "lock_duration", None) if rows else None,
    )
