"""What is taken as a message to send, as tables."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from broker_core.common.durations import FOREVER
from broker_core.common.errors import InvalidArgument, MessageTooLarge
from broker_core.common.typed import Typed
from broker_core.service_bus.rules import messages as sb
from broker_core.service_bus.rules.values import Message

SECOND = timedelta(seconds=1)
TEXT: Any = "text"
TRUE: Any = True
INT: Any = Typed("int", 1)


@pytest.mark.parametrize(
    ("message", "refusal", "text"),
    [
        (Message(b"", message_id="x" * 129), InvalidArgument, "message_id"),
        (Message(b"", session_id="a", partition_key="b"), InvalidArgument, "SB-009"),
        (Message(b"", time_to_live=-SECOND), InvalidArgument, "time_to_live"),
        (Message(b"", scheduled_enqueue_at=datetime(2026, 1, 1)), InvalidArgument, "time zone"),
        (Message(TEXT), InvalidArgument, "bytes"),
        (Message(b"", subject="a\x00b"), InvalidArgument, "NUL"),
        (Message(b"", properties={"a": object()}), InvalidArgument, "'a'"),
        (Message(b"", properties={"a\x00": 1}), InvalidArgument, "NUL"),
        (Message(b"", content_type="größe"), InvalidArgument, "content_type: must be ASCII"),
        (Message(b"", message_id=TRUE), InvalidArgument, "message_id: must be a string, a UUID, an integer or bytes"),
        (Message(b"", message_id=-1), InvalidArgument, "message_id: -1 is no ulong"),
        (
            Message(b"", correlation_id=INT),
            InvalidArgument,
            "correlation_id: must be a string, uuid",
        ),
        (Message(b"", properties={"a": Typed("char", "ab")}), InvalidArgument, "char"),
        (Message(b"", properties={"a": Typed("symbol", "ß")}), InvalidArgument, "symbol"),
        (Message(b"", properties={"a": Typed("decimal32", "12345678")}), InvalidArgument, "decimal32"),
        (Message(b"", properties={"a": Typed("ubyte", 256)}), InvalidArgument, "ubyte"),
        (Message(b"", properties={"a": "x" * 33_000}), MessageTooLarge, "'a'"),
        (Message(b"", properties={str(n): "x" * 30_000 for n in range(3)}), MessageTooLarge, "properties"),
    ],
)
def test_a_bad_message_is_refused_by_name(message, refusal, text):
    with pytest.raises(refusal, match=text):
        sb.prepare(message)


def test_invalid_messages_and_properties_are_refused():
    wrong: Any = 5
    with pytest.raises(InvalidArgument, match="messages: must be a Message, not 5"):
        sb.prepare(wrong)
    with pytest.raises(InvalidArgument, match="properties: must be a mapping of names to values, not 5"):
        sb.prepare(Message(b"", properties=wrong))


@pytest.mark.parametrize("forever", [None, timedelta(0), timedelta.max])
def test_a_missing_time_to_live_means_the_entitys_default(forever):
    """SB-021, SB-039."""
    assert sb.prepare(Message(b"", time_to_live=forever)).time_to_live is None


def test_ids_have_up_to_128_characters():
    sb.prepare(Message(b"", message_id="m" * 128, session_id="s" * 128))
    for name in ("message_id", "session_id", "partition_key", "via_partition_key", "reply_to_session_id"):
        too_long: Any = {name: "x" * 129}
        with pytest.raises(InvalidArgument, match="has 129 characters; at most 128 are allowed"):
            sb.prepare(Message(b"", **too_long))


def test_a_time_to_live_of_forever_means_none():
    assert sb.prepare(Message(b"", time_to_live=FOREVER)).time_to_live is None
    almost = FOREVER - timedelta(microseconds=1)
    assert sb.prepare(Message(b"", time_to_live=almost)).time_to_live == almost


def test_a_property_may_have_exactly_the_bytes_of_its_limit():
    for fitting in ({"name": "x" * 32_764}, {"ä": "ß" * 16_383}, {"a": "\x00"}, {"name": "\x00" * 24_573}):
        sb.prepare(Message(b"", properties=fitting))
    for name, value in [("name", "x" * 32_765), ("ä", "ß" * 16_383 + "x"), ("name", "\x00" * 24_574)]:
        with pytest.raises(MessageTooLarge, match=f"application property '{name}'"):
            sb.prepare(Message(b"", properties={name: value}))
    with pytest.raises(MessageTooLarge, match=f"application property '{'n' * 40}'"):
        sb.prepare(Message(b"", properties={"n" * 41: "x" * 32_768}))


def test_all_properties_together_may_have_exactly_the_bytes_of_their_limit():
    sb.check_properties_fit(65_536)
    with pytest.raises(MessageTooLarge, match="set of application properties of message 7"):
        sb.check_properties_fit(65_537, 7)


def test_an_unknown_kind_of_body_is_refused():
    kind: Any = 0
    assert sb.prepare(Message(b"", body_kind=kind)) == sb.prepare(Message(b""))
    kind = "k" * 79
    with pytest.raises(InvalidArgument, match=f"must be one of BodyKind, not '{'k' * 79}$"):
        sb.prepare(Message(b"", body_kind=kind))
