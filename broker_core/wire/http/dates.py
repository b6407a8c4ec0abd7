"""Dates of HTTP (RFC 1123)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_EPOCH, _SECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(seconds=1)
_RFC1123 = re.compile(
    rf"(?:{'|'.join(_DAYS)}), (?P<day>[0-9]{{2}}) (?P<month>{'|'.join(_MONTHS)}) (?P<year>[0-9]{{4}}) "
    r"(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2}) GMT"
)


def read_rfc1123(text: str) -> datetime | None:
    """`Sun, 06 Nov 1994 08:49:37 GMT` as aware UTC, None for anything else. The weekday is not checked."""
    match = _RFC1123.fullmatch(text)
    if not match:
        return None
    month = _MONTHS.index(match["month"]) + 1
    try:
        day, hour, minute, second = (int(match[name]) for name in ("day", "hour", "minute", "second"))
        return datetime(int(match["year"]), month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None


def write_rfc1123(instant: datetime) -> str:
    """An RFC 1123 date, in English for any locale; fractions of a second are truncated."""
    return _written((instant - _EPOCH) // _SECOND)


@lru_cache(1000)
def _written(second: int) -> str:
    """The date of a second since the epoch: most answers of one second have the same few dates."""
    t = _EPOCH + timedelta(seconds=second)
    return f"{_DAYS[t.weekday()]}, {t.day:02} {_MONTHS[t.month - 1]} {t.year:04} {t.hour:02}:{t.minute:02}:{t.second:02} GMT"
