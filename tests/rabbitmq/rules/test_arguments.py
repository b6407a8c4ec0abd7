"""Arguments of queues: types, ranges and exact texts."""

import json

import pytest

from broker_core.common.errors import InvalidArgument
from broker_core.rabbitmq.rules import arguments
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.rabbitmq.rules.table import Typed, encode

MOST = 315_360_000_000
QUORUM_ONLY = ("x-dead-letter-strategy", "x-queue-leader-locator", "x-quorum-initial-group-size")


def check(given, *, type=None, durable=True, exclusive=False, auto_delete=False):
    return arguments.check_queue(
        "/", "b1", type=type, durable=durable, exclusive=exclusive, auto_delete=auto_delete, arguments=given
    )


def problem(given, **options):
    with pytest.raises(AmqpError) as refused:
        check(given, **options)
    error = refused.value
    assert (error.reply_code, error.is_connection_error) == (406, False)
    assert error.text.startswith("PRECONDITION_FAILED - ")
    assert error.advice
    return error.problem


@pytest.mark.parametrize(
    ("argument", "value", "reason"),
    [
        ("x-message-ttl", -1, "{value_negative,-1}"),
        ("x-message-ttl", "1000", '"expected integer, got longstr"'),
        ("x-message-ttl", True, '"expected integer, got bool"'),
        ("x-message-ttl", None, '"expected integer, got void"'),
        ("x-message-ttl", 2**40, "{value_too_large,1099511627776}"),
        ("x-expires", 0, "{value_zero,0}"),
        ("x-expires", -1, "{value_negative,-1}"),
        ("x-expires", "1000", '"expected integer, got longstr"'),
        ("x-expires", MOST + 1, f"{{value_too_large,{MOST + 1}}}"),
        ("x-max-length", -1, "{value_negative,-1}"),
        ("x-max-length", "5", '"expected integer, got longstr"'),
        ("x-max-length-bytes", -1, "{value_negative,-1}"),
        ("x-max-length-bytes", 1.5, '"expected integer, got double"'),
        ("x-overflow", "bogus", "invalid_overflow"),
        ("x-overflow", 5, "{unacceptable_type,signedint}"),
        ("x-dead-letter-routing-key", "k", "routing_key_but_no_dlx_defined"),
        ("x-max-priority", 256, "{max_value_exceeded,256}"),
        ("x-max-priority", -1, "{value_negative,-1}"),
        ("x-queue-type", "bogus", "\"unsupported queue type 'bogus'\""),
        ("x-queue-type", "stream", "\"unsupported queue type 'stream'\""),
        ("x-queue-type", 5, "{unacceptable_type,signedint}"),
        ("x-queue-mode", "bogus", "\"unsupported queue mode 'bogus'\""),
        ("x-queue-version", 3, "\"unsupported queue version '3'\""),
        ("x-queue-master-locator", "bogus", "\"unsupported queue master locator 'bogus'\""),
        ("x-single-active-consumer", "true", "{unacceptable_type,longstr}"),
        ("x-single-active-consumer", 1, "{unacceptable_type,signedint}"),
        ("x-dead-letter-strategy", 5, "{unacceptable_type,signedint}"),
        ("x-dead-letter-strategy", "bogus", "invalid_dlx_strategy"),
        ("x-queue-leader-locator", "bogus", "invalid_queue_locator_arg"),
        ("x-quorum-initial-group-size", 0, "{value_zero,0}"),
        ("x-quorum-initial-group-size", -1, "{value_negative,-1}"),
    ],
)
def test_bad_values_have_exact_texts(argument, value, reason):
    kind = "quorum" if argument in QUORUM_ONLY else None
    assert problem({argument: value}, type=kind) == f"invalid arg '{argument}' for queue 'b1' in vhost '/': {reason}"


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("x-message-ttl", 0),
        ("x-message-ttl", 2**33),
        ("x-message-ttl", Typed("short", 5)),
        ("x-message-ttl", Typed("unsignedbyte", 5)),
        ("x-max-length", 0),
        ("x-max-priority", 255),
        ("x-max-priority", 0),
        ("x-overflow", "reject-publish-dlx"),
        ("x-dead-letter-exchange", ""),
        ("x-queue-mode", "lazy"),
        ("x-queue-version", 2),
        ("x-single-active-consumer", True),
        ("x-queue-master-locator", "min-masters"),
    ],
)
def test_good_values_are_accepted(argument, value):
    assert check({argument: value}) == "classic"


def test_durations_are_limited_to_a_range():
    for argument, least in (("x-message-ttl", 0), ("x-expires", 1)):
        check({argument: least})
        check({argument: MOST})
        problem({argument: least - 1})
        problem({argument: MOST + 1})


