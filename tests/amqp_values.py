"""Strategies for encoded AMQP 1.0: every type in each of its encodings, and whole messages. Independent of the codec."""

import struct

from hypothesis import strategies as st

DESCRIPTORS = {
    0x70: "amqp:header:list", 0x71: "amqp:delivery-annotations:map", 0x72: "amqp:message-annotations:map",
    0x73: "amqp:properties:list", 0x74: "amqp:application-properties:map", 0x75: "amqp:data:binary",
    0x76: "amqp:amqp-sequence:list", 0x77: "amqp:amqp-value:*", 0x78: "amqp:footer:map",
}  # fmt: skip
NULL = b"\x40"


def variable(short, long, content):
    """Each encoding of content that has a length."""
    forms = [bytes((long,)) + struct.pack(">I", len(content)) + content]
    if len(content) < 256:
        forms.append(bytes((short, len(content))) + content)
    return st.sampled_from(forms)


def compound(short, long, count, content):
    forms = [bytes((long,)) + struct.pack(">II", len(content) + 4, count) + content]
    if len(content) < 255 and count < 256:
        forms.append(bytes((short, len(content) + 1, count)) + content)
    return st.sampled_from(forms)


def coded(code, contents):
    return contents.map(lambda content: bytes((code,)) + content)


def fixed(code, size):
    return coded(code, st.binary(min_size=size, max_size=size))


CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXTS = st.text(CHARACTERS, max_size=20) | st.just("x" * 300)
STORABLE = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=20)
SYMBOLS = st.text(st.characters(max_codepoint=126, min_codepoint=33), min_size=1, max_size=20)


def string(text):
    return variable(0xA1, 0xB1, text.encode())


def symbol(text):
    return variable(0xA3, 0xB3, text.encode())


BINARY = st.binary(max_size=20).flatmap(lambda content: variable(0xA0, 0xB0, content))
BOOLEAN = st.sampled_from([b"\x41", b"\x42", b"\x56\x00", b"\x56\x01"])
UINT = st.one_of(st.just(b"\x43"), fixed(0x52, 1), fixed(0x70, 4))
ULONG = st.one_of(st.just(b"\x44"), fixed(0x53, 1), fixed(0x80, 8))
UBYTE = fixed(0x50, 1)
UUID = fixed(0x98, 16)
TIMESTAMP = fixed(0x83, 8)
LONG = fixed(0x81, 8) | fixed(0x55, 1)
PRIMITIVE = st.one_of(
    st.just(NULL), BOOLEAN, UBYTE, fixed(0x60, 2), UINT, ULONG, fixed(0x51, 1), fixed(0x61, 2), fixed(0x71, 4), fixed(0x54, 1),
    LONG, fixed(0x72, 4), fixed(0x82, 8), fixed(0x74, 4), fixed(0x84, 8), fixed(0x94, 16),
    coded(0x73, CHARACTERS.map(lambda c: struct.pack(">I", ord(c)))), TIMESTAMP, UUID, BINARY, TEXTS.flatmap(string),
    SYMBOLS.flatmap(symbol),
)  # fmt: skip
MICROSOFT = st.one_of(
    st.builds(lambda head, value: b"\x00" + head + value, symbol("com.microsoft:timespan"), LONG),
    st.builds(lambda head, value: b"\x00" + head + value, symbol("com.microsoft:datetime-offset"), LONG),
    st.builds(lambda head, value: b"\x00" + head + value, symbol("com.microsoft:uri"), TEXTS.flatmap(string)),
)
DESCRIBED = st.builds(lambda head, value: b"\x00" + head + value, SYMBOLS.flatmap(symbol) | ULONG, PRIMITIVE)
SIMPLE = PRIMITIVE | MICROSOFT | DESCRIBED
ARRAYS = st.sampled_from([b"\x71", b"\x83", b"\x98", b"\x50"]).flatmap(
    lambda code: st.lists(st.binary(min_size=size_of(code), max_size=size_of(code)), max_size=4).flatmap(
        lambda items: compound(0xE0, 0xF0, len(items), code + b"".join(items))
    )
)


