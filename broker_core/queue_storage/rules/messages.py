"""Check the arguments of put, get and update before anything is looked up (QS-012), and read the sequence number from ids.

If several arguments are wrong, the text is reported first, then the visibility timeout, then the rest (QS-F01). Errors name the
service's parameters, and give durations in seconds as the service does.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from uuid import UUID

from broker_core.common.arguments import require_kind
from broker_core.common.errors import InvalidArgument
from broker_core.common.lock_tokens import sequence_number_of

from .errors import (
    InvalidQueryParameterValue,
    InvalidXmlDocument,
    MissingRequiredQueryParameter,
    OutOfRangeQueryParameterValue,
    RequestBodyTooLarge,
)
from .limits import (
    DEFAULT_LIFE,
    LONGEST_VISIBILITY_TIMEOUT,
    MOST_MESSAGES,
    SHORTEST_LEASE,
    SHORTEST_LIFE,
    TEXT_BYTES,
)

VISIBILITY, LIFE, COUNT = "visibilitytimeout", "messagettl", "numofmessages"
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_ZERO = timedelta(0)


def check_put(visibility_timeout: timedelta, time_to_live: timedelta | None) -> None:
    """Check the delay and time-to-live of a new message. time_to_live None: never expires; DEFAULT_LIFE itself: not given.

    Raises OutOfRangeQueryParameterValue (QS-007), InvalidQueryParameterValue (QS-005, QS-006). A delay as long as the default
    time-to-live is accepted; such a message expires as it becomes visible (QS-008, QS-904).
    """
    _check_visibility(visibility_timeout, _ZERO)
    if time_to_live is None or time_to_live is DEFAULT_LIFE:
        return
    require_kind("time_to_live", time_to_live, timedelta)
    if time_to_live < SHORTEST_LIFE:
        raise InvalidQueryParameterValue(LIFE, seconds(time_to_live), "must be at least one second, or -1 for never")
    if visibility_timeout >= time_to_live:
        raise InvalidQueryParameterValue(VISIBILITY, seconds(visibility_timeout), f"must be less than {LIFE}")


def check_get(count: int, visibility_timeout: timedelta) -> None:
    """Check the count and visibility timeout of a get (QS-022, QS-023)."""
    _check_visibility(visibility_timeout, SHORTEST_LEASE)
    check_count(count)


def check_count(count: int) -> None:
    """Check the number of messages requested by a get or peek (QS-023, QS-035)."""
    if not isinstance(count, int) or isinstance(count, bool):
        raise InvalidQueryParameterValue(COUNT, count, "must be a whole number")
    if not 1 <= count <= MOST_MESSAGES:
        raise OutOfRangeQueryParameterValue(COUNT, count, 1, MOST_MESSAGES)


def check_update(
    pop_receipt: Any, visibility_timeout: timedelta | None, text: str | None = None
) -> tuple[timedelta, bytes | None]:
    """Check the arguments of an update (QS-045, QS-054). Returns the timeout, and the text as stored (QS-055) or None to keep
    it."""
    check_receipt(pop_receipt)
    if visibility_timeout is None:
        raise MissingRequiredQueryParameter(VISIBILITY)
    body = None if text is None else encode_text(text)
    _check_visibility(visibility_timeout, _ZERO)
    return visibility_timeout, body


def check_receipt(pop_receipt: Any) -> None:
    if pop_receipt is None or pop_receipt == "":
        raise MissingRequiredQueryParameter("popreceipt")


def encode_text(text: str) -> bytes:
    """The text as stored. Raises RequestBodyTooLarge (QS-010), InvalidXmlDocument (QS-912)."""
    if not isinstance(text, str):
        raise InvalidArgument("text", f"{type(text).__name__} is not a string; encode it, for example with base64")
    wrong = _NOT_IN_XML.search(text)
    if wrong:
        raise InvalidXmlDocument(wrong.start(), wrong[0])
    encoded = text.encode()
    if len(encoded) > TEXT_BYTES:
        raise RequestBodyTooLarge(len(encoded), TEXT_BYTES)
    return encoded


def number_of(message_id: Any) -> int | None:
    """The sequence number in the last 60 bits of a message id or receipt; None: not an id of this broker (QS-050)."""
    uuid = as_uuid(message_id)
    return None if uuid is None else sequence_number_of(uuid)


def as_uuid(value: Any) -> UUID | None:
    """An id or receipt as a UUID; None if malformed."""
    if isinstance(value, UUID):
        return value
    try:
        return UUID(value)
    except (ValueError, AttributeError, TypeError):
        return None


def seconds(duration: timedelta) -> int | float:
    """A duration in seconds, as an int if it is whole."""
    total = duration.total_seconds()
    return int(total) if total == int(total) else total


def _check_visibility(timeout: timedelta, least: timedelta) -> None:
    require_kind("visibility_timeout", timeout, timedelta)
    if not least <= timeout <= LONGEST_VISIBILITY_TIMEOUT:
        most = LONGEST_VISIBILITY_TIMEOUT
        raise OutOfRangeQueryParameterValue(VISIBILITY, seconds(timeout), int(seconds(least)), int(seconds(most)))
