"""The language of message filters: what a text means, what is wrong with one that means nothing, and back to text."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.common.errors import FilterError
from broker_core.reads import MessageFilter, exactly, parse_filter, parse_tokens
from broker_core.reads.conditions import (
    ANY,
    Age,
    BodyText,
    InState,
    JsonValue,
    NumberRange,
    Pattern,
    Property,
    State,
    Text,
    TimeRange,
)
from broker_core.reads.filters import AGES, NUMBERS, TEXTS, TIMES
from broker_core.reads.lexing import MOST_CHARACTERS
from broker_core.reads.ranges import LONGEST_AGE

NOW = datetime(2026, 11, 22, 9, 14, tzinfo=UTC)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


def at(hour, minute=0, day=22):
    return datetime(2026, 11, day, hour, minute, tzinfo=UTC)


def parse(text):
    return parse_filter(text, now=NOW).conditions


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("id:order-47", Text("id", Pattern(("order-47",)))),
        ("ID:order-47", Text("id", Pattern(("order-47",)))),
        ("message-id=a*", Text("id", Pattern(("a", "")), exact=True)),
        ("id!=a", Text("id", Pattern(("a",)), exact=True, negated=True)),
        ("-id!=a", Text("id", Pattern(("a",)), exact=True)),
        ('subject:"two words"', Text("subject", Pattern(("two words",)))),
        (r'subject:"a \"quote\", a \* and a \\"', Text("subject", Pattern(('a "quote", a * and a \\',)))),
        (r"id:C:\temp", Text("id", Pattern(("C:\\temp",)))),
        ('body:{"a":1}', BodyText('{"a":1}')),
        ("body:a*b", BodyText("a*b")),
        ("-held-by:*", Text("held-by", Pattern(("", "")), negated=True)),
        ("word", Text(ANY, Pattern(("word",)))),
        ("-word", Text(ANY, Pattern(("word",)), negated=True)),
        ("-", Text(ANY, Pattern(("-",)))),
        ('"a OR b"', Text(ANY, Pattern(("a OR b",)))),
        ('"urn:x"', Text(ANY, Pattern(("urn:x",)))),
        ("4711", Text(ANY, Pattern(("4711",)))),
        ("prop.tenant:acme", Property("tenant", ":", Pattern(("acme",)))),
        ("prop.a.b=c", Property("a.b", "=", Pattern(("c",)))),
        ('header."x y">7', Property("x y", ">", Pattern(("7",)))),
        ("-prop.tenant", Property("tenant", negated=True)),
        ("$.order.id>4700", JsonValue(("order", "id"), ">", Pattern(("4700",)))),
        ('$.a[0][*]."b c"="1"', JsonValue(("a", 0, None, "b c"), "=", Pattern(("1",)), is_quoted=True)),
        ("$.a", JsonValue(("a",))),
        ("$=true", JsonValue((), "=", Pattern(("true",)))),
        ("state:unacked", InState(State.LOCKED)),
        ("-state=Dead", InState(State.DEAD, negated=True)),
        ("number>700", NumberRange("number", 701, None)),
        ("number<=700", NumberRange("number", None, 700)),
        ("number:7", NumberRange("number", 7, 7)),
        ("number:7..9", NumberRange("number", 7, 9)),
        ("number:..9", NumberRange("number", None, 9)),
        ("size>=10KB", NumberRange("size", 10240, None)),
        ("dequeue-count=3", NumberRange("deliveries", 3, 3)),
        ("age>1h", Age("age", HOUR, None)),
        ("age<=1h30m", Age("age", None, 90 * MINUTE)),
        ('age>"5 min"', Age("age", 5 * MINUTE, None)),
        ("dead-age:PT1M..1h", Age("dead-age", MINUTE, HOUR)),
        ("at:09:00..09:30", TimeRange("at", at(9), at(9, 31))),
        ("at:09:14", TimeRange("at", at(9, 14), at(9, 15))),
        ("at:09:15", TimeRange("at", at(9, 15, day=21), at(9, 16, day=21))),  # the last such time
        ("at:23:00..01:00", TimeRange("at", at(23, day=21), at(1, 1))),
        ("at:09:00..", TimeRange("at", at(9), None)),
        ("at>2026-11-20", TimeRange("at", at(0, day=21), None)),
        ("at<2026-11-20T09:00", TimeRange("at", None, at(9, day=20))),
        ("at<=2026-11-20", TimeRange("at", None, at(0, day=21))),
        ("dead-at:2026-11-20..2026-11-21", TimeRange("dead-at", at(0, day=20), at(0))),
        ("at:2026-11-20T10:00+01:00", TimeRange("at", at(9, day=20), at(9, 1, day=20))),
    ],
)
def test_a_condition_is_parsed(text, condition):
    assert parse(text) == (condition,)


def test_conditions_are_separated_by_spaces_and_have_their_position():
    text = '  id:a\t-prop."x y":"b c"  word '
    tokens = parse_tokens(text, now=NOW)
    assert [text[token.start : token.end] for token in tokens] == ["id:a", '-prop."x y":"b c"', "word"]
    assert not parse_filter(" \n ", now=NOW)
    assert parse_filter("a", now=NOW) and MessageFilter(holds=(0,))


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("word reson:x", 5, "There is no key reson. Write reason:, or put the text in quotes to search for it."),
        ("urn:x", 0, "There is no key urn. Write prop.urn: or $.urn:, or put the text in quotes to search for it."),
        ("id:", 3, "A value is missing. Write a value after id:, or * for any."),
        ("age> 1h", 4, "A value is missing. Write a value after age>."),
        ('id:"abc', 3, 'The quote is not closed. Add a " at the end of the text.'),
        ('id:"a"b', 6, "Write a space after the closing quote."),
        ("id>a", 2, "id is a text: write id: or id= before the value."),
        ("body=a", 4, "body is a text: write body: before the value."),
        ("a OR b", 2, "All conditions must hold, and a minus negates one: there is no OR."),
        ("state:completed", 6, "completed is how a message left, not a state. Write state:gone for all that left."),
        ("state:foo", 6, "There is no state foo. Write one of active, locked, deferred, scheduled, dead, expired, gone."),
        ("number>x", 7, "x is not a whole number of at most 18 digits. Write for example number>700."),
        ("number>-1", 7, "-1 is not a whole number of at most 18 digits."),
        ("number:1..x", 10, "x is not a whole number"),
        ("number:9..7", 7, "The range ends before it begins. Exchange the two values."),
        ("number:..", 7, "Write a value before or after the dots, as in number:700..800."),
        (f"number>{'9' * 19}", 7, "is not a whole number of at most 18 digits"),
        ("size>999999999999GB", 5, "is not a size. Write for example size>10KB."),
        ("size>10XB", 5, "10XB is not a size. Write for example size>10KB."),
        ("age:1h", 4, "Write age>1h or age<1h, or a range as in age:1h..2h."),
        ("age>soon", 4, "soon is not an age of at most 10,000 days. Write for example age>1h or age<30m."),
        ("age>never", 4, "never is not an age"),
        ("age>11000d", 4, "11000d is not an age of at most 10,000 days"),
        ("at:25:00", 3, "25:00 is not a time in UTC. Write for example at:09:00..09:30, at:2026-11-22 or at>2026-11-22T09:00."),
        ("at:0001-01-01T00:00+23:00", 3, "is not a time in UTC"),
        ("at:9999-12-31", 3, "is not a time in UTC"),
        ("at:09:00..x", 10, "x is not a time in UTC"),
        ("at:2026-11-22..2026-11-20", 3, "The range ends before it begins."),
        ("$x", 1, "This is no path to a JSON value. Write for example $.order.id>4700"),
        ("$.a[x]", 3, "This is no path to a JSON value."),
        ("prop.", 5, "The name of the property is missing. Write for example prop.tenant:acme."),
        ('prop."a"b', 8, "Write a space before the next condition, or one of : = > < before a value."),
        ("id:a\0", 4, "This character cannot be searched for. Remove it."),
        ("\ud800", 0, "This character cannot be searched for. Remove it."),
        ("x" * (MOST_CHARACTERS + 1), MOST_CHARACTERS, "A filter has at most 2,000 characters."),
        ("x " * 21, 40, "A filter has at most 20 conditions."),
    ],
)
def test_an_invalid_filter_is_refused_with_the_position_and_the_remedy(text, position, problem):
    with pytest.raises(FilterError) as caught:
        parse(text)
    assert caught.value.position == position
    assert problem in caught.value.problem
    assert str(caught.value) == f"filter: at character {position + 1}: {caught.value.problem}"


def test_an_exact_condition_can_be_made_from_any_value():
    for value in ("acme", 'a "b" *', "", " ", "\\", "AND"):
        assert parse(exactly("reason", value)) == (Text("reason", Pattern((value,)), exact=True),)
        assert parse(exactly("prop.x", value)) == (Property("x", "=", Pattern((value,))),)


# Back to text

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
names = texts.filter(bool)
patterns = st.lists(texts, min_size=1, max_size=3).map(lambda parts: Pattern(tuple(parts)))
whole = st.integers(0, 10**18 - 2)
ages = st.timedeltas(timedelta(0), LONGEST_AGE)
instants = st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
operators = st.sampled_from([":", "=", ">", ">=", "<", "<="])
yes_or_no = st.booleans()


def bounds(values) -> Any:
    """Two in order, or one and no other."""
    both = st.lists(values, min_size=2, max_size=2, unique=True).map(sorted)
    return both.flatmap(lambda ends: st.sampled_from([(ends[0], ends[1]), (ends[0], None), (None, ends[1])]))


@st.composite
def conditions(draw):
    negated = draw(yes_or_no)
    match draw(st.integers(0, 8)):
        case 0:
            return Text(draw(st.sampled_from(list(TEXTS))), draw(patterns), draw(yes_or_no), negated)
        case 1:
            return Text(ANY, draw(patterns), False, negated)
        case 2:
            return BodyText(draw(texts), negated)
        case 3:
            return Property(draw(names), draw(operators), draw(patterns), negated)
        case 4:
            steps = st.lists(st.one_of(texts, st.integers(0, 999), st.none()), max_size=3).map(tuple)
            return JsonValue(draw(steps), draw(operators), draw(patterns), draw(yes_or_no), negated)
        case 5:
            low, high = draw(bounds(whole))
            return NumberRange(draw(st.sampled_from(list(NUMBERS))), low, high, negated)
        case 6:
            low, high = draw(bounds(ages))
            return Age(draw(st.sampled_from(list(AGES))), low, high, negated)
        case 7:
            low, high = draw(bounds(instants))
            return TimeRange(draw(st.sampled_from(list(TIMES))), low, high, negated)
    return InState(draw(st.sampled_from(State)), negated)


def as_parsed(condition):
    """A JSON value whose text needs quotes is quoted."""
    if isinstance(condition, JsonValue) and str(condition.pattern).startswith('"'):
        return JsonValue(condition.steps, condition.operator, condition.pattern, True, condition.negated)
    return condition


@given(st.lists(conditions(), max_size=4))
def test_a_filter_round_trips_through_its_text(made):
    text = str(MessageFilter(tuple(made)))
    parsed = parse_filter(text, now=NOW)
    assert parsed.conditions == tuple(map(as_parsed, made))
    assert str(parsed) == text


@given(st.text(max_size=60) | st.text('id:=<>".$[]*-\\ prop09agebody', max_size=40))
def test_any_text_is_a_filter_or_an_error_with_a_position_in_the_text(text):
    try:
        parsed = parse_filter(text, now=NOW)
    except FilterError as error:
        assert 0 <= error.position <= len(text)
        assert error.problem.endswith((".", ")"))
    else:
        assert parse_filter(str(parsed), now=NOW) == parsed


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("age>1h", None, NOW - HOUR),
        ("age<1h", NOW - HOUR, None),
        ("-dead-age:1m..1h", NOW - HOUR, NOW - MINUTE),
    ],
)
def test_ages_are_converted_to_times_at_an_instant(text, start, end):
    [condition] = parse_filter(f"{text}", now=NOW).at(NOW).conditions
    tick = timedelta.resolution  # a range of times has its start and not its end; one of ages the other way round
    field, negated = ("dead-at", True) if "dead" in text else ("at", False)
    assert condition == TimeRange(field, start and start + tick, end and end + tick, negated)
    assert parse_filter("id:x", now=NOW).at(NOW) == parse_filter("id:x", now=NOW)
