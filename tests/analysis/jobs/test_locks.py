"""Locks: causes of lost locks, and how long a lock late settlements would have needed."""

from typing import Any

import pytest

from explorer.analysis.jobs.history import Span
from explorer.analysis.jobs.kinds import Kind
from explorer.analysis.jobs.reports import locks

from .rows import HOUR, MINUTE, NOON, SECOND, a_request, history, listed

LOST = Kind.LOCK_LOST


def held(number, since, seconds, **changes):
    """A delivery of a message from so many seconds after NOON on, with a lock of 30 s."""
    received = NOON + since * SECOND
    return {
        "sequence_number": number, "received_at": received, "ended_at": received + seconds * SECOND, "held_us": seconds * 10**6,
        "locked_until": received + 30 * SECOND, "lock_ended_at": received + 30 * SECOND, "lock_us": 30_000_000,
    } | changes  # fmt: skip


def lost(number, since, seconds=30, **changes):
    return held(
        number, since, seconds, **{"outcome": LOST, "lost": True, "let_go": False, "well": False, "failed": True} | changes
    )


def refused(number, since, **changes):
    return {
        "sequence_number": number, "kind": Kind.SETTLE_REFUSED, "at": NOON + since * SECOND, "actor": "a", "reason": "complete",
    } | changes  # fmt: skip


def causes(spark, attempts, events=()):
    here = history(spark, attempts=list(attempts), events=list(events))
    losses = locks.losses(here.attempts().transform(locks.with_receiver), here.events())
    return listed(losses, "sequence_number", "cause", "lock_ended", "needed_us")


CASES: list[Any] = [
    ([], {"renewals": 2}, "longer"),
    ([held(1, 40, 45, attempt=2)], {}, "longer"),
    ([held(1, 40, 20, attempt=2, received_by="x")], {}, "gone"),
    ([held(2, 80, 1)], {}, "longer"),
    ([held(2, 5, 1), held(3, 80, 1)], {}, "unsettled"),
    ([held(2, 40, 1)], {"locked_until": None, "lock_us": None}, "unsettled"),
    ([held(2, 95, 1)], {}, "gone"),
    ([held(2, 5, 1)], {}, "gone"),
    ([held(2, 30, 1)], {}, "longer"),  # received when the lock ended
]


def test_each_lost_lock_has_its_cause(spark):
    """Each case has its own queue and receiver."""
    rows, expected = [], {}
    for place, (others, changes, cause) in enumerate(CASES):
        own = {"received_by": f"r{place}"}
        rows += [lost(100 * place + 1, 0, 500, **changes) | own]
        rows += [own | other | {"sequence_number": 100 * place + other["sequence_number"]} for other in others]
        expected[100 * place + 1] = cause
    counts = causes(spark, rows)
    assert {number: cause for number, cause, *_ in counts} == expected
    assert {at for _, _, at, _ in counts} == {NOON + 30 * SECOND}


def test_late_settlements_give_the_processing_time(spark):
    """Message 1 was lost twice to one receiver, 2 was only renewed late, 3 was tried by somebody else, and 4 in another list."""
    counts = causes(
        spark,
        [lost(1, 0), lost(1, 30, attempt=2), lost(2, 0), lost(3, 0), lost(4, 0)],
        [
            refused(1, 37), refused(1, 45), refused(1, 72), refused(2, 40, reason="renew"), refused(3, 40, actor="x"),
            refused(4, 40, subqueue=1),
        ],
    )  # fmt: skip
    by_message = [(number, cause, needed) for number, cause, _, needed in counts]
    assert by_message == [
        (1, "longer", 37_000_000), (1, "longer", 42_000_000), (2, "longer", None), (3, "longer", None), (4, "longer", None),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def report(spark):
    rows = [
        lost(1, 0), lost(2, 600, entity_id=2), held(3, 650, 29, entity_id=2, generated=True), held(4, 800, 3, received_by="b"),
        lost(5, -60), held(1, 40, 2, attempt=2, received_by=None, generated=True), lost(6, 0, subqueue=1),
    ]  # fmt: skip
    asked = a_request(compared=Span(NOON - HOUR, NOON))
    return locks.tables(history(spark, asked, attempts=rows, events=[refused(1, 36)]))


def test_losses_are_counted_by_interval_receiver_and_queue(report):
    assert listed(report["losses"], "at", "receiver", "entity_id", "cause", "lost", "late", "needed_95_us") == sorted(
        [
            (NOON, None, None, "longer", 1, 1, 36_000_000), (NOON + 10 * MINUTE, None, None, "longer", 1, 0, None),
            (None, "a", None, "longer", 2, 1, 36_000_000), (None, None, 1, "longer", 1, 1, 36_000_000),
            (None, None, 2, "longer", 1, 0, None), (None, None, 1, None, 1, 1, 36_000_000), (None, None, 2, None, 1, 0, None),
            (None, None, None, None, 2, 1, 36_000_000),
        ],
        key=repr,
    )  # fmt: skip
    assert listed(report["before"], "deliveries", "lost") == [(1, 1)]


def test_lock_use_is_measured_by_queue_and_receiver(report):
    columns = ("receiver", "entity_id", "deliveries", "lost", "lock_us", "held_us", "timed", "nearly", "generated")
    assert listed(report["deliveries"], *columns) == sorted(
        [
            ("a", None, 3, 2, None, None, None, None, None), (None, 1, 3, 1, 30_000_000, 3_000_000, 2, 0, 0),
            (None, 2, 2, 1, 30_000_000, 29_000_000, 1, 1, 1),
        ],
        key=repr,
    )  # fmt: skip


def test_the_worst_messages_include_all_their_deliveries(report, spark):
    assert listed(report["worst"], "sequence_number", "attempt", "receiver") == [(1, 1, "a"), (1, 2, ""), (2, 1, "a")]
    many = [lost(1, i, attempt=i) for i in range(80)] + [lost(2 + i, i) for i in range(20)]
    rows = listed(locks.tables(history(spark, attempts=many))["worst"], "sequence_number")
    assert len(rows) == 50 + 11 and {number for (number,) in rows} == set(range(1, 13))
