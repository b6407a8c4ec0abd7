"""Names and settings of entities: validation and normalization.

Pure functions; storage and authorization belong to the use cases. Every error is an InvalidArgument with the setting, the value
and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from enum import Enum
from typing import Any

from broker_core.common.durations import FOREVER, human
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import SUBSCRIPTIONS, Behaviour, EntityKind, EntityStatus, ExpiryMode, HistoryLevel, Tier

from .kept_properties import check_fixed_kept, check_kept
from .limits import STRICT, TIER_DEFAULTS, Limits, Range
from .values import QueueSettings, SubscriptionSettings, TopicSettings

Settings = QueueSettings | TopicSettings | SubscriptionSettings
SETTINGS_TYPE: Mapping[EntityKind, type[Settings]] = {
    EntityKind.QUEUE: QueueSettings,
    EntityKind.TOPIC: TopicSettings,
    EntityKind.SUBSCRIPTION: SubscriptionSettings,
}
SETTINGS_OF = {kind: tuple(f.name for f in fields(of)) for kind, of in SETTINGS_TYPE.items()}
ALL_SETTINGS = tuple(dict.fromkeys(name for names in SETTINGS_OF.values() for name in names))
EXPIRY_MODES = (ExpiryMode.EAGER, ExpiryMode.ON_ACTIVITY)  # at_head is for RabbitMQ queues only
OURS = (  # unknown to the service
    *("expiry_mode", "expires_whole_sessions", "drops_locks_on_change", "peek_shows_default_expiry"),
    *("history_level", "hidden"),
)
BY_BEHAVIOUR: Mapping[str, Mapping[Behaviour, Any]] = {  # where None means: as the namespace behaves
    "expiry_mode": {Behaviour.CONVENIENT: ExpiryMode.EAGER, Behaviour.DOCUMENTED: ExpiryMode.ON_ACTIVITY},
    "drops_locks_on_change": {Behaviour.CONVENIENT: False, Behaviour.DOCUMENTED: True},
    "peek_shows_default_expiry": {Behaviour.CONVENIENT: True, Behaviour.DOCUMENTED: False},
}
MAY_BE_NEVER = ("default_message_time_to_live", "auto_delete_on_idle")
DURATIONS = ("lock_duration", "duplicate_detection_history_time_window", *MAY_BE_NEVER)
FORWARDS = ("forward_to", "forward_dead_lettered_messages_to")
KEPT = "kept_properties"  # without effect; a change replaces all of them
FIXED = ("requires_session", "requires_duplicate_detection")  # after creation
IMMUTABLE = (
    "name",
    "namespace",
    "path",
    "family",
    "kind",
    *FIXED,
)

# Names as in the service's documentation, for error texts, the configuration file and the admin.
SERVICE_NAMES = {name: "".join(word.capitalize() for word in name.split("_")) for name in ALL_SETTINGS}
# Those that the service has as settings, by these names; others are Vitrine's own, or only kept.
SERVICE_SETTINGS = {
    kind: {SERVICE_NAMES[name]: name for name in names if name not in (*OURS, KEPT)} for kind, names in SETTINGS_OF.items()
}

# The statuses of each kind: a topic has no receivers, a subscription no senders (SB-231, SB-232).
STATUSES = {
    EntityKind.QUEUE: tuple(EntityStatus),
    EntityKind.TOPIC: tuple(s for s in EntityStatus if s is not EntityStatus.RECEIVE_DISABLED),
    EntityKind.SUBSCRIPTION: tuple(s for s in EntityStatus if s is not EntityStatus.SEND_DISABLED),
}

_PATH = re.compile(r"[A-Za-z0-9._~/-]+")
_NAME = re.compile(r"[A-Za-z0-9._~-]+")
_NAMESPACE = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?")
_POLICY = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_FEATURES = {  # not available in every tier
    "requires_session": "sessions",
    "requires_duplicate_detection": "duplicate_detection",
    "forward_to": "forwarding",
    "forward_dead_lettered_messages_to": "forwarding",
}
_NARROWED_BY_TIER = ("default_message_time_to_live", "max_message_size_in_kilobytes")
_NUMBERS = ("max_delivery_count", "max_size_in_megabytes", "max_message_size_in_kilobytes")


def check_path(path: str) -> str:
    """Check the path of a new queue or topic and return it; its casing is kept."""
    if not isinstance(path, str) or not 1 <= len(path) <= STRICT.entity_path:
        raise InvalidArgument("path", f"{_formatted(path)} must have 1 to {STRICT.entity_path} characters")
    if not _PATH.fullmatch(path):
        raise InvalidArgument("path", f"{_formatted(path)} may contain only letters, digits and . - _ ~ / (as a separator)")
    segments = path.split("/")
    if not all(segments):
        raise InvalidArgument("path", f"{_formatted(path)} must not start or end with / or contain //")
    if "." in segments or ".." in segments:
        raise InvalidArgument("path", f"{_formatted(path)} has a part that consists only of dots, which a URL cannot contain")
    if SUBSCRIPTIONS.lower() in (segment.lower() for segment in segments):
        raise InvalidArgument(
            "path", f"{_formatted(path)} has a part {SUBSCRIPTIONS}, which is reserved for the subscriptions of a topic"
        )
    return path


def check_subscription_name(name: str) -> str:
    """Check the name of a new subscription and return it."""
    if not isinstance(name, str) or not 1 <= len(name) <= STRICT.subscription_name:
        raise InvalidArgument("subscription", f"{_formatted(name)} must have 1 to {STRICT.subscription_name} characters")
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise InvalidArgument(
            "subscription", f"{_formatted(name)} may contain only letters, digits and . - _ ~, and not only dots"
        )
    return name


def check_namespace_name(name: str) -> str:
    """Check a namespace's name and return it. It is part of addresses and host names, hence the restricted characters."""
    if not isinstance(name, str) or not _NAMESPACE.fullmatch(name) or len(name) > STRICT.namespace_name:
        raise InvalidArgument(
            "namespace",
            f"{_formatted(name)} must have 1 to {STRICT.namespace_name} letters, digits and hyphens, "
            "start with a letter and not end with a hyphen",
        )
    return name


