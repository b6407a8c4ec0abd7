"""The REST API's texts and JSON against values, both ways (docs/http.md). No database, no sockets."""

import base64
import json
import math
import string
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core import service_bus
from broker_core.common.errors import InvalidArgument
from broker_core.common.typed import Typed
from broker_core.common.types import BodyKind, EntityAddress, MessageState
from broker_core.service_bus.http import answers, batch, broker_properties, custom_headers
from broker_core.service_bus.rules.amqp.properties import decode_properties, encode_properties
from broker_core.service_bus.rules.messages import prepare
from broker_core.service_bus.rules.values import LockedMessage, Message, StoredMessage
from broker_core.wire.http import dates, json_text
from tests import amqp_values

NOON = datetime(2026, 11, 21, 12, 0, 0, 250_000, tzinfo=UTC)
NOON_TEXT = "Sat, 21 Nov 2026 12:00:00 GMT"
MINUTE = timedelta(minutes=1)
TOKEN = UUID("7da9cfd5-40d5-4bb1-8d64-000000000007")


def stored(cls=StoredMessage, **changes):
    fields = {
        "sequence_number": 7,
        "state": MessageState.ACTIVE,
        "delivery_count": 0,
        "enqueued_at": NOON,
        "expires_at": None,
        "time_to_live": None,
        "scheduled_enqueue_at": None,
        "message_id": "m1",
        "session_id": None,
        "body": b"",
        "body_kind": BodyKind.DATA,
        "broker_properties": {},
        "raw_application_properties": {},
        "dead_letter_reason": None,
        "dead_letter_description": None,
        "dead_letter_source": None,
        "enqueued_sequence_number": None,
        "encoded": None,
    }
    return cls(**fields | changes)


def locked(**changes):
    lock = {
        "lock_token": TOKEN,
        "locked_until": NOON + MINUTE,
        "lock_duration": MINUTE,
        "address": EntityAddress("demo", "orders"),
    }
    return stored(LockedMessage, **lock | changes)


# BrokerProperties

TEXT_FIELDS = {
    "MessageId": "message_id",
    "CorrelationId": "correlation_id",
    "SessionId": "session_id",
    "Label": "subject",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "To": "to",
    "PartitionKey": "partition_key",
    "ViaPartitionKey": "via_partition_key",
    "ContentType": "content_type",
}


@pytest.mark.parametrize(("key", "field"), TEXT_FIELDS.items())
def test_each_text_property_is_read(key, field):
    assert broker_properties.read_header(json.dumps({key: "grün"})) == {field: "grün"}


