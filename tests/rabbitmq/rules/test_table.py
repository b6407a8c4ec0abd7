"""Field tables: nothing is lost on the way in and out."""

import json
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.common.errors import InvalidArgument
from broker_core.rabbitmq.rules.table import INTEGERS, MAX_DEPTH, Typed, decode, encode, plain, typed

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
TYPED = st.one_of(
    *(
        st.integers(low, high).map(lambda n, kind=kind: Typed(kind, n))
        for kind, (low, high) in INTEGERS.items()
        if kind not in ("signedint", "long")
    ),
    st.integers(-(2**31), 2**31 - 1).map(lambda n: Typed("long", n)),
    st.floats(width=32, allow_nan=False).map(lambda x: Typed("float", x)),
)
SIMPLE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    TEXT,
    st.binary(),
    st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)).map(lambda at: at.replace(microsecond=0)),
    st.integers(-(2**31), 2**31 - 1).flatmap(lambda n: st.integers(0, 255).map(lambda scale: Decimal(n).scaleb(-scale))),
    TYPED,
)
VALUES = st.recursive(
    SIMPLE, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=12
)

TYPES = ("bool", *INTEGERS, "float", "double", "decimal", "longstr", "array", "timestamp", "table", "void", "binary")


def _types(value):
    match value:
        case dict():
            return {name: _types(v) for name, v in value.items()}
        case list():
            return [_types(v) for v in value]
    return type(value)


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_a_table_round_trips(table):
    stored = json.loads(json.dumps(encode(table)))
    assert "\x00" not in json.dumps(stored, ensure_ascii=False)  # PostgreSQL could not keep it
    decoded = decode(stored)
    assert decoded == table
    assert _types(decoded) == _types(table)
    assert encode(decoded) == stored


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (5, ["signedint", "5"]),
        (2**31, ["long", "2147483648"]),
        (Typed("long", 5), ["long", "5"]),
        (Typed("unsignedbyte", 200), ["unsignedbyte", "200"]),
        (True, ["bool", "true"]),
        (None, ["void", None]),
        ("x", ["longstr", "x"]),
        (b"x", ["binary", "eA=="]),
        (1.5, ["double", "1.5"]),
        (Typed("float", 0.1), ["float", "0.10000000149011612"]),
        (Decimal("1.10"), ["decimal", "1.10"]),
        (datetime(2026, 1, 2, tzinfo=UTC), ["timestamp", "1767312000"]),
        (Typed("timestamp", 2**63), ["timestamp", str(2**63)]),
        ([1, "a"], ["array", [["signedint", "1"], ["longstr", "a"]]]),
        ({"a": {"b": []}}, ["table", {"a": ["table", {"b": ["array", []]}]}]),
        ("a\x00b", ["longstr", ["YQBi"]]),  # what PostgreSQL's JSON cannot keep as text
        (Typed("longstr", b"\xff"), ["longstr", ["/w=="]]),  # a text that is none
    ],
)
def test_values_are_stored_with_their_type(value, stored):
    assert encode({"a": value}) == {"a": stored}
    expected = Typed("float", 0.10000000149011612) if repr(value) == "Typed('float', 0.1)" else value
    (decoded,) = decode({"a": stored}).values()
    assert (decoded, repr(decoded)) == (expected, repr(expected))


@pytest.mark.parametrize(
    "value",
    [
        object(),
        2**63,
        Typed("byte", 128),
        Typed("byte", "1"),
        Typed("signedint", True),
        Typed("bool", 1),
        Typed("bogus", 1),
        Typed("longstr", 5),
        Typed("timestamp", -1),
        "\ud800",
        datetime(2026, 1, 1),
        Decimal("NaN"),
        Decimal(2**31),
        {"n" * 256: 1},
        {5: 1},
        {"a\x00": 1},
        {"ok": {"deep": object()}},
    ],
)
def test_values_that_a_table_cannot_contain_are_refused(value):
    with pytest.raises(InvalidArgument) as refused:
        encode({"a": value})
    assert "'a'" in str(refused.value)


def test_integers_have_the_ranges_of_their_types():
    assert INTEGERS == {
        "byte": (-128, 127), "unsignedbyte": (0, 255), "short": (-32_768, 32_767), "unsignedshort": (0, 65_535),
        "signedint": (-2_147_483_648, 2_147_483_647), "unsignedint": (0, 4_294_967_295),
        "long": (-9_223_372_036_854_775_808, 9_223_372_036_854_775_807),
    }  # fmt: skip


def test_a_timestamp_is_an_unsigned_64_bit_number_of_seconds():
    for value in (0, 2**64 - 1):
        assert encode({"a": Typed("timestamp", value)}) == {"a": ["timestamp", str(value)]}
    for value in (-1, 2**64, True, datetime(2026, 1, 1, microsecond=1, tzinfo=UTC)):
        with pytest.raises(InvalidArgument):
            encode({"a": Typed("timestamp", value)})


def test_a_decimal_is_a_signed_32_bit_number_with_a_scale_of_at_most_255():
    for value in (Decimal(2**31 - 1), Decimal(-(2**31)), Decimal(1).scaleb(-255), Decimal("1E9")):
        assert decode(encode({"a": value})) == {"a": value}
    assert encode({"a": Decimal("2E9")}) == {"a": ["decimal", "2000000000"]}
    beyond = (Decimal(2**31), Decimal(-(2**31) - 1), Decimal("1E10"), Decimal("1E999999999"), Decimal("-3E9"))
    for value in (*beyond, Decimal(1).scaleb(-256), Decimal(2**31).scaleb(-9), Decimal("Infinity")):
        with pytest.raises(InvalidArgument):
            encode({"a": value})


def test_a_name_has_at_most_255_bytes():
    assert list(encode({"n" * 255: 1})) == ["n" * 255]
    with pytest.raises(InvalidArgument) as refused:
        encode({"n" * 256: 1})
    assert "n" * 80 in str(refused.value) and "n" * 81 not in str(refused.value)


def test_the_nesting_of_tables_is_limited():
    table = {}
    for _ in range(MAX_DEPTH):
        table = {"a": table}
    encode({"a": table})
    with pytest.raises(InvalidArgument, match="nested"):
        encode({"a": {"a": table}})
    array: list = []
    for _ in range(MAX_DEPTH):
        array = [array]
    encode({"a": array})
    with pytest.raises(InvalidArgument, match="nested"):
        encode({"a": [array]})


def test_plain_removes_the_types():
    assert plain({"a": [Typed("byte", 7), {"b": Typed("long", 8)}]}) == {"a": [7, {"b": 8}]}


def test_typed_returns_the_type():
    assert typed(7) == ("signedint", 7)
    assert typed(Typed("byte", 7)) == ("byte", 7)
    assert {typed(v)[0] for v in (None, True, 1, 2**40, 1.0, "", b"", Decimal(1), {}, [])} <= set(TYPES)
