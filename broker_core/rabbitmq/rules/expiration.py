"""How long a message lives: by its own `expiration`, and by its queue's time-to-live (RMQ-001, RMQ-005 to RMQ-010)."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from . import errors
from .arguments import expiry_problem
from .erlang import Atom, Chars

_INTEGER = re.compile(r"[+-]?[0-9]+")


def parse(expiration: str | None) -> int | None:
    """The milliseconds that a message's `expiration` says; None: it has none. Raises AmqpError (406) for a bad one (RMQ-006).

    It is checked before routing, so an unroutable message is refused as well (RMQ-007).
    """
    if expiration is None:
        return None
    found = _INTEGER.match(expiration)
    if found is None:
        raise errors.invalid_expiration(expiration, Atom("no_integer"))
    if found.end() < len(expiration):
        raise errors.invalid_expiration(expiration, (Atom("leftover_string"), Chars(expiration[found.end() :])))
    if found.end() > 4000:
        raise errors.invalid_expiration(expiration[:20] + "...", Atom("value_too_large"))
    milliseconds = int(expiration)
    if problem := expiry_problem(milliseconds):
        raise errors.invalid_expiration(expiration, problem)
    return milliseconds


def life(expiration_ms: int | None, ttl_ms: int | None) -> timedelta | None:
    """How long a message lives in a queue: the lower of its own time and the queue's, over those there are (RMQ-008)."""
    both = [milliseconds for milliseconds in (expiration_ms, ttl_ms) if milliseconds is not None]
    return timedelta(milliseconds=min(both)) if both else None


def expires_at(expiration_ms: int | None, ttl_ms: int | None, now: datetime) -> datetime | None:
    """The instant stored with a message that enters a queue now; later changes of the queue's time leave it (RMQ-010)."""
    lived = life(expiration_ms, ttl_ms)
    return None if lived is None else now + lived
