"""The Kaplan-Meier estimate over bins: against the direct formula, known truth, and where it must refuse."""

import math
import random
from collections import Counter

import pytest

from explorer.analysis.jobs.measures import bin_of, lower_bound
from explorer.analysis.survival import FEWEST, CannotTell, Curve

from . import known_truth

SECOND = 1_000_000


def curve(received, not_received=()):
    return Curve(Counter(map(bin_of, received)), Counter(map(bin_of, not_received)))


def at_end_of(value: int) -> int:
    return lower_bound(bin_of(value) + 1)


def test_without_censored_messages_the_curve_is_the_share_not_yet_received():
    survival_curve = curve([i * SECOND for i in range(1, 101)])
    for received in (10, 50, 80):
        estimate = survival_curve.at(at_end_of(received * SECOND))
        assert 1 - received / 100 == pytest.approx(estimate.share, abs=0.02) and estimate.low < estimate.share < estimate.high
    assert survival_curve.at(at_end_of(100 * SECOND)).share == 0


def test_the_curve_agrees_with_the_textbook_example():
    """Freireich's 6-MP group: S, Greenwood's standard error and the log-log band are in every textbook."""
    events, censored = [6, 6, 6, 7, 10, 13, 16, 22, 23], [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    survival_curve = curve(events, censored)
    survival_curve.received = FEWEST  # the rule of FEWEST is not what is tested
    shares = {week: round(survival_curve.at(at_end_of(week)).share, 4) for week in (6, 7, 10, 13, 16, 22, 23)}
    assert shares == {6: 0.8571, 7: 0.8067, 10: 0.7529, 13: 0.6902, 16: 0.6275, 22: 0.5378, 23: 0.4482}
    bands = {week: survival_curve.at(at_end_of(week)) for week in (6, 10, 23)}
    bounds = {week: (round(band.low, 3), round(band.high, 3)) for week, band in bands.items()}
    assert bounds == {6: (0.62, 0.952), 10: (0.503, 0.889), 23: (0.188, 0.68)}
    steps = {step.until_us: step.share * math.sqrt(step.variance) for step in survival_curve._steps}
    assert round(steps[at_end_of(6)], 4) == 0.0764 and round(steps[at_end_of(23)], 4) == 0.1346


def test_expired_messages_count_while_they_were_in_the_queue():
    """Half of the messages had a time-to-live of 5 s. Without them, the share that waits longer than 20 s would be wrong."""
    draw = random.Random(3)
    waits = [draw.expovariate(1 / 20) * SECOND for _ in range(20_000)]
    limits = [5 * SECOND if i % 2 else math.inf for i in range(len(waits))]
    received = [int(wait) for wait, limit in zip(waits, limits, strict=True) if wait < limit]
    expired = [int(limit) for wait, limit in zip(waits, limits, strict=True) if wait >= limit]
    assert curve(received, expired).at(20 * SECOND).share == pytest.approx(math.exp(-1), abs=0.02)


def test_the_band_covers_the_truth():
    """`make soak` compares 100 histories."""
    assert 90 <= known_truth.survival_coverage(40) <= 99


def test_few_messages_and_unobserved_times_are_refused():
    with pytest.raises(CannotTell, match="Only 29 messages"):
        curve([SECOND] * 29).at(SECOND)
    survival_curve = curve([SECOND] * 30, [2 * SECOND])
    assert survival_curve.at(at_end_of(2 * SECOND)).share == pytest.approx(1 / 31)
    with pytest.raises(CannotTell, match="for so long"):
        survival_curve.at(3 * SECOND)
    with pytest.raises(CannotTell, match="Only 0 messages"):
        curve([]).at(SECOND)


def test_outside_the_deliveries_the_band_follows_from_the_number_of_messages():
    survival_curve = curve([SECOND] * 60)
    assert (survival_curve.at(SECOND // 2).share, survival_curve.at(SECOND // 2).low) == (1.0, 0.95)
    assert (survival_curve.at(60 * SECOND).share, survival_curve.at(60 * SECOND).high) == (0.0, 0.05)


def test_a_bin_counts_only_if_it_is_entirely_below():
    survival_curve = curve([SECOND] * 30 + [5 * SECOND] * 30)
    assert survival_curve.at(at_end_of(SECOND) - 1).share == 1 and survival_curve.at(at_end_of(SECOND)).share == 0.5
