"""The pure rules of Queue Storage, as tables: names, limits, metadata, standings, explanations."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from uuid import uuid4

import pytest

from broker_core.common import errors as shared_errors
from broker_core.common.errors import InvalidArgument
from broker_core.common.explanations import QueuePosition
from broker_core.common.types import HoldKind
from broker_core.queue_storage.rules import display_state, errors, messages, names, options
from broker_core.queue_storage.rules.display_state import DisplayState
from broker_core.queue_storage.rules.explaining import Code, QueueFacts, explain, why_not
from broker_core.queue_storage.rules.limits import DEFAULT_LIFE
from broker_core.queue_storage.rules.options import Poison, QueueOptions

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
WEEK = timedelta(days=7)


def refused(call, *args):
    """The refusal's code, status and details, as a front end answers with them."""
    with pytest.raises(errors.StorageRefusal) as caught:
        call(*args)
    return caught.value.code, caught.value.status, dict(caught.value.details)


# Names


@pytest.mark.parametrize("name", ["abc", "0a0", "a-b-c", "a" * 63, "3d-8"])
def test_a_valid_queue_name_is_accepted(name):
    assert names.check_queue_name(name) == name


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("ab", "OutOfRangeInput"),
        ("", "OutOfRangeInput"),
        ("a" * 64, "OutOfRangeInput"),
        ("A" * 64, "OutOfRangeInput"),  # the length is looked at first
        ("Abc", "InvalidResourceName"),
        ("a--b", "InvalidResourceName"),
        ("-ab", "InvalidResourceName"),
        ("ab-", "InvalidResourceName"),
        ("a_b", "InvalidResourceName"),
        ("a|b", "InvalidResourceName"),
        ("a.b", "InvalidResourceName"),
        ("äbc", "InvalidResourceName"),
        ("abc\n", "InvalidResourceName"),
    ],
)
def test_an_invalid_queue_name_is_refused(name, code):
    assert refused(names.check_queue_name, name) == (code, 400, {})


@pytest.mark.parametrize(("name", "words"), [("a", "has 1 character; 3 to 63"), ("ab", "has 2 characters; 3 to 63")])
def test_the_length_of_a_queue_name_is_told(name, words):
    with pytest.raises(InvalidArgument, match=words):
        names.check_queue_name(name)


@pytest.mark.parametrize("name", ["ab", "a" * 25, "Abc", "a-b", "", None])
def test_an_invalid_account_name_is_refused(name):
    with pytest.raises(InvalidArgument, match="3 to 24"):
        names.check_account_name(name)


@pytest.mark.parametrize(
    ("name", "expected"), [("orders", "orders-poison"), ("a" * 56, "a" * 56 + "-poison"), ("a" * 57, None), ("q-poison", None)]
)
def test_a_poison_queue_is_named_after_its_queue(name, expected):
    assert names.poison_queue_of(name) == expected
    if expected:
        assert names.origin_of(expected) == name


# Put, get, update


def out_of_range(name, value, minimum, maximum):
    details = ("QueryParameterName", name), ("QueryParameterValue", str(value))
    return (
        "OutOfRangeQueryParameterValue",
        400,
        {**dict(details), "MinimumAllowed": str(minimum), "MaximumAllowed": str(maximum)},
    )


@pytest.mark.parametrize(
    ("visibility", "life"),
    [
        (timedelta(0), DEFAULT_LIFE),
        (WEEK, DEFAULT_LIFE),  # equal to the default life, which was not given
        (WEEK, None),
        (9 * SECOND, 10 * SECOND),
        (timedelta(0), SECOND),
        (timedelta(0), timedelta.max),
    ],
)
def test_a_valid_put_is_accepted(visibility, life):
    messages.check_put(visibility, life)


@pytest.mark.parametrize("visibility", [-1, 604_801])
def test_a_delay_out_of_range_is_refused(visibility):
    refusal = refused(messages.check_put, visibility * SECOND, DEFAULT_LIFE)
    assert refusal == out_of_range("visibilitytimeout", visibility, 0, 604_800)


