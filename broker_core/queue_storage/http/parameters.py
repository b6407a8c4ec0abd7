"""Numbers in the query, read strictly: ASCII digits only (QS-911)."""

from __future__ import annotations

import re
from datetime import timedelta

from broker_core.queue_storage.rules.errors import (
    InvalidQueryParameterValue,
    MissingRequiredQueryParameter,
    OutOfRangeQueryParameterValue,
)
from broker_core.queue_storage.rules.limits import DEFAULT_LEASE, DEFAULT_LIFE, LONGEST_VISIBILITY_TIMEOUT, MOST_MESSAGES
from broker_core.queue_storage.rules.messages import COUNT, LIFE, VISIBILITY

from .request import Request

TIMEOUT, POP_RECEIPT, MAX_RESULTS = "timeout", "popreceipt", "maxresults"
MOST_RESULTS = 5_000
_WHOLE = re.compile("-?[0-9]{1,20}")
_NEVER = -1
_LONGEST_LIFE = 10_000 * 366 * 86_400  # seconds; beyond the year 9999, so the same as never


def whole(request: Request, name: str, least: int, most: int) -> int | None:
    """A number of the query; None: not given. Raises InvalidQueryParameterValue, OutOfRangeQueryParameterValue."""
    text = request.parameter(name)
    if text is None:
        return None
    number = _number(name, text)
    if not least <= number <= most:
        raise OutOfRangeQueryParameterValue(name, text[:20], least, most)
    return number


def count(request: Request) -> int:
    """How many messages a get or peek is to return."""
    return whole(request, COUNT, 1, MOST_MESSAGES) or 1


def delay(request: Request) -> timedelta:
    """How long a new message stays invisible (QS-002, QS-007)."""
    return _seconds(request, 0) or timedelta(0)


def lease(request: Request) -> timedelta:
    """How long received messages stay invisible (QS-021, QS-022)."""
    return _seconds(request, 1) or DEFAULT_LEASE


def new_visibility(request: Request) -> timedelta:
    """The visibility timeout of an update (QS-054)."""
    given = _seconds(request, 0)
    if given is None:
        raise MissingRequiredQueryParameter(VISIBILITY)
    return given


def time_to_live(request: Request) -> timedelta | None:
    """Of a new message (QS-003, QS-005); None: it never expires."""
    text = request.parameter(LIFE)
    if text is None:
        return DEFAULT_LIFE
    number = _number(LIFE, text)
    if number < 1 and number != _NEVER:
        raise InvalidQueryParameterValue(LIFE, text, "must be at least one second, or -1 for never")
    return None if number == _NEVER else timedelta(seconds=min(number, _LONGEST_LIFE))


def check_timeout(request: Request) -> None:
    """The timeout of a request is not used; one that cannot be one is refused (QS-918)."""
    text = request.parameter(TIMEOUT)
    if text is not None and _number(TIMEOUT, text) < 1:
        raise InvalidQueryParameterValue(TIMEOUT, text, "must be at least one second")


def _seconds(request: Request, least: int) -> timedelta | None:
    number = whole(request, VISIBILITY, least, int(LONGEST_VISIBILITY_TIMEOUT.total_seconds()))
    return None if number is None else timedelta(seconds=number)


def _number(name: str, text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise InvalidQueryParameterValue(name, text[:80], "must be a whole number, of at most 20 digits")
    return int(text)
