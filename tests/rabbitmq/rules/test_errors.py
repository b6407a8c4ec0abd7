"""Texts of refusals, as clients look for them."""

import pytest

from broker_core.rabbitmq.rules import errors
from broker_core.rabbitmq.rules.erlang import Atom, Chars, term


@pytest.mark.parametrize(
    ("error", "text", "code", "ends_connection"),
    [
        (errors.vhost_not_found("nope"), "NOT_ALLOWED - vhost nope not found", 530, True),
        (errors.exchange_in_use("/", "w.x"), "PRECONDITION_FAILED - exchange 'w.x' in vhost '/' in use", 406, False),
        (errors.not_found_queue("/", "q"), "NOT_FOUND - no queue 'q' in vhost '/'", 404, False),
        (errors.no_previously_declared_queue(), "NOT_FOUND - no previously declared queue", 404, False),
        (errors.queue_in_use("/", "w.q"), "PRECONDITION_FAILED - queue 'w.q' in vhost '/' in use", 406, False),
        (errors.queue_not_empty("/", "w.q"), "PRECONDITION_FAILED - queue 'w.q' in vhost '/' not empty", 406, False),
        (
            errors.unknown_delivery_mode(3),
            "PRECONDITION_FAILED - invalid message: {delivery_mode_unknown,3}",
            406,
            False,
        ),
        (errors.consumer_tag_reused("t"), "NOT_ALLOWED - attempt to reuse consumer tag 't'", 530, True),
        (errors.exclusive_use("/", "w.q"), "ACCESS_REFUSED - queue 'w.q' in vhost '/' in exclusive use", 403, False),
        (errors.unknown_delivery_tag(99), "PRECONDITION_FAILED - unknown delivery tag 99", 406, False),
        (errors.not_implemented("immediate=true"), "NOT_IMPLEMENTED - immediate=true", 540, True),
        (
            errors.acknowledgement_timed_out(1, 2000),
            "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value used: 2000 ms. "
            "This timeout value can be configured, see consumers doc guide to learn more",
            406,
            False,
        ),
        (errors.connection_forced("bye"), "CONNECTION_FORCED - bye", 320, True),
        (
            errors.message_too_large(2, 1),
            "PRECONDITION_FAILED - message size 2 is larger than configured max size 1",
            406,
            False,
        ),
    ],
)
def test_errors_have_the_texts_of_rabbitmq(error, text, code, ends_connection):
    assert (error.text, error.reply_code, error.is_connection_error) == (text, code, ends_connection)
    assert str(error) == text


def test_reply_codes_are_those_of_the_protocol():
    of_channels = {"CONTENT_TOO_LARGE": 311, "ACCESS_REFUSED": 403, "NOT_FOUND": 404, "RESOURCE_LOCKED": 405}
    of_channels |= {"PRECONDITION_FAILED": 406}
    of_connections = {"CONNECTION_FORCED": 320, "FRAME_ERROR": 501, "SYNTAX_ERROR": 502, "COMMAND_INVALID": 503}
    of_connections |= {"CHANNEL_ERROR": 504, "UNEXPECTED_FRAME": 505, "RESOURCE_ERROR": 506, "NOT_ALLOWED": 530}
    of_connections |= {"NOT_IMPLEMENTED": 540, "INTERNAL_ERROR": 541}
    assert {name: (code, False) for name, code in of_channels.items()} | {
        name: (code, True) for name, code in of_connections.items()
    } == errors.CODES


def test_a_text_has_at_most_255_bytes():
    for name in ("q" * 255, "é" * 127, "a" + "é" * 127):
        text = errors.not_found_queue("/", name).text
        assert 254 <= len(text.encode()) <= 255
        assert text.startswith("NOT_FOUND - no queue '")


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ("x", '<<"x">>'),
        ("", "<<>>"),
        ("é", '<<"é"/utf8>>'),
        ("\x01", "<<1>>"),
        ('a"b\\', '<<"a\\"b\\\\">>'),
        (Chars("x"), '"x"'),
        (Chars(""), "[]"),
        (Chars("\x01"), "[1]"),
        (Atom("value_zero"), "value_zero"),
        ((Atom("a"), 1, 1.5), "{a,1,1.5}"),
        ([("bogus", 1)], '[{<<"bogus">>,1}]'),
        (True, "true"),
        (None, "undefined"),
        ({"a": []}, '#{<<"a">> => []}'),
        (b"ab", "<<97,98>>"),
    ],
)
def test_terms_are_printed_as_erlang_does(value, printed):
    assert term(value) == printed


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: (inner,), lambda inner: {"a": inner}])
def test_a_term_is_abbreviated_from_the_21st_level_on(wrap):
    value: object = 1
    for _ in range(20):
        value = wrap(value)
    assert "..." not in term(value) and "1" in term(value)
    assert "..." in term(wrap(value)) and "1" not in term(wrap(value))
