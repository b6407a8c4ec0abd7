"""Ranges in a line of conditions: of numbers, ages and times."""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta

from broker_core.common.durations import parse_human_or_iso
from broker_core.common.errors import FilterError, InvalidArgument

from .lexing import Value

LONGEST_AGE = timedelta(days=10_000)
_SIZE = re.compile(r"(\d{1,18})\s*([KMG]?)i?B?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?Z?")
_MINUTE, _SECOND, _DAY = timedelta(minutes=1), timedelta(seconds=1), timedelta(days=1)

Part = tuple[str, int]  # a part of a value and its place


def _ends(value: Value, operator: str, example: str) -> tuple[Part | None, Part | None] | None:
    """The two ends of a range; None: the value is no range."""
    if operator not in (":", "=") or ".." not in value.text:
        return None
    low, _, high = value.text.partition("..")
    if not low and not high:
        raise FilterError(value.start, f"Write a value before or after the dots, as in {example}.")
    return (low, value.start) if low else None, (high, value.start + len(low) + 2) if high else None


def _ordered(in_order: bool, value: Value) -> None:
    if not in_order:
        raise FilterError(value.start, "The range ends before it begins. Exchange the two values.")


def numbers(key: str, operator: str, value: Value) -> tuple[int | None, int | None]:
    """The bounds, both included."""
    example = "size:1KB..64KB" if key == "size" else f"{key}:700..800"
    if ends := _ends(value, operator, example):
        low, high = (end and _number(key, *end) for end in ends)
        _ordered(low is None or high is None or low <= high, value)
        return low, high
    number = _number(key, value.text, value.start)
    return {">": (number + 1, None), ">=": (number, None), "<": (None, number - 1), "<=": (None, number)}.get(
        operator, (number, number)
    )


def _number(key: str, text: str, at: int) -> int:
    match = _SIZE.fullmatch(text) if key == "size" else re.fullmatch(r"(\d{1,18})()", text, re.ASCII)
    number = int(match[1]) * _UNITS[match[2].upper()] if match else 0
    if match is None or number >= 10**18:
        value_text = text or "Nothing"
        if key == "size":
            raise FilterError(at, f"{value_text} is not a size. Write for example size>10KB.")
        raise FilterError(at, f"{value_text} is not a whole number of at most 18 digits. Write for example {key}>700.")
    return number


def ages(key: str, operator: str, value: Value) -> tuple[timedelta | None, timedelta | None]:
    """The bounds: the first included, the second not."""
    example = f"{key}:1h..2h"
    if ends := _ends(value, operator, example):
        low, high = (end and _age(key, *end) for end in ends)
        _ordered(low is None or high is None or low < high, value)
        return low, high
    age = _age(key, value.text, value.start)
    if operator in (":", "="):
        raise FilterError(value.start, f"Write {key}>{value.text} or {key}<{value.text}, or a range as in {example}.")
    return (age, None) if operator in (">", ">=") else (None, age)


def _age(key: str, text: str, at: int) -> timedelta:
    try:
        age = parse_human_or_iso(text)
    except (InvalidArgument, OverflowError):
        age = None
    if age is None or not timedelta(0) <= age <= LONGEST_AGE:
        raise FilterError(
            at, f"{text or 'Nothing'} is not an age of at most 10,000 days. Write for example {key}>1h or {key}<30m."
        )
    return age


def times(key: str, operator: str, value: Value, now: datetime) -> tuple[datetime | None, datetime | None]:
    """The bounds: the first included, the second not. A minute, second or day named as the end is included."""
    if ends := _ends(value, operator, f"{key}:09:00..09:30"):
        low, high = ends
        start = _time(key, *low, now)[0] if low else None
        end = _time(key, *high, now, after=start)[1] if high else None
        _ordered(start is None or end is None or start < end, value)
        return start, end
    start, end = _time(key, value.text, value.start, now)
    return {">": (end, None), ">=": (start, None), "<": (None, start), "<=": (None, end)}.get(operator, (start, end))


def _time(key: str, text: str, at: int, now: datetime, after: datetime | None = None) -> tuple[datetime, datetime]:
    """The instants at which a minute, second or day begins and ends. Without a date it is the last one before `now`, or the first
    one from `after` on."""
    try:
        if match := _TIME.fullmatch(text):
            of_day = time(int(match[1]), int(match[2]), int(match[3] or 0), tzinfo=UTC)
            start = datetime.combine((after or now).astimezone(UTC).date(), of_day)
            start += _DAY if after and start < after else -_DAY if not after and start > now else timedelta(0)
            return start, start + (_SECOND if match[3] else _MINUTE)
        start = datetime.fromisoformat(text)
        start = start.astimezone(UTC) if start.tzinfo else start.replace(tzinfo=UTC)
        of_day_text = re.split(r"[+Z-]", text[11:])[0]
        unit = (
            timedelta.resolution if "." in text else _SECOND if of_day_text.count(":") > 1 else _MINUTE if of_day_text else _DAY
        )
        return start, start + unit
    except (ValueError, OverflowError):
        raise FilterError(
            at,
            f"{text or 'Nothing'} is not a time in UTC. Write for example {key}:09:00..09:30, {key}:2026-11-22 or "
            f"{key}>2026-11-22T09:00.",
        ) from None
