"""The `expiration` property of a message (RMQ-001, RMQ-005 to RMQ-007)."""

from __future__ import annotations

import re

from . import errors
from .arguments import expiry_problem
from .erlang import Atom, Chars

_INTEGER = re.compile(r"[+-]?[0-9]+")


def parse(expiration: str | None) -> int | None:
    """The value of `expiration` in milliseconds; None if not set. Raises AmqpError (406) for an invalid one (RMQ-006).

    Checked before routing, so an unroutable message is refused as well (RMQ-007).
    """
    if expiration is None:
        return None
    match = _INTEGER.match(expiration)
    if match is None:
        raise errors.invalid_expiration(expiration, Atom("no_integer"))
    if match.end() < len(expiration):
        raise errors.invalid_expiration(expiration, (Atom("leftover_string"), Chars(expiration[match.end() :])))
    if match.end() > 4000:
        raise errors.invalid_expiration(expiration[:20] + "...", Atom("value_too_large"))
    milliseconds = int(expiration)
    if problem := expiry_problem(milliseconds):
        raise errors.invalid_expiration(expiration, problem.term)
    return milliseconds
