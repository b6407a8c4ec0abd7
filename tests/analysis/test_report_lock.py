"""What if the lock had been Y: against hand-made tables and known truth, and where it must refuse."""

from datetime import timedelta

import pytest

from broker_core.common.types import EventKind
from explorer.analysis.reports import lock as what_if
from explorer.analysis.survival import CannotTell

from . import known_truth
from .known_truth import NOON, at_end_of_bin, table

LOST = {"outcome": int(EventKind.LOCK_LOST), "ended_by": "process:broker"}
MINUTE = timedelta(minutes=1)


def found(*rows):
    return what_if.of_deliveries(table(list(rows)))


def seconds(number):
    return timedelta(seconds=number)


def by_hand():
    """100 deliveries under 60 s: 40 held for 5 s, 30 for 20 s, 20 for 50 s, 10 lost."""
    rows = [{"held": 5}] * 40 + [{"held": 20}] * 30 + [{"held": 50}] * 20
    return found(*rows, *[{"held": 62, **LOST}] * 10)


def test_the_share_that_was_held_longer_loses_its_lock():
    history = by_hand()
    shares = [round(what_if.answer(history, at_end_of_bin(lock)).lost.share, 3) for lock in (1, 5, 20, 50)]
    assert shares == [1.0, 0.6, 0.3, 0.1]
    assert (history.lost, history.renewing, history.usual_lock) == (10, 0, MINUTE)


@pytest.mark.parametrize(
    ("lock", "words"),
    [
        (None, ""),
        (seconds(10), "; N: 10 s was usual"),
        (seconds(30), "; 30 s was usual, which is longer than the chart shows"),
        (seconds(0.5), "; 500 ms was usual, which is shorter than the chart shows"),
    ],
)
def test_a_caption_names_a_mark_only_where_the_chart_has_it(lock, words):
    assert what_if.usual(lock, [seconds(1), seconds(20)]) == words


def test_who_settled_later_processed_twice_and_who_was_not_heard_of_may_have_crashed():
    one = what_if.answer(by_hand(), at_end_of_bin(20))
    assert (round(one.duplicates, 3), round(one.vanished, 3)) == (0.2, 0.1)


def test_a_lost_lock_counts_as_long_as_it_was_not_until_somebody_noticed():
    with pytest.raises(CannotTell, match="held for so long"):
        what_if.answer(found(*[{"held": 5}] * 30, {"held": 500, **LOST}), seconds(90))


def test_work_that_was_settled_after_its_lease_had_ended_is_known():
    """A storage queue deletes by the pop receipt, also after the visibility timeout if nobody else got the message."""
    history = found(*[{"held": 5}] * 30, *[{"held": 70}] * 10)
    assert what_if.answer(history, at_end_of_bin(60)).lost.share == pytest.approx(0.25)
    assert history.lost == 0


def test_what_an_operator_releases_is_censored_and_what_the_holder_releases_is_not():
    released = {"outcome": int(EventKind.RELEASED), "held": 10}
    history = found(*[{"held": 5}] * 30, *[released] * 5, *[released | {"ended_by": "user:o"}] * 5)
    assert (history.curve.received, history.curve.not_received) == (35, 5)


def test_consumers_that_renew_are_counted_apart():
    renewed = {"received_by": "client:r", "renewals": 1, "held": 100, "lock_ended_at": NOON + seconds(110)}
    history = found(*[{"held": 5}] * 30, renewed, {"received_by": "client:r"})
    assert (history.renewing, history.curve.messages) == (2, 30)
    only = found(*[renewed] * 40)
    with pytest.raises(CannotTell, match="consumers of 40 deliveries renew"):
        what_if.answer(only, seconds(5))


def test_recovery_is_the_lock_and_the_pickup():
    again = {"attempt": 2, "received_at": NOON + seconds(64)}
    rows = [{"sequence_number": i} for i in range(40)]
    rows += [row for i in range(50, 60) for row in ({"sequence_number": i, "held": 62, **LOST}, again | {"sequence_number": i})]
    history = found(*rows)
    assert history.pickup.total() == 10
    assert what_if.answer(history, seconds(30)).recovery.total_seconds() == pytest.approx(34, rel=0.02)


def test_the_cost_has_two_sides_and_its_lowest_part_is_recommended():
    history = what_if.of_deliveries(known_truth.deliveries(1, 2000))
    curve = what_if.costs(history, seconds(15))
    assert all(one.duplicates >= two.duplicates for one, two in zip(curve, curve[1:], strict=False))
    assert all(one.recovery <= two.recovery for one, two in zip(curve, curve[1:], strict=False))
    low, high = what_if.recommended(curve)
    assert curve[0].lock < low < high <= curve[-1].lock
    cheapest = min(curve, key=lambda one: one.total)
    assert low <= cheapest.lock <= high
    assert all(one.total > cheapest.total * what_if.NEAR_LOWEST for one in curve if not low <= one.lock <= high)
    dear = what_if.recommended(what_if.costs(history, MINUTE))
    assert dear[0] > low


def test_a_broker_that_notices_crashes_has_one_side():
    curve = what_if.costs(by_hand(), MINUTE, vanish=False)
    assert not any(one.recovery for one in curve)


def test_the_sentence_states_stratum_number_band_and_assumption():
    said = what_if.sentence(by_hand(), at_end_of_bin(20), "lock duration")
    assert said.startswith("With a lock duration of ") and "an estimated 30.0\xa0% (" in said
    assert "of 100 deliveries to consumers that do not renew" in said and "about 20 more than the 10 that did" in said
    assert said.endswith("This holds if consumers had behaved the same.")
    advice = what_if.recommendation(by_hand(), MINUTE, "lock duration")
    assert advice.startswith("Recommended lock duration: at least 5") and advice.endswith("as bad as 1 min of delay.")


def test_it_refuses_few_deliveries_and_an_empty_history():
    with pytest.raises(CannotTell, match="Only 29 deliveries"):
        what_if.answer(found(*[{}] * 29), seconds(1))
    with pytest.raises(CannotTell, match="Only 0 deliveries"):
        what_if.answer(what_if.of_deliveries(table([{}]).slice(0, 0)), seconds(1))


def test_receives_that_delete_have_no_lock():
    at_once = {"outcome": int(EventKind.RECEIVED_AND_DELETED), "attempt": None, "lock": None, "held": 0}
    assert found(*[at_once] * 40).curve.messages == 0


@pytest.mark.parametrize("lock", [5, 15, 40])
def test_the_estimate_is_near_the_truth(lock):
    history = what_if.of_deliveries(known_truth.deliveries(7, 4000))
    x = at_end_of_bin(lock)
    assert what_if.answer(history, x).lost.share == pytest.approx(known_truth.lock_truth(x.total_seconds()), abs=0.03)
