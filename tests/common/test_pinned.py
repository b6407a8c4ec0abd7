"""Numbers that are the same for ever, or that a service states: a change of one is a decision, and shows here."""

from dataclasses import asdict
from datetime import timedelta
from typing import Any

import pytest

from broker_core.common.arguments import require_count, whole_numbers
from broker_core.common.errors import InvalidArgument
from broker_core.common.limits import RELAXED, STRICT, Range
from broker_core.common.types import BodyKind, EventKind, HistoryLevel, HoldKind, LedgerState, MessageState, SubQueue

# As they are stored in tables and archives.
STORED = {
    SubQueue: "MAIN=0 DEAD_LETTER=1 TRANSFER_DEAD_LETTER=2 TRANSFER=3",
    MessageState: "ACTIVE=0 DEFERRED=1 SCHEDULED=2",
    HoldKind: "GET=10 PUT=12 UPDATE_BEFORE_GET=13 UPDATE=14",
    LedgerState: "LOCKED=10 DEFERRED_LOCKED=11 DELAYED=12 RESCHEDULED=13 EXTENDED=14",
    HistoryLevel: "OFF=0 LIFECYCLE=1 FULL=2",
    BodyKind: "DATA=0 SEQUENCE=1 VALUE=2 DATA_SECTIONS=3",
    EventKind: "SENT=1 SCHEDULED=2 ACTIVATED=3 RECEIVED=4 RENEWED=5 COMPLETED=6 ABANDONED=7 RELEASED=8 DEFERRED=9 "
    "DEAD_LETTERED=10 EXPIRED=11 LOCK_LOST=12 CANCELLED=13 PURGED=14 RESUBMITTED=15 DELETED=16 FORWARDED=17 "
    "RECEIVED_AND_DELETED=18 DUPLICATE_DROPPED=19 PUBLISHED=20 DROPPED=21 MOVED=22",
}
DOCUMENTED = {
    "user_metadata": 1024, "entity_path": 260, "namespace_name": 50, "policy_name": 256, "policies_per_scope": 12,
    "message_id": 128, "dead_letter_text": 4096, "one_property": 32_768, "all_properties": 65_536, "rule_name": 50,
    "filter_text": 1024, "filter_nesting": 20, "action_statements": 32, "subscription_name": 50,
    "subscriptions_per_topic": 2000, "sql_filters_per_topic": 2000, "correlation_filters_per_topic": 100_000,
    "entities_per_namespace": 10_000, "session_state": 1_048_576, "messages_per_transaction": 100,
    "messages_per_batch_delete": 4000, "clock_rate": 86_400.0, "clock_step": timedelta(days=36_500),
}  # fmt: skip
RANGES = {
    "lock_duration": (Range(timedelta(seconds=5), timedelta(minutes=5)), Range(timedelta(milliseconds=10), timedelta(days=1))),
    "max_delivery_count": (Range(1, 2**31 - 1), Range(1, 2**31 - 1)),
    "default_message_time_to_live": (Range(timedelta(seconds=1), None), Range(timedelta(milliseconds=1), None)),
    "auto_delete_on_idle": (Range(timedelta(minutes=5), None), Range(timedelta(seconds=1), None)),
    "max_size_in_megabytes": (Range(1024, 81_920, step=1024), Range(1, 1_048_576)),
    "max_message_size_in_kilobytes": (Range(256, 102_400), Range(1, 102_400)),
    "duplicate_detection_history_time_window": (
        Range(timedelta(seconds=20), timedelta(days=7)),
        Range(timedelta(milliseconds=10), timedelta(days=7)),
    ),
}
RELAXATIONS = {
    "subscriptions_per_topic": 10_000, "sql_filters_per_topic": 10_000, "entities_per_namespace": 100_000,
    "messages_per_transaction": 1000,
}  # fmt: skip


@pytest.mark.parametrize("enum", STORED, ids=lambda enum: enum.__name__)
def test_a_stored_number_never_changes(enum):
    assert " ".join(f"{member.name}={int(member)}" for member in enum) == STORED[enum]


def test_limits_are_the_documented_ones():
    assert {name: asdict(STRICT)[name] for name in DOCUMENTED} == DOCUMENTED
    assert {name: asdict(RELAXED)[name] for name in DOCUMENTED} == DOCUMENTED | RELAXATIONS
    assert {name: (getattr(STRICT, name), getattr(RELAXED, name)) for name in RANGES} == RANGES


def test_the_ends_of_whole_numbers():
    assert whole_numbers([2**63 - 1, 0, 0]) == [2**63 - 1, 0]
    for wrong in (-1, 2**63, True, "1"):
        with pytest.raises(InvalidArgument):
            whole_numbers([wrong])
    require_count("n", 1)
    require_count("n", 2**63 - 1)
    others: list[Any] = [0, 2**63, True, 1.0]
    for wrong in others:
        with pytest.raises(InvalidArgument):
            require_count("n", wrong)