@pytest.mark.parametrize(
    ("properties", "fields"),
    [
        ({}, {}),
        ({"Unknown": {"x": 1}, "DeliveryCount": 5, "LockToken": "x", "SequenceNumber": "no"}, {}),
        ({"MessageId": None}, {}),
        ({"MessageId": ""}, {"message_id": ""}),
        ({"TimeToLive": 90}, {"time_to_live": timedelta(seconds=90)}),
        ({"TimeToLive": 0.25}, {"time_to_live": timedelta(milliseconds=250)}),
        ({"TimeToLive": 0}, {"time_to_live": None}),
        ({"TimeToLive": 1e-9}, {"time_to_live": timedelta(microseconds=1)}),
        ({"TimeToLive": 5e-324}, {"time_to_live": timedelta(microseconds=1)}),
        ({"TimeToLiveTimeSpan": "00:00:00.0000001"}, {"time_to_live": timedelta(microseconds=1)}),
        ({"TimeToLiveTimeSpan": "00:00:00"}, {"time_to_live": None}),
        ({"TimeToLive": 922337203685.47754}, {"time_to_live": None}),
        ({"TimeToLive": 1e300}, {"time_to_live": None}),
        ({"TimeToLiveTimeSpan": "1.00:00:10.5"}, {"time_to_live": timedelta(days=1, seconds=10.5)}),
        ({"TimeToLiveTimeSpan": "10675199.02:48:05.4775807"}, {"time_to_live": None}),
        ({"ScheduledEnqueueTimeUtc": NOON_TEXT}, {"scheduled_enqueue_at": NOON.replace(microsecond=0)}),
        ({"ScheduledEnqueueTimeUtc": "2026-11-21T13:00:00.25+01:00"}, {"scheduled_enqueue_at": NOON}),
        ({"ScheduledEnqueueTimeUtc": "2026-11-21T12:00:00.25"}, {"scheduled_enqueue_at": NOON}),
    ],
)
def test_broker_properties_are_read(properties, fields):
    assert broker_properties.read(properties, "BrokerProperties") == fields


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("", "header BrokerProperties"),
        ("{", "header BrokerProperties"),
        ("[" * 100_000, "header BrokerProperties"),
        ('{"TimeToLive": NaN}', "header BrokerProperties"),
        ("[]", "BrokerProperties"),
        ('"x"', "BrokerProperties"),
        ('{"MessageId": 5}', "BrokerProperties.MessageId"),
        ('{"Label": "a\\u0000b"}', "BrokerProperties.Label"),
        ('{"Label": "\\ud800"}', "BrokerProperties.Label"),
        ('{"TimeToLive": "5"}', "BrokerProperties.TimeToLive"),
        ('{"TimeToLive": true}', "BrokerProperties.TimeToLive"),
        ('{"TimeToLive": -1}', "BrokerProperties.TimeToLive"),
        ('{"TimeToLiveTimeSpan": "soon"}', "BrokerProperties.TimeToLiveTimeSpan"),
        ('{"TimeToLiveTimeSpan": "-00:00:01"}', "BrokerProperties.TimeToLiveTimeSpan"),
        ('{"TimeToLiveTimeSpan": "-00:00:00.0000001"}', "BrokerProperties.TimeToLiveTimeSpan"),
        ('{"ScheduledEnqueueTimeUtc": "tomorrow"}', "BrokerProperties.ScheduledEnqueueTimeUtc"),
        ('{"ScheduledEnqueueTimeUtc": 5}', "BrokerProperties.ScheduledEnqueueTimeUtc"),
        ('{"ScheduledEnqueueTimeUtc": "0001-01-01T00:00:00+23:00"}', "BrokerProperties.ScheduledEnqueueTimeUtc"),
    ],
)
def test_bad_broker_properties_are_named(text, name):
    with pytest.raises(InvalidArgument) as caught:
        broker_properties.read_header(text)
    assert caught.value.name == name


def test_broker_properties_of_a_peek_lock_response_are_complete():
    message = locked(
        delivery_count=2,
        time_to_live=timedelta(seconds=90),
        expires_at=NOON + timedelta(seconds=90),
        session_id="s",
        broker_properties={"subject": "hello", "to": "you", "content_type": "text/plain", "user_id": "kept, not shown"},
    )
    assert broker_properties.write(message) == {
        "DeliveryCount": 3,
        "EnqueuedTimeUtc": NOON_TEXT,
        "Label": "hello",
        "LockToken": str(TOKEN),
        "LockedUntilUtc": "Sat, 21 Nov 2026 12:01:00 GMT",
        "MessageId": "m1",
        "SequenceNumber": 7,
        "SessionId": "s",
        "State": "Active",
        "TimeToLive": 90.0,
        "To": "you",
    }


@pytest.mark.parametrize(
    ("own", "expires_at", "shown"),
    [
        (None, None, 922337203685.47754),
        (None, NOON + timedelta(days=14), 14 * 86400.0),  # the entity's default
        (timedelta(seconds=1.5), NOON + timedelta(seconds=1.5), 1.5),
        (timedelta(seconds=1.5), None, 1.5),  # in a dead-letter queue nothing expires (SB-035)
    ],
)
def test_time_to_live_of_a_response_is_the_effective_time_to_live(own, expires_at, shown):
    assert broker_properties.write(stored(time_to_live=own, expires_at=expires_at))["TimeToLive"] == shown


texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=30)


@given(
    st.fixed_dictionaries({}, optional={key: texts for key in TEXT_FIELDS if key != "ContentType"}),
    st.none() | st.timedeltas(timedelta(milliseconds=1), timedelta(days=3650)),
)
def test_broker_properties_round_trip(sent, time_to_live):
    header = json_text.write_json(sent | ({"TimeToLive": time_to_live.total_seconds()} if time_to_live else {}))
    assert header.isascii() and header.isprintable()
    read = broker_properties.read_header(header)
    message = stored(
        message_id=read.pop("message_id", None),
        session_id=read.pop("session_id", None),
        time_to_live=read.get("time_to_live"),
        expires_at=NOON + read["time_to_live"] if "time_to_live" in read else None,
        broker_properties={name: text for name, text in read.items() if name != "time_to_live"},
    )
    answer = broker_properties.write(message)
    assert {key: answer[key] for key in sent} == sent
    assert not time_to_live or math.isclose(answer["TimeToLive"], time_to_live.total_seconds(), abs_tol=1e-6)


