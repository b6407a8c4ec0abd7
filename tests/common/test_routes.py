"""Comparison of the routes of messages before and after a change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.common.routes import MOST_EXAMPLES, Outcome, Rerouted, compare, outcome

ROUTES = st.dictionaries(st.sampled_from("abc"), st.lists(st.sampled_from([None, "x"]), max_size=2), max_size=3)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({}, {}, Outcome.SAME),
        ({"a": [None]}, {"a": [None], "b": []}, Outcome.SAME),
        ({"a": [None]}, {"a": ["changed"]}, Outcome.MODIFIED),
        ({"a": [None]}, {"a": [None, None]}, Outcome.MORE),
        ({"a": [None]}, {"a": [None], "b": [None]}, Outcome.MORE),
        ({"a": [None], "b": [None]}, {"a": [None]}, Outcome.FEWER),
        ({"a": [None]}, {"b": [None]}, Outcome.ELSEWHERE),
        ({"a": [None]}, {"a": []}, Outcome.DROPPED),
        ({}, {"a": [None]}, Outcome.FOUND),
    ],
)
def test_a_route_change_has_its_outcome(before, after, expected):
    assert outcome(before, after) is expected


@given(st.lists(st.tuples(ROUTES, ROUTES, st.integers(1, 5)), max_size=20))
def test_the_counts_of_a_comparison_add_up(routes):
    comparison = compare(Rerouted(i, before, after, weight) for i, (before, after, weight) in enumerate(routes))
    assert comparison.messages == sum(comparison.outcomes.values()) == sum(weight for *_, weight in routes)
    for destination in comparison.destinations:
        assert destination.before == sum(len(before.get(destination.destination, ())) * weight for before, _, weight in routes)
        assert destination.after == sum(len(after.get(destination.destination, ())) * weight for _, after, weight in routes)
        assert destination.after - destination.before == destination.gains - destination.losses
        assert bool(destination.gains) == bool(destination.gained) and bool(destination.losses) == bool(destination.lost)
        assert len(destination.gained) <= MOST_EXAMPLES and not set(destination.gained) & set(destination.lost)
    shifts = [destination.gains + destination.losses for destination in comparison.destinations]
    assert shifts == sorted(shifts, reverse=True)
