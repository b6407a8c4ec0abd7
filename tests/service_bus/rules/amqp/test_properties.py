"""Application properties and durations: nothing is lost on the way in and out."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from broker_core.common import durations
from broker_core.common.errors import InvalidArgument
from broker_core.common.typed import Typed
from broker_core.common.types import EntityAddress, SubQueue
from broker_core.service_bus.rules.amqp.properties import TYPES, decode_properties, encode_properties

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
SIMPLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1).filter(lambda n: not -(2**31) <= n < 2**31) | st.integers(-(2**31), 2**31 - 1),
    st.floats(allow_nan=False),
    TEXT,
    st.binary(),
    st.uuids(),
    st.decimals(allow_nan=False).filter(lambda d: len(d.as_tuple().digits) <= 34),  # what a decimal128 holds
    st.datetimes(timezones=st.just(UTC)),
    st.timedeltas(min_value=timedelta(-9999), max_value=timedelta(9999)),
)


@given(st.dictionaries(TEXT.filter(lambda name: name and "\x00" not in name), SIMPLE))
def test_properties_round_trip(properties):
    decoded = decode_properties(encode_properties(properties))
    assert decoded == properties
    assert {name: type(value) for name, value in decoded.items()} == {name: type(value) for name, value in properties.items()}


@pytest.mark.parametrize(
    "value",
    [
        Typed("ubyte", 7),
        Typed("long", 5),
        Typed("float", 0.5),
        Typed("symbol", "s"),
        Typed("char", "x"),
        Typed("decimal32", Decimal("1.5")),
        Typed("datetime-offset", "2026-01-01T13:00:00+01:00"),
        Typed("timestamp", 2**62),  # milliseconds: outside the years 1 to 9999
        Typed("timespan", Decimal("1.5")),  # microseconds: .NET counts in tenths of them
        Typed("described", b"\x00\xa3\x01x\x41"),
        Typed("symbol", "\x00"),
    ],
)
def test_types_that_python_lacks_are_returned_as_typed_values(value):
    (decoded,) = decode_properties(encode_properties({"a": value})).values()
    assert (decoded, decoded.type, decoded.value, repr(decoded)) == (value, value.type, value.value, repr(value))


def test_a_decimal_is_numeric_whether_typed_or_not():
    decoded = decode_properties(encode_properties({"a": Typed("decimal64", "1.50"), "b": Decimal("1.50")}))
    assert decoded == {"a": Decimal("1.50"), "b": Decimal("1.50")} and decoded["a"].type == "decimal64"


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (5, ["int", "5"]),
        (2**31 - 1, ["int", "2147483647"]),
        (2**31, ["long", "2147483648"]),
        (-(2**31), ["int", "-2147483648"]),
        (-(2**31) - 1, ["long", "-2147483649"]),
        ("x", ["string", "x"]),
        ("ä", ["string", "ä"]),
        ("a\x00", ["string", ["YQA="]]),  # what PostgreSQL's JSON cannot keep as text
        (True, ["boolean", "true"]),
        (None, ["null", None]),
        (Decimal("1.10"), ["decimal128", "1.10"]),
        (UUID(int=1), ["uuid", "00000000-0000-0000-0000-000000000001"]),
        (datetime(2026, 1, 1, tzinfo=UTC), ["timestamp", "2026-01-01T00:00:00+00:00"]),
        (b"\x00", ["binary", "AA=="]),
    ],
)
def test_properties_have_their_stored_form(value, stored):
    assert encode_properties({"a": value}) == {"a": stored}


@pytest.mark.parametrize(
    "bad", [2**63, [], {}, Typed("int", "x"), Typed("boolean", 1), Typed("nonsense", 1), datetime(2026, 1, 1), Typed("int", 1.5)]
)
def test_values_that_cannot_be_stored_are_refused_by_name(bad):
    with pytest.raises(InvalidArgument, match="'a'"):
        encode_properties({"a": bad})


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "a name must be a non-empty string, not ''"),
        (5, "a name must be a non-empty string, not 5"),
        ("a\x00", "contains a NUL character"),
        ("ä\x00", "contains a NUL character"),
        ("\ud800", "contains an unpaired surrogate"),
    ],
)
def test_names_that_cannot_be_stored_are_refused(name, problem):
    with pytest.raises(InvalidArgument, match=problem) as refused:
        encode_properties({name: 1})
    assert refused.value.name == "application property"
    assert encode_properties({"ä": 1}) == {"ä": ["int", "1"]}


def test_each_type_has_a_name():
    assert len(set(TYPES)) == len(TYPES)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("PT1M", timedelta(minutes=1)),
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("P14D", timedelta(days=14)),
        ("P10675199DT2H48M5.4775807S", None),
        ("PT0S", timedelta(0)),
        ("PT0.000001S", timedelta(microseconds=1)),
        ("-PT1H", timedelta(hours=-1)),
        ("PT23H59M59.999999S", timedelta(hours=23, minutes=59, seconds=59, microseconds=999_999)),
    ],
)
def test_iso_durations_are_parsed_and_formatted(text, duration):
    assert durations.parse_iso(text) == duration
    assert durations.parse_iso(durations.format_iso(duration)) == duration
    assert durations.format_iso(duration) == text


@pytest.mark.parametrize("text", ["", "P", "PT", "1 min", "PT1", "P1M", "nonsense"])
def test_bad_iso_durations_are_refused(text):
    with pytest.raises(InvalidArgument, match="ISO 8601"):
        durations.parse_iso(text)


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("30 s", timedelta(seconds=30)),
        ("1 min 30 s", timedelta(seconds=90)),
        ("2 days", timedelta(days=2)),
        ("1.5 hours", timedelta(minutes=90)),
        ("250ms", timedelta(milliseconds=250)),
        ("PT5M", timedelta(minutes=5)),
        ("0.00:01:30", timedelta(seconds=90)),
        ("never", None),
        *((f"2 {unit}", timedelta(milliseconds=2)) for unit in ("ms", "MS")),
        *((f"2 {unit}", timedelta(seconds=2)) for unit in ("s", "sec", "secs", "second", "seconds")),
        *((f"2 {unit}", timedelta(minutes=2)) for unit in ("m", "min", "mins", "minute", "minutes")),
        *((f"2 {unit}", timedelta(hours=2)) for unit in ("h", "hour", "hours")),
        *((f"2 {unit}", timedelta(days=2)) for unit in ("d", "day", "days")),
        *((f"2 {unit}", timedelta(weeks=2)) for unit in ("week", "weeks")),
        ("-PT5M", timedelta(minutes=-5)),
        ("P1W", timedelta(weeks=1)),
        ("364999 days", timedelta(days=364_999)),
        ("365000 days", None),
        ("-P365000D", timedelta(days=-365_000)),
    ],
)
def test_human_readable_durations_are_parsed(text, duration):
    assert durations.parse_human_or_iso(text) == duration


@pytest.mark.parametrize("text", ["", "5", "5 parsecs", "s", "min 5"])
def test_invalid_durations_are_refused(text):
    with pytest.raises(InvalidArgument, match="use for example"):
        durations.parse_human_or_iso(text)


def test_a_negative_duration_beyond_forever_is_refused():
    with pytest.raises(InvalidArgument, match="out of range"):
        durations.parse_human_or_iso("-P365000DT1S")


@pytest.mark.parametrize(
    ("seconds", "duration"),
    [(0, timedelta(0)), (1e-9, timedelta.resolution), (-1e-9, -timedelta.resolution), (1.5, timedelta(seconds=1.5))],
)
def test_seconds_never_round_to_zero(seconds, duration):  # SB-039
    assert durations.of_seconds(seconds) == duration


@example(timedelta(days=99_421, microseconds=1))  # more digits than a float of seconds has
@example(durations.FOREVER - timedelta.resolution)
@given(st.timedeltas(-durations.FOREVER, durations.FOREVER - timedelta.resolution))
def test_formatting_a_duration_loses_nothing(duration):
    assert durations.parse_iso(durations.format_iso(duration)) == duration


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (None, "never"),
        (timedelta(milliseconds=250), "250 ms"),
        (timedelta(milliseconds=999), "999 ms"),
        (timedelta(seconds=1), "1 s"),
        (timedelta(seconds=90), "1 min 30 s"),
        (timedelta(days=14), "14 days"),
        (timedelta(hours=1, seconds=1), "1 h"),
        (timedelta(hours=1), "1 h"),
        (timedelta(minutes=1), "1 min"),
        (timedelta(days=1), "1 day"),
        (timedelta(seconds=-5), "-5 s"),
        (timedelta(0), "0 ms"),
        (timedelta(milliseconds=-1), "-1 ms"),
        (timedelta(milliseconds=1500), "1 s"),
        (timedelta(days=2, hours=3, minutes=4), "2 days 3 h"),
        (timedelta(hours=2), "2 h"),
    ],
)
def test_durations_are_formatted_for_reading(duration, text):
    assert durations.human(duration) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ns/q", EntityAddress("ns", "q")),
        ("ns/a/b", EntityAddress("ns", "a/b")),
        ("ns/q/$deadletterqueue", EntityAddress("ns", "q", SubQueue.DEAD_LETTER)),
        ("ns/q/$Transfer/$DeadLetterQueue", EntityAddress("ns", "q", SubQueue.TRANSFER_DEAD_LETTER)),
    ],
)
def test_addresses_are_parsed(text, expected):
    assert EntityAddress.parse(text) == expected
    assert EntityAddress.parse(str(expected)) == expected


@pytest.mark.parametrize("text", ["", "ns", "ns/", "ns//q", "ns/$DeadLetterQueue"])
def test_bad_addresses_are_refused(text):
    with pytest.raises(InvalidArgument, match="address"):
        EntityAddress.parse(text)