def check_policy_name(name: str) -> str:
    """Check the name of a shared-access policy and return it."""
    if not isinstance(name, str) or not _POLICY.fullmatch(name) or len(name) > STRICT.policy_name:
        raise InvalidArgument(
            "policy",
            f"{_formatted(name)} must have 1 to {STRICT.policy_name} letters, digits and . - _, "
            "with a letter or digit at both ends",
        )
    return name


def kind_of(settings: Settings) -> EntityKind:
    """The kind of entity that has settings of this type. Raises InvalidArgument."""
    for kind, of in SETTINGS_TYPE.items():
        if isinstance(settings, of):
            return kind
    raise InvalidArgument("settings", f"must be QueueSettings, TopicSettings or SubscriptionSettings, not {_formatted(settings)}")


def default_settings(kind: EntityKind, tier: Tier | None = None) -> dict[str, Any]:
    """The default settings of a new entity of this kind in a namespace of this tier."""
    own = TIER_DEFAULTS[tier] if tier else {}
    settings = SETTINGS_TYPE[kind]()
    return {name: own.get(name, getattr(settings, name)) for name in SETTINGS_OF[kind]}


def new_settings(kind: EntityKind, settings: Settings | Mapping[str, Any], limits: Limits = STRICT) -> Settings:
    """The checked settings of a new entity: the given ones, and the defaults of its kind and tier for the rest."""
    values = settings if isinstance(settings, Mapping) else values_of(settings)
    start = SETTINGS_TYPE[kind](**default_settings(kind, limits.tier))
    return changed_settings(start, values, limits, creating=True)


def changed_settings(
    current: Settings, changes: Mapping[str, Any], limits: Limits = STRICT, *, creating: bool = False
) -> Settings:
    """The settings after a change. Only changed settings are checked, so that a value from an earlier, wider range does not block
    other changes.

    An entity that forwards is never idle; its AutoDeleteOnIdle is kept, and takes effect when it no longer forwards (SB-193).
    A setting that is fixed after creation may be given if it keeps its value. Raises InvalidArgument for an unknown setting, a
    changed fixed one, a value out of range, or a feature that the tier lacks.
    """
    kind = kind_of(current)
    for name in changes:
        if name not in SETTINGS_OF[kind]:
            raise InvalidArgument(name, _why_not_settable(name, kind, creating))
    checked = {name: check_setting(name, value, limits, kind) for name, value in changes.items()}
    for name in FIXED:
        if name in checked and not creating and checked[name] != getattr(current, name):
            raise InvalidArgument(name, _why_not_settable(name, kind, creating))
    for name, value in checked.items():
        _check_tier_has(name, value, limits)
    if not creating and KEPT in checked:
        check_fixed_kept(kind, current.kept_properties, checked[KEPT])
    return replace(current, **checked)


def changed_forwards(before: Settings, after: Settings) -> list[str]:
    """The forwards that differ, by the names of their settings."""
    return [name for name in FORWARDS if getattr(before, name, None) != getattr(after, name, None)]


def check_tier(settings: Settings, limits: Limits) -> None:
    """Raise InvalidArgument for the first setting that the tier of these limits does not allow."""
    for name, value in values_of(settings).items():
        _check_tier_has(name, value, limits)
        most = getattr(limits, name).maximum if name in _NARROWED_BY_TIER else None
        if most is not None and (value is None or value > most):
            raise InvalidArgument(name, f"{_in_words_of(value)} is too large: the maximum is {_in_words_of(most)} {_in(limits)}")


def values_of(settings: Settings) -> dict[str, Any]:
    """Settings by name."""
    return {name: getattr(settings, name) for name in SETTINGS_OF[kind_of(settings)]}


def resolved(settings: Settings, behaviour: Behaviour) -> dict[str, Any]:
    """Settings by name, as they apply in a namespace of this behaviour."""
    return {
        name: BY_BEHAVIOUR[name][behaviour] if value is None and name in BY_BEHAVIOUR else value
        for name, value in values_of(settings).items()
    }