# Custom headers


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"text"', "text"),
        ('"with \\"quotes\\" and \\u00e4"', 'with "quotes" and ä'),
        ('"grün"', "grün"),
        ('"5"', "5"),
        ('"true"', "true"),
        ('""', ""),
        ("5", 5),
        ("-0", 0),
        ("9223372036854775807", 2**63 - 1),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("true", True),
        ("False", False),
        ("null", None),
        (f'"{NOON_TEXT}"', NOON.replace(microsecond=0)),
        ('"Sat, 99 Nov 2026 12:00:00 GMT"', "Sat, 99 Nov 2026 12:00:00 GMT"),
        ("High", "High"),
        ("12345,ABC", "12345,ABC"),
        ("007", "007"),
        ("+5", "+5"),
        ("", ""),
        ("NaN", "NaN"),
        ("{}", "{}"),
    ],
)
def test_custom_header_is_a_typed_property(text, value):
    read = custom_headers.read([("colour", text)])["colour"]
    assert read == value and type(read) is type(value)


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ([("a", '"open')], "header a"),
        ([("a", '"bad \\escape"')], "header a"),
        ([("a", '"two" "texts"')], "header a"),
        ([("a", '"\\u0000"')], "header a"),
        ([("a", "9223372036854775808")], "header a"),
        ([("a", "1e999")], "header a"),
        ([("a", "1"), ("a", "2")], "header a"),
        ([("vitrine-properties", "[]")], "Vitrine-Properties"),
        ([("vitrine-properties", '{"x":[]}')], "Vitrine-Properties.x"),
        ([("vitrine-properties", "{")], "header Vitrine-Properties"),
    ],
)
def test_bad_custom_header_is_named(headers, name):
    with pytest.raises(InvalidArgument) as caught:
        custom_headers.read(headers)
    assert caught.value.name == name


def test_standard_headers_are_not_properties():
    standard = ["host", "Content-Type", "authorization", "brokerproperties", "user-agent", "x-forwarded-for", "sec-fetch-mode"]
    standard += ["x-ms-retrypolicy", "vitrine-holder", "accept", "connection", "transfer-encoding"]
    assert custom_headers.read([(name, "x") for name in standard] + [("priority", "1")]) == {"priority": 1}


def test_names_that_are_not_header_names_are_sent_in_one_json_header():
    properties = {"größe": 5, "with space": "x", "Date": True, "a": 1, "A": 2}
    headers = custom_headers.write(properties)
    assert headers == [("a", "1"), ("Vitrine-Properties", '{"gr\\u00f6\\u00dfe":5,"with space":"x","Date":true,"A":2}')]
    assert custom_headers.read([(name.lower(), text) for name, text in headers]) == properties


@pytest.mark.parametrize(
    "name",
    ["Clear-Site-Data", "X-Accel-Redirect", "x-accel-limit-rate", "Refresh", "SourceMap", "NEL", "Report-To", "X-Frame-Options"]
    + ["Content-Security-Policy", "Cross-Origin-Opener-Policy", "Set-Cookie", "Set-Cookie2", "Access-Control-Allow-Origin"]
    + ["Service-Worker-Allowed", "X-Sendfile", "Alt-Svc", "Strict-Transport-Security", "Cache-Control", "CDN-Cache-Control"]
    + ["Surrogate-Control", "Permissions-Policy", "HX-Redirect", "Location", "Connection", "Content-Length", "X-XSS-Protection"]
    + ["Transfer-Encoding", "Timing-Allow-Origin", "Proxy-Authenticate", "Vitrine-Tracking-Id", "BrokerProperties"],
)
def test_a_sender_cannot_set_headers_with_a_standard_meaning(name):
    """Regression: any property became a header of the answer. It is not lost: it comes in the JSON header."""
    for spelled in (name, name.lower(), name.upper()):
        [(header, text)] = custom_headers.write({spelled: 1})
        assert header == "Vitrine-Properties"
        assert custom_headers.read([(header, text)]) == {spelled: 1}


