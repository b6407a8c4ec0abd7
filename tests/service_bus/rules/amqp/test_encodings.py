"""The encodings of AMQP 1.0's types, byte for byte, at the ends of their lengths and ranges (part 1 of the specification)."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from uuid import UUID

import pytest

from broker_core.common.typed import Typed
from broker_core.service_bus.rules.amqp import types as amqp_types
from broker_core.service_bus.rules.amqp.types import BadEncoding, decode, encode, items_of, text_of_ticks, ticks_of_text

ID = UUID("00112233-4455-6677-8899-aabbccddeeff")
TIMESPAN = "00a316" + b"com.microsoft:timespan".hex()


def typed(value):
    return amqp_types.kind_of(value), value.value if isinstance(value, Typed) else value


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (None, "40"),
        (True, "41"),
        (False, "42"),
        (Typed("ubyte", 255), "50ff"),
        (Typed("ushort", 65_535), "60ffff"),
        (Typed("uint", 0), "43"),
        (Typed("uint", 1), "5201"),
        (Typed("uint", 255), "52ff"),
        (Typed("uint", 256), "7000000100"),
        (Typed("uint", 2**32 - 1), "70ffffffff"),
        (Typed("ulong", 0), "44"),
        (Typed("ulong", 255), "53ff"),
        (Typed("ulong", 256), "800000000000000100"),
        (Typed("ulong", 2**64 - 1), "80ffffffffffffffff"),
        (Typed("byte", -128), "5180"),
        (Typed("short", -32_768), "618000"),
        (0, "5400"),
        (127, "547f"),
        (128, "7100000080"),
        (-128, "5480"),
        (-129, "71ffffff7f"),
        (2**31 - 1, "717fffffff"),
        (-(2**31), "7180000000"),
        (2**31, "810000000080000000"),
        (-(2**31) - 1, "81ffffffff7fffffff"),
        (Typed("long", 127), "557f"),
        (Typed("long", 128), "810000000000000080"),
        (Typed("long", -128), "5580"),
        (Typed("long", 2**31 - 1), "81000000007fffffff"),
        (Typed("float", 1.5), "723fc00000"),
        (1.5, "823ff8000000000000"),
        (Typed("char", "\ud7ff"), "730000d7ff"),
        (Typed("char", "\ue000"), "730000e000"),
        (Typed("char", "\U0010ffff"), "730010ffff"),
        (datetime(1970, 1, 1, 0, 0, 1, 1000, tzinfo=UTC), "8300000000000003e9"),
        (ID, "98" + ID.hex),
        (b"", "a000"),
        ("", "a100"),
        (Typed("symbol", ""), "a300"),
        ([], "45"),
        ([None], "c0020140"),
        ({}, "c10100"),
        ({"a": 1}, "c10602a101615401"),
        (Typed("array", []), "e0020040"),
        (Typed("array", [True, False]), "e00402560100"),
        (Typed("array", [1, -1]), "e00a027100000001ffffffff"),
        (Typed("array", [Typed("uint", 1)]), "e006017000000001"),
        (Typed("array", ["a"]), "e00701b10000000161"),
        (Typed("array", [b"a"]), "e00701b00000000161"),
        (Typed("array", [Typed("symbol", "a")]), "e00701b30000000161"),
        (Typed("array", [ID]), "e0120198" + ID.hex),
        (Typed("array", [Typed("char", "a")]), "e006017300000061"),
        (Typed("array", [datetime(1970, 1, 1, tzinfo=UTC)]), "e00a01830000000000000000"),
        (Typed("array", [Typed("decimal32", Decimal(1))]), "e006017432800001"),
        (timedelta(microseconds=-1), TIMESPAN + "55f6"),
        (Typed("timespan", Decimal("0.1")), TIMESPAN + "5501"),
        (timedelta(days=1), TIMESPAN + "81000000c92a69c000"),
        (Typed("uri", "u"), "00a311" + b"com.microsoft:uri".hex() + "a10175"),
        (Typed("array", ["x" * 248]), "e0fe01b1000000f8" + "78" * 248),
        (Typed("array", ["x" * 249]), "e0ff01b1000000f9" + "78" * 249),
        (Typed("array", ["x" * 250]), "f00000010300000001b1000000fa" + "78" * 250),
        (Typed("described", b"\x00\xa3\x01x\x41"), "00a3017841"),
    ],
)
def test_a_value_has_its_shortest_encoding(value, encoded):
    assert encode(value).hex() == encoded
    assert typed(decode(bytes.fromhex(encoded))) == typed(value)


@pytest.mark.parametrize("code", [0xA0, 0xA1, 0xA3])
@pytest.mark.parametrize("length", [255, 256, 70_000])
def test_a_length_takes_one_byte_or_four(code, length):
    value = {0xA0: b"x" * length, 0xA1: "x" * length, 0xA3: Typed("symbol", "x" * length)}[code]
    head = bytes((code, length)) if length < 256 else bytes((code + 0x10,)) + length.to_bytes(4)
    assert encode(value) == head + b"x" * length and decode(encode(value)) == value


@pytest.mark.parametrize(
    ("items", "head"),
    [
        ([None] * 254, "c0fffe"),
        ([None] * 255, "d000000103000000ff"),
        ([None] * 256, "d00000010400000100"),
        (["x" * 251, None], "c0ff02"),
        (["x" * 252, None], "d00000010300000002"),
    ],
)
def test_a_list_has_one_byte_or_four_for_its_length_and_count(items, head):
    encoded = encode(items)
    assert encoded.hex().startswith(head) and decode(encoded) == items
    assert len(items_of(encoded, 0).items) == len(items) and items_of(encoded, 0).end == len(encoded)


NORMAL = {"decimal32": (4, 7, 101, 90), "decimal64": (8, 16, 398, 369), "decimal128": (16, 34, 6176, 6111)}


@pytest.mark.parametrize("kind", NORMAL)
def test_a_decimal_has_the_range_of_its_format(kind):
    size, digits, bias, most = NORMAL[kind]
    largest = 10**digits - 1
    for coefficient in (0, 1, 2 ** (size * 8 - 12), 2**23, 2**23 - 1, largest):
        for exponent in (-bias, -1, 0, most):
            for sign in (0, 1):
                if coefficient <= largest:
                    value = Decimal((sign, tuple(map(int, str(coefficient))), exponent))
                    decoded = decode(encode(Typed(kind, value)))
                    decoded = decoded.value if isinstance(decoded, Typed) else decoded
                    assert decoded.as_tuple() == value.as_tuple()
    for wrong in (Decimal(10**digits), Decimal((0, (1,), -bias - 1)), Decimal((0, (1,), most + 1))):
        with pytest.raises(ValueError, match=f"does not fit into a decimal of {digits} digits"):
            encode(Typed(kind, wrong))
    for name in ("Infinity", "-Infinity", "NaN", "sNaN"):
        decoded = decode(encode(Typed(kind, Decimal(name))))
        assert str(decoded.value if isinstance(decoded, Typed) else decoded) == name


@pytest.mark.parametrize(
    ("encoded", "text"),
    [
        ("7432800001", "1"),
        ("74b2800001", "-1"),
        ("746cb8967f", "9999999"),  # a large coefficient, in the other form
        ("746cb89680", "0"),  # 10,000,000 is not canonical
        ("7478000000", "Infinity"),
        ("74f8000000", "-Infinity"),
        ("747c000000", "NaN"),
        ("747e000000", "sNaN"),
    ],
)
def test_decimals_have_the_ieee_754_encoding(encoded, text):
    decoded = decode(bytes.fromhex(encoded)).value
    assert decoded.normalize() == Decimal(text) if decoded.is_finite() else str(decoded) == text
    if encoded != "746cb89680":
        assert encode(Typed("decimal32", decoded)).hex() == encoded


@pytest.mark.parametrize(
    ("encoded", "problem"),
    [
        ("", "it ends at byte 0 within a value"),
        ("50", "it ends at byte 1 within a value"),
        ("a1", "it ends at byte 1 within a value"),
        ("a10261", "it ends at byte 3 within a value"),
        ("b1000000", "it ends at byte 4 within a value"),
        ("4040", "1 bytes follow the value at byte 1"),
        ("5602", "the boolean at byte 1 is neither 0 nor 1"),
        ("730000d800", "0xd800 at byte 1 is no Unicode character"),
        ("730000dfff", "0xdfff at byte 1 is no Unicode character"),
        ("7300110000", "0x110000 at byte 1 is no Unicode character"),
        ("30", "0x30 at byte 0 is no type of AMQP"),
        ("a101ff", "the string at byte 2 is not valid UTF-8"),
        ("a301ff", "the symbol at byte 2 is not valid ASCII"),
        ("c00301404040", "the list at byte 0 has a length of 5 bytes, but its items end after 4"),
        ("c1020140", "the map at byte 0 has a key without a value"),
        ("c10504404140", "it ends at byte"),
        ("c10504a10161", "it ends at byte"),
        ("c10704a1016140a1016140", "the map at byte 0 has a length of"),
        ("c10904a1016140a1016140", "the map at byte 0 has a key twice"),
        ("c000", "it ends at byte 2 within a value"),
        ("c00040", "the list at byte 0 is too short for its number of items"),
        ("f0000000050000ffff40", "the array at byte 9 has 65,535 items without content"),
    ],
)
def test_an_invalid_value_is_refused_with_its_position(encoded, problem):
    with pytest.raises(BadEncoding, match=problem):
        decode(bytes.fromhex(encoded))


def test_a_map_with_keys_that_are_equal_in_python_keeps_its_pairs():
    encoded = bytes.fromhex("c10904a1016140a3016140")  # a string and a symbol
    decoded = decode(encoded)
    assert amqp_types.kind_of(decoded) == "map" and len(decoded.value) == 2 and encode(decoded) == encoded


@pytest.mark.parametrize(
    "wrap",
    [
        lambda d: b"\xd0" + (len(d) + 4).to_bytes(4) + b"\0\0\0\1" + d,
        lambda d: b"\x00\xa3\x01x" + d,
        lambda d: b"\x00" + d + b"\x41",
    ],
)
def test_values_are_nested_at_most_64_deep(wrap):
    data = b"\x40"
    for _ in range(65):
        data = wrap(data)
    decode(data)
    with pytest.raises(BadEncoding, match="nested more than 64 deep"):
        decode(wrap(data))


@pytest.mark.parametrize(
    ("ticks", "text"),
    [
        (0, "0001-01-01T00:00:00+00:00"),
        (1, "0001-01-01T00:00:00.0000001+00:00"),
        (10_000_000, "0001-01-01T00:00:01+00:00"),
        (12_345_678, "0001-01-01T00:00:01.2345678+00:00"),
        (3_155_378_975_999_999_999, "9999-12-31T23:59:59.9999999+00:00"),
    ],
)
def test_an_instant_has_its_ticks(ticks, text):
    assert text_of_ticks(ticks) == text and ticks_of_text(text) == ticks
    assert encode(Typed("datetime-offset", text)).endswith(encode(Typed("long", ticks)))
    assert typed(decode(encode(Typed("datetime-offset", text)))) == ("datetime-offset", text)


@pytest.mark.parametrize("ticks", [-1, 3_155_378_976_000_000_000])
def test_ticks_outside_the_years_1_to_9999_stay_encoded(ticks):
    encoded = b"\x00\xa3\x1d" + b"com.microsoft:datetime-offset" + encode(Typed("long", ticks))
    assert typed(decode(encoded)) == ("described", encoded)


def test_an_instant_of_another_time_zone_is_converted_to_utc():
    assert ticks_of_text("0001-01-01T01:00:00.5+01:00") == 5_000_000
    assert ticks_of_text("0001-01-01T01:03:00.5+01:03") == 5_000_000
    with pytest.raises(ValueError, match="time zone"):
        ticks_of_text("2026-01-01T00:00:00")
    with pytest.raises(ValueError, match="100 ns"):
        encode(Typed("timespan", Decimal("0.05")))


def test_an_array_must_have_items_of_one_type():
    with pytest.raises(ValueError, match="must have one type, not int, string"):
        encode(Typed("array", [1, "a"]))
    with pytest.raises(ValueError, match="an array of list cannot be encoded"):
        encode(Typed("array", [[]]))


def test_an_array_of_described_values_gives_each_its_descriptor():
    decoded = decode(bytes.fromhex("e0080200a3017856" + "0100"))
    assert decoded.value == [Typed("described", b"\x00\xa3\x01x\x56\x01"), Typed("described", b"\x00\xa3\x01x\x56\x00")]


def test_an_array_without_content_has_no_more_items_than_it_has_bytes():
    assert decode(bytes.fromhex("f0000000050000000a40")) == Typed("array", [None] * 10)
    with pytest.raises(BadEncoding, match="has 11 items without content"):
        decode(bytes.fromhex("f0000000050000000b40"))
    written = [encode(Typed("array", [None] * count)).hex() for count in (255, 256)]
    assert written == ["e002ff40", "f0000000050000010040"]


def test_the_items_of_a_list_or_map_are_returned_encoded():
    assert items_of(bytes.fromhex("4045"), 1) == ("list", [], 2)
    assert items_of(bytes.fromhex("c003024041"), 0) == ("list", [(3, 4), (4, 5)], 5)
    assert items_of(bytes.fromhex("c1050254015402"), 0) == ("map", [(3, 5), (5, 7)], 7)
    for wrong, problem in [
        ("40", "a list or map is required at byte 0, not code 0x40"),
        ("c1020140", "has a key without a value"),
    ]:
        with pytest.raises(BadEncoding, match=problem):
            items_of(bytes.fromhex(wrong), 0)
    with pytest.raises(BadEncoding, match="the list at byte 0 has a length of 5 bytes, but its items end after 4"):
        items_of(bytes.fromhex("c00301404040"), 0)
    data = b"\x40"
    for _ in range(65):
        data = b"\xd0" + (len(data) + 4).to_bytes(4) + b"\0\0\0\1" + data
    assert len(items_of(data, 0).items) == 1
    with pytest.raises(BadEncoding, match="nested"):
        items_of(b"\xd0" + (len(data) + 4).to_bytes(4) + b"\0\0\0\1" + data, 0)


@pytest.mark.parametrize(
    "encoded",
    [
        b"\x00\xa3\x11com.microsoft:uri\xa0\x01u",  # binary
        b"\x00\xa1\x11com.microsoft:uri\xa1\x01u",  # named by a string
        b"\x00\xa3\x01u\xa1\x01u",
        b"\x00\x53\x01\x55\x01",
        b"\x00\xa3\x16com.microsoft:timespan\x54\x01",  # an int
    ],
)
def test_any_other_described_value_stays_encoded(encoded):
    assert typed(decode(encoded)) == ("described", encoded)
