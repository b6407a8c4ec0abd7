"""What an entity may be called and how it may be set (SB sections 1.2 and 1.3).

Decides whether names and values are accepted, and gives them back in one form. Refuses to know where they are stored, and who
asks: rights are the use case's. Every refusal is an InvalidArgument with the setting, the value and what would be allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import timedelta
from enum import Enum
from typing import Any

from .durations import FOREVER, human
from .errors import InvalidArgument
from .limits import STRICT, Limits, Range
from .types import EntityStatus, ExpiryMode, HistoryLevel, QueueSettings

SETTINGS = tuple(f.name for f in fields(QueueSettings))
MAY_BE_NEVER = ("default_message_time_to_live", "auto_delete_on_idle")
DURATIONS = ("lock_duration", "duplicate_detection_history_time_window", *MAY_BE_NEVER)
FORWARDS = ("forward_to", "forward_dead_lettered_messages_to")
FIXED = ("requires_session", "requires_duplicate_detection")  # after creation
IMMUTABLE = (
    "name",
    "namespace",
    "path",
    "family",
    "kind",
    *FIXED,
    "enable_partitioning",
)

# As the service's documentation spells them, for messages, the configuration file and the admin.
SERVICE_NAMES = {name: "".join(word.capitalize() for word in name.split("_")) for name in SETTINGS}

_PATH = re.compile(r"[A-Za-z0-9._~/-]+")
_NAMESPACE = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?")
_POLICY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_ENUMS = {"status": EntityStatus, "expiry_mode": ExpiryMode}
_NUMBERS = ("max_delivery_count", "max_size_in_megabytes", "max_message_size_in_kilobytes")


def check_path(path: str, limits: Limits = STRICT) -> str:
    """A queue's path as it may be created (SB 1.2), given back unchanged: its casing is kept."""
    if not isinstance(path, str) or not 1 <= len(path) <= limits.entity_path:
        raise InvalidArgument("path", f"{_shown(path)} must have 1 to {limits.entity_path} characters")
    if not _PATH.fullmatch(path):
        raise InvalidArgument("path", f"{_shown(path)} may hold only letters, digits and . - _ ~ / (as a separator)")
    segments = path.split("/")
    if not all(segments):
        raise InvalidArgument("path", f"{_shown(path)} must not begin or end with / nor hold two of them in a row")
    if "." in segments or ".." in segments:
        raise InvalidArgument("path", f"{_shown(path)} has a part that is only dots, which no address on the web can hold")
    return path


def check_namespace_name(name: str, limits: Limits = STRICT) -> str:
    """A namespace's name, given back unchanged. It is part of addresses and host names, hence the narrow alphabet."""
    if not isinstance(name, str) or not _NAMESPACE.fullmatch(name) or len(name) > limits.namespace_name:
        raise InvalidArgument(
            "namespace",
            f"{_shown(name)} must have 1 to {limits.namespace_name} letters, digits and hyphens, "
            "begin with a letter and not end with a hyphen",
        )
    return name


def check_policy_name(name: str, limits: Limits = STRICT) -> str:
    """The name of a shared-access policy (7.7), given back unchanged."""
    if not isinstance(name, str) or not _POLICY.fullmatch(name) or len(name) > limits.policy_name:
        raise InvalidArgument(
            "policy",
            f"{_shown(name)} must have 1 to {limits.policy_name} letters, digits and . - _, with a letter or digit at both ends",
        )
    return name


def queue_settings(given: QueueSettings | Mapping[str, Any], limits: Limits = STRICT) -> QueueSettings:
    """Settings for a new queue: what is given, the service's defaults for the rest; all checked."""
    values = given if isinstance(given, Mapping) else {name: getattr(given, name) for name in SETTINGS}
    return changed_settings(QueueSettings(), values, limits, creating=True)


