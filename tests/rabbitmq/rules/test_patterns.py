"""Patterns of policies: as `re` says, and never slow."""

import re

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from broker_core.rabbitmq.rules.errors import InvalidPolicy
from broker_core.rabbitmq.rules.patterns import Pattern, compiled, found

ATOM = st.sampled_from(
    ["a", "b", ".", "[ab]", "[^a]", r"\.", r"\w", r"\W", r"\d", "-", r"\b", r"\B", "^", "$", "[a-c1]", r"[^\d.]", "B", ""]
)
REPEAT = st.sampled_from(["", "*", "+", "?", "{2}", "{1,2}", "{0,3}?", "{2,}", "*?"])


def _grown(inner):
    group = st.builds("({}){}".format, inner, REPEAT)
    look = st.builds("{}{})".format, st.sampled_from(["(?=", "(?!"]), inner)
    behind = st.sampled_from(["(?<=a)", "(?<!a.)", "(?<=-|b)"])
    return st.one_of(
        group,
        look,
        behind,
        st.builds("(?i:{})".format, inner),
        st.builds("{}|{}".format, inner, inner),
        st.builds("{}{}".format, inner, inner),
    )


PATTERNS = st.recursive(ATOM, _grown, max_leaves=8)


@settings(max_examples=600, deadline=None)
@given(PATTERNS, st.text("abB1.-", max_size=8))
@example("^(?!amq\\.).*", "amq.a")
@example("(a?){3}b", "aab")
@example("(?<!a.)b", "aab")
def test_a_pattern_finds_what_re_finds(pattern, name):
    assume(name or r"\B" not in pattern)  # older versions of `re` find no \B in an empty text
    try:
        wanted = bool(re.search(pattern, name, re.ASCII))
    except re.error:
        with pytest.raises(InvalidPolicy):
            Pattern(pattern)
        return
    assert Pattern(pattern).found_all_ways_at_once(name) == wanted
    assert Pattern(pattern).found_in(name) == wanted


@pytest.mark.parametrize(
    ("pattern", "name", "there"),
    [
        ("", "any", True),
        ("^orders", "orders.new", True),
        ("^orders", "my.orders", False),
        ("orders", "my.orders", True),
        (r"^(?!amq\.).*", "amq.gen-x", False),
        (r"^(?!amq\.).*", "mine", True),
        (r"\.dlq$", "a.dlq", True),
        (r"^ha\.(a|b)-[0-9]{2}$", "ha.b-07", True),
        (r"(?i)^ORDERS", "orders", True),
        (r"é", "café", True),
        (r"(?x) a b  # both", "ab", True),
    ],
)
def test_the_pattern_is_searched_for_anywhere(pattern, name, there):
    assert compiled(pattern).found_in(name) is there


@pytest.mark.parametrize(
    "pattern",
    [
        *("(a+)+$", "^(a|a)*$", "(a|aa)+$", "(.*a){12}$", ".*.*.*.*.*.*x", "^((((a*)*)*)*)*$"),
        *("(a?){255}a{255}b", "(?=(a+)+$)(a+)+$"),
        *("(?=.*(?=.*(?=.*(?=.*(?=.*z)))))", "(?:(?!(?:(?!(?:(?!.*z).)*$).)*$).)*z", "(?:.*(?<=(?<=(?<=a)a)a))*z"),
    ],
)
def test_no_pattern_runs_away(pattern):
    """With `re` each would take longer than anybody waits, this test included."""
    assert not compiled(pattern).found_in("a" * 254 + "!")


def test_a_repetition_of_repetitions_has_a_bound():
    assert not compiled("(" * 24 + "a" + "*)" * 24 + "b$").found_in("a" * 254 + "!")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(", '{"missing )",1}'),
        ("a(b", '{"missing )",3}'),
        ("[", '{"missing terminating ] for character class",1}'),
        (")", '{"unmatched parentheses",0}'),
        ("a)", '{"unmatched parentheses",1}'),
        ("a\\", '{"\\\\ at end of pattern",2}'),
        ("*a", '{"nothing to repeat",0}'),
        (r"(a)\1", '{"back references are not supported",0}'),
        ("(?>a)", '{"atomic groups are not supported",0}'),
        ("a++", '{"possessive repetitions are not supported",0}'),
        ("(a)?(?(1)b|c)", '{"conditions on groups are not supported",0}'),
        ("((a{100}){100}){100}", '{"repetitions have counts of more than 1000 in all",0}'),
        ("(x|" * 60 + "a" + ")" * 60, '{"is nested too deeply",0}'),
        ("(?=" * 200 + "a" + ")" * 200, '{"is nested too deeply",0}'),
        ("[[:alpha:]]", '{"POSIX named classes are not supported",0}'),
        ("a" * 1001, '{"has 1001 characters; at most 1000 are allowed",1000}'),
    ],
)
def test_a_pattern_that_could_run_away_or_is_none_is_refused(pattern, reason):
    with pytest.raises(InvalidPolicy) as refused:
        Pattern(pattern)
    assert refused.value.reason == f"pattern should be regular expression but is invalid: {reason}"
    assert refused.value.field == "pattern"
    assert not found(pattern, "a" * 10)