@pytest.mark.parametrize(
    "name",
    ["priority", "colour", "quoted-number", "DeadLetterReason", "x-retry-count", "rbs2-msg-id", "Diagnostic-Id", "traceparent"]
    + ["status", "MT-Activity-Id", "content_kind", "setting", "x-priority", "reporter", "edges"],
)
def test_a_sender_can_set_headers_without_a_standard_meaning(name):
    assert custom_headers.write({name: 1}) == [(name, "1")]
    assert custom_headers.read([(name, "1")]) == {name: 1}


def test_a_control_header_of_a_response_is_a_property_in_a_request():
    assert custom_headers.read([("x-accel-buffering", '"no"'), ("refresh", "5")]) == {"x-accel-buffering": "no", "refresh": 5}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (NOON, f'"{NOON_TEXT}"'),
        (UUID(int=5), '"00000000-0000-0000-0000-000000000005"'),
        (b"\x00\xff", '"AP8="'),
        (timedelta(seconds=90), '"PT1M30S"'),
        (Decimal("1.5"), "1.5"),
        (Decimal("0.1"), '"0.1"'),
        (math.nan, '"nan"'),
        (Typed("ubyte", 7), "7"),
        (Typed("float", 0.5), "0.5"),
        (Typed("symbol", "s"), '"s"'),
        ("line\r\nbreak\x7f", '"line\\r\\nbreak\\u007f"'),
    ],
)
def test_every_type_can_be_shown_in_a_header(value, shown):
    stored_value = decode_properties(encode_properties({"x": value}))
    assert custom_headers.write(stored_value) == [("x", shown)]


names = st.text(st.sampled_from(string.ascii_lowercase + string.digits + "-_"), min_size=1, max_size=12) | texts.filter(bool)
values = (
    texts.filter(lambda t: dates.read_rfc1123(t) is None)
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.none()
    | st.datetimes(timezones=st.just(UTC)).map(lambda t: t.replace(microsecond=0))
)


@given(st.dictionaries(names.filter(lambda n: n == n.lower()), values, max_size=5))
def test_properties_round_trip_over_headers(properties):
    headers = custom_headers.write(properties)
    assert all(text.isascii() and text.isprintable() for _, text in headers)
    in_own_header = {name for name, _ in headers}
    # A date inside the JSON header is text: only a header of its own says what it is.
    expected = {
        name: dates.write_rfc1123(value) if isinstance(value, datetime) and name not in in_own_header else value
        for name, value in properties.items()
    }
    assert custom_headers.read([(name.lower(), text) for name, text in headers]) == expected


# Batches


def test_batch_is_read_in_order_with_both_kinds_of_properties():
    body = [
        {"Body": "first", "BrokerProperties": {"Label": "M1", "TimeToLiveTimeSpan": "0.00:00:40"}},
        {
            "Body": base64.b64encode(b"\x00\xff").decode(),
            "IsBodyBase64": True,
            "UserProperties": {"Priority": "Low", "n": 5, "b": True},
        },
        {"Body": "", "BrokerProperties": None, "UserProperties": None, "Other": 1},
        {"Body": None},
    ]
    assert batch.read(json.dumps(body).encode()) == [
        Message(b"first", subject="M1", time_to_live=timedelta(seconds=40)),
        Message(b"\x00\xff", properties={"Priority": "Low", "n": 5, "b": True}),
        Message(b""),
        Message(b""),
    ]


