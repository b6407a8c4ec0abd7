"""Declaring exchanges and bindings."""

import pytest

from broker_core.rabbitmq.rules import arguments
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.rabbitmq.rules.exchanges import PREDECLARED, ExchangeDef, properties_key
from broker_core.rabbitmq.rules.table import Typed


def refusal(call, *args, **kwargs):
    with pytest.raises(AmqpError) as refused:
        call(*args, **kwargs)
    return refused.value


def test_a_virtual_host_begins_with_seven_exchanges():
    assert {e.name: str(e.type) for e in PREDECLARED} == {
        "": "direct",
        "amq.direct": "direct",
        "amq.fanout": "fanout",
        "amq.topic": "topic",
        "amq.headers": "headers",
        "amq.match": "headers",
        "amq.rabbitmq.trace": "topic",
    }
    assert all(e.durable and not e.auto_delete for e in PREDECLARED)
    assert [e.name for e in PREDECLARED if e.internal] == ["amq.rabbitmq.trace"]


def test_the_default_exchange_cannot_be_changed():
    text = "ACCESS_REFUSED - operation not permitted on the default exchange"
    assert refusal(arguments.check_exchange, "/", "", "direct", {}, exists=True).text == text
    assert refusal(arguments.check_exchange_deletion, "/", "").text == text
    assert refusal(arguments.check_not_default_exchange, "").text == text


def test_an_unknown_type_ends_the_connection():
    error = refusal(arguments.check_exchange, "/", "x", "bogus", {}, exists=False)
    assert error.text == "COMMAND_INVALID - unknown exchange type 'bogus'"
    assert (error.reply_code, error.is_connection_error) == (503, True)


def test_the_prefix_amq_is_reserved():
    error = refusal(arguments.check_exchange, "/", "amq.foo", "direct", {}, exists=False)
    assert error.text == "ACCESS_REFUSED - exchange name 'amq.foo' contains reserved prefix 'amq.*'"
    arguments.check_exchange("/", "amq.direct", "direct", {}, exists=True)
    error = refusal(arguments.check_exchange_deletion, "/", "amq.direct")
    assert error.text == "ACCESS_REFUSED - deletion of system exchange 'amq.direct' in vhost '/' not allowed"
    arguments.check_exchange_deletion("/", "x")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"type": "fanout"}, "'type' for exchange 'w.x' in vhost '/': received 'fanout' but current is 'direct'"),
        ({"durable": False}, "'durable' for exchange 'w.x' in vhost '/': received 'false' but current is 'true'"),
        ({"auto_delete": True}, "'auto_delete' for exchange 'w.x' in vhost '/': received 'true' but current is 'false'"),
        ({"internal": True}, "'internal' for exchange 'w.x' in vhost '/': received 'true' but current is 'false'"),
        ({"type": "topic", "internal": True}, "'type' for exchange 'w.x' in vhost '/': received 'topic' but current is 'direct'"),
    ],
)
def test_a_redeclaration_must_be_equivalent(changes, text):
    current = ExchangeDef("w.x")
    arguments.check_equivalent_exchange("/", current, ExchangeDef("w.x"))
    error = refusal(arguments.check_equivalent_exchange, "/", current, ExchangeDef("w.x", **changes))
    assert error.text == f"PRECONDITION_FAILED - inequivalent arg {text}"


def test_only_the_alternate_exchange_is_compared():
    current = ExchangeDef("w.x", arguments={"foo": 1})
    arguments.check_equivalent_exchange("/", current, ExchangeDef("w.x", arguments={"bar": 2}))
    error = refusal(arguments.check_equivalent_exchange, "/", current, ExchangeDef("w.x", arguments={"alternate-exchange": "y"}))
    assert error.text == (
        "PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange 'w.x' in vhost '/': "
        "received the value 'y' of type 'longstr' but current is none"
    )
    with_one = ExchangeDef("w.x", arguments={"alternate-exchange": "y"})
    error = refusal(arguments.check_equivalent_exchange, "/", with_one, current)
    assert error.text.endswith("received none but current is the value 'y' of type 'longstr'")


def test_an_alternate_exchange_must_be_a_string():
    error = refusal(arguments.check_exchange, "/", "x", "direct", {"alternate-exchange": 5}, exists=False)
    assert (
        error.text == "PRECONDITION_FAILED - invalid type 'signedint' for arg 'alternate-exchange' in exchange 'x' in vhost '/'"
    )
    arguments.check_exchange("/", "x", "direct", {"alternate-exchange": "not there"}, exists=False)


def test_a_bad_x_match_is_refused():
    error = refusal(arguments.check_binding_arguments, "headers", {"x-match": "bogus"})
    assert error.text == (
        'PRECONDITION_FAILED - Invalid x-match field value <<"bogus">>; expected all, any, all-with-x, or any-with-x'
    )
    error = refusal(arguments.check_binding_arguments, "headers", {"x-match": 5})
    assert error.text == "PRECONDITION_FAILED - Invalid x-match field type signedint (value 5); expected longstr"
    for mode in arguments.X_MATCH:
        arguments.check_binding_arguments("headers", {"x-match": mode})
    arguments.check_binding_arguments("headers", {})
    arguments.check_binding_arguments("topic", {"x-match": "bogus"})  # means nothing there


def test_a_binding_has_the_properties_key_of_rabbitmq():
    assert properties_key("a.b", {}) == "a.b"
    assert properties_key("", {}) == "~"
    assert properties_key("k", {"a": 1}) == "k~98008c5a75407710ff0407"  # as it is stored
    first, other = properties_key("k", {"a": 1, "b": "2"}), properties_key("k", {"b": "2", "a": 1})
    assert first == other and first.startswith("k~")
    assert first != properties_key("k", {"a": Typed("long", 1), "b": "2"})