@pytest.mark.parametrize("life", [0, -2, 0.5])
def test_a_ttl_below_one_second_is_refused(life):
    code, status, details = refused(messages.check_put, timedelta(0), life * SECOND)
    assert (code, status, details["QueryParameterName"]) == ("InvalidQueryParameterValue", 400, "messagettl")
    assert details["QueryParameterValue"] == str(life)
    assert details["Reason"]


@pytest.mark.parametrize(("visibility", "life"), [(10, 10), (11, 10), (604_800, 604_800)])
def test_a_delay_equal_to_the_given_ttl_is_refused(visibility, life):
    code, status, details = refused(messages.check_put, visibility * SECOND, life * SECOND)
    assert (code, status, details["QueryParameterName"]) == ("InvalidQueryParameterValue", 400, "visibilitytimeout")


@pytest.mark.parametrize("visibility", [0, 604_801, -5])
def test_a_lease_out_of_range_is_refused(visibility):
    assert refused(messages.check_get, 1, visibility * SECOND) == out_of_range("visibilitytimeout", visibility, 1, 604_800)


@pytest.mark.parametrize("count", [0, 33, -1])
def test_a_count_out_of_range_is_refused(count):
    assert refused(messages.check_count, count) == out_of_range("numofmessages", count, 1, 32)


@pytest.mark.parametrize("count", ["5", 1.5, True, None])
def test_a_count_that_is_not_a_number_is_refused(count):
    assert refused(messages.check_count, count)[0] == "InvalidQueryParameterValue"


def test_an_update_without_its_required_arguments_is_refused():
    receipt = uuid4()
    for args, name in (((None, SECOND), "popreceipt"), (("", SECOND), "popreceipt"), ((receipt, None), "visibilitytimeout")):
        expected = "MissingRequiredQueryParameter", 400, {"QueryParameterName": name}
        assert refused(messages.check_update, *args) == expected
    assert refused(messages.check_update, receipt, 604_801 * SECOND) == out_of_range("visibilitytimeout", 604_801, 0, 604_800)
    messages.check_update(receipt, timedelta(0))


def test_the_text_is_checked_first_and_then_the_visibility_timeout():
    receipt = uuid4()
    assert refused(messages.check_update, receipt, -SECOND, "x" * 65_537)[0] == "RequestBodyTooLarge"
    assert refused(messages.check_update, receipt, -SECOND, "\x01" * 65_537)[0] == "InvalidXmlDocument"
    assert refused(messages.check_update, receipt, -SECOND, "x")[2]["QueryParameterName"] == "visibilitytimeout"
    assert refused(messages.check_put, -SECOND, timedelta(0))[2]["QueryParameterName"] == "visibilitytimeout"
    assert refused(messages.check_get, 33, timedelta(0))[2]["QueryParameterName"] == "visibilitytimeout"


@pytest.mark.parametrize("text", ["", " ", "x" * 65_536, "é" * 32_768, "\t\r\n", "😀", "\x7f", "<&>"])
def test_a_valid_text_is_accepted(text):
    assert messages.encode_text(text).decode() == text


@pytest.mark.parametrize("text", ["x" * 65_537, "é" * 32_769])
def test_a_text_over_the_limit_is_refused(text):
    assert refused(messages.encode_text, text) == ("RequestBodyTooLarge", 413, {"MaxLimit": "65536"})


@pytest.mark.parametrize("text", ["\x00", "a\x01b", "\x0b", "\x1f", "\ud800", "\ufffe", "\uffff"])
def test_a_text_that_xml_cannot_contain_is_refused(text):
    assert refused(messages.encode_text, text) == ("InvalidXmlDocument", 400, {})


def test_bytes_are_refused_as_a_text():
    text: Any = b"x"
    with pytest.raises(InvalidArgument, match="base64"):
        messages.encode_text(text)