def test_a_date_in_user_properties_is_text():
    assert batch.read(json.dumps([{"Body": "", "UserProperties": {"d": NOON_TEXT}}]).encode())[0].properties == {"d": NOON_TEXT}


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b"", "body"),
        (b"[", "body"),
        (b"{}", "body"),
        (b"[]", "body"),
        (b"\xff\xfe", "body"),
        (b"[" + b'{"Body":""},' * batch.MOST_MESSAGES + b'{"Body":""}]', "body"),
        (b"[1]", "[0]"),
        (b"[{}]", "[0].Body"),
        (b'[{"Body":""},{"Body":5}]', "[1].Body"),
        (b'[{"Body":"\\ud800"}]', "[0].Body"),
        (b'[{"Body":"no base64!","IsBodyBase64":true}]', "[0].Body"),
        ('[{"Body":"ä","IsBodyBase64":true}]'.encode(), "[0].Body"),
        (b'[{"Body":"","IsBodyBase64":"yes"}]', "[0].IsBodyBase64"),
        (b'[{"Body":"","BrokerProperties":[]}]', "[0].BrokerProperties"),
        (b'[{"Body":"","BrokerProperties":{"TimeToLive":-1}}]', "[0].BrokerProperties.TimeToLive"),
        (b'[{"Body":"","UserProperties":{"x":{}}}]', "[0].UserProperties.x"),
        (b'[{"Body":"","UserProperties":{"x":99999999999999999999}}]', "[0].UserProperties.x"),
        (b'[{"Body":"","UserProperties":""}]', "[0].UserProperties"),
    ],
)
def test_bad_batch_is_named_by_json_path(body, name):
    with pytest.raises(InvalidArgument) as caught:
        batch.read(body)
    assert caught.value.name == name


def test_byte_order_mark_is_accepted():
    assert batch.read(b'\xef\xbb\xbf[{"Body":"x"}]') == [Message(b"x")]


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("application/vnd.microsoft.servicebus.json", True),
        ("APPLICATION/vnd.microsoft.servicebus.json", True),
        ("application/json", False),
        (None, False),
        ("", False),
    ],
)
def test_content_type_determines_a_batch(content_type, expected):
    assert batch.is_batch(content_type) == expected


def test_batch_with_a_charset_is_refused():
    with pytest.raises(InvalidArgument, match="exactly"):
        batch.is_batch("application/vnd.microsoft.servicebus.json; charset=utf-8")


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "Body",
                    "IsBodyBase64",
                    "BrokerProperties",
                    "UserProperties",
                    "TimeToLive",
                    "TimeToLiveTimeSpan",
                    "ScheduledEnqueueTimeUtc",
                    "MessageId",
                    "x",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.lists(json_values, max_size=3))
def test_any_json_is_a_batch_or_a_refusal(items):
    with suppress(InvalidArgument):
        for message in batch.read(json.dumps(items).encode()):
            encode_properties(message.properties)


@given(
    st.dictionaries(st.sampled_from(["a", "vitrine-properties"]), st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
)
def test_any_header_is_a_property_or_a_refusal(headers):
    with suppress(InvalidArgument):
        encode_properties(custom_headers.read(headers.items()))


@given(amqp_values.messages())
def test_a_message_sent_by_amqp_can_be_received_by_http(encoded):
    """Of its body, what a client can use that knows no AMQP; its ids as text."""
    sent = service_bus.read_message(encoded)
    prepared = prepare(sent)
    broker = json.loads(prepared.properties or "{}")
    message = stored(
        body=sent.body, body_kind=sent.body_kind, message_id=sent.message_id, broker_properties=broker,
        raw_application_properties=json.loads(prepared.application_properties or "{}"), encoded=prepared.encoded,
    )  # fmt: skip
    answer = answers.with_message(200, message, headers=[])
    assert all(name and "\n" not in text for name, text in answer.headers) and answer.raw_headers()
    told = json.loads(dict(answer.headers)["BrokerProperties"])
    assert told["MessageId"] == prepared.message.message_id and told.get("CorrelationId") == broker.get("correlation_id")


@pytest.mark.parametrize(
    ("kind", "value", "content"),
    [
        (BodyKind.DATA, b"\x00", b"\x00"),
        (BodyKind.DATA_SECTIONS, [b"a", b"b"], b"ab"),
        (BodyKind.VALUE, "größe", "größe".encode()),
        (BodyKind.VALUE, b"\x00", b"\x00"),
        (BodyKind.VALUE, 5, bytes.fromhex("0053775405")),
        (BodyKind.SEQUENCE, [[]], bytes.fromhex("00537645")),
    ],
)
def test_a_body_is_sent_as_its_content(kind, value, content):
    body = service_bus.encode_body(kind, value)
    assert answers.with_message(200, stored(body=body, body_kind=kind), headers=[]).body == content
