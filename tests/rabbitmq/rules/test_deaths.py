"""What dead-lettering does to a message."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.rabbitmq.rules import deaths
from broker_core.rabbitmq.rules.deaths import Reason
from broker_core.rabbitmq.rules.table import decode, encode, plain

NOON = datetime(2026, 1, 1, 12, 0, 0, 500_000, tzinfo=UTC)
PROPERTIES = {"content_type": "text/plain", "priority": 3, "delivery_mode": 2, "reply_to": "r", "type": "t"}


def die(headers=None, properties=PROPERTIES, **changes):
    return deaths.dead_letter(
        headers,
        properties,
        **{"queue": "q", "reason": Reason.EXPIRED, "at": NOON, "exchange": "x", "routing_keys": ("k",), **changes},
    )


def test_the_first_death_sets_the_headers():
    died = die({"own": 1})
    assert died.headers["x-death"][0]["count"].type == "long"
    assert died.headers["x-death"] == [
        {
            "count": 1,
            "reason": "expired",
            "queue": "q",
            "time": NOON.replace(microsecond=0),
            "exchange": "x",
            "routing-keys": ["k"],
        }
    ]
    assert {name: value for name, value in died.headers.items() if name != "x-death"} == {
        "own": 1,
        "x-first-death-queue": "q",
        "x-first-death-reason": "expired",
        "x-first-death-exchange": "x",
        "x-last-death-queue": "q",
        "x-last-death-reason": "expired",
        "x-last-death-exchange": "x",
    }
    assert died.routing_keys == ("k",)
    assert repr(decode(encode(died.headers))) == repr(died.headers)


def test_properties_are_kept_except_for_the_expiration():
    died = die(properties=PROPERTIES | {"expiration": "700"}, reason=Reason.REJECTED)
    assert died.properties == PROPERTIES
    assert died.headers["x-death"][0]["original-expiration"] == "700"
    assert "original-expiration" not in die().headers["x-death"][0]


def test_the_routing_key_is_that_of_the_queue_or_of_the_message():
    own = die({"CC": ["c"]}, routing_keys=("k", "c"))
    assert own.routing_keys == ("k", "c") and own.headers["CC"] == ["c"]
    assert die({"CC": ["c"]}).routing_keys == ("k", "c")  # CC may be left to the headers
    given_one = die({"CC": ["c"]}, dead_letter_routing_key="dead")
    assert given_one.routing_keys == ("dead",) and "CC" not in given_one.headers
    assert given_one.headers["x-death"][0]["routing-keys"] == ["k", "c"]


def test_a_bcc_key_routes_and_is_not_recorded():
    blind = die({"CC": ["c"]}, routing_keys=("k", "blind", "c"))
    assert blind.routing_keys == ("k", "blind", "c")
    assert blind.headers["x-death"][0]["routing-keys"] == ["k", "c"]


def test_deaths_are_counted_by_queue_and_reason():
    later = NOON + timedelta(hours=1)
    first = die()
    second = die(first.headers, queue="other", exchange="dlx", routing_keys=("d",))
    third = die(second.headers, at=later, exchange="dlx2", routing_keys=("e",))
    assert [(d.queue, d.reason, d.count) for d in deaths.history(third.headers)] == [("q", "expired", 2), ("other", "expired", 1)]
    again = deaths.history(third.headers)[0]
    assert (again.time, again.exchange, again.routing_keys) == (NOON.replace(microsecond=0), "x", ("k",))  # of the first time
    assert third.headers["x-first-death-queue"] == "q" and third.headers["x-last-death-exchange"] == "dlx2"
    rejected = die(third.headers, reason=Reason.REJECTED)
    assert [(d.queue, d.reason, d.count) for d in deaths.history(rejected.headers)][0] == ("q", "rejected", 1)
    assert rejected.headers["x-first-death-reason"] == "expired"


def test_a_client_continues_the_count():
    received = {"x-death": [{"queue": "q", "reason": "expired", "count": 4}]}
    died = die(received)
    assert plain(died.headers["x-death"])[0]["count"] == 5
    assert "x-first-death-queue" not in died.headers


@pytest.mark.parametrize(
    "garbage",
    [
        "a string",
        5,
        None,
        {},
        [],
        ["text", 5, None],
        [{}],
        [{"queue": 5, "reason": "expired"}],
        [{"queue": "q"}],
    ],
)
def test_an_invalid_x_death_is_replaced(garbage):
    died = die({"x-death": garbage})
    assert [(d.queue, d.reason, d.count) for d in deaths.history(died.headers)] == [("q", "expired", 1)]
    assert not any(name.startswith("x-first-death") for name in died.headers)


@pytest.mark.parametrize(
    ("count", "read"), [(2**62, 2**62), (2**62 + 1, 2**62), (2**63, 2**62), (1, 1), (0, 1), (-1, 1), (True, 1), ("7", 1)]
)
def test_a_count_is_a_positive_number_with_room_to_grow(count, read):
    [death] = deaths.history({"x-death": [{"queue": "q", "reason": "expired", "count": count}]})
    assert death.count == read


@pytest.mark.parametrize("time", [True, False, "yesterday", None, 1.5])
def test_an_invalid_time_is_left_out(time):
    [death] = deaths.history({"x-death": [{"queue": "q", "reason": "expired", "time": time}]})
    assert death.time is None


def test_an_entry_without_a_count_counts_as_one_death():
    assert [death.count for death in deaths.history({"x-death": [{"queue": "q", "reason": "expired"}]})] == [1]


@pytest.mark.parametrize(("count", "after"), [(2**62 - 1, 2**62), (2**62, 2**62), (2**63, 2**62)])
def test_a_count_is_capped_below_the_maximum_of_a_long(count, after):
    died = die({"x-death": [{"queue": "q", "reason": "expired", "count": count}]})
    assert [death.count for death in deaths.history(died.headers)] == [after]
    assert plain(died.headers["x-death"])[0]["count"] == after


def test_a_number_is_read_as_a_time():
    [death] = deaths.history({"x-death": [{"queue": "q", "reason": "expired", "time": 5}]})
    assert death.time == 5


JSONLIKE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text("qexpird", max_size=7),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["queue", "reason", "count", "time", "exchange", "routing-keys"]), inner, max_size=6)
    ),
    max_leaves=12,
)


@given(JSONLIKE, st.lists(st.sampled_from(["q", "a"]), max_size=4))
def test_invalid_x_death_headers_never_break_dead_lettering(garbage, queues):
    headers = {"x-death": garbage}
    for queue in ["q", *queues]:
        headers = die(headers, queue=queue).headers
        encode(headers)
        assert deaths.history(headers)[0].queue == queue
        deaths.is_cycle(headers, "a")


def died_in(*steps):
    headers = None
    for queue, reason in steps:
        headers = die(headers, queue=queue, reason=reason).headers
    return headers


@pytest.mark.parametrize(
    ("steps", "target", "cycle"),
    [
        ([("a", "expired")], "a", True),  # to itself by time
        ([("a", "maxlen")], "a", True),
        ([("a", "rejected")], "a", False),  # to itself by rejection
        ([("a", "expired")], "b", False),
        ([("a", "expired"), ("b", "expired")], "a", True),
        ([("a", "expired"), ("b", "expired")], "b", True),
        ([("a", "rejected"), ("b", "expired")], "a", False),
        ([("a", "expired"), ("b", "rejected")], "a", False),
        ([("c", "rejected"), ("a", "expired"), ("b", "expired")], "a", True),  # the rejection was before the loop
        ([("a", "rejected"), ("b", "expired"), ("a", "rejected"), ("b", "expired")], "a", False),
        ([("a", "delivery_limit")], "a", True),
    ],
)
def test_a_cycle_without_a_rejection_ends(steps, target, cycle):
    assert deaths.is_cycle(died_in(*steps), target) is cycle


def test_a_retry_loop_increases_the_count():
    headers = None
    for count in (1, 2, 3):
        headers = die(headers, queue="work", reason=Reason.REJECTED).headers
        assert not deaths.is_cycle(headers, "wait")
        headers = die(headers, queue="wait").headers
        assert not deaths.is_cycle(headers, "work")
        assert [d.count for d in deaths.history(headers)] == [count, count]


def test_a_message_is_moved_back_to_the_queue_of_its_last_or_first_death():
    """RMQ-390: the newest death's queue, or the one that x-first-death-queue names, wherever its entry stands by now."""
    headers = died_in(("a", "rejected"), ("b", "expired"), ("a", "rejected"), ("c", "maxlen"))
    assert deaths.origin(headers).queue == "c" and deaths.origin(headers, first=True).queue == "a"
    assert deaths.origin({"x-death": headers["x-death"]}, first=True).queue == "b"  # the oldest entry, where nothing says more
    assert deaths.origin(None) is deaths.origin({"x-death": "garbage"}, first=True) is None


