"""Numbers that are the same for ever, or that a service states: a change of one is a decision, and shows here."""

from dataclasses import asdict
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from broker_core.common.arguments import require_count, whole_numbers
from broker_core.common.errors import InvalidArgument, NotAllowed
from broker_core.common.family import FamilyDefinition
from broker_core.common.lock_tokens import sequence_number_of
from broker_core.common.typed import Typed
from broker_core.common.types import (
    BodyKind,
    EntityKind,
    EventKind,
    HistoryLevel,
    HoldKind,
    LedgerState,
    MessageState,
    SubQueue,
    Tier,
    WaitKind,
)
from broker_core.queue_storage.rules import errors as storage_errors
from broker_core.rabbitmq.rules.messages import MAX_BODY
from broker_core.service_bus.rules.amqp.properties import encode_properties
from broker_core.service_bus.rules.entity_settings import default_settings
from broker_core.service_bus.rules.limits import RELAXED, STRICT, Range, of_tier
from broker_core.service_bus.rules.sas import TokenRefused
from broker_core.service_bus.rules.transactions import check_size

# As they are stored in tables and archives.
STORED = {
    SubQueue: "MAIN=0 DEAD_LETTER=1 TRANSFER_DEAD_LETTER=2 TRANSFER=3",
    MessageState: "ACTIVE=0 DEFERRED=1 SCHEDULED=2",
    HoldKind: "GET=10 PUT=12 UPDATE_BEFORE_GET=13 UPDATE=14",
    LedgerState: "LOCKED=10 DEFERRED_LOCKED=11 DELAYED=12 RESCHEDULED=13 EXTENDED=14",
    WaitKind: "MESSAGES=0 NEXT_SESSION=1 THIS_SESSION=2 MESSAGES_OF_SESSION=3",
    HistoryLevel: "OFF=0 LIFECYCLE=1 FULL=2",
    BodyKind: "DATA=0 SEQUENCE=1 VALUE=2 DATA_SECTIONS=3",
    EventKind: "SENT=1 SCHEDULED=2 ACTIVATED=3 RECEIVED=4 RENEWED=5 COMPLETED=6 ABANDONED=7 RELEASED=8 DEFERRED=9 "
    "DEAD_LETTERED=10 EXPIRED=11 LOCK_LOST=12 CANCELLED=13 PURGED=14 RESUBMITTED=15 DELETED=16 FORWARDED=17 "
    "RECEIVED_AND_DELETED=18 DUPLICATE_DROPPED=19 PUBLISHED=20 DROPPED=21 MOVED=22 "
    "SETTLE_REFUSED=23 RESTORED=24 EDITED=25",
}
DOCUMENTED = {
    "user_metadata": 1024, "entity_path": 260, "namespace_name": 50, "policy_name": 256, "policies_per_scope": 12,
    "message_id": 128, "dead_letter_text": 4096, "one_property": 32_768, "all_properties": 65_536, "rule_name": 50,
    "filter_text": 1024, "filter_nesting": 20, "action_statements": 32, "subscription_name": 50,
    "subscriptions_per_topic": 2000, "sql_filters_per_topic": 2000, "correlation_filters_per_topic": 100_000,
    "entities_per_namespace": 10_000, "session_state": 1_048_576, "messages_per_transaction": 100,
    "messages_per_batch_delete": 4000,
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


# The ranges of AMQP 1.0's integers, with the name of each type.
AMQP_INTEGERS = {
    "ubyte": (0, 255), "ushort": (0, 65_535), "uint": (0, 4_294_967_295), "ulong": (0, 18_446_744_073_709_551_615),
    "byte": (-128, 127), "short": (-32_768, 32_767), "int": (-2_147_483_648, 2_147_483_647),
    "long": (-9_223_372_036_854_775_808, 9_223_372_036_854_775_807),
}  # fmt: skip


MINUTES = timedelta(minutes=1)
DEFAULTS = {
    EntityKind.QUEUE: {
        "lock_duration": MINUTES, "max_delivery_count": 10, "default_message_time_to_live": None, "auto_delete_on_idle": None,
        "duplicate_detection_history_time_window": 10 * MINUTES, "max_size_in_megabytes": 1024,
        "max_message_size_in_kilobytes": 256,
    },
    EntityKind.TOPIC: {
        "default_message_time_to_live": None, "duplicate_detection_history_time_window": 10 * MINUTES,
        "max_size_in_megabytes": 1024, "max_message_size_in_kilobytes": 256,
    },
    EntityKind.SUBSCRIPTION: {"lock_duration": MINUTES, "max_delivery_count": 10, "default_message_time_to_live": None},
}  # fmt: skip


@pytest.mark.parametrize("kind", EntityKind)
def test_the_defaults_of_settings_are_the_documented_ones(kind):
    defaults = default_settings(kind)
    assert {name: defaults[name] for name in DEFAULTS[kind]} == DEFAULTS[kind]
    life = default_settings(kind, Tier.BASIC)["default_message_time_to_live"]
    assert life == timedelta(days=14)
    if kind is not EntityKind.SUBSCRIPTION:
        sizes = [default_settings(kind, tier)["max_message_size_in_kilobytes"] for tier in Tier]
        assert sizes == [256, 256, 1024]


def test_a_tier_limits_its_namespaces():
    basic, standard, premium = (of_tier(STRICT, tier) for tier in Tier)
    assert [each.max_message_size_in_kilobytes for each in (basic, standard, premium)] == [
        Range(256, 256), Range(256, 256), Range(256, 102_400)
    ]  # fmt: skip
    for limits in (STRICT, RELAXED):
        of_basic = of_tier(limits, Tier.BASIC)
        assert of_basic.default_message_time_to_live.maximum == timedelta(days=14)
        for name in ("topics", "sessions", "duplicate_detection", "forwarding"):
            assert [getattr(of_tier(limits, tier), name) for tier in Tier] == [False, True, True]
    assert of_tier(RELAXED, Tier.BASIC).max_message_size_in_kilobytes == RELAXED.max_message_size_in_kilobytes


@pytest.mark.parametrize("enum", STORED, ids=lambda enum: enum.__name__)
def test_stored_enum_numbers_never_change(enum):
    assert " ".join(f"{member.name}={int(member)}" for member in enum) == STORED[enum]


def test_limits_are_the_documented_ones():
    assert {name: asdict(STRICT)[name] for name in DOCUMENTED} == DOCUMENTED
    assert {name: asdict(RELAXED)[name] for name in DOCUMENTED} == DOCUMENTED | RELAXATIONS
    assert {name: (getattr(STRICT, name), getattr(RELAXED, name)) for name in RANGES} == RANGES


def test_integer_ranges_are_as_documented():
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


@pytest.mark.parametrize("kind", AMQP_INTEGERS)
def test_an_integer_has_the_range_of_its_amqp_type(kind):
    low, high = AMQP_INTEGERS[kind]
    for value in (low, high):
        assert encode_properties({"a": Typed(kind, value)}) == {"a": [kind, str(value)]}
    for value in (low - 1, high + 1):
        with pytest.raises(InvalidArgument):
            encode_properties({"a": Typed(kind, value)})


def test_a_lock_token_keeps_the_number_in_its_last_60_bits():
    assert sequence_number_of(UUID(int=2**60 - 1)) == 2**60 - 1
    assert sequence_number_of(UUID(int=2**128 - 1)) == 2**60 - 1
    assert sequence_number_of(UUID(int=2**60)) == 0


def test_a_family_without_hooks_uses_no_op_defaults():
    family = type("Nothing", (FamilyDefinition,), dict.fromkeys(FamilyDefinition.__abstractmethods__))()

    def result_of(name, *arguments):
        with pytest.raises(StopIteration) as ended:
            next(getattr(family, name)(*arguments))
        return ended.value.value

    assert (result_of("end_locks", None, 1.0), result_of("activate", None, 1.0), result_of("delete_idle", None)) == (0, 0, False)
    assert (result_of("namespace_created", 1, "ns"), result_of("clock_stepped", "ns"), result_of("forward", "ns")) == (
        None,
        {},
        {},
    )


# What clients see: HTTP statuses of Queue Storage's errors, sub-codes of refused tokens, the largest body.
STORAGE_STATUS = {
    storage_errors.StorageRefusal: 400, storage_errors.RequestBodyTooLarge: 413, storage_errors.MessageNotFound: 404,
    storage_errors.QueueNotFound: 404, storage_errors.AccountNotFound: 404, storage_errors.QueueAlreadyExists: 409,
}  # fmt: skip


def test_the_statuses_of_queue_storage_are_the_documented_ones():
    assert {error: error.status for error in STORAGE_STATUS} == STORAGE_STATUS


def test_the_sub_codes_of_refused_tokens_are_those_of_the_service():
    assert (TokenRefused.MISSING, TokenRefused.SIGNATURE, TokenRefused.AUDIENCE, TokenRefused.EXPIRED) == (
        40100, 40103, 40104, 40106
    )  # fmt: skip


def test_a_rabbitmq_message_has_at_most_128_mebibytes():  # RMQ-369
    assert MAX_BODY == 134_217_728


def test_a_transaction_accepts_exactly_its_maximum_number_of_messages():  # SB-162
    check_size(STRICT.messages_per_transaction, STRICT)
    with pytest.raises(NotAllowed, match="would be number 101"):
        check_size(STRICT.messages_per_transaction + 1, STRICT)
