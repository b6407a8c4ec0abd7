"""Dimensions by which messages are grouped: their session, size, time-to-live, and the properties that an operator chose.

A key names one of them, a value is a text. jobs/reports/properties.py counts messages by value, and the list of messages finds
those with one. Pure.
"""

from __future__ import annotations

from datetime import timedelta

import pyarrow.dataset as ds

from broker_core.common.durations import human

from .jobs.dimensions import PROPERTY, SESSION, SIZE, TIME_TO_LIVE

KEYS = (SESSION, SIZE, TIME_TO_LIVE)


def is_key(key: str) -> bool:
    return key in KEYS or is_property(key)


def is_property(key: str) -> bool:
    return key.startswith(PROPERTY) and len(key) > len(PROPERTY)


def condition(key: str, value: str) -> ds.Expression:
    """Which lives have this value. Of a property: which have any; who reads them looks into their text."""
    if key == SESSION:
        return ds.field("session_id") == value
    if is_property(key):
        return ds.field("chosen_properties").is_valid()
    if not value.isdecimal() or len(value) > 18:
        return ds.scalar(False)
    number = int(value)
    if key == TIME_TO_LIVE:
        return ds.field("time_to_live_in_force_us") == number
    size = ds.field("size")  # those from this one to twice as large
    return (size < 2 * number) & (size >= number) if number > 1 else size < 2


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