def test_errors_are_subclasses_of_the_shared_errors():
    assert issubclass(errors.QueueNotFound, shared_errors.EntityNotFound)
    assert issubclass(errors.MessageNotFound, shared_errors.MessageNotFound)
    assert issubclass(errors.QueueAlreadyExists, shared_errors.EntityExists)
    assert issubclass(errors.RequestBodyTooLarge, shared_errors.MessageTooLarge)
    assert issubclass(errors.OutOfRangeQueryParameterValue, InvalidArgument)


# Metadata and options


def test_values_of_metadata_are_stripped():
    assert options.check_metadata({"a": " \tx  y\t ", "b": "  "}) == {"a": "x  y", "b": ""}


def test_metadata_has_at_most_8_kib_of_names_and_values():
    assert options.check_metadata({"abc": "x" * 8000, "d": "x" * 188})


def test_metadata_keeps_names_in_lower_case():
    assert options.check_metadata({"Colour": "Blue", "_x1": ""}) == {"colour": "Blue", "_x1": ""}
    assert options.check_metadata(None) == {}


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ({"": "x"}, "EmptyMetadataKey"),
        ({"1a": "x"}, "InvalidMetadata"),
        ({"a-b": "x"}, "InvalidMetadata"),
        ({"é": "x"}, "InvalidMetadata"),
        ({"\N{KELVIN SIGN}": "x"}, "InvalidMetadata"),  # a k in lower case
        ("ab", "InvalidMetadata"),
        ([("a", "b")], "InvalidMetadata"),
        ({"a": "é"}, "InvalidMetadata"),
        ({"a": "x\ny"}, "InvalidMetadata"),
        ({"a": 1}, "InvalidMetadata"),
        ({"a": "1", "A": "2"}, "InvalidMetadata"),
        ({"a": "x" * 8192}, "MetadataTooLarge"),
        ({"abc": "x" * 8000, "d": "x" * 189}, "MetadataTooLarge"),
    ],
)
def test_invalid_metadata_is_refused(metadata, code):
    assert refused(options.check_metadata, metadata) == (code, 400, {})


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("q-1", QueueOptions(), None),
        ("q-1", QueueOptions(max_dequeue_count=5), Poison(5, "q-1-poison")),
        ("q-1", QueueOptions(max_dequeue_count=1, poison_queue="dead"), Poison(1, "dead")),
        ("q-poison", QueueOptions(max_dequeue_count=5), None),
        ("q-poison", QueueOptions(max_dequeue_count=5, poison_queue="grave"), Poison(5, "grave")),
        ("q-1", QueueOptions(poison_queue="dead"), None),
    ],
)
def test_spent_messages_go_to_the_configured_poison_queue(name, given, expected):
    assert options.poison_of(name, options.check_options(name, given)) == expected


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"max_dequeue_count": 0}, "max_dequeue_count"),
        ({"max_dequeue_count": True}, "max_dequeue_count"),
        ({"max_dequeue_count": 2**31}, "max_dequeue_count"),
        ({"expiry_grace": -SECOND}, "expiry_grace"),
        ({"expiry_grace": 5}, "expiry_grace"),
        ({"strict_visibility": "yes"}, "strict_visibility"),
        ({"poison_queue": "q-1"}, "poison_queue"),
        ({"poison_queue": "Bad"}, "queue"),
        ({"poison_queue": ["bad"]}, "queue"),
        ({"colour": "blue"}, "colour"),
    ],
)
def test_invalid_options_are_refused(given, wrong):
    with pytest.raises(InvalidArgument) as caught:
        options.changed("q-1", QueueOptions(), given)
    assert caught.value.name == wrong


def test_a_queue_with_a_long_name_needs_a_named_poison_queue():
    with pytest.raises(InvalidArgument, match="is too long to append"):
        options.check_options("q" * 57, QueueOptions(max_dequeue_count=3))
    assert options.check_options("q" * 57, QueueOptions(max_dequeue_count=3, poison_queue="dead"))
    assert options.check_options("q" * 56 + "-poison", QueueOptions(max_dequeue_count=3))  # which has none by its name (QS-108)


