"""The rules of lives and attempts, as tables on the oracle, which the job "lives" is compared with (test_lives.py)."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from broker_core.common.types import EventKind, SubQueue
from broker_core.history import schema

from . import oracle

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def events(*rows: dict) -> pa.Table:
    """Events in the order given, each of message 1 and of a transaction of its own."""
    default = dict.fromkeys(schema.EVENT.names) | {
        "recorded_at": NOON, "at": NOON, "entity_id": 1, "subqueue": 0, "sequence_number": 1, "kind": 1,
    }  # fmt: skip
    return pa.Table.from_pylist([default | {"event_id": i, "xid": i} | row for i, row in enumerate(rows)], schema=schema.EVENT)


def derived(*rows):
    """(lives, attempts) of these events."""
    ended, attempts = oracle.lives(events(*rows), events())
    return ended.to_pylist(), attempts.to_pylist()


@pytest.mark.parametrize("kind", EventKind)
def test_terminal_events_except_activation_end_a_life(kind):
    ends = kind is EventKind.DEAD_LETTERED or (kind.is_terminal and kind is not EventKind.ACTIVATED)
    assert len(derived({"kind": kind})[0]) == ends


def test_a_life_has_the_values_of_its_last_event():
    [life], _ = derived(
        {"kind": EventKind.COMPLETED, "enqueued_at": NOON, "reason": "r", "message_id": "m", "delivery_count": 2,
         "actor": "user:alice"}
    )  # fmt: skip
    assert (life["outcome"], life["enqueued_at"], life["ended_at"]) == (6, NOON, NOON)
    assert (life["reason"], life["message_id"], life["delivery_count"], life["generated"]) == ("r", "m", 2, False)
    assert (life["settled_by"], life["deliveries"]) == ("user:alice", None), "its beginning is not known"


def test_a_life_that_an_undo_returned_in_the_same_slice_goes_on():
    """What ended it before the undo is no end; what it had been before, such as dead-lettered, remains one."""
    restored, purged = {"kind": EventKind.RESTORED}, {"kind": EventKind.PURGED}
    assert derived({"kind": 1}, purged, restored) == ([], [])
    rows, _ = derived({"kind": 1}, purged, restored, {"kind": EventKind.RECEIVED}, {"kind": EventKind.COMPLETED})
    assert [(row["outcome"], row["deliveries"]) for row in rows] == [(EventKind.COMPLETED, 1)]
    dead = {"kind": EventKind.DEAD_LETTERED, "subqueue": int(SubQueue.DEAD_LETTER)}
    rows, _ = derived({"kind": 1}, dead, purged, restored, purged)
    assert [row["outcome"] for row in rows] == [EventKind.DEAD_LETTERED, EventKind.PURGED]
    rows, _ = derived({"kind": 1}, purged, restored | {"sequence_number": 2})
    assert [row["outcome"] for row in rows] == [EventKind.PURGED], "of another message"


def test_lives_are_separate_in_the_main_queue_and_the_dead_letter_queue():
    rows, _ = derived(
        {"kind": EventKind.DEAD_LETTERED, "subqueue": int(SubQueue.DEAD_LETTER)},
        {"kind": EventKind.COMPLETED, "subqueue": int(SubQueue.DEAD_LETTER)},
    )
    assert [(row["outcome"], row["subqueue"]) for row in rows] == [(10, 0), (6, 1)]


def test_generated_history_is_labelled():
    rows, _ = derived(*({"kind": 6, "actor": actor, "sequence_number": i} for i, actor in enumerate(["generated", "u", None])))
    assert [row["generated"] for row in rows] == [True, False, False]


def test_a_life_has_the_values_of_its_earlier_events():
    rows = [
        {"kind": EventKind.SENT, "session_id": "s", "size": 7, "link": "activated_from", "linked_entity_id": 1,
         "linked_sequence_number": 5},
        {"kind": EventKind.RECEIVED, "locked_until": NOON + SECOND},
        {"kind": EventKind.RENEWED, "locked_until": NOON + 2 * SECOND},
        {"kind": EventKind.LOCK_LOST},
        {"kind": EventKind.RECEIVED},
        {"kind": EventKind.FORWARDED, "link": "to", "linked_entity_id": 4, "linked_sequence_number": 9, "last_received_at": NOON},
    ]  # fmt: skip
    [life], _ = derived(*rows)
    assert (life["session_id"], life["size"], life["scheduled"]) == ("s", 7, True)
    assert (life["deliveries"], life["renewals"], life["locks_lost"]) == (2, 1, 1)
    assert (life["from_entity_id"], life["from_sequence_number"]) == (1, 5)
    assert (life["to_entity_id"], life["to_sequence_number"]) == (4, 9)


def test_deliveries_are_unknown_where_receives_are_not_recorded():
    [life], attempts = derived({"kind": 1}, {"kind": EventKind.COMPLETED, "last_received_at": NOON})
    assert (life["deliveries"], attempts) == (None, [])


@pytest.mark.parametrize(
    ("sent", "end", "in_force", "source"),
    [
        ({}, {}, None, None),
        ({"time_to_live_us": 5}, {}, 5, "own"),
        ({}, {"entity_time_to_live_us": 9}, 9, "entity"),
        ({}, {"entity_time_to_live_us": 9, "topic_time_to_live_us": 4}, 4, "topic"),
        ({"time_to_live_us": 9, "entity_time_to_live_us": 9}, {"entity_time_to_live_us": 3}, 9, "entity"),  # limited when sent
        ({"time_to_live_us": 5}, {"entity_time_to_live_us": 3}, 5, "own"),  # a later default does not limit it
        ({"time_to_live_us": 5}, {"entity_time_to_live_us": 3, "default_limits_own": True}, 3, "entity"),  # it does
    ],
)
def test_a_life_has_its_effective_time_to_live_and_the_source(sent, end, in_force, source):
    [life], _ = derived({"kind": 1} | sent, {"kind": EventKind.EXPIRED} | end)
    assert (life["time_to_live_in_force_us"], life["time_to_live_source"]) == (in_force, source)
    assert life["time_to_live_us"] == sent.get("time_to_live_us")


def test_no_time_to_live_is_effective_in_a_dead_letter_queue():
    rows, _ = derived({"kind": 1, "time_to_live_us": 5}, {"kind": EventKind.PURGED, "subqueue": 1})
    assert rows[0]["time_to_live_in_force_us"] is None


def test_each_delivery_is_an_attempt_with_its_lock_and_outcome():
    def received(at, until):
        return {"kind": EventKind.RECEIVED, "at": NOON + at * SECOND, "locked_until": NOON + until * SECOND, "actor": "user:a"}

    _, attempts = derived(
        {"kind": 1},
        received(1, 6),
        {"kind": EventKind.SETTLE_REFUSED},
        {"kind": EventKind.RENEWED, "locked_until": NOON + 9 * SECOND},
        {"kind": EventKind.LOCK_LOST, "at": NOON + 10 * SECOND},
        received(12, 17),
        {
            "kind": EventKind.ABANDONED,
            "at": NOON + 13 * SECOND,
            "actor": "user:b",
            "reason": "Order 17 of 12",
            "delivery_count": 2,
        },
        received(20, 25),
    )
    assert [(row["attempt"], row["outcome"], row["renewals"]) for row in attempts] == [(1, 12, 1), (2, 7, 0)]
    assert [(row["received_at"], row["ended_at"]) for row in attempts] == [
        (NOON + SECOND, NOON + 10 * SECOND), (NOON + 12 * SECOND, NOON + 13 * SECOND)
    ]  # fmt: skip
    assert [(row["locked_until"], row["lock_ended_at"]) for row in attempts] == [
        (NOON + 6 * SECOND, NOON + 9 * SECOND), (NOON + 17 * SECOND, NOON + 17 * SECOND)
    ]  # fmt: skip
    assert (attempts[1]["received_by"], attempts[1]["ended_by"]) == ("user:a", "user:b")
    assert (attempts[1]["reason"], attempts[1]["error"], attempts[1]["delivery_count"]) == ("Order 17 of 12", "Order # of #", 2)


def test_a_receive_that_ends_the_previous_lock_may_come_first_in_its_transaction():
    _, attempts = derived(
        {"kind": EventKind.RECEIVED, "at": NOON},
        {"kind": EventKind.RECEIVED, "xid": 9, "at": NOON + 5 * SECOND},
        {"kind": EventKind.LOCK_LOST, "xid": 9, "at": NOON + 5 * SECOND, "locked_until": NOON + 4 * SECOND},
        {"kind": EventKind.COMPLETED, "at": NOON + 6 * SECOND},
    )
    assert [(row["attempt"], row["outcome"]) for row in attempts] == [(1, EventKind.LOCK_LOST), (2, EventKind.COMPLETED)]


def test_a_receive_and_delete_that_ends_the_previous_lock_may_come_first_in_its_transaction():
    _, attempts = derived(
        {"kind": EventKind.RECEIVED, "at": NOON, "actor": "crashed"},
        {"kind": EventKind.RECEIVED_AND_DELETED, "xid": 9, "at": NOON + 5 * SECOND, "actor": "user:b"},
        {"kind": EventKind.LOCK_LOST, "xid": 9, "at": NOON + 5 * SECOND, "locked_until": NOON + 4 * SECOND},
    )
    assert [(row["outcome"], row["received_by"]) for row in attempts] == [
        (EventKind.LOCK_LOST, "crashed"), (EventKind.RECEIVED_AND_DELETED, "user:b")
    ]  # fmt: skip


def test_lock_losses_recorded_late_in_a_transaction_end_the_right_delivery():
    """As when a script writes a whole history at once: what decides is the instant, not the transaction."""
    _, attempts = derived(
        *(
            {"kind": kind, "xid": 9, "at": NOON + at * SECOND, "locked_until": NOON + until * SECOND}
            for kind, at, until in [
                (EventKind.RECEIVED, 0, 5), (EventKind.LOCK_LOST, 5, 5),
                (EventKind.RECEIVED, 6, 11), (EventKind.LOCK_LOST, 11, 11),
            ]
        )
    )  # fmt: skip
    assert [(row["attempt"], row["ended_at"]) for row in attempts] == [(1, NOON + 5 * SECOND), (2, NOON + 11 * SECOND)]


def test_a_lock_belongs_to_its_own_message():
    _, attempts = derived(
        {"kind": EventKind.RECEIVED, "locked_until": NOON + SECOND, "sequence_number": 1},
        {"kind": EventKind.COMPLETED, "sequence_number": 1},
        {"kind": EventKind.RECEIVED, "sequence_number": 2},
        {"kind": EventKind.COMPLETED, "sequence_number": 2},
    )
    assert [(row["attempt"], row["lock_ended_at"]) for row in attempts] == [(1, NOON + SECOND), (1, None)]


def test_receive_and_delete_is_a_delivery_that_ends_immediately():
    [life], [attempt] = derived({"kind": 1}, {"kind": EventKind.RECEIVED_AND_DELETED, "actor": "user:a"})
    assert (attempt["received_at"], attempt["ended_at"], attempt["attempt"]) == (NOON, NOON, None)


@pytest.mark.parametrize(
    ("reason", "same"),
    [
        (None, None),
        ("Timeout after 30 s", "Timeout after # s"),
        ("no order 6f9619ff-8b86-d011-b42d-00c04fc964ff  here", "no order # here"),
        ("at 0123456789abcdef: bad", "at #: bad"),
        ("defaced", "defaced"),
        ("x" * 500, "x" * oracle.MOST_CHARACTERS),
    ],
)
def test_errors_are_compared_without_numbers_and_ids(reason, same):
    assert oracle.normalised(reason) == same
