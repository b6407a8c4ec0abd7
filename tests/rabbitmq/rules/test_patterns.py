"""Patterns of policies: what they find, and never slowly."""

import re
from contextlib import suppress
from time import process_time

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from broker_core.rabbitmq.rules.errors import InvalidPolicy
from broker_core.rabbitmq.rules.patterns import check, matches

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


@settings(max_examples=600)
@given(PATTERNS, st.text("abB1.-", max_size=8))
@example("^(?!amq\\.).*", "amq.a")
@example("(a?){3}b", "aab")
@example("(?<!a.)b", "aab")
def test_a_pattern_matches_like_re(pattern, name):
    assume(name or r"\B" not in pattern)  # older versions of `re` find no \B in an empty text
    try:
        wanted = bool(re.search(pattern, name, re.ASCII))
    except re.error:
        assume(False)
    assert matches(pattern, name) == wanted


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
        (r"^([a-z])\1$", "aa", True),
        (r"^(?>a+)b|^c++$", "cc", True),
        (r"^(?<first>a)?(?(first)b|c)$", "ab", True),
        (r"^(\((?:[^()]|(?1))*\))$", "(a(b))", True),
        (r"^[[:alpha:]]+$", "abc", True),
        (r"^[a-z]{8}-[a-z]{4}-[a-z]{4}-[a-z]{4}-[a-z]{12}$", "abcdefgh-abcd-abcd-abcd-abcdefghijkl", True),
        (r"\{[{]$", "{{", True),
    ],
)
def test_a_pattern_may_match_anywhere(pattern, name, there):
    check(pattern)
    assert matches(pattern, name) is there


RUNAWAYS = [
    *("(a+)+$", "^(a|a)*$", "(a|aa)+$", "(.*a){12}$", ".*.*.*.*.*.*x", "^((((a*)*)*)*)*$"),
    *("(a?){255}a{255}b", "(?=(a+)+$)(a+)+$", "(" * 24 + "a" + "*)" * 24 + "b$", "((((a{9}){9}){9}){9}){9}$"),
    *("(?=.*(?=.*(?=.*(?=.*(?=.*z)))))", "(?:(?!(?:(?!(?:(?!.*z).)*$).)*$).)*z", "(?:.*(?<=(?<=(?<=a)a)a))*z"),
]


@pytest.mark.parametrize("pattern", RUNAWAYS)
def test_matching_a_pattern_is_bounded_in_time(pattern):
    """Without a limit many would take longer than anybody waits. Time is the processor's: this machine may be busy."""
    before = process_time()
    assert not matches(pattern, "a" * 254 + "!")
    with suppress(InvalidPolicy):
        check(pattern)
    assert process_time() - before < 1


def test_a_pattern_of_the_maximum_length_and_number_of_groups_is_accepted():
    check("a" * 1000)
    check("(" * 100 + "a" + ")" * 100)
    check("(a{100}){1000}")
    check("a{1}b{0}" * 20)


def test_a_pattern_that_takes_too_long_is_refused_with_the_matched_name():
    with pytest.raises(InvalidPolicy, match=r"takes too long on a name such as aaa\.\.\.; nest fewer repetitions"):
        check("^(a|a)*$")
    with pytest.raises(InvalidPolicy, match="on a name such as zzz"):
        check("^(z|z)*$")
    with pytest.raises(InvalidPolicy) as refused:
        check("^(a|a)*$")
    assert refused.value.reason.endswith('nest fewer repetitions",0}')


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
        (r"\Qa.b\E", '{"bad escape \\\\Q",2}'),
        (r"\x{61}", '{"incomplete escape \\\\x",2}'),
        ("(?:ab){e<=1}", '{"{e<=1} is not supported; write \\\\{ for a brace",6}'),
        ("a{,3}", '{"{,3} is not supported; write \\\\{ for a brace",1}'),
        (r"a\m", '{"\\\\m is not supported; write \\\\{ for a brace",1}'),
        ("{fuzzy:e<=1}", '{"{fuzzy:e is not supported; write \\\\{ for a brace",0}'),
        ("(?r)a", '{"(?r)a is not supported; write \\\\{ for a brace",0}'),
        ("(?V0)(?V1)a", '{"VERSION0 and VERSION1 flags are mutually incompatible",0}'),
        ("((a{100}){100}){100}", '{"repetitions have counts of more than 100,000 in all",0}'),
        ("(?=" * 200 + "a" + ")" * 200, '{"has more than 100 groups",0}'),
        ("a" * 1001, '{"has 1001 characters; at most 1000 are allowed",1000}'),
    ],
)
def test_an_invalid_or_catastrophic_pattern_is_refused(pattern, reason):
    with pytest.raises(InvalidPolicy) as refused:
        check(pattern)
    assert refused.value.reason == f"pattern should be regular expression but is invalid: {reason}"
    assert refused.value.field == "pattern"
    assert not matches(pattern, "a" * 10)