def test_not_found_errors_use_the_familys_terms():
    assert str(errors.QueueNotFound("shop/orders")).startswith("The queue 'shop/orders' does not exist")
    assert str(errors.AccountNotFound("shop")).startswith("The storage account 'shop' does not exist")


def test_options_round_trip_through_the_database_form():
    original = QueueOptions({"a": "b"}, 3, "dead", timedelta(seconds=7.5), True)
    assert options.from_json(options.as_json(original)) == original
    assert options.from_json({}) == QueueOptions()


# Ids


def test_a_message_id_contains_its_sequence_number():
    assert messages.number_of("00000000-0000-8000-8000-00000000002a") == 42
    assert messages.number_of("nonsense") is None
    assert messages.number_of(None) is None


# Standing and explaining


@dataclass(frozen=True)
class Facts:
    visible_at: datetime = NOON
    hold_kind: int | None = None
    expires_at: datetime | None = None
    delivery_count: int = 0
    held_since: datetime | None = None
    renewals: int = 0
    locked_by: str | None = None


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (Facts(), DisplayState.VISIBLE),  # at its very instant
        (Facts(NOON + SECOND, HoldKind.PUT), DisplayState.DELAYED),
        (Facts(NOON + SECOND, HoldKind.UPDATE_BEFORE_GET), DisplayState.RESCHEDULED),
        (Facts(NOON + SECOND, HoldKind.GET, delivery_count=1), DisplayState.LEASED),
        (Facts(NOON + SECOND, HoldKind.UPDATE, delivery_count=1), DisplayState.EXTENDED),
        (Facts(NOON - SECOND, HoldKind.GET, delivery_count=1), DisplayState.VISIBLE),  # what held it is over
        (Facts(expires_at=NOON), DisplayState.EXPIRED),  # at its very instant
        (Facts(expires_at=NOON + SECOND), DisplayState.VISIBLE),
        (Facts(NOON + SECOND, HoldKind.GET, NOON), DisplayState.EXPIRED),  # first of all
    ],
)
def test_the_display_state_follows_from_the_facts(facts, expected):
    assert display_state.display_state(facts, NOON) is expected
    assert (why_not(facts, NOON) is None) == (expected is DisplayState.VISIBLE)
    assert expected.is_pending is (expected is DisplayState.EXPIRED)


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (Facts(), None),
        (Facts(expires_at=NOON + SECOND), NOON + SECOND),
        (Facts(NOON + SECOND, HoldKind.PUT), NOON + SECOND),
        (Facts(NOON + 2 * SECOND, HoldKind.GET, NOON + SECOND), NOON + SECOND),
        (Facts(NOON + 2 * SECOND, HoldKind.GET, NOON), None),  # what has expired stays so
    ],
)
def test_the_next_change_is_computed_from_the_facts(facts, expected):
    assert display_state.next_change_at(facts, NOON) == expected


QUEUES = {
    "plain": QueueFacts(),
    "poison": QueueFacts(3, "q-poison"),
    "parked": QueueFacts(3, None),
}


def codes(facts, queue=QUEUES["plain"], place=QueuePosition()):
    return [(reason.code, reason.is_obstacle, reason.ends_at) for reason in explain(facts, queue, NOON, place=place)]


