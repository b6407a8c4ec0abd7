"""Named parameters of filters and actions, such as "@limit" (SB-F14)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from broker_core.common.errors import InvalidArgument
from broker_core.service_bus.rules.amqp.properties import encode_properties

from .view import comparable

_NAME = re.compile(r"@?([^\W\d_]\w*)")
_ALLOWED = (str, int, float, bool, datetime, timedelta, UUID)


def checked_parameters(parameters: Mapping[str, Any] | None, what: str) -> dict[str, Any]:
    """Parameters by their names in lower case, without the @. what: "filter" or "action".

    Raises InvalidArgument for an invalid name or value, and for a duplicate name.
    """
    checked: dict[str, Any] = {}
    for raw_name, value in (parameters or {}).items():
        named = _NAME.fullmatch(raw_name) if isinstance(raw_name, str) else None
        if named is None:
            raise InvalidArgument(f"{what} parameter {raw_name!r}", "a name must be @ followed by letters, digits and _")
        name = named[1].lower()
        if name in checked:
            raise InvalidArgument(f"{what} parameter {raw_name!r}", "appears twice (names are case-insensitive)")
        checked[name] = _checked(f"{what} parameter {raw_name!r}", value)
    return checked


def _checked(label: str, value: Any) -> Any:
    try:
        encode_properties({label: value})
    except InvalidArgument as exc:
        raise InvalidArgument(label, exc.problem) from exc
    value = comparable(label, value)
    if not isinstance(value, _ALLOWED):
        raise InvalidArgument(label, f"{value!r} must be a string, number, bool, datetime, timedelta or UUID")
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidArgument(label, f"{value!r} must be a number")
    return value
