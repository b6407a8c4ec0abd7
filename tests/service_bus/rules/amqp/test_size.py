"""The computed length of a plain message is that of its encoding (SB-007), at every boundary of AMQP's lengths."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from broker_core.common.typed import Typed
from broker_core.common.types import BodyKind
from broker_core.service_bus.rules.amqp import size as amqp_size
from broker_core.service_bus.rules.amqp.sections import AmqpSections
from broker_core.service_bus.rules.amqp_messages import encode_body, encode_message
from broker_core.service_bus.rules.messages import prepare
from broker_core.service_bus.rules.values import Message

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
LENGTHS = (0, 1, 127, 128, 200, *range(205, 260))
OF_EACH_TYPE = [
    None, True, False, *(Typed(kind, n) for kind in ("ubyte", "ushort", "short", "byte") for n in (0, 1, 127)),
    *(Typed(kind, n) for kind in ("uint", "ulong") for n in (0, 1, 255, 256)), *(-129, -128, -1, 0, 127, 128, 2**31 - 1, 2**31),
    *(Typed("long", n) for n in (-129, -128, 127, 128)), Typed("float", 0.5), 0.5, Typed("decimal32", Decimal(1)),
    Typed("decimal64", Decimal(1)), Decimal(1), Typed("char", "x"), NOON, UUID(int=1), b"", b"x" * 255, b"x" * 256, "", "x" * 255,
    "x" * 256, "ä" * 127, "ä" * 128, "a\x00", Typed("symbol", "s"), Typed("uri", "http://x"), timedelta(seconds=1),
    Typed("datetime-offset", "2026-01-01T13:00:00+01:00"), Typed("timestamp", 2**62), Typed("described", b"\x00\xa3\x01x\x41"),
]  # fmt: skip


def assert_size_is_exact(**fields: Any) -> None:
    message = Message(**fields)
    assert prepare(message).size == len(encode_message(replace(message, message_id=message.message_id or "x" * 32))), fields


def test_the_size_of_a_body_is_exact():
    for length in LENGTHS:
        assert_size_is_exact(body=b"x" * length)


@pytest.mark.parametrize("name", amqp_size.TEXTS)
def test_the_size_of_a_text_is_exact(name):
    for length in (0, 1, 64, 128):
        for text in ("x" * length, "ä" * length if name != "content_type" else "x"):
            assert_size_is_exact(**{name: text if text or name != "message_id" else None})


@pytest.mark.parametrize("name", ["to", "subject", "content_type", "correlation_id"])
def test_the_size_of_a_long_text_is_exact(name):
    for length in LENGTHS:
        assert_size_is_exact(message_id="m", **{name: "x" * length})


def test_the_size_of_combined_texts_is_exact():
    for first in amqp_size.TEXTS:
        for second in amqp_size.TEXTS:
            assert_size_is_exact(**{first: "x", second: "y" * 100})


def test_the_size_of_encoded_sections_and_bodies_is_exact():
    assert_size_is_exact(body=encode_body(BodyKind.VALUE, 1), body_kind=BodyKind.VALUE)
    assert_size_is_exact(body=encode_body(BodyKind.SEQUENCE, [[1]]), body_kind=BodyKind.SEQUENCE, subject="s")
    assert_size_is_exact(body=b"x", amqp=AmqpSections(durable=True, priority=9))


def test_the_size_of_annotations_is_exact():
    for scheduled in (None, NOON):
        for key in (None, "", "k", "k" * 128, "ä" * 128):
            for via in (None, "", "v", "v" * 128):
                assert_size_is_exact(partition_key=key, via_partition_key=via, scheduled_enqueue_at=scheduled)


def test_the_size_of_a_time_to_live_is_exact():
    for milliseconds in (0.001, 1, 255, 256, 2**31):
        assert_size_is_exact(time_to_live=timedelta(milliseconds=milliseconds))


@pytest.mark.parametrize("value", OF_EACH_TYPE, ids=repr)
def test_the_size_of_a_property_of_each_type_is_exact(value):
    assert_size_is_exact(properties={"a": value})


def test_the_size_of_properties_of_any_length_is_exact():
    for length in LENGTHS:
        assert_size_is_exact(properties={"a": "x" * length})
        assert_size_is_exact(properties={"n" * (length + 1): True, "b": 1})


def test_missing_sections_have_no_size():
    assert (amqp_size.of_properties(()), amqp_size.of_properties((None, None))) == (0, 0)
    assert (amqp_size.of_application_properties({}), amqp_size.of_header(None), amqp_size.of_annotations()) == (0, 0, 0)
