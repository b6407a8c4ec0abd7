"""The sections of an AMQP message: how they are compared, changed item by item, and cut."""

from typing import Any
from uuid import UUID

import pytest

from broker_core.common.errors import InvalidArgument
from broker_core.common.typed import Typed
from broker_core.service_bus.rules.amqp.sections import AmqpSections, Section, encoded_id, list_with, properties_with, split
from broker_core.service_bus.rules.amqp.types import BadEncoding, encode, encode_list

PROPERTIES = b"\x00\x53\x73"


def test_sections_are_equal_if_their_bytes_are():
    assert AmqpSections(priority=1) == AmqpSections(priority=1) != AmqpSections(priority=2)
    assert AmqpSections(priority=1) != AmqpSections(priority=1).raw


@pytest.mark.parametrize(("text", "expected"), [("5", 5), ("6", "6"), (None, None)])
def test_an_id_keeps_its_type_while_its_text_is_unchanged(text, expected):
    typed = AmqpSections.stored(properties_with(None, {0: encode(Typed("ulong", 5))}))
    assert typed.typed_id("message-id", text) == expected
    assert AmqpSections(priority=1).typed_id("message-id", text) == text


@pytest.mark.parametrize(
    ("value", "encoded"),
    [(5, "5305"), (UUID(int=1), "98" + "00" * 15 + "01"), (b"x", "a00178"), (Typed("string", "x"), "a10178")],
)
def test_an_id_of_any_type_is_encoded(value, encoded):
    assert encoded_id("message_id", value).hex() == encoded


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (True, "must be a string, a UUID, an integer or bytes, not True"),
        ([1] * 40, "must be a string, a UUID, an integer or bytes, not " + repr([1] * 40)[:80]),
        (Typed("int", 1), "must be a string, uuid, ulong or binary, not a int"),
        (-1, "-1 is no ulong: -1 is out of range"),
    ],
)
def test_an_id_of_another_type_is_refused(value, problem):
    with pytest.raises(InvalidArgument) as refused:
        encoded_id("message_id", value)
    assert refused.value.problem == problem


@pytest.mark.parametrize(
    ("items", "changed", "after"),
    [
        ([1, 2], {}, [1, 2]),
        ([1, 2], {0: 3}, [3, 2]),
        ([1, 2], {1: None}, [1]),
        ([1], {2: 3}, [1, None, 3]),
        ([1, None], {1: 2}, [1, 2]),
        ([None, 1], {1: None}, []),
        (None, {0: 1}, [1]),
        (None, {}, []),
    ],
)
def test_a_list_is_changed_only_at_the_given_positions(items, changed, after):
    section = None if items is None else PROPERTIES + encode_list([encode(item) for item in items])
    new = {place: None if value is None else encode(value) for place, value in changed.items()}
    assert list_with(section, new) == encode_list([encode(item) for item in after])


def test_properties_set_to_their_own_values_stay_unchanged():
    wide = PROPERTIES + b"\xc0\x0a\x01\x80" + b"\x00" * 7 + b"\x05"  # a ulong in more bytes than it needs
    five: Any = encode(Typed("ulong", 5))
    assert properties_with(wide, {0: five}) == properties_with(wide, {0: five, 7: None}) == wide
    assert properties_with(wide, {0: encode("x")}) == PROPERTIES + encode_list([encode("x")])
    assert properties_with(None, {0: five}) == PROPERTIES + encode_list([five])


@pytest.mark.parametrize(("head", "size"), [("005375a0ff", 5), ("005375b0000000ff", 8)])
def test_a_data_section_can_have_lost_its_content(head, size):
    [part] = split(bytes.fromhex(head), cut=True)
    assert (part.section, part.at, part.value_at, part.end) == (Section.DATA, 0, 3, size)
    with pytest.raises(BadEncoding, match="ends at byte"):
        split(bytes.fromhex(head))
    for wrong in (bytes.fromhex(head)[:-1], bytes.fromhex("005375")):
        with pytest.raises(BadEncoding, match="the data section at byte 0 has no length"):
            split(wrong, cut=True)
