"""A message as AMQP sections: what a front end reads of it, and what is written once the broker has changed its values."""

import json
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from broker_core.common.durations import FOREVER
from broker_core.common.errors import InvalidArgument
from broker_core.common.typed import Typed
from broker_core.common.types import BodyKind
from broker_core.service_bus.rules.amqp.sections import AmqpSections
from broker_core.service_bus.rules.amqp_messages import encode_body, encode_message, payload, read_message
from broker_core.service_bus.rules.messages import prepare
from broker_core.service_bus.rules.values import Message, StoredMessage

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR, MS = timedelta(hours=1), timedelta(milliseconds=1)
PARTITION, VIA, DUE = "x-opt-partition-key", "x-opt-via-partition-key", "x-opt-scheduled-enqueue-time"
# With sections that a plain message does not have, all of which stay as they are.
RICH = Message(
    b"body", message_id="m", session_id="s", correlation_id="c", subject="subject", content_type="text/plain", to="t",
    partition_key="s", via_partition_key="v", time_to_live=HOUR, scheduled_enqueue_at=NOON, properties={"a": 1, "b": "x"},
    amqp=AmqpSections(durable=True, message_annotations={"own": 1}, footer={"f": 2}, user_id=b"me"),
)  # fmt: skip


def as_stored(message: Message) -> StoredMessage:
    prepared = prepare(message)
    prepared_message, unset = prepared.message, {field.name: None for field in fields(StoredMessage)}
    known: dict[str, Any] = {
        name: getattr(prepared_message, name)
        for name in ("message_id", "session_id", "body", "body_kind", "scheduled_enqueue_at")
    }
    known |= {"broker_properties": json.loads(prepared.properties or "{}"), "time_to_live": prepared.time_to_live}
    stored = json.loads(prepared.application_properties or "{}")
    return StoredMessage(**{**unset, **known, "raw_application_properties": stored, "encoded": prepared.encoded})


def known(message: Message) -> dict[str, Any]:
    return {field.name: getattr(message, field.name) for field in fields(Message) if field.name != "amqp"}


@pytest.mark.parametrize(
    ("kind", "value", "content"),
    [
        (BodyKind.DATA, b"x", b"x"),
        (BodyKind.DATA_SECTIONS, [b"a", b"b"], b"ab"),
        (BodyKind.VALUE, "ä", "ä".encode()),
        (BodyKind.VALUE, b"\xff", b"\xff"),
        (BodyKind.VALUE, 5, encode_body(BodyKind.VALUE, 5)),
        (BodyKind.VALUE, Typed("symbol", "s"), encode_body(BodyKind.VALUE, Typed("symbol", "s"))),
        (BodyKind.SEQUENCE, [[1]], encode_body(BodyKind.SEQUENCE, [[1]])),
    ],
)
def test_a_body_has_its_content(kind, value, content):
    assert payload(kind, encode_body(kind, value)) == content


@pytest.mark.parametrize(
    ("sections", "life"),
    [
        ({"creation_time": NOON, "absolute_expiry_time": NOON + HOUR}, HOUR),
        ({"creation_time": NOON, "absolute_expiry_time": NOON + MS}, MS),
        ({"creation_time": NOON, "absolute_expiry_time": NOON}, None),
        ({"creation_time": NOON, "absolute_expiry_time": NOON - HOUR}, None),
        ({"creation_time": NOON, "absolute_expiry_time": NOON + FOREVER - MS}, FOREVER - MS),
        ({"creation_time": NOON, "absolute_expiry_time": NOON + FOREVER}, None),
        ({"creation_time": NOON}, None),
        ({"absolute_expiry_time": NOON}, None),
    ],
)
def test_the_time_to_live_is_the_difference_of_expiry_and_creation(sections, life):
    encoded = encode_message(Message(b"x", amqp=AmqpSections(**sections)))
    assert read_message(encoded).time_to_live == life and encode_message(read_message(encoded)) == encoded


@pytest.mark.parametrize(("ttl", "life"), [("5205", 5 * MS), ("43", None), ("70ffffffff", (2**32 - 1) * MS)])
def test_a_header_can_set_the_time_to_live(ttl, life):
    header = bytes.fromhex("4040" + ttl)
    encoded = b"\x00\x53\x70\xc0" + bytes((len(header) + 1, 3)) + header + bytes.fromhex("005375a000")
    assert read_message(encoded).time_to_live == life and encode_message(read_message(encoded)) == encoded


@pytest.mark.parametrize("name", [PARTITION, VIA])
def test_known_annotations_must_be_texts(name):
    encoded = AmqpSections(message_annotations={name: "k"}).raw + bytes.fromhex("005375a000")
    message = read_message(encoded)
    assert (message.partition_key, message.via_partition_key) == (("k", None) if name == PARTITION else (None, "k"))
    with pytest.raises(InvalidArgument, match=f"{name}: 5 is of another type"):
        read_message(AmqpSections(message_annotations={name: 5}).raw + bytes.fromhex("005375a000"))


CHANGES = [
    {"subject": None},
    {"subject": "another"},
    {"content_type": "a/b"},
    {"content_type": None},
    {"reply_to": "new"},
    {"correlation_id": None, "to": None},
    {"time_to_live": None},
    {"time_to_live": 5 * MS},
    {"time_to_live": (2**32 - 1) * MS},
    {"scheduled_enqueue_at": None},
    {"scheduled_enqueue_at": NOON + HOUR},
    {"partition_key": None},
    {"via_partition_key": "w"},
    {"properties": {}},
    {"properties": {"a": 1}},
    {"properties": {"a": 2, "b": "x"}},
    {"properties": {"a": Typed("long", 1), "b": "x"}},
    {"properties": {"a": 1, "b": "x", "c": True}},
    {"body": b""},
    {"body": b"other"},
    {"body": b"x" * 300},
]


@pytest.mark.parametrize("change", CHANGES, ids=repr)
@pytest.mark.parametrize("form", [lambda message: message, as_stored], ids=["message", "stored"])
def test_changed_values_are_encoded_and_the_other_sections_stay(change, form):
    message = read_message(encode_message(RICH))
    assert encode_message(form(message)) == encode_message(RICH)
    changed = replace(message, **change)
    decoded = read_message(encode_message(form(changed)))
    assert known(decoded) == known(changed)
    for name in ("durable", "footer", "user_id"):
        assert getattr(decoded.amqp, name) == getattr(RICH.amqp, name)
    assert decoded.amqp.message_annotations["own"] == 1


@pytest.mark.parametrize("change", CHANGES, ids=repr)
@pytest.mark.parametrize("form", [lambda message: message, as_stored], ids=["message", "stored"])
def test_a_plain_message_with_any_values_can_be_encoded(change, form):
    plain = Message(b"body", message_id="m", **change) if "body" not in change else Message(message_id="m", **change)
    decoded = read_message(encode_message(form(plain)))
    assert known(decoded) == known(plain) and decoded.amqp is None


def test_a_header_holds_at_most_the_milliseconds_of_a_uint():
    assert read_message(encode_message(Message(time_to_live=2**32 * MS))).time_to_live == (2**32 - 1) * MS


def test_a_dead_letter_has_the_reason_and_the_description_as_properties():
    stored = replace(as_stored(RICH), dead_letter_reason="Broken", dead_letter_description="too hot")
    message = read_message(encode_message(stored)).properties
    assert message == {"a": 1, "b": "x", "DeadLetterReason": "Broken", "DeadLetterErrorDescription": "too hot"}
