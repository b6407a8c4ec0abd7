"""By what messages can be told apart: their session, size, time-to-live, and the properties that an operator chose.

A key names one of them, a value is a text. Reports count messages by value, and the list of messages finds those with one. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from broker_core.common.durations import human

SESSION, SIZE, TIME_TO_LIVE, PROPERTY = "session", "size", "time-to-live", "property:"
COLUMNS = {SESSION: "session_id", SIZE: "size", TIME_TO_LIVE: "time_to_live_in_force_us"}
PROPERTIES = "chosen_properties"


def by_key(lives: pa.Table) -> Iterator[tuple[str, Any]]:
    """Each key by which these messages can be told apart, the properties that any of them has and then the others, with the value
    of each message. The properties are decoded once for all keys."""
    places, texts = _encoded(lives)
    decoded = [json.loads(text.as_py()) for text in texts]
    for name in sorted({name for one in decoded for name in one}):
        yield PROPERTY + name, _taken((one.get(name) for one in decoded), places)
    for key in COLUMNS:
        yield key, values(lives, key)


def column_of(key: str) -> str:
    """The column of lives that a key needs."""
    return COLUMNS.get(key, PROPERTIES)


def values(lives: pa.Table, key: str) -> Any:
    """The value of each message as text; NULL: it has none, or it is not known. A size stands for those up to twice as large."""
    column = lives[column_of(key)]
    if key == SESSION:
        return column
    if key == TIME_TO_LIVE:
        return pc.cast(column, pa.string())
    if key == SIZE:
        octave = pc.cast(pc.floor(pc.log2(pc.cast(pc.max_element_wise(column, 1), pa.float64()))), pa.int64())
        return pc.cast(pc.if_else(pc.is_valid(column), pc.shift_left(pa.scalar(1, pa.int64()), octave), None), pa.string())
    name, (places, texts) = key.removeprefix(PROPERTY), _encoded(lives)
    return _taken((json.loads(text.as_py()).get(name) for text in texts), places)


def is_key(key: str) -> bool:
    return key in COLUMNS or (key.startswith(PROPERTY) and len(key) > len(PROPERTY))


def name(key: str) -> str:
    """The key for people."""
    return key.removeprefix(PROPERTY)


def words(key: str, value: str) -> str:
    """A key with a value for people."""
    return f"{name(key)} {text(key, value)}"


def text(key: str, value: str) -> str:
    """A value for people."""
    if key == SIZE and value.isdecimal():
        return f"{int(value):,} to {2 * int(value) - 1:,} bytes"
    if key == TIME_TO_LIVE and value.isdecimal():
        return human(timedelta(microseconds=int(value)))
    return value


def _encoded(lives: pa.Table) -> tuple[pa.Array, pa.Array]:
    """Which of the different texts of properties each message has, and these texts."""
    encoded = lives[PROPERTIES].combine_chunks().dictionary_encode()
    return encoded.indices, encoded.dictionary


def _taken(found: Iterable[str | None], places: pa.Array) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(found, pa.string()).take(places)])