def test_a_moved_message_starts_a_new_x_death_and_keeps_the_old_one():
    """RMQ-391, RMQ-072"""
    headers = died_in(("a", "expired"), ("b", "expired"))
    assert deaths.is_cycle(die(headers, queue="a").headers, "b")
    moved = deaths.archive_deaths(headers)
    assert not deaths.is_cycle(die(moved, queue="a").headers, "b")
    assert "x-death" not in moved and moved["x-first-death-queue"] == "a"
    assert [(d["queue"], d["count"]) for d in plain(moved[deaths.BEFORE_MOVE])] == [("b", 1), ("a", 1)]
    assert (deaths.origin(moved).queue, deaths.origin(moved, first=True).queue) == ("b", "a")
    again = deaths.archive_deaths(die(moved, queue="a").headers)
    assert [(d["queue"], d["count"]) for d in plain(again[deaths.BEFORE_MOVE])] == [("a", 2), ("b", 1)]
    assert deaths.archive_deaths(again) == again and decode(encode(again)) == again


@pytest.mark.parametrize(
    "headers", [{}, {"x-death": "garbage"}, {"x-death": []}, {"x-death": [{"queue": 1, "reason": "expired"}]}]
)
def test_headers_without_deaths_are_moved_unchanged(headers):
    assert deaths.archive_deaths(headers) == headers
