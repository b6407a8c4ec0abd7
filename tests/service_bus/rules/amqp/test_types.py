"""The codec of AMQP 1.0's types and sections: nothing is lost, and what is no valid AMQP is refused with a sentence."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.common.errors import InvalidArgument
from broker_core.common.typed import Typed
from broker_core.common.types import BodyKind
from broker_core.service_bus.rules.amqp import types as amqp_types
from broker_core.service_bus.rules.amqp.properties import decode_properties, encode_properties
from broker_core.service_bus.rules.amqp.sections import AmqpSections
from broker_core.service_bus.rules.amqp.types import BadEncoding, decode, encode
from broker_core.service_bus.rules.amqp_messages import body_value, encode_body, encode_message, read_message
from broker_core.service_bus.rules.messages import prepare
from broker_core.service_bus.rules.values import Message
from tests import amqp_values

from .test_properties import SIMPLE


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        ("40", None),
        ("41", True),
        ("5600", False),
        ("5007", Typed("ubyte", 7)),
        ("600007", Typed("ushort", 7)),
        ("43", Typed("uint", 0)),
        ("5207", Typed("uint", 7)),
        ("70ffffffff", Typed("uint", 2**32 - 1)),
        ("44", Typed("ulong", 0)),
        ("80ffffffffffffffff", Typed("ulong", 2**64 - 1)),
        ("51ff", Typed("byte", -1)),
        ("61ffff", Typed("short", -1)),
        ("54ff", -1),
        ("7180000000", -(2**31)),
        ("55ff", Typed("long", -1)),
        ("817fffffffffffffff", 2**63 - 1),
        ("723fc00000", Typed("float", 1.5)),
        ("823ff8000000000000", 1.5),
        ("7431800096", Typed("decimal32", Decimal("1.50"))),
        ("9430400000000000000000000000000096", Decimal("150")),
        ("730001f600", Typed("char", "😀")),
        ("830000019b76daa800", datetime(2026, 1, 1, tzinfo=UTC)),
        ("837fffffffffffffff", Typed("timestamp", 2**63 - 1)),
        ("9800112233445566778899aabbccddeeff", UUID("00112233-4455-6677-8899-aabbccddeeff")),
        ("a00200ff", b"\x00\xff"),
        ("a1036dc3a4", "mä"),
        ("a30178", Typed("symbol", "x")),
        ("45", []),
        ("c0050254015402", [1, 2]),
        ("c1050254015402", {1: 2}),
        ("e00a02710000000100000002", Typed("array", [1, 2])),
        ("00a316636f6d2e6d6963726f736f66743a74696d657370616e5564", timedelta(microseconds=10)),
        ("00a3017841", Typed("described", bytes.fromhex("00a3017841"))),
    ],
)
def test_values_have_the_encodings_of_the_specification(encoded, value):
    decoded = decode(bytes.fromhex(encoded))
    assert decoded == value and amqp_types.kind_of(decoded) == amqp_types.kind_of(value)


@given(amqp_values.VALUES)
def test_an_encoded_value_is_read_and_written_with_the_same_type_and_value(encoded):
    value = decode(encoded)
    again = decode(encode(value))
    assert repr(again) == repr(value) and amqp_types.kind_of(again) == amqp_types.kind_of(value)


@given(amqp_values.SIMPLE)
def test_an_application_property_of_any_type_is_stored_without_loss(encoded):
    value = decode(encoded)
    [again] = decode_properties(encode_properties({"a": value})).values()
    assert repr(again) == repr(value) and encode(again) == encode(value)


@given(st.dictionaries(st.sampled_from("abc"), SIMPLE))
def test_python_values_are_encoded(properties):
    for value in decode_properties(encode_properties(properties)).values():
        again = decode(encode(value))
        # AMQP counts in milliseconds.
        expected = value - timedelta(microseconds=value.microsecond % 1000) if isinstance(value, datetime) else value
        assert repr(again) == repr(expected)


@given(st.binary(max_size=30) | amqp_values.VALUES.flatmap(lambda v: st.integers(0, len(v)).map(lambda cut: v[:cut])))
def test_any_bytes_are_a_value_or_refused(data):
    try:
        decode(data)
    except BadEncoding as exc:
        assert str(exc)


@given(amqp_values.messages())
def test_a_message_round_trips_byte_for_byte(encoded):
    """Byte for byte, also after the checks of a send, whose size is the length of the whole message (SB-007)."""
    message = read_message(encoded)
    assert encode_message(message) == encoded
    prepared = prepare(message)
    assert encode_message(prepared.message) == encoded and prepared.size == len(encoded)


@given(amqp_values.messages(), st.data())
def test_a_damaged_message_is_read_or_refused_with_a_reason(encoded, data):
    at = data.draw(st.integers(0, len(encoded) - 1))
    damaged = encoded[:at] + data.draw(st.binary(max_size=3)) + encoded[at + data.draw(st.integers(0, 3)) :]
    try:
        message = read_message(damaged)
    except InvalidArgument as exc:
        assert exc.problem
    else:
        assert encode_message(message) == damaged


ID = "a10161"
PROPERTIES = "005373c00401" + ID


@pytest.mark.parametrize(
    ("encoded", "problem"),
    [
        ("ff", "no section begins at byte 0"),
        ("005379a000", "describes no section of a message"),
        ("005373c10100", "the properties section at byte 0 must hold a list"),
        ("00537345" + "00537345", "comes after that of properties"),
        ("005375a000" + PROPERTIES, "comes after that of data"),
        ("005375a000" + "00537740", "the body has data and amqp-value sections"),
        ("00537740" + "00537740", "comes after that of amqp-value"),
        ("005375a105", "it ends at byte"),
        ("005375a100", "must hold binary"),
        ("00537640", "must hold a list"),
        ("005373c00401540154", "has a length of 6 bytes, but its items end after 5"),
        ("005373c003015405", "message-id in the properties section must be a string or uuid or ulong or binary, not a int"),
        ("005373c00f0e" + "40" * 14 + "00537740", "has 14 fields; at most 13 are known"),
        ("005370c0030154" + "01", "durable in the header section must be a boolean, not a int"),
        ("005374c10401" + ID, "a key without a value"),
        ("005374c1050254015402", "a key of the application-properties section must be a string"),
        ("005374c10502" + ID + "45", "the application property 'a' is a list, not a simple value"),
        ("005374c10904" + ID + "40" + ID + "40", "has a key twice"),
        ("005372c10502" + ID + "40", "a key of the message-annotations section must be a symbol or ulong, not a string"),
        ("005373c00401a101ff", "is not valid UTF-8"),
        ("005377d0ffffffff00000001", "it ends at byte"),
        ("005377730000d800", "is no Unicode character"),
        ("0053775602", "is neither 0 nor 1"),
        ("00537730", "0x30 at byte 3 is no type of AMQP"),
        ("005377f0000000050000ffff40", "65,535 items without content"),
    ],
)
def test_invalid_amqp_is_refused_with_a_reason(encoded, problem):
    with pytest.raises(InvalidArgument, match=problem) as refused:
        read_message(bytes.fromhex(encoded))
    assert str(refused.value).startswith("message: is no valid AMQP: ")


def test_deep_nesting_is_refused():
    data = b"\x40"
    for _ in range(70):
        data = b"\xd0" + (len(data) + 4).to_bytes(4) + (1).to_bytes(4) + data
    with pytest.raises(BadEncoding, match="nested more than 64 deep"):
        decode(data)


def test_the_brokers_own_annotations_must_have_their_types():
    with pytest.raises(InvalidArgument, match="x-opt-scheduled-enqueue-time: 'later' is of another type"):
        notes = {"x-opt-scheduled-enqueue-time": "later"}
        read_message(AmqpSections(message_annotations=notes).raw + bytes.fromhex("00537740"))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (BodyKind.DATA, b"x"),
        (BodyKind.DATA_SECTIONS, [b"a", b"", b"c"]),
        (BodyKind.DATA_SECTIONS, []),
        (BodyKind.SEQUENCE, [[1, "a"], []]),
        (BodyKind.VALUE, {"a": [True, None, Typed("symbol", "s")]}),
        (BodyKind.VALUE, Typed("array", [1, 2])),
    ],
)
def test_bodies_are_converted_to_python_values(kind, value):
    body = encode_body(kind, value)
    assert body_value(kind, body) == value
    again = read_message(encode_message(Message(body, body_kind=kind)))
    assert body_value(again.body_kind, again.body) == value


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (BodyKind.VALUE, b"text"),
        (BodyKind.VALUE, b""),
        (BodyKind.SEQUENCE, encode_body(BodyKind.VALUE, 1)),
        (BodyKind.DATA_SECTIONS, encode_body(BodyKind.DATA_SECTIONS, [b"one"])),
    ],
)
def test_a_body_of_another_kind_is_refused(kind, body):
    with pytest.raises(InvalidArgument, match="^body: "):
        prepare(Message(body, body_kind=kind))


def test_sections_set_from_python_round_trip():
    original = AmqpSections(
        durable=True, priority=9, delivery_annotations={"a": 1}, message_annotations={"b": [1, Typed("ulong", 2)]},
        user_id=b"me", content_encoding="gzip", absolute_expiry_time=datetime(2030, 1, 1, tzinfo=UTC),
        creation_time=datetime(2026, 1, 1, tzinfo=UTC), group_sequence=7, footer={"f": None},
    )  # fmt: skip
    decoded = AmqpSections.parse(original.raw)
    assert decoded == original and hash(decoded) == hash(original)
    assert (decoded.durable, decoded.priority, decoded.user_id, decoded.content_encoding) == (True, 9, b"me", "gzip")
    assert (decoded.creation_time.year, decoded.absolute_expiry_time.year, decoded.group_sequence) == (2026, 2030, 7)
    assert (decoded.delivery_annotations, decoded.message_annotations, decoded.footer) == ({"a": 1}, {"b": [1, 2]}, {"f": None})


@pytest.mark.parametrize(
    ("field", "value"),
    [("durable", 1), ("priority", 256), ("user_id", "me"), ("content_encoding", "ß"), ("group_sequence", -1),
     ("creation_time", datetime(2026, 1, 1)), ("footer", {"ß": 1}), ("message_annotations", {"a": object()}),
    ],
)  # fmt: skip
def test_values_that_amqp_cannot_encode_are_refused_by_name(field, value):
    with pytest.raises(InvalidArgument) as refused:
        AmqpSections(**{field: value})
    assert refused.value.name.startswith(field)


@given(
    st.builds(
        Message,
        body=st.binary(max_size=10) | st.sampled_from([b"x" * 255, b"x" * 256]),
        message_id=st.none() | amqp_values.STORABLE,
        to=st.none() | amqp_values.STORABLE,
        subject=st.sampled_from([None, "", "x" * 255, "ä" * 128]),
        reply_to_session_id=st.none() | amqp_values.STORABLE,
        partition_key=st.none() | amqp_values.STORABLE,
        time_to_live=st.sampled_from([None, timedelta(milliseconds=1), timedelta(milliseconds=256), timedelta(days=400)]),
        scheduled_enqueue_at=st.none() | st.just(datetime(2026, 1, 1, tzinfo=UTC)),
        properties=st.dictionaries(amqp_values.STORABLE, SIMPLE, max_size=3),
    )
)
def test_the_size_of_a_plain_message_is_that_of_its_encoding(message):
    """SB-007. A message without an id is counted with the one that it is given (SB-134)."""
    prepared = prepare(message)
    named = message if message.message_id else Message(**{f: getattr(message, f) for f in FIELDS} | {"message_id": "x" * 32})
    assert prepared.encoded is None and prepared.size == len(encode_message(named))


FIELDS = ("body", "to", "subject", "reply_to_session_id", "partition_key", "time_to_live", "scheduled_enqueue_at", "properties")