def size_of(code):
    return {0x71: 4, 0x83: 8, 0x98: 16, 0x50: 1}[code[0]]


def lists_of(items, max_size=4):
    listed = st.lists(items, max_size=max_size)
    return st.just(b"\x45") | listed.flatmap(lambda found: compound(0xC0, 0xD0, len(found), b"".join(found)))


def maps_of(keys, values, encode_key, max_size=4):
    """Maps whose keys are distinct texts."""
    pairs = st.dictionaries(keys, values, max_size=max_size).flatmap(
        lambda found: st.tuples(*(st.tuples(encode_key(key), st.just(value)) for key, value in found.items()))
    )
    return pairs.flatmap(lambda found: compound(0xC1, 0xD1, 2 * len(found), b"".join(key + value for key, value in found)))


VALUES = st.recursive(
    SIMPLE | ARRAYS, lambda items: lists_of(items) | maps_of(TEXTS, items, string) | maps_of(SYMBOLS, items, symbol), max_leaves=8
)


@st.composite
def section(draw, code, values):
    head = draw(st.sampled_from([bytes((0x53, code)), b"\x80" + struct.pack(">Q", code)]) | symbol(DESCRIPTORS[code]))
    return b"\x00" + head + draw(values)


@st.composite
def fields(draw, *kinds):
    """A list of fields, each of its type or null; trailing ones may be missing."""
    items = [draw(kind if kind is ALWAYS_THERE else st.just(NULL) | kind) for kind in kinds]
    while items and items[-1] == NULL and draw(st.booleans()):
        items.pop()
    return draw(compound(0xC0, 0xD0, len(items), b"".join(items))) if items else b"\x45"


TEXT = STORABLE.flatmap(string)
IDS = st.one_of(TEXT, UUID, ULONG, st.binary(min_size=1, max_size=20).flatmap(lambda content: variable(0xA0, 0xB0, content)))
ALWAYS_THERE = IDS  # a message without an id is given one
A_DAY_OR_MORE = st.integers(86_400_000, 2**32 - 1).map(lambda ms: b"\x70" + struct.pack(">I", ms))
# Whole days apart, as creation and expiry are a time-to-live if the message has no other one, and the clock runs.
A_TIME_IN_THIS_MILLENNIUM = st.integers(10_957, 47_481).map(lambda day: b"\x83" + struct.pack(">q", day * 86_400_000 + 61_001))
HEADERS = section(0x70, fields(BOOLEAN, UBYTE, A_DAY_OR_MORE, BOOLEAN, UINT))
ANNOTATIONS = maps_of(SYMBOLS, VALUES, symbol)
PROPERTIES = section(
    0x73,
    fields(
        ALWAYS_THERE, BINARY, TEXT, TEXT, TEXT, IDS, SYMBOLS.flatmap(symbol), SYMBOLS.flatmap(symbol),
        A_TIME_IN_THIS_MILLENNIUM, A_TIME_IN_THIS_MILLENNIUM, TEXT, UINT, TEXT,
    ),
)  # fmt: skip
APPLICATION_PROPERTIES = section(0x74, maps_of(STORABLE, SIMPLE, string, max_size=6))
DATA = section(0x75, st.binary(max_size=400).flatmap(lambda content: variable(0xA0, 0xB0, content)))
BODIES = st.one_of(
    DATA,
    st.lists(DATA, min_size=2, max_size=3).map(b"".join),
    st.lists(section(0x76, lists_of(VALUES)), min_size=1, max_size=3).map(b"".join),
    section(0x77, VALUES),
    st.just(b""),
)


@st.composite
def messages(draw, annotations=ANNOTATIONS):
    """An encoded message with any of its sections."""

    def maybe(strategy):
        return draw(st.just(b"") | strategy)

    return b"".join(
        (
            maybe(HEADERS), maybe(section(0x71, ANNOTATIONS)), maybe(section(0x72, annotations)), draw(PROPERTIES),
            maybe(APPLICATION_PROPERTIES), draw(BODIES), maybe(section(0x78, ANNOTATIONS)),
        )
    )  # fmt: skip