def check_setting(name: str, value: Any, limits: Limits = STRICT, kind: EntityKind = EntityKind.QUEUE) -> Any:
    """Check one value and return it as stored: durations from FOREVER on become None or the maximum, strings enum members."""
    if name in DURATIONS:
        return _duration(name, value, getattr(limits, name))
    if name in _NUMBERS:
        return _number(name, value, getattr(limits, name))
    if name == "status":
        return _member(name, value, STATUSES[kind])
    if value is None and name in BY_BEHAVIOUR:
        return None
    if name == "expiry_mode":
        return _member(name, value, EXPIRY_MODES)
    if name == "history_level":
        return _history_level(name, value)
    if name == "user_metadata":
        return _metadata(name, value, limits)
    if name in FORWARDS:
        return _destination(name, value, limits)
    if name == KEPT:
        return check_kept(kind, value)
    if not isinstance(value, bool):
        raise InvalidArgument(name, f"{_formatted(value)} must be true or false")
    return value


def in_words(allowed: Range) -> str:
    """The allowed values of a duration or a number: "5 s to 5 min", "at least 5 min, or never"."""
    if allowed.minimum == allowed.maximum:
        return f"only {_in_words_of(allowed.minimum)}"
    if allowed.maximum is None:
        return f"at least {_in_words_of(allowed.minimum)}, or never"
    steps = f" in steps of {allowed.step:,}" if allowed.step > 1 else ""
    return f"{_in_words_of(allowed.minimum)} to {_in_words_of(allowed.maximum)}{steps}"


def _duration(name: str, value: Any, allowed: Range[timedelta]) -> timedelta | None:
    if name in MAY_BE_NEVER and (value is None or isinstance(value, timedelta) and value >= FOREVER):
        return allowed.maximum
    if value is not None and not isinstance(value, timedelta):
        raise InvalidArgument(name, f"{_formatted(value)} must be a duration: allowed: {in_words(allowed)}")
    if value is None or value < allowed.minimum or (allowed.maximum is not None and value > allowed.maximum):
        raise InvalidArgument(name, f"{human(value)} is out of range; allowed: {in_words(allowed)}")
    return value


def _number(name: str, value: Any, allowed: Range[int]) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(name, f"{_formatted(value)} must be a whole number: allowed: {in_words(allowed)}")
    if value < allowed.minimum or (allowed.maximum is not None and value > allowed.maximum) or value % allowed.step:
        raise InvalidArgument(name, f"{value:,} is out of range; allowed: {in_words(allowed)}")
    return value


def _member(name: str, value: Any, allowed: Sequence[Enum]) -> Enum:
    for member in allowed:
        if isinstance(value, str) and value.lower() == member.value.lower():
            return member
    raise InvalidArgument(name, f"{_formatted(value)} must be one of {', '.join(m.value for m in allowed)}")


def _history_level(name: str, value: Any) -> HistoryLevel:
    by_name = {level.name.lower(): level for level in HistoryLevel}
    history_level = by_name.get(value.lower()) if isinstance(value, str) else None
    if history_level is None and isinstance(value, int) and not isinstance(value, bool) and value in list(HistoryLevel):
        history_level = HistoryLevel(value)
    if history_level is None:
        raise InvalidArgument(name, f"{_formatted(value)} must be one of {', '.join(by_name)}")
    return history_level


def _metadata(name: str, value: Any, limits: Limits) -> str | None:
    if value is None or value == "":
        return None
    if not isinstance(value, str) or "\x00" in value:
        raise InvalidArgument(name, "must be a string without NUL characters")
    if len(value) > limits.user_metadata:
        raise InvalidArgument(name, f"has {len(value):,} characters; at most {limits.user_metadata:,} are allowed")
    return value


def _destination(name: str, value: Any, limits: Limits) -> str | None:
    """Check the path of a forward; an empty one disables forwarding. The use case checks that the destination exists."""
    if value is None or value == "":
        return None
    try:
        return check_path(value)
    except InvalidArgument as exc:
        raise InvalidArgument(name, f"must be the path of a queue or topic of the same namespace: {exc.problem}") from exc


def _check_tier_has(name: str, value: Any, limits: Limits) -> None:
    feature = _FEATURES.get(name)
    if feature and value and not getattr(limits, feature):
        raise InvalidArgument(name, f"is not available {_in(limits)}; use Standard or Premium")


def _in(limits: Limits) -> str:
    return f"in a namespace of the tier {str(limits.tier).capitalize()}"


def _in_words_of(value: timedelta | int | None) -> str:
    return human(value) if value is None or isinstance(value, timedelta) else f"{value:,}"


def _why_not_settable(name: str, kind: EntityKind, creating: bool) -> str:
    if name in FIXED and name not in SETTINGS_OF[kind] or name not in IMMUTABLE:
        return f"is not a setting of a {kind}; valid settings are {', '.join(SETTINGS_OF[kind])}"
    if creating:
        return "is not supported, or is part of the address"
    return f"cannot be changed after creation; delete and recreate the {kind}"


def _formatted(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
