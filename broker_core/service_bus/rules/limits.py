"""Ranges and quotas, as data (SB sections 1.2, 1.3, 2.4).

STRICT has the service's documented ranges. RELAXED has wider ranges where short durations or small queues help in tests and
demonstrations; none is narrower. Both apply to the highest tier; `of_tier` narrows them to a namespace's tier. Defaults are those
of the settings classes, except where a tier has others (TIER_DEFAULTS).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Generic, TypeVar

from broker_core.common.types import Tier

Value = TypeVar("Value", int, timedelta)


@dataclass(frozen=True, slots=True)
class Range(Generic[Value]):
    """From minimum to maximum, inclusive, in multiples of `step`. If maximum is None there is no limit, and None means never."""

    minimum: Value
    maximum: Value | None
    step: int = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits of the broker. Text is measured in characters, messages in bytes, unless the name says otherwise.

    topics, sessions, duplicate_detection, forwarding: whether a namespace supports them; only Basic does not.
    """

    lock_duration: Range[timedelta]
    max_delivery_count: Range[int]
    default_message_time_to_live: Range[timedelta]
    auto_delete_on_idle: Range[timedelta]
    max_size_in_megabytes: Range[int]
    max_message_size_in_kilobytes: Range[int]
    duplicate_detection_history_time_window: Range[timedelta]
    user_metadata: int = 1024
    entity_path: int = 260
    namespace_name: int = 50
    policy_name: int = 256
    policies_per_scope: int = 12
    message_id: int = 128
    dead_letter_text: int = 4096
    one_property: int = 32 * 1024
    all_properties: int = 64 * 1024
    rule_name: int = 50
    filter_text: int = 1024
    filter_nesting: int = 20
    action_statements: int = 32
    subscription_name: int = 50
    subscriptions_per_topic: int = 2_000
    sql_filters_per_topic: int = 2_000
    correlation_filters_per_topic: int = 100_000
    entities_per_namespace: int = 10_000  # queues and topics
    session_state: int = 1024 * 1024
    messages_per_transaction: int = 100
    messages_per_batch_delete: int = 4_000
    topics: bool = True
    sessions: bool = True
    duplicate_detection: bool = True
    forwarding: bool = True
    tier: Tier | None = None  # to which these apply; None: the widest of all tiers


STRICT = Limits(
    lock_duration=Range(timedelta(seconds=5), timedelta(minutes=5)),
    max_delivery_count=Range(1, 2**31 - 1),  # SB-928
    default_message_time_to_live=Range(timedelta(seconds=1), None),
    auto_delete_on_idle=Range(timedelta(minutes=5), None),  # SB-194
    max_size_in_megabytes=Range(1024, 81_920, step=1024),
    max_message_size_in_kilobytes=Range(256, 102_400),
    duplicate_detection_history_time_window=Range(timedelta(seconds=20), timedelta(days=7)),
)

RELAXED = replace(
    STRICT,
    lock_duration=Range(timedelta(milliseconds=10), timedelta(days=1)),
    default_message_time_to_live=Range(timedelta(milliseconds=1), None),
    auto_delete_on_idle=Range(timedelta(seconds=1), None),
    max_size_in_megabytes=Range(1, 1_048_576),
    max_message_size_in_kilobytes=Range(1, 102_400),
    duplicate_detection_history_time_window=Range(timedelta(milliseconds=10), timedelta(days=7)),
    subscriptions_per_topic=10_000,
    sql_filters_per_topic=10_000,
    entities_per_namespace=100_000,
    messages_per_transaction=1_000,
)

LIFE_IN_BASIC = timedelta(days=14)
_BASIC = {"topics": False, "sessions": False, "duplicate_detection": False, "forwarding": False}
_STANDARD = {
    "max_message_size_in_kilobytes": Range(256, 256),
    "session_state": 256 * 1024,
    "messages_per_batch_delete": 500,
}
_STRICT_TIERS: Mapping[Tier, Mapping[str, Any]] = {
    Tier.BASIC: {**_STANDARD, **_BASIC},
    Tier.STANDARD: _STANDARD,
    Tier.PREMIUM: {},
}
_RELAXED_TIERS: Mapping[Tier, Mapping[str, Any]] = {Tier.BASIC: _BASIC, Tier.STANDARD: {}, Tier.PREMIUM: {}}

# Defaults of new entities where they differ from those of the settings classes.
TIER_DEFAULTS: Mapping[Tier, Mapping[str, Any]] = {
    Tier.BASIC: {"default_message_time_to_live": LIFE_IN_BASIC},
    Tier.STANDARD: {},
    Tier.PREMIUM: {"max_message_size_in_kilobytes": 1024},
}


def of_tier(limits: Limits, tier: Tier) -> Limits:
    """STRICT or RELAXED narrowed to a tier. In RELAXED the tiers differ only by what Basic lacks."""
    tier = Tier(tier)
    narrower = dict((_RELAXED_TIERS if limits is RELAXED else _STRICT_TIERS)[tier])
    if tier is Tier.BASIC:
        narrower["default_message_time_to_live"] = replace(limits.default_message_time_to_live, maximum=LIFE_IN_BASIC)
    return replace(limits, **narrower, tier=tier)
