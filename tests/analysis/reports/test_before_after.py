"""Figures on both sides of an instant: bands of quantiles, and what clearly differs."""

import math
import random
from collections import Counter

import pytest

from explorer.analysis.jobs import measures
from explorer.analysis.jobs.measures import bin_of
from explorer.analysis.reports.before_after import Metric, metrics
from explorer.analysis.reports.times import Times
from explorer.analysis.survival import Curve

from .scopes import tables

SHARES = {"shares": {"left": 100, "lost": 0, "deliveries": 100, "failed": 0, "lock_lost": 0}}


def band(share, values, at_least=()):
    """Of a quantile of these microseconds; below 32, each number has a bin of its own."""
    return Curve(Counter(map(bin_of, values)), Counter(map(bin_of, at_least))).band(share)


def test_the_band_of_a_quantile_covers_the_truth():
    """Of 300 samples with the median 0 and the 95 % quantile 1.645, about 95 % of the bands do; a bin is wider than none."""
    dice = random.Random(5)
    for share, truth in ((0.5, 0.0), (0.95, 1.6449)):
        samples = ([math.exp(dice.gauss(0, 1)) * 1e6 for _ in range(200)] for _ in range(300))
        bands = [band(share, map(round, sample)) for sample in samples]
        true = measures.middle(bin_of(round(math.exp(truth) * 1e6)))
        assert 0.93 <= sum(low <= true <= high for _, low, high in bands) / 300 <= 1
    assert band(0.5, [1] * 29) is None


def test_quantiles_of_observed_times_follow_their_ranks():
    values = [rank // 4 for rank in range(4, 104)]  # four times each of 1 to 25
    assert band(0.5, values) == (13, 11, 16)


def test_quantiles_include_messages_that_still_wait():
    """Of 100 that were observed for 25 µs, 20 were received within 1 µs; of 100 others, 70; none at all in the third case."""
    assert band(0.5, [1] * 20, [25] * 80) == (math.inf, 25, math.inf)
    assert band(0.5, [1] * 70, [25] * 30) == (1, 1, 1)
    assert band(0.5, [], [rank // 4 for rank in range(4, 104)]) == (math.inf, 18, math.inf)
    assert band(0.5, [10] * 30, [1] * 30) == (10, 10, 10)  # of those that could be observed, all


def test_metrics_that_changed_are_marked():
    """Waiting doubles, a third of the deliveries fail afterwards, processing stays."""
    times = [Times(Counter({bin_of(us): 60}), work=Counter({bin_of(5): 60})) for us in (10, 20)]
    rows = tables(SHARES, shares=[{}, {"failed": 33, "lock_lost": 33}])["shares"]
    results = metrics(times, rows)
    assert {metric.name: metric.differs for metric in results if metric.differs} == {
        "waiting, median": "longer", "waiting, 95\xa0%": "longer", "failed deliveries": "more", "lost locks": "more",
    }  # fmt: skip
    failed = next(metric for metric in results if metric.name == "failed deliveries")
    assert failed.words == "failed deliveries more (0.0\xa0% → 33.0\xa0%)"
    assert failed.columns[2].startswith("33.0\xa0% (24.") and failed.columns[3] == "more"


def test_too_few_messages_are_not_compared():
    rows = tables(SHARES, shares=[{"left": 29, "deliveries": 0}])["shares"]
    results = metrics([Times(Counter({5: 29})), Times()], [rows[0], None])
    assert not any(metric.before or metric.after or metric.differs for metric in results)
    assert results[0].columns == ("waiting, median", None, None, "no")


@pytest.mark.parametrize(
    ("after", "words"),
    [((4e6, 3e6, 5e6), "longer (1.0 s → 4.0 s)"), ((math.inf, 12e6, math.inf), "longer (1.0 s → over 12 s)")],
)
def test_unobserved_times_are_longer_than_the_observed_times(after, words):
    assert Metric("waiting, median", True, (1e6, 0, 2e6), after).words == f"waiting, median {words}"
