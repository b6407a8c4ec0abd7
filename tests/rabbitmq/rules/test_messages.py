"""Keys, properties and life of a publication."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.rabbitmq.rules import expiration, messages
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.rabbitmq.rules.table import Typed

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_cc_and_bcc_add_keys():
    keys, headers = messages.keys_of("a", {"CC": ["b", "c"], "BCC": ["d", "a"], "x": 1})
    assert keys == ("a", "b", "c", "d")
    assert headers == {"CC": ["b", "c"], "x": 1}
    assert messages.keys_of("a", None) == (("a",), {})


@pytest.mark.parametrize(("value", "type"), [("b", "longstr"), (5, "signedint"), (None, "void"), ({}, "table")])
def test_cc_must_be_an_array(value, type):
    for name in ("CC", "BCC"):
        with pytest.raises(AmqpError) as refused:
            messages.keys_of("a", {name: value})
        assert refused.value.problem == f'invalid message: {{unacceptable_type_in_header,"{name}",{type}}}'
    others = [5, b"x", Typed("longstr", b"\xff"), None]
    assert messages.keys_of("a", {"CC": [*others, "b", Typed("longstr", "c")]})[0] == ("a", "b", "c")


def test_a_delivery_mode_is_1_or_2():
    for mode in (None, 1, 2):
        assert messages.check_properties({"delivery_mode": mode}) is None
    with pytest.raises(AmqpError) as refused:
        messages.check_properties({"delivery_mode": 3})
    assert refused.value.problem == "invalid message: {delivery_mode_unknown,3}"
    assert messages.check_properties({"priority": 255, "expiration": "10"}) == 10


def test_a_body_has_a_maximum_size():
    messages.check_body(b"12", 2)
    with pytest.raises(AmqpError, match="message size 3 is larger than configured max size 2"):
        messages.check_body(b"123", 2)


@pytest.mark.parametrize(("text", "milliseconds"), [("0", 0), ("5", 5), ("+5", 5), ("007", 7), ("315360000000", 315360000000)])
def test_an_expiration_must_be_digits(text, milliseconds):
    assert expiration.parse(text) == milliseconds
    assert expiration.parse(None) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("abc", "no_integer"),
        ("", "no_integer"),
        (" 5", "no_integer"),
        ("+", "no_integer"),
        ("٣", "no_integer"),
        ("1.5", '{leftover_string,".5"}'),
        ("1000 ", '{leftover_string," "}'),
        ("5ms", '{leftover_string,"ms"}'),
        ("-1", "{value_negative,-1}"),
        ("315360000001", "{value_too_large,315360000001}"),
    ],
)
def test_a_bad_expiration_has_an_exact_text(text, reason):
    with pytest.raises(AmqpError) as refused:
        expiration.parse(text)
    assert refused.value.text == f"PRECONDITION_FAILED - invalid expiration '{text}': {reason}"


def test_a_very_long_expiration_is_shown_by_its_beginning():
    assert expiration.parse("0" * 3999 + "5") == 5
    with pytest.raises(AmqpError) as refused:
        expiration.parse("0" * 4001)
    assert refused.value.text == f"PRECONDITION_FAILED - invalid expiration '{'0' * 20}...': value_too_large"


@given(st.text(max_size=12) | st.integers().map(str) | st.just("9" * 5000))
def test_any_expiration_text_is_a_number_or_refused(text):
    try:
        assert 0 <= expiration.parse(text) <= 315360000000
    except AmqpError as exc:
        assert exc.reply_code == 406