def test_negative_lengths_are_refused():
    for argument in ("x-max-length", "x-max-length-bytes"):
        check({argument: 0})
        problem({argument: -1})


def test_a_dead_letter_routing_key_needs_its_exchange():
    check({"x-dead-letter-exchange": "not there", "x-dead-letter-routing-key": "k"})
    wrong = problem({"x-dead-letter-exchange": 5})
    assert wrong == "invalid type 'signedint' for arg 'x-dead-letter-exchange' in queue 'b1' in vhost '/'"
    wrong = problem({"x-dead-letter-exchange": "d", "x-dead-letter-routing-key": 5})
    assert wrong.endswith("{unacceptable_type,signedint}")


@pytest.mark.parametrize(
    ("argument", "value", "types"),
    [
        ("x-delivery-limit", 5, ["classic"]),
        ("x-dead-letter-strategy", "at-most-once", ["classic"]),
        ("x-quorum-initial-group-size", 3, ["classic"]),
        ("x-queue-leader-locator", "balanced", ["classic"]),
        ("x-max-in-memory-length", 5, ["classic"]),
        ("x-max-age", "1D", ["classic", "quorum"]),
        ("x-initial-cluster-size", 3, ["classic", "quorum"]),
        ("x-max-priority", 5, ["quorum"]),
        ("x-queue-mode", "lazy", ["quorum"]),
    ],
)
def test_arguments_of_other_types_are_refused(argument, value, types):
    for kind in arguments.QUEUE_TYPES:
        if kind in types:
            wrong = problem({argument: value}, type=kind)
            assert wrong == f"invalid arg '{argument}' for queue 'b1' in vhost '/' of queue type rabbit_{kind}_queue"
        else:
            assert check({argument: value, "x-queue-type": kind}) == kind


def test_quorum_queues_accept_their_arguments():
    assert check({"x-queue-type": "quorum", "x-delivery-limit": -1, "x-dead-letter-strategy": "at-least-once"}) == "quorum"
    assert problem({"x-delivery-limit": "5"}, type="quorum").endswith('"expected integer, got longstr"')


def test_a_quorum_queue_is_durable_and_shared():
    for options, property in (
        ({"durable": False}, "non-durable"),
        ({"exclusive": True}, "exclusive-owner"),
        ({"auto_delete": True}, "auto-delete"),
    ):
        assert problem({"x-queue-type": "quorum"}, **options) == f"invalid property '{property}' for queue 'b1' in vhost '/'"
        assert check({}, **options) == "classic"


def test_unknown_arguments_are_accepted():
    assert check({"foo": [1, {"a": None}], "x-unheard-of": "y"}) == "classic"


def test_a_bad_value_is_reported_before_an_argument_that_the_type_lacks():
    """RMQ-384"""
    assert problem({"x-queue-mode": 5}, type="quorum").endswith("of queue type rabbit_quorum_queue")
    assert problem({"x-queue-mode": 5, "x-expires": 0}, type="quorum").endswith("{value_zero,0}")


def test_the_type_must_be_consistent_with_its_argument():
    assert check({}, type="quorum") == "quorum"
    assert check({"x-queue-type": "quorum"}, type="quorum") == "quorum"
    assert "inequivalent arg 'x-queue-type'" in problem({"x-queue-type": "quorum"}, type="classic")


def test_a_consumers_priority_is_an_integer():
    assert arguments.consumer_priority("/", "w.q", {}) == 0
    assert arguments.consumer_priority("/", "w.q", {"x-priority": -5}) == -5
    with pytest.raises(AmqpError) as refused:
        arguments.consumer_priority("/", "w.q", {"x-priority": "5"})
    assert refused.value.problem == "invalid arg 'x-priority' for queue 'w.q' in vhost '/': \"expected integer, got longstr\""


def test_arguments_are_no_larger_than_a_frame():
    frame = 131_072 - len(json.dumps(encode({"foo": ""})))
    for what in (check, lambda table: arguments.check_binding_arguments("direct", table)):
        what({"foo": "x" * frame})
        with pytest.raises(InvalidArgument, match="have 131,073 bytes; at most 131,072 are allowed"):
            what({"foo": "x" * (frame + 1)})


@pytest.mark.parametrize("asked", ["if-unused", "if-empty"])
def test_only_a_classic_queue_can_be_deleted_conditionally(asked):  # RMQ-385
    def delete(type, **options):
        arguments.check_queue_deletion("/", "b1", type, **{"if_unused": False, "if_empty": False, **options})

    delete("quorum")
    delete("classic", **{asked.replace("-", "_"): True})
    with pytest.raises(AmqpError, match=asked):
        delete("quorum", **{asked.replace("-", "_"): True})