@pytest.mark.parametrize(
    ("facts", "queue", "expected"),
    [
        (Facts(), "plain", [(Code.NEXT, False, None)]),
        (Facts(NOON + SECOND, HoldKind.PUT), "plain", [(Code.DELAYED, True, NOON + SECOND)]),
        (Facts(NOON + SECOND, HoldKind.UPDATE_BEFORE_GET), "plain", [(Code.RESCHEDULED, True, NOON + SECOND)]),
        (Facts(NOON + SECOND, HoldKind.GET, delivery_count=1), "plain", [(Code.LEASED, True, NOON + SECOND)]),
        (Facts(NOON + SECOND, HoldKind.UPDATE, delivery_count=1), "plain", [(Code.EXTENDED, True, NOON + SECOND)]),
        (Facts(expires_at=NOON - SECOND), "plain", [(Code.EXPIRED, True, NOON + 59 * SECOND)]),  # when it is removed
        (Facts(delivery_count=3), "poison", [(Code.SPENT, True, None)]),
        (Facts(delivery_count=2), "poison", [(Code.NEXT, False, None)]),
        (
            Facts(NOON + SECOND, HoldKind.GET, delivery_count=3),
            "poison",
            [(Code.LEASED, True, NOON + SECOND), (Code.LAST_GET, False, NOON + SECOND)],
        ),
        (
            Facts(NOON + SECOND, HoldKind.GET, delivery_count=3),
            "parked",
            [(Code.LEASED, True, NOON + SECOND), (Code.PARKED, False, NOON + SECOND)],
        ),
        (Facts(delivery_count=3), "parked", [(Code.PARKED, False, None), (Code.NEXT, False, None)]),
        (
            Facts(NOON + 2 * SECOND, HoldKind.UPDATE, NOON + SECOND, delivery_count=1),
            "plain",
            [(Code.EXTENDED, True, NOON + 2 * SECOND), (Code.WILL_EXPIRE_FIRST, False, NOON + SECOND)],
        ),
        (
            Facts(NOON + SECOND, HoldKind.PUT, NOON + SECOND),  # equal: it expires as it becomes visible (QS-904)
            "plain",
            [(Code.DELAYED, True, NOON + SECOND), (Code.WILL_EXPIRE_FIRST, False, NOON + SECOND)],
        ),
    ],
)
def test_every_reason_has_its_end(facts, queue, expected):
    assert codes(facts, QUEUES[queue]) == expected


@pytest.mark.parametrize(("ago", "when"), [(59, "in 1 s"), (60, "at the next sweep"), (61, "at the next sweep")])
def test_an_explanation_says_when_an_expired_message_is_removed(ago, when):
    reason = explain(Facts(expires_at=NOON - ago * SECOND), QueueFacts(), NOON)[0]
    assert reason.change == f"It is removed {when}."


def test_an_explanation_gives_the_position_of_a_visible_message():
    assert codes(Facts(), place=QueuePosition(31)) == [(Code.BEHIND, False, None)]
    assert codes(Facts(), place=QueuePosition(32)) == [(Code.BEHIND, False, None), (Code.BEYOND_REACH, False, None)]
    for place, text in [
        ((0, False), "Next in line."),
        ((1, False), "1 message ahead."),
        ((1, True), "1 or more messages ahead."),
    ]:
        (reason,) = explain(Facts(), QueueFacts(), NOON, place=QueuePosition(*place))
        assert reason.text == text


@pytest.mark.parametrize(("count", "times"), [(1, "once"), (2, "2 times"), (1000, "1,000 times")])
def test_an_explanation_gives_the_dequeue_count(count, times):
    (parked, _) = explain(Facts(delivery_count=count), QueueFacts(1, None), NOON)
    assert parked.text == f"It was dequeued {times}; without a poison queue it becomes visible again each time (QS-108)."


def test_every_message_is_explained_and_exactly_invisible_messages_have_obstacles():
    instants = (NOON - SECOND, NOON, NOON + SECOND)
    for visible_at, kind, expires_at, count, queue in product(
        instants, (None, *HoldKind), (None, *instants), (0, 1, 3), QUEUES.values()
    ):
        facts = Facts(visible_at, kind, expires_at, count)
        reasons = explain(facts, queue, NOON)
        spent = queue.poison_queue is not None and count >= queue.max_dequeue_count
        assert reasons and all(reason.text for reason in reasons)
        assert any(r.is_obstacle for r in reasons) == (
            display_state.display_state(facts, NOON) is not DisplayState.VISIBLE or spent
        ), facts
