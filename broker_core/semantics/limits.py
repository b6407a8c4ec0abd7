"""Ranges and quotas, as data (SB sections 1.2, 1.3, 2.4).

STRICT is what the service documents. RELAXED is wider where a short duration or a small queue helps a test or a lesson; no range
is narrower. The defaults of a queue's settings are those of `types.QueueSettings`, the same in both.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Generic, TypeVar

Value = TypeVar("Value", int, timedelta)


@dataclass(frozen=True, slots=True)
class Range(Generic[Value]):
    """From minimum to maximum, both allowed; `step` counts from zero. A maximum of None has no end, and None is then "never"."""

    minimum: Value
    maximum: Value | None
    step: int = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Every number the broker compares with. Texts are measured in characters, messages in bytes where the name says no more."""

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
    clock_rate: float = 86_400.0  # a day in a second
    clock_step: timedelta = timedelta(days=36_500)


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
)
