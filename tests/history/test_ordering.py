"""The order of a message's events in the archive: a loss that a receive noticed is before that receive."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from broker_core.common.types import EventKind as Kind
from broker_core.history import ordering, schema

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
LOSS = {"kind": Kind.LOCK_LOST, "locked_until": NOON}
TAKEN = {"kind": Kind.RECEIVED, "locked_until": NOON + 30 * SECOND}


def events(*rows: dict) -> pa.Table:
    """Events of message 1 of queue 1 at noon, all of transaction 9, except where rows say otherwise."""
    common = {"entity_id": 1, "sequence_number": 1, "subqueue": 0, "xid": 9, "at": NOON, "recorded_at": NOON}
    given = [common | {"event_id": number} | row for number, row in enumerate(rows, start=1)]
    return pa.Table.from_pylist(given, schema.EVENT)


def kinds_in_order(table: pa.Table) -> list[Kind]:
    ordered = ordering.in_order(table)
    assert ordered.schema == table.schema
    assert ordered["event_id"].to_pylist() == table["event_id"].to_pylist(), "the ids stay where they were"
    return [Kind(kind) for kind in ordered["kind"].to_pylist()]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (TAKEN, LOSS),
        (TAKEN, LOSS | {"locked_until": NOON - SECOND}),
        (TAKEN | {"kind": Kind.RECEIVED_AND_DELETED, "locked_until": None}, LOSS),
    ],
)
def test_a_lock_loss_precedes_the_receive_of_the_same_statement(first, second):
    assert kinds_in_order(events(first, second)) == [Kind.LOCK_LOST, first["kind"]]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (LOSS, TAKEN),
        (TAKEN, LOSS | {"sequence_number": 2}),
        (TAKEN, LOSS | {"entity_id": 2}),
        (TAKEN, LOSS | {"xid": 10}),
        (TAKEN, LOSS | {"at": NOON + SECOND}),
        (TAKEN, LOSS | {"locked_until": NOON + SECOND}),
        (TAKEN, LOSS | {"locked_until": None}),
        (TAKEN, LOSS | {"kind": Kind.ABANDONED}),
        (TAKEN | {"kind": Kind.SENT}, LOSS),
    ],
)
def test_other_events_stay_in_the_order_of_their_ids(first, second):
    assert kinds_in_order(events(first, second)) == [first["kind"], second["kind"]]


def test_only_the_reordered_pairs_move():
    sent, done = {"kind": Kind.SENT}, {"kind": Kind.COMPLETED}
    table = events(sent, TAKEN, LOSS, TAKEN, LOSS, done, TAKEN | {"sequence_number": 2}, LOSS | {"sequence_number": 2})
    assert kinds_in_order(table) == [
        Kind.SENT, Kind.LOCK_LOST, Kind.RECEIVED, Kind.LOCK_LOST, Kind.RECEIVED, Kind.COMPLETED, Kind.LOCK_LOST, Kind.RECEIVED
    ]  # fmt: skip
    assert ordering.in_order(table)["sequence_number"].to_pylist() == [1] * 6 + [2] * 2


@pytest.mark.parametrize("rows", [(), (TAKEN,)])
def test_no_events_and_a_single_event_stay_unchanged(rows):
    assert kinds_in_order(events(*rows)) == [row["kind"] for row in rows]
