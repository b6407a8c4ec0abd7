"""The type system of AMQP 1.0: values as bytes and back (part 1 of the specification, "Types").

Python values are those of `values`: int is AMQP's int (or long if it does not fit), str is string, and types that Python lacks
are Typed. Beyond application properties there are lists, maps (dict; `Typed("map", pairs)` if the keys are no distinct Python
keys), arrays (`Typed("array", [...])`) and other described values (`Typed("described", bytes)` with their encoding).
Reading is strict: lengths, codes, UTF-8 and the range of each type are checked, and `BadEncoding` says what is wrong.
Writing uses the shortest encoding of a value.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from broker_core.common.errors import InvalidArgument
from broker_core.common.typed import Typed

MessageId = str | UUID | int | bytes  # AMQP's string, uuid, ulong and binary
INTEGERS = {
    "ubyte": (0, 2**8 - 1),
    "ushort": (0, 2**16 - 1),
    "uint": (0, 2**32 - 1),
    "ulong": (0, 2**64 - 1),
    "byte": (-(2**7), 2**7 - 1),
    "short": (-(2**15), 2**15 - 1),
    "int": (-(2**31), 2**31 - 1),
    "long": (-(2**63), 2**63 - 1),
}
MAX_DEPTH = 64  # nesting of lists, maps, arrays and described values, limited to protect the stack

TIMESPAN, URI, DATETIME_OFFSET = (f"com.microsoft:{name}" for name in ("timespan", "uri", "datetime-offset"))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEAR_ONE = datetime(1, 1, 1, tzinfo=UTC)
_TICKS_A_SECOND = 10_000_000
_LAST_TICK = 3_155_378_976_000_000_000  # after the year 9999


class BadEncoding(ValueError):
    """The bytes are no valid AMQP; the text says what is wrong and where."""


# The fixed widths: code -> type and format of struct. The others are in _read.
_FIXED: dict[int, tuple[str, struct.Struct]] = {
    code: (kind, struct.Struct(">" + format))
    for code, kind, format in (
        (0x50, "ubyte", "B"), (0x60, "ushort", "H"), (0x70, "uint", "I"), (0x52, "uint", "B"),
        (0x80, "ulong", "Q"), (0x53, "ulong", "B"), (0x51, "byte", "b"), (0x61, "short", "h"),
        (0x71, "int", "i"), (0x54, "int", "b"), (0x81, "long", "q"), (0x55, "long", "b"),
        (0x72, "float", "f"), (0x82, "double", "d"), (0x74, "decimal32", "4s"), (0x84, "decimal64", "8s"),
        (0x94, "decimal128", "16s"), (0x73, "char", "I"), (0x83, "timestamp", "q"), (0x98, "uuid", "16s"),
        (0x56, "boolean", "B"),
    )
}  # fmt: skip
_EMPTY: dict[int, tuple[str, Any]] = {
    0x40: ("null", None), 0x41: ("boolean", True), 0x42: ("boolean", False), 0x43: ("uint", 0), 0x44: ("ulong", 0),
    0x45: ("list", ()),
}  # fmt: skip
_VARIABLE = {0xA0: "binary", 0xB0: "binary", 0xA1: "string", 0xB1: "string", 0xA3: "symbol", 0xB3: "symbol"}
_COMPOUND = {0xC0: "list", 0xD0: "list", 0xC1: "map", 0xD1: "map", 0xE0: "array", 0xF0: "array"}
_ONE_BYTE_LENGTH = (0xA0, 0xA1, 0xA3, 0xC0, 0xC1, 0xE0)
_U32 = struct.Struct(">I")


# Reading


def decode(data: bytes) -> Any:
    """The value that these bytes encode. Raises BadEncoding."""
    value, end = decode_from(data, 0)
    if end != len(data):
        raise BadEncoding(f"{len(data) - end} bytes follow the value at byte {end}")
    return value


def decode_from(data: bytes, at: int, depth: int = 0) -> tuple[Any, int]:
    """The value that begins at a byte, and where it ends. Raises BadEncoding."""
    code = _byte(data, at)
    if code:
        return _read(code, data, at + 1, depth)
    _check_depth(depth, at)
    descriptor, value_at = decode_from(data, at + 1, depth + 1)
    value, end = decode_from(data, value_at, depth + 1)
    return _described(descriptor, value, data[at:end]), end


def type_of(name: str, value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            low, high = INTEGERS["int"]
            return "int" if low <= value <= high else "long"
        case float():
            return "double"
        case str():
            return "string"
        case bytes() | bytearray() | memoryview():
            return "binary"
        case datetime():
            return "timestamp"
        case timedelta():
            return "timespan"
        case UUID():
            return "uuid"
        case Decimal():
            return "decimal128"
    raise InvalidArgument(
        f"application property {name!r}",
        f"a {type(value).__name__} is not a simple type; use text, numbers, bool, bytes, datetime, timedelta, UUID or None",
    )


def kind_of(value: Any) -> str:
    """The AMQP type of a value. Raises InvalidArgument for a Python type without one."""
    if isinstance(value, Typed):
        return value.type
    if isinstance(value, Mapping):
        return "map"
    return "list" if isinstance(value, list | tuple) else type_of("value", value)


class Items(NamedTuple):
    """A list, or a map (whose items are keys and values in turn). items: where each of them begins and ends."""

    kind: str
    items: list[tuple[int, int]]
    end: int


def items_of(data: bytes, at: int) -> Items:
    """The items of the list or map that begins at a byte. Raises BadEncoding."""
    code = _byte(data, at)
    kind = "list" if code == 0x45 else _COMPOUND.get(code, "")
    if kind not in ("list", "map"):
        raise BadEncoding(f"a list or map is required at byte {at}, not code 0x{code:02x}")
    if code == 0x45:
        return Items(kind, [], at + 1)
    count, first, end = _compound(code, data, at + 1)
    if kind == "map" and count % 2:
        raise BadEncoding(f"the map at byte {at} has a key without a value")
    items, begin = [], first
    for _ in range(count):
        _, stop = decode_from(data, begin, 1)
        items.append((begin, stop))
        begin = stop
    _check_end(kind, at, begin, end)
    return Items(kind, items, end)


def _read(code: int, data: bytes, at: int, depth: int) -> tuple[Any, int]:
    if code in _FIXED:
        kind, format = _FIXED[code]
        end = at + format.size
        _require(data, end)
        return _from_fixed(kind, format.unpack_from(data, at)[0], at), end
    if code in _EMPTY:
        kind, value = _EMPTY[code]
        return ([] if kind == "list" else value if kind in ("null", "boolean") else Typed(kind, value)), at
    if code in _VARIABLE:
        size, begin = _length(code, data, at)
        _require(data, begin + size)
        return _from_variable(_VARIABLE[code], bytes(data[begin : begin + size]), begin), begin + size
    if code not in _COMPOUND:
        raise BadEncoding(f"0x{code:02x} at byte {at - 1} is no type of AMQP")
    _check_depth(depth, at)
    count, begin, end = _compound(code, data, at)
    kind = _COMPOUND[code]
    items, stop = (_array if kind == "array" else _items)(data, begin, count, depth)
    _check_end(kind, at - 1, stop, end)
    return (items if kind == "list" else Typed("array", items) if kind == "array" else _map(items, at)), end


def _items(data: bytes, at: int, count: int, depth: int) -> tuple[list, int]:
    values = []
    for _ in range(count):
        value, at = decode_from(data, at, depth + 1)
        values.append(value)
    return values, at


def _array(data: bytes, at: int, count: int, depth: int) -> tuple[list, int]:
    """The items of an array, which share one constructor."""
    begin, descriptor = at, None
    if (code := _byte(data, at)) == 0:
        descriptor, at = decode_from(data, at + 1, depth + 1)
        code = _byte(data, at)
    at += 1
    head, values = data[begin:at], []
    if count > len(data) and code in _EMPTY:
        raise BadEncoding(f"the array at byte {begin} has {count:,} items without content")
    for _ in range(count):
        first = at
        value, at = _read(code, data, at, depth + 1)
        values.append(value if descriptor is None else _described(descriptor, value, head + data[first:at]))
    return values, at


def _check_end(kind: str, at: int, stop: int, end: int) -> None:
    if stop != end:
        raise BadEncoding(f"the {kind} at byte {at} has a length of {end - at} bytes, but its items end after {stop - at}")


def _map(items: Sequence[Any], at: int) -> Any:
    if len(items) % 2:
        raise BadEncoding(f"the map at byte {at - 1} has a key without a value")
    pairs = list(zip(items[::2], items[1::2], strict=True))
    try:
        mapping = dict(pairs)
    except TypeError:  # a list or map as a key
        return Typed("map", pairs)
    keys = [(kind_of(key), key) for key, _ in pairs]
    if len(mapping) == len(pairs):
        return mapping
    if len(set(keys)) < len(keys):
        raise BadEncoding(f"the map at byte {at - 1} has a key twice")
    return Typed("map", pairs)  # such as 1 and 1.0, or a string and a symbol


def _length(code: int, data: bytes, at: int) -> tuple[int, int]:
    if code in _ONE_BYTE_LENGTH:
        return _byte(data, at), at + 1
    _require(data, at + 4)
    return _U32.unpack_from(data, at)[0], at + 4


def _compound(code: int, data: bytes, at: int) -> tuple[int, int, int]:
    """The number of items of a list, map or array, where they begin, and where they end."""
    size, begin = _length(code, data, at)
    end = begin + size
    _require(data, end)
    count, first = _length(code, data, begin)
    if first > end:
        raise BadEncoding(f"the {_COMPOUND[code]} at byte {at - 1} is too short for its number of items")
    return count, first, end


def _byte(data: bytes, at: int) -> int:
    _require(data, at + 1)
    return data[at]


def _require(data: bytes, end: int) -> None:
    if end > len(data):
        raise BadEncoding(f"it ends at byte {len(data)} within a value")


def _check_depth(depth: int, at: int) -> None:
    if depth > MAX_DEPTH:
        raise BadEncoding(f"values are nested more than {MAX_DEPTH} deep at byte {at}")


def _from_fixed(kind: str, content: Any, at: int) -> Any:
    match kind:
        case "boolean":
            if content > 1:
                raise BadEncoding(f"the boolean at byte {at} is neither 0 nor 1")
            return bool(content)
        case "int" | "double":
            return content
        case "long":
            low, high = INTEGERS["int"]
            return Typed(kind, content) if low <= content <= high else content
        case "char":
            if content > 0x10FFFF or 0xD800 <= content <= 0xDFFF:
                raise BadEncoding(f"0x{content:x} at byte {at} is no Unicode character")
            return Typed(kind, chr(content))
        case "timestamp":
            return _instant(content)
        case "uuid":
            return UUID(bytes=content)
        case "decimal32" | "decimal64":
            return Typed(kind, _DECIMALS[kind].read(content))
        case "decimal128":
            return _DECIMALS[kind].read(content)
    return Typed(kind, content)


def _from_variable(kind: str, content: bytes, at: int) -> Any:
    if kind == "binary":
        return content
    try:
        text = content.decode("ascii" if kind == "symbol" else "utf-8")
    except UnicodeDecodeError as exc:
        raise BadEncoding(f"the {kind} at byte {at} is not valid {'ASCII' if kind == 'symbol' else 'UTF-8'}") from exc
    return Typed(kind, text) if kind == "symbol" else text


def _instant(milliseconds: int) -> Any:
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:  # outside the years 1 to 9999
        return Typed("timestamp", milliseconds)


def _described(descriptor: Any, value: Any, encoded: bytes) -> Any:
    """A described value: .NET's types in Python's terms, any other as its encoding."""
    if isinstance(descriptor, Typed) and descriptor.type == "symbol":
        if descriptor == URI and type(value) is str:
            return Typed("uri", value)
        if kind_of(value) == "long":
            ticks = int(value)
            if descriptor == TIMESPAN:
                return timedelta(microseconds=ticks // 10) if not ticks % 10 else Typed("timespan", Decimal(ticks) / 10)
            if descriptor == DATETIME_OFFSET and 0 <= ticks < _LAST_TICK:
                return Typed("datetime-offset", text_of_ticks(ticks))
    return Typed("described", bytes(encoded))


# Writing


def encode(value: Any) -> bytes:
    """A value in its shortest encoding. Raises InvalidArgument for a type, ValueError for a content that AMQP lacks."""
    kind = kind_of(value)
    return encode_as(kind, value.value if isinstance(value, Typed) else value)


def encode_as(kind: str, value: Any) -> bytes:
    """A value of a type, as `encode`."""
    writer = _WRITERS.get(kind)
    if writer is None:
        raise ValueError(f"unknown type {kind}")
    return writer(value)


def encode_list(items: Sequence[bytes]) -> bytes:
    """A list of encoded items."""
    return _sized(0xC0, 0xD0, len(items), b"".join(items)) if items else b"\x45"


def encode_map(items: Sequence[bytes]) -> bytes:
    """A map of encoded keys and values in turn."""
    return _sized(0xC1, 0xD1, len(items), b"".join(items))


def _sized(short: int, long: int, count: int, content: bytes) -> bytes:
    if len(content) < 255 and count < 256:
        return bytes((short, len(content) + 1, count)) + content
    return bytes((long,)) + _U32.pack(len(content) + 4) + _U32.pack(count) + content


def _variable(short: int, long: int) -> Callable[[bytes], bytes]:
    def write(content: bytes) -> bytes:
        if len(content) < 256:
            return bytes((short, len(content))) + content
        return bytes((long,)) + _U32.pack(len(content)) + content

    return write


def _integer(code: int, format: str, *, zero: int = 0, small: int = 0, signed: bool = False) -> Callable[[int], bytes]:
    """zero, small: the codes of zero and of a number of one byte, if there are any."""
    wide, low, high = struct.Struct(">B" + format), -128 if signed else 0, 127 if signed else 255

    def write(value: int) -> bytes:
        value = int(value)
        if zero and not value:
            return bytes((zero,))
        if small and low <= value <= high:
            return bytes((small, value & 0xFF))
        try:
            return wide.pack(code, value)
        except struct.error as exc:
            raise ValueError(f"{value} is out of range") from exc

    return write


def _array_of(values: Sequence[Any]) -> bytes:
    kinds = {kind_of(value) for value in values}
    if len(kinds) > 1:
        raise ValueError(f"the items of an array must have one type, not {', '.join(sorted(kinds))}")
    kind = next(iter(kinds), "null")
    code, content = _ELEMENTS.get(kind, (None, None))
    if code is None:
        raise ValueError(f"an array of {kind} cannot be encoded")
    plain = [value.value if isinstance(value, Typed) else value for value in values]
    return _sized(0xE0, 0xF0, len(plain), bytes((code,)) + b"".join(content(value) for value in plain))


def _milliseconds(value: Any) -> int:
    return (value - _EPOCH) // timedelta(milliseconds=1) if isinstance(value, datetime) else int(value)


def _ticks(value: Any) -> int:
    """A duration: a timedelta, or a number of microseconds with one decimal place."""
    ticks = value // timedelta(microseconds=1) * 10 if isinstance(value, timedelta) else Decimal(value) * 10
    if ticks != int(ticks):
        raise ValueError("a timespan has a precision of 100 ns")
    return int(ticks)


def text_of_ticks(ticks: int) -> str:
    """An instant as .NET counts it (100 ns since the year 1), in ISO 8601 with seven decimal places if it needs them."""
    seconds, rest = divmod(ticks, _TICKS_A_SECOND)
    text = (_YEAR_ONE + timedelta(seconds=seconds)).isoformat()
    return text.replace("+00:00", f".{rest:07}+00:00") if rest else text


def ticks_of_text(text: str) -> int:
    """The inverse of text_of_ticks, also for other time zones. Raises ValueError."""
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError("an instant needs a time zone")
    ticks = (at - _YEAR_ONE) // timedelta(microseconds=1) * 10
    fraction = text.partition(".")[2][:7]
    return ticks + (int(fraction[6]) if len(fraction) == 7 and fraction.isdigit() else 0)


def _microsoft(name: str, write: Callable[[Any], bytes]) -> Callable[[Any], bytes]:
    head = b"\x00" + _variable(0xA3, 0xB3)(name.encode())
    return lambda value: head + write(value)


class _DecimalFormat:
    """An IEEE 754 decimal in the binary integer encoding. digits: its precision. exponent_bits: of the biased exponent."""

    def __init__(self, size: int, digits: int, exponent_bits: int, bias: int):
        self.size, self.digits, self.bits, self.bias = size, digits, exponent_bits, bias
        self.shift = size * 8 - 1 - exponent_bits  # of the exponent

    def read(self, content: bytes) -> Decimal:
        number = int.from_bytes(content)
        sign, top = number >> (self.size * 8 - 1), number >> (self.size * 8 - 6) & 0x1F
        if top >= 0x1E:
            name = "Infinity" if top == 0x1E else "sNaN" if number >> (self.size * 8 - 7) & 1 else "NaN"
            return Decimal(("-" if sign else "") + name)
        if top >= 0x18:  # a large coefficient, with a shifted exponent
            shift = self.shift - 2
            exponent, coefficient = number >> shift, 0b100 << shift | number & ((1 << shift) - 1)
        else:
            exponent, coefficient = number >> self.shift, number & ((1 << self.shift) - 1)
        exponent &= (1 << self.bits) - 1
        if coefficient >= 10**self.digits:  # not canonical: it counts as zero
            coefficient = 0
        return Decimal((sign, tuple(map(int, str(coefficient))), exponent - self.bias))

    def write(self, value: Any) -> bytes:
        sign, digits, exponent = Decimal(value).as_tuple()
        number = sign << (self.size * 8 - 1)
        if isinstance(exponent, str):
            special = {"F": 0x3C, "n": 0x3E, "N": 0x3F}[exponent]
            return (number | special << (self.size * 8 - 7)).to_bytes(self.size)
        coefficient, biased = int("".join(map(str, digits))), exponent + self.bias
        if coefficient >= 10**self.digits or not 0 <= biased < 3 << (self.bits - 2):
            raise ValueError(f"{value} does not fit into a decimal of {self.digits} digits")
        if coefficient >> self.shift:
            shift = self.shift - 2
            number |= 0b11 << (self.size * 8 - 3) | biased << shift | coefficient & ((1 << shift) - 1)
        else:
            number |= biased << self.shift | coefficient
        return number.to_bytes(self.size)


_DECIMALS = {
    "decimal32": _DecimalFormat(4, 7, 8, 101),
    "decimal64": _DecimalFormat(8, 16, 10, 398),
    "decimal128": _DecimalFormat(16, 34, 14, 6176),
}
_string, _symbol, _binary = _variable(0xA1, 0xB1), _variable(0xA3, 0xB3), _variable(0xA0, 0xB0)
_long = _integer(0x81, "q", small=0x55, signed=True)
_WRITERS: dict[str, Callable[[Any], bytes]] = {
    "null": lambda value: b"\x40",
    "boolean": lambda value: b"\x41" if value else b"\x42",
    "ubyte": _integer(0x50, "B"),
    "ushort": _integer(0x60, "H"),
    "uint": _integer(0x70, "I", zero=0x43, small=0x52),
    "ulong": _integer(0x80, "Q", zero=0x44, small=0x53),
    "byte": _integer(0x51, "b"),
    "short": _integer(0x61, "h"),
    "int": _integer(0x71, "i", small=0x54, signed=True),
    "long": _long,
    "float": lambda value: b"\x72" + struct.pack(">f", value),
    "double": lambda value: b"\x82" + struct.pack(">d", value),
    "decimal32": lambda value: b"\x74" + _DECIMALS["decimal32"].write(value),
    "decimal64": lambda value: b"\x84" + _DECIMALS["decimal64"].write(value),
    "decimal128": lambda value: b"\x94" + _DECIMALS["decimal128"].write(value),
    "char": lambda value: b"\x73" + _U32.pack(ord(value)),
    "timestamp": lambda value: b"\x83" + struct.pack(">q", _milliseconds(value)),
    "uuid": lambda value: b"\x98" + UUID(str(value)).bytes,
    "binary": lambda value: _binary(bytes(value)),
    "string": lambda value: _string(value.encode()),
    "symbol": lambda value: _symbol(value.encode("ascii")),
    "uri": _microsoft(URI, lambda value: _string(value.encode())),
    "timespan": _microsoft(TIMESPAN, lambda value: _long(_ticks(value))),
    "datetime-offset": _microsoft(DATETIME_OFFSET, lambda value: _long(ticks_of_text(value))),
    "described": bytes,
    "list": lambda value: encode_list([encode(item) for item in value]),
    "map": lambda value: encode_map(
        [encode(item) for pair in (value.items() if isinstance(value, Mapping) else value) for item in pair]
    ),
    "array": _array_of,
}
# Of the types that can be in an array: their widest code, and how an item is written after it.
_ELEMENTS: dict[str, Any] = {
    "null": (0x40, lambda value: b""),
    "boolean": (0x56, lambda value: bytes((value,))),
    **{
        kind: (code, format.pack)
        for code, (kind, format) in _FIXED.items()
        if kind not in ("boolean", "char", "timestamp", "uuid") and code not in (0x52, 0x53, 0x54, 0x55) and kind not in _DECIMALS
    },
    **{kind: (_WRITERS[kind](Decimal(0))[0], lambda value, kind=kind: _WRITERS[kind](value)[1:]) for kind in _DECIMALS},
    "char": (0x73, lambda value: _WRITERS["char"](value)[1:]),
    "timestamp": (0x83, lambda value: _WRITERS["timestamp"](value)[1:]),
    "uuid": (0x98, lambda value: UUID(str(value)).bytes),
    "binary": (0xB0, lambda value: _U32.pack(len(value)) + value),
    "string": (0xB1, lambda value: _U32.pack(len(value.encode())) + value.encode()),
    "symbol": (0xB3, lambda value: _U32.pack(len(value)) + value.encode("ascii")),
}
