"""The page of a message that AMQP sent: its sections with their types, its body as values."""

from uuid import UUID

import pytest
from hypothesis import given

from broker_core import service_bus
from broker_core.common.typed import Typed
from broker_core.common.types import BodyKind
from broker_core.reads import Body
from broker_core.service_bus.rules.values import Message
from explorer.bodies.display import readable
from explorer.service_bus.amqp_fields import amqp_fields
from explorer.service_bus.amqp_values import read_sections
from tests import amqp_values
from tests.html import body_of


def test_the_page_shows_the_amqp_sections_with_their_types(pages, as_):
    amqp = service_bus.AmqpSections(durable=True, priority=9, user_id=b"me", footer={"sum": Typed("uint", 7)})
    body = service_bus.encode_body(BodyKind.VALUE, {"part": Typed("ubyte", 8), "text": "größe"})
    properties = {"n": Typed("ushort", 5), "nul": "a\x00b"}
    message = Message(body, message_id=UUID(int=5), body_kind=BodyKind.VALUE, properties=properties, amqp=amqp)
    (number,) = service_bus.send(pages.shop, [message])
    page = body_of(as_("operator").get(f"/messages/{pages.at}/{number}"))
    for shown in (
        "AMQP sections",
        "priority",
        "0x6d65",
        "uint",
        "ushort",
        "a␀b",
        str(UUID(int=5)),
        "ubyte 8",
        "größe",
        "AMQP value",
    ):
        assert shown in page
    like = body_of(as_("operator").get(f"/send/{pages.at}?like={number}"))
    assert "ushort" in like


def test_a_plain_message_has_no_table_of_amqp_sections(pages, as_):
    assert "AMQP sections" not in body_of(as_("operator").get(f"/messages/{pages.at}/1"))


@given(amqp_values.messages())
def test_any_amqp_message_can_be_shown(encoded):
    message = service_bus.read_message(encoded)
    fields = amqp_fields(message.amqp.raw if message.amqp else None)
    assert all(isinstance(text, str) and "\x00" not in text for field in fields for text in field)
    shown = readable(Body(message.body, 0, len(message.body), message.body_kind, None), read_sections)
    assert shown.text or shown.note


@pytest.mark.parametrize(
    ("kind", "value", "form", "text"),
    [
        (BodyKind.VALUE, "text", "text", "text"),
        (BodyKind.VALUE, '{"a": 1}', "JSON", '{\n  "a": 1\n}'),
        (BodyKind.VALUE, [1, Typed("long", 2)], "AMQP value", '[\n  1,\n  "long 2"\n]'),
        (BodyKind.DATA_SECTIONS, [b"a", b"b"], "text", "ab"),
        (BodyKind.SEQUENCE, [[None]], "AMQP sequence", "[\n  [\n    null\n  ]\n]"),
    ],
)
def test_bodies_of_encoded_sections_are_shown(kind, value, form, text):
    body = service_bus.encode_body(kind, value)
    shown = readable(Body(body, 0, len(body), kind, None), read_sections)
    assert (shown.form, shown.text) == (form, text)
