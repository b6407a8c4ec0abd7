"""Strategies for encoded tables of AMQP 0-9-1: every type, in any order, nested. Independent of the codec."""

import struct

from hypothesis import strategies as st

NAMES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
SIMPLE = st.one_of(
    st.just(b"V"),
    st.binary(min_size=1, max_size=1).map(lambda c: b"t" + c),
    *(
        st.binary(min_size=size, max_size=size).map(lambda content, code=code: code.encode() + content)
        for code, size in (("b", 1), ("B", 1), ("s", 2), ("u", 2), ("I", 4), ("i", 4), ("l", 8), ("L", 8), ("f", 4), ("d", 8),
                           ("T", 8), ("D", 5))
    ),
    st.binary(max_size=20).map(lambda content: b"S" + sized(content)),
    st.text(max_size=20).map(lambda text: b"S" + sized(text.encode(errors="replace"))),
    st.binary(max_size=20).map(lambda content: b"x" + sized(content)),
)  # fmt: skip


def sized(content):
    return struct.pack(">I", len(content)) + content


def of(values, max_size=4):
    """Tables, without their length."""
    return st.dictionaries(NAMES, values, max_size=max_size).map(
        lambda found: b"".join(bytes((len(name.encode()),)) + name.encode() + value for name, value in found.items())
    )


VALUES = st.recursive(
    SIMPLE,
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: b"A" + sized(b"".join(items)))
        | of(inner).map(lambda content: b"F" + sized(content))
    ),
    max_leaves=8,
)
TABLES = of(VALUES, max_size=6)
