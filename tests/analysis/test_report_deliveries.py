"""What if the maximum deliveries had been N: against hand-made tables and known truth, and where it must refuse."""

from datetime import timedelta

import pytest

from broker_core.common.types import EventKind
from explorer.analysis.reports import deliveries as what_if
from explorer.analysis.survival import CannotTell

from . import known_truth
from .known_truth import NOON, table

SECOND = timedelta(seconds=1)


def message(number, *outcomes, first=1, **changes):
    """A message whose deliveries took 10 s each and came every minute."""
    return [
        {
            "sequence_number": number,
            "attempt": first + i,
            "received_at": NOON + i * 60 * SECOND,
            "held": 10,
            "outcome": int(outcome),
        }
        | changes
        for i, outcome in enumerate(outcomes)
    ]


def by_hand():
    """100 messages: 60 processed at once, 20 at the second delivery, 5 rejected at the second, 15 at the limit of 3."""
    failed, well, dead = EventKind.ABANDONED, EventKind.COMPLETED, EventKind.DEAD_LETTERED
    rows = []
    for i in range(60):
        rows += message(i, well)
    for i in range(60, 80):
        rows += message(i, failed, well)
    for i in range(80, 85):
        rows += message(i, failed, dead)
    for i in range(85, 100):
        rows += message(i, failed, EventKind.LOCK_LOST, failed)
    return what_if.of_deliveries(table(rows), dead=15)


def test_the_shares_follow_from_the_success_of_each_delivery():
    history = by_hand()
    assert [(one.well, one.rejected, one.failed) for one in history.attempts] == [(60, 0, 40), (20, 5, 15), (0, 0, 15)]
    answers = what_if.answers(history)
    assert [round(one.dead.share, 3) for one in answers] == [0.4, 0.15, 0.15]
    assert [round(one.well, 3) for one in answers] == [0.6, 0.8, 0.8]
    assert [round(one.wasted, 3) for one in answers] == [0.4, 0.55, 0.7]


def test_poison_messages_cost_the_time_for_which_they_were_held():
    one = what_if.answer(by_hand(), 3)
    assert one.poison_time == 15 * 3 * 10 * SECOND
    assert one.until_dead == 2 * 60 * SECOND + 10 * SECOND


def test_a_message_that_expired_between_deliveries_is_censored_after_its_failures():
    rows = [row for i in range(40) for row in message(i, EventKind.COMPLETED)]
    rows += [row for i in range(40, 60) for row in message(i, EventKind.ABANDONED)]
    rows += [row for i in range(60, 80) for row in message(i, EventKind.ABANDONED, EventKind.COMPLETED)]
    history = what_if.of_deliveries(table(rows))
    assert what_if.answer(history, 1).dead.share == pytest.approx(0.5)
    assert what_if.answer(history, 2).dead.share == 0


def test_released_and_deferred_deliveries_do_not_count():
    rows = [row for i in range(30) for row in message(i, EventKind.RELEASED, EventKind.DEFERRED, EventKind.COMPLETED)]
    assert [(one.well, one.failed) for one in what_if.of_deliveries(table(rows)).attempts] == [(30, 0)]


def test_the_limit_itself_is_a_failed_delivery():
    """Of a storage queue and of RabbitMQ, the move is the event that ends the last delivery."""
    for outcome, reason in ((EventKind.MOVED, "MaxDequeueCountExceeded"), (EventKind.DROPPED, "delivery_limit")):
        [first, last] = message(99, EventKind.ABANDONED, outcome)
        rows = [row for i in range(30) for row in message(i, EventKind.COMPLETED)]
        history = what_if.of_deliveries(table([*rows, first, last | {"reason": reason}]))
        assert [(one.failed, one.rejected) for one in history.attempts][:1] == [(1, 0)] and history.curve.not_received == 1


def test_messages_whose_first_deliveries_are_outside_the_range_are_left_out():
    rows = [row for i in range(30) for row in message(i, EventKind.COMPLETED)]
    assert what_if.of_deliveries(table([*rows, *message(50, EventKind.COMPLETED, first=3)])).messages == 30


def test_the_sentence_states_number_band_and_assumption():
    said = what_if.sentence(by_hand(), 2, "maximum delivery count", 2)
    assert said.startswith("With a maximum delivery count of 2, an estimated 15.0\xa0% (")
    assert "of 100 messages that were delivered" in said and "as many as the 15 that were" in said
    assert "80.0\xa0% would have been processed" in said and said.endswith("consumers had behaved the same.")


def test_it_refuses_few_messages_and_beyond_what_was_observed():
    with pytest.raises(CannotTell, match="delivered so often"):
        what_if.answer(by_hand(), 4)
    with pytest.raises(CannotTell, match="Only 29 messages"):
        what_if.answer(what_if.of_deliveries(table([{}] * 29)), 1)
    with pytest.raises(CannotTell, match="Only 0 messages"):
        what_if.answer(what_if.of_deliveries(table([{}]).slice(0, 0)), 1)


@pytest.mark.parametrize("deliveries", [1, 2, 4])
def test_the_estimate_is_near_the_truth(deliveries):
    history = what_if.of_deliveries(known_truth.failing(3, 4000))
    truth = known_truth.deliveries_truth(deliveries)
    assert what_if.answer(history, deliveries).dead.share == pytest.approx(truth, abs=0.02)
