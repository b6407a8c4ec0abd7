"""What a second declaration of a queue must repeat."""

from decimal import Decimal

import pytest

from broker_core.rabbitmq.rules.arguments import QueueDef, check_equivalent_queue
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.rabbitmq.rules.table import Typed


def a_queue(arguments=None, **options):
    return QueueDef("b1", arguments=arguments or {}, **options)


def refusal(current, wanted):
    with pytest.raises(AmqpError) as refused:
        check_equivalent_queue("/", current, wanted)
    return refused.value


def problem(current, wanted):
    """For arguments of a queue that is otherwise the same."""
    error = refusal(a_queue(current), a_queue(wanted))
    assert error.reply_code == 406
    return error.problem


def test_a_redeclaration_must_have_the_same_properties():
    check_equivalent_queue("/", a_queue(), a_queue())
    for property in ("durable", "auto_delete"):
        other = a_queue(**{property: property == "auto_delete"})
        received, current = ("false", "true") if property == "durable" else ("true", "false")
        assert refusal(a_queue(), other).text == (
            f"PRECONDITION_FAILED - inequivalent arg '{property}' for queue 'b1' in vhost '/': "
            f"received '{received}' but current is '{current}'"
        )


def test_an_exclusive_queue_can_be_redeclared_only_by_its_connection():
    mine, shared = a_queue(owner_id=7), a_queue()
    check_equivalent_queue("/", mine, mine)
    for current, wanted in ((mine, shared), (shared, mine), (mine, a_queue(owner_id=8))):
        error = refusal(current, wanted)
        assert error.reply_code == 405
        assert error.text == (
            "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'b1' in vhost '/'. It could be originally declared "
            "on another connection or the exclusive property value does not match that of the original declaration."
        )


@pytest.mark.parametrize(
    ("current", "wanted", "text"),
    [
        ({"x-message-ttl": 1000}, {"x-message-ttl": 2000}, "'x-message-ttl' {}: received '2000' but current is '1000'"),
        (
            {"x-message-ttl": 1000},
            {},
            "'x-message-ttl' {}: received none but current is the value '1000' of type 'signedint'",
        ),
        ({}, {"x-max-length": 5}, "'x-max-length' {}: received the value '5' of type 'signedint' but current is none"),
        (
            {},
            {"x-dead-letter-exchange": "d"},
            "'x-dead-letter-exchange' {}: received the value 'd' of type 'longstr' but current is none",
        ),
        (
            {},
            {"x-single-active-consumer": True},
            "'x-single-active-consumer' {}: received the value 'true' of type 'bool' but current is none",
        ),
        ({}, {"x-expires": 2**40}, "'x-expires' {}: received the value '1099511627776' of type 'long' but current is none"),
        (
            {"x-overflow": "drop-head"},
            {"x-overflow": "reject-publish"},
            "'x-overflow' {}: received 'reject-publish' but current is 'drop-head'",
        ),
    ],
)
def test_a_redeclaration_must_have_the_same_arguments(current, wanted, text):
    assert problem(current, wanted) == "inequivalent arg " + text.format("for queue 'b1' in vhost '/'")


def test_the_width_of_an_integer_does_not_matter():
    check_equivalent_queue("/", a_queue({"x-message-ttl": 1000}), a_queue({"x-message-ttl": Typed("long", 1000)}))
    assert problem({"x-max-length": 10000}, {"x-max-length": "10000"}).endswith("received '10000' but current is '10000'")


@pytest.mark.parametrize(
    ("current", "wanted", "same"),
    [
        (1000, Typed("decimal", Decimal(1000)), True),
        (1.5, Typed("float", 1.5), True),
        (1000, 1000.0, False),
        (1000, Typed("float", 1000.0), False),
        (True, 1, False),
        ("k", "k", True),
        ("k", Typed("binary", "k"), False),
    ],
)
def test_integers_and_other_values_are_different_classes(current, wanted, same):  # RMQ-346
    if same:
        check_equivalent_queue("/", a_queue({"x-max-length": current}), a_queue({"x-max-length": wanted}))
    else:
        assert "x-max-length" in problem({"x-max-length": current}, {"x-max-length": wanted})


def test_the_type_may_be_named_later():
    named = a_queue({"x-queue-type": "classic"})
    check_equivalent_queue("/", a_queue(), named)
    check_equivalent_queue("/", named, a_queue())
    quorum = a_queue({"x-queue-type": "quorum"}, type="quorum")
    check_equivalent_queue("/", quorum, a_queue(type="quorum"))
    wrong = "inequivalent arg 'x-queue-type' for queue 'b1' in vhost '/': received {} but current is {}"
    shown = "the value 'quorum' of type 'longstr'"
    assert refusal(a_queue(), quorum).problem == wrong.format(shown, "none")
    assert refusal(quorum, a_queue()).problem == wrong.format("none", shown)
    assert refusal(quorum, named).problem == wrong.format("'classic'", "'quorum'")


def test_arguments_of_other_types_are_not_compared():
    check_equivalent_queue("/", a_queue(), a_queue({"x-delivery-limit": 5, "x-max-age": "1D"}))
    assert "x-delivery-limit" in refusal(a_queue(type="quorum"), a_queue({"x-delivery-limit": 5}, type="quorum")).problem


def test_unknown_arguments_are_not_compared():
    check_equivalent_queue("/", a_queue({"foo": 1}), a_queue({"bar": [2]}))


def test_only_the_first_difference_is_reported():
    """RMQ-384: in an order that is another for quorum queues, where the type says it."""
    more = {"x-message-ttl": 5, "x-expires": 5, "x-overflow": "drop-head", "x-dead-letter-exchange": "d"}
    assert problem({}, more).startswith("inequivalent arg 'x-expires'")
    quorum = a_queue({"x-queue-type": "quorum"}, type="quorum")
    order = ["x-dead-letter-exchange", "x-expires", "x-overflow", "x-message-ttl"]
    for at, name in enumerate(order):
        wanted = a_queue({"x-queue-type": "quorum"} | {each: more[each] for each in order[at:]}, type="quorum")
        assert refusal(quorum, wanted).problem.startswith(f"inequivalent arg '{name}'")
