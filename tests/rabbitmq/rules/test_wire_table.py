"""Header tables as AMQP 0-9-1 encodes them: nothing is lost, and what is no table is refused with a sentence."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.common.errors import InvalidArgument
from broker_core.rabbitmq.rules import table, wire_table
from broker_core.rabbitmq.rules.table import Typed
from broker_core.rabbitmq.rules.wire_table import decode, merged, to_store
from tests.rabbitmq import wire_tables


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        ("56", None),
        ("7401", True),
        ("62ff", Typed("byte", -1)),
        ("42ff", Typed("unsignedbyte", 255)),
        ("73ffff", Typed("short", -1)),
        ("75ffff", Typed("unsignedshort", 65535)),
        ("4900000005", 5),
        ("6900000005", Typed("unsignedint", 5)),
        ("6c0000000000000005", Typed("long", 5)),
        ("4c7fffffffffffffff", 2**63 - 1),
        ("663f800000", Typed("float", 1.0)),
        ("643ff0000000000000", 1.0),
        ("44020000007d", Decimal("1.25")),
        ("5300000002c3a4", "ä"),
        ("5300000001ff", Typed("longstr", b"\xff")),
        ("7800000001ff", b"\xff"),
        ("54000000006956ca00", datetime.fromtimestamp(0x6956CA00, UTC)),
        ("54ffffffffffffffff", Typed("timestamp", 2**64 - 1)),
        ("4100000003740156", [True, None]),
        ("4600000003016156", {"a": None}),
    ],
)
def test_each_type_round_trips(encoded, value):
    encoded = b"\x01n" + bytes.fromhex(encoded)
    headers = decode(encoded)
    assert headers == {"n": value} and table.typed(headers["n"])[0] == table.typed(value)[0]
    again = merged(None, table.encode(headers))
    assert again == encoded.replace(b"L", b"l") and decode(again) == headers


@given(wire_tables.TABLES)
def test_a_table_is_delivered_as_published(encoded):
    headers = decode(encoded)
    stored = table.encode(headers)
    kept = to_store(encoded, stored or None)
    assert merged(kept, stored or None) == encoded
    if kept is not None:
        assert merged(None, stored) != encoded or not stored  # the JSON alone does not say it all


@given(wire_tables.TABLES, st.dictionaries(wire_tables.NAMES, st.integers(-5, 5), max_size=2), st.data())
def test_changed_headers_are_encoded_again_and_the_others_stay(encoded, change, data):
    headers = decode(encoded)
    removed = data.draw(st.sets(st.sampled_from(sorted(headers)))) if headers else set()
    after = {name: value for name, value in headers.items() if name not in removed} | change
    merged_table = merged(encoded, table.encode(after) or None)
    assert table.encode(decode(merged_table)) == table.encode(after)
    kept = [name for name in wire_order(encoded) if name in after]
    assert wire_order(merged_table)[: len(kept)] == kept


def wire_order(encoded):
    return [entry.name for entry in wire_table._entries(encoded)]


@given(st.binary(max_size=30) | wire_tables.TABLES.flatmap(lambda t: st.integers(0, len(t)).map(lambda cut: t[:cut])))
def test_any_bytes_are_a_table_or_refused(encoded):
    try:
        headers = decode(encoded)
    except InvalidArgument as exc:
        assert exc.name == "headers" and "no valid table" in exc.problem
    else:
        assert decode(merged(encoded, table.encode(headers) or None)).keys() == headers.keys()


@pytest.mark.parametrize(
    ("encoded", "problem"),
    [
        (b"\x05ab", "ends at byte 3 within a value"),
        (b"\x01\xffV", "the name at byte 0 is not valid UTF-8"),
        (b"\x01\x00V", "NUL"),
        (b"\x01ay", "'y' at byte 2 is no type of a field"),
        (b"\x01aI\x00", "within a value"),
        (b"\x01aS\xff\xff\xff\xff", "within a value"),
        (b"\x01aA\x00\x00\x00\x02I\x00\x00\x00\x00\x00", "within a value"),
        (b"\x01aD\x01", "within a value"),
        (b"\x01at", "within a value"),
    ],
)
def test_invalid_tables_are_refused(encoded, problem):
    with pytest.raises(InvalidArgument, match=problem):
        decode(encoded)


@pytest.mark.parametrize("code", [b"F", b"A"])
def test_nesting_ends_at_100_levels(code):
    def nested(levels):
        """A value with so many tables or arrays inside each other."""
        content = b""
        for _ in range(levels):
            content = (b"\x01a" if code == b"F" and content else b"") + content
            content = code + len(content).to_bytes(4) + content
        return b"\x01a" + content

    decode(nested(101))
    with pytest.raises(InvalidArgument, match="nested more than 100 deep"):
        decode(nested(102))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (Decimal(2**31 - 1), "44007fffffff"),
        (Decimal(-(2**31)), "440080000000"),
        (Decimal("1E9"), "44003b9aca00"),
        (Decimal("-0.5"), "4401fffffffb"),
        (Decimal("0.00"), "440200000000"),
    ],
)
def test_a_decimal_is_written_with_the_least_scale(value, encoded):
    stored = table.encode({"a": value})
    assert merged(None, stored) == b"\x01a" + bytes.fromhex(encoded)
    assert table.encode(decode(merged(None, stored))) == stored


def test_the_first_of_duplicate_names_applies():
    encoded = b"\x01aI\x00\x00\x00\x01\x01aI\x00\x00\x00\x02"
    assert decode(encoded) == {"a": 1}
    assert merged(encoded, {"a": ["signedint", "1"]}) == encoded
    assert merged(encoded, {"a": ["signedint", "3"]}) == b"\x01aI\x00\x00\x00\x03"


def test_a_missing_and_an_empty_table_are_distinguished():
    assert to_store(b"", None) == b"" and to_store(None, None) is None and merged(b"", None) == b"" and merged(None, None) is None
