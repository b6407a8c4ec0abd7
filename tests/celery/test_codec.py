"""A kombu payload survives the way through the broker, and its task can be read there."""

import base64
import json
import pickle
import uuid
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.celery_transport import codec
from broker_core.common.types import BodyKind, EntityAddress, MessageState
from broker_core.service_bus.rules.amqp.properties import encode_properties
from broker_core.service_bus.rules.values import LockedMessage

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
TOKEN = uuid.UUID(int=7)


def decode_body(body, encoding):
    """As kombu's channel does it."""
    return base64.b64decode(body) if encoding == "base64" else body


def a_payload(body='[[1], {}, {"chord": null}]', headers=None, encoding="base64", **properties):
    stored = base64.b64encode(body if isinstance(body, bytes) else body.encode()).decode() if encoding else body
    return {
        "body": stored,
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {"task": "shop.pay", "id": "42-a", "eta": None, "retries": 0} if headers is None else headers,
        "properties": {
            "correlation_id": "42-a",
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": "celery"},
            "priority": 0,
            "body_encoding": encoding,
            "delivery_tag": "made-when-published",
            **properties,
        },
    }


def received(message, delivery_count=0):
    """What the broker gives for a message sent, as far as the codec looks."""
    return LockedMessage(
        sequence_number=1,
        state=MessageState.ACTIVE,
        delivery_count=delivery_count,
        enqueued_at=NOON,
        expires_at=None,
        time_to_live=None,
        scheduled_enqueue_at=message.scheduled_enqueue_at,
        message_id=message.message_id,
        session_id=None,
        body=message.body,
        body_kind=BodyKind.DATA,
        broker_properties={"content_type": message.content_type} if message.content_type else {},
        raw_application_properties=encode_properties(message.properties),
        dead_letter_reason=None,
        dead_letter_description=None,
        dead_letter_source=None,
        enqueued_sequence_number=None,
        encoded=None,
        address=EntityAddress("shop", "celery"),
        lock_token=TOKEN,
        locked_until=NOON + timedelta(minutes=1),
        lock_duration=timedelta(minutes=1),
    )


def round_trip(payload, delivery_count=0):
    return codec.from_broker(received(codec.to_broker(payload, decode_body), delivery_count), str(TOKEN))


def test_a_task_can_be_read_in_the_broker():
    message = codec.to_broker(a_payload(), decode_body)
    assert json.loads(message.body) == [[1], {}, {"chord": None}]
    assert (message.subject, message.message_id, message.correlation_id) == ("shop.pay", "42-a", "42-a")
    assert message.content_type == "application/json"
    assert json.loads(message.properties["kombu"])["headers"]["task"] == "shop.pay"


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
HEADER_VALUES = (
    JSON_VALUES | st.datetimes(timezones=st.just(UTC)) | st.uuids() | st.decimals(allow_nan=False, allow_infinity=False)
)


@given(body=st.binary(max_size=200), headers=st.dictionaries(st.text(), HEADER_VALUES, max_size=4), priority=st.integers(0, 9))
def test_a_payload_is_decoded_as_published(body, headers, priority):
    payload = a_payload(body, headers, priority=priority)
    decoded = round_trip(payload)
    assert decoded["body"] == body
    assert decoded["headers"] == headers
    assert (decoded["content-type"], decoded["content-encoding"]) == ("application/json", "utf-8")
    expected = {**payload["properties"], "body_encoding": None, "delivery_tag": str(TOKEN)}
    expected["delivery_info"] = {**expected["delivery_info"], "redelivered": False}
    assert decoded["properties"] == expected


@pytest.mark.parametrize("size", [10_000, 40_000, 200_000])
def test_headers_of_any_size_are_kept(size):
    payload = a_payload(pickle.dumps([1]), {"task": "shop.pay", "id": "1", "note": "é" * size})
    message = codec.to_broker(payload, decode_body)
    assert sum(len(text) for text in message.properties.values()) <= codec.LARGEST_ENVELOPE
    decoded = codec.from_broker(received(message), str(TOKEN))
    assert (decoded["headers"], decoded["body"], decoded["content-type"]) == (
        payload["headers"],
        pickle.dumps([1]),
        "application/json",
    )


def test_a_second_delivery_is_marked_as_redelivered():
    assert round_trip(a_payload(), delivery_count=1)["properties"]["delivery_info"]["redelivered"] is True


@pytest.mark.parametrize(
    ("eta", "scheduled"),
    [
        (None, None),
        ("2026-11-21T12:00:00+00:00", NOON),
        ("2026-11-21T14:00:00+02:00", NOON),
        ("2026-11-21T12:00:00", None),  # whose noon? Celery knows
        ("soon", None),
    ],
)
def test_an_eta_becomes_the_scheduled_time(eta, scheduled):
    assert codec.to_broker(a_payload(headers={"task": "t", "id": "1", "eta": eta}), decode_body).scheduled_enqueue_at == scheduled


def test_a_message_without_an_envelope_is_delivered_with_its_body():
    message = codec.Message(body=b"hello", content_type="text/plain")
    payload = codec.from_broker(received(message), str(TOKEN))
    assert (payload["body"], payload["content-type"], payload["headers"]) == (b"hello", "text/plain", {})
    assert payload["properties"]["delivery_tag"] == str(TOKEN)


@pytest.mark.parametrize("envelope", ["{", "[]", '{"headers": 1}', '{"properties": [1]}'])
def test_an_unreadable_envelope_is_a_value_error(envelope):
    with pytest.raises(ValueError, match=r"\w"):
        codec.from_broker(received(codec.Message(properties={"kombu": envelope})), str(TOKEN))


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff", b'{"body": 1, "content-type": 1}'])
def test_an_unreadable_body_of_our_own_type_is_a_value_error(body):
    with pytest.raises(ValueError, match=r"\w"):
        codec.from_broker(received(codec.Message(body=body, content_type=codec.ENVELOPE_TYPE)), str(TOKEN))


def test_texts_too_long_for_the_brokers_properties_stay_in_the_envelope():
    payload = a_payload(headers={"task": "t" * 500, "id": "i" * 500})
    message = codec.to_broker(payload, decode_body)
    assert (message.subject, message.message_id) == (None, None)
    assert round_trip(payload)["headers"] == payload["headers"]