def changed_settings(
    current: QueueSettings, changes: Mapping[str, Any], limits: Limits = STRICT, *, creating: bool = False
) -> QueueSettings:
    """The settings after a change. Only the changed ones are checked, so that a wider range once used does not block others.

    Raises InvalidArgument for an unknown setting, one that cannot be changed after creation, or a value out of range.
    """
    for name in changes:
        if name not in SETTINGS or (name in FIXED and not creating):
            raise InvalidArgument(name, _why_no_setting(name, creating))
    return replace(current, **{name: check_setting(name, value, limits) for name, value in changes.items()})


def check_setting(name: str, value: Any, limits: Limits = STRICT) -> Any:
    """One value as it is stored: durations from FOREVER on become None, texts become members of their enum."""
    if name in DURATIONS:
        return _duration(name, value, getattr(limits, name))
    if name in _NUMBERS:
        return _number(name, value, getattr(limits, name))
    if name in _ENUMS:
        return _member(name, value, _ENUMS[name])
    if name == "history_level":
        return _history_level(name, value)
    if name == "user_metadata":
        return _metadata(name, value, limits)
    if name in FORWARDS:
        return None if value in (None, "") else check_path(value, limits)
    if not isinstance(value, bool):
        raise InvalidArgument(name, f"{_shown(value)} must be true or false")
    return value


def in_words(allowed: Range) -> str:
    """The allowed values of a duration or a number: "5 s to 5 min", "at least 5 min, or never"."""
    minimum, maximum = (human(v) if isinstance(v, timedelta) else f"{v:,}" for v in (allowed.minimum, allowed.maximum or 0))
    if allowed.maximum is None:
        return f"at least {minimum}, or never"
    return f"{minimum} to {maximum}" + (f" in steps of {allowed.step:,}" if allowed.step > 1 else "")


def _duration(name: str, value: Any, allowed: Range[timedelta]) -> timedelta | None:
    if name in MAY_BE_NEVER and (value is None or isinstance(value, timedelta) and value >= FOREVER):
        return None
    if not isinstance(value, timedelta):
        raise InvalidArgument(name, f"{_shown(value)} must be a duration: allowed is {in_words(allowed)}")
    if value < allowed.minimum or (allowed.maximum is not None and value > allowed.maximum):
        raise InvalidArgument(name, f"{human(value)} is out of range: allowed is {in_words(allowed)}")
    return value


def _number(name: str, value: Any, allowed: Range[int]) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(name, f"{_shown(value)} must be a whole number: allowed is {in_words(allowed)}")
    if not allowed.minimum <= value <= allowed.maximum or value % allowed.step:
        raise InvalidArgument(name, f"{value:,} is out of range: allowed is {in_words(allowed)}")
    return value


def _member(name: str, value: Any, enum: type[Enum]) -> Enum:
    for member in enum:
        if isinstance(value, str) and value.lower() == member.value.lower():
            return member
    raise InvalidArgument(name, f"{_shown(value)} must be one of {', '.join(m.value for m in enum)}")


def _history_level(name: str, value: Any) -> HistoryLevel:
    by_name = {level.name.lower(): level for level in HistoryLevel}
    found = by_name.get(value.lower()) if isinstance(value, str) else None
    if found is None and isinstance(value, int) and not isinstance(value, bool) and value in iter(HistoryLevel):
        found = HistoryLevel(value)
    if found is None:
        raise InvalidArgument(name, f"{_shown(value)} must be one of {', '.join(by_name)}")
    return found


def _metadata(name: str, value: Any, limits: Limits) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str) or "\x00" in value:
        raise InvalidArgument(name, "must be a text without NUL characters")
    if len(value) > limits.user_metadata:
        raise InvalidArgument(name, f"has {len(value):,} characters; at most {limits.user_metadata:,} are allowed")
    return value


def _why_no_setting(name: str, creating: bool) -> str:
    if name not in IMMUTABLE:
        return f"is no setting of a queue; those are {', '.join(SETTINGS)}"
    if creating:
        return "is not supported yet, or is not a setting but part of the address"
    return "cannot be changed after creation; delete the queue and create it anew"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
