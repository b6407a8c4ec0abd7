"""Parses and formats durations: ISO 8601 ("PT1M30S"), .NET time spans, and readable text ("1 min 30 s")."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

from .errors import InvalidArgument

# The largest .NET TimeSpan means "never" on the wire; durations of this length are treated the same.
FOREVER = timedelta(days=365_000)
_MOST_SECONDS = int(FOREVER.total_seconds())

_ISO = re.compile(
    r"(?P<sign>-)?P(?:(?P<weeks>\d+(?:\.\d+)?)W)?(?:(?P<days>\d+(?:\.\d+)?)D)?"
    r"(?:T(?:(?P<hours>\d+(?:\.\d+)?)H)?(?:(?P<minutes>\d+(?:\.\d+)?)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
_UNITS: dict[str, Decimal | int] = {  # each also with an s
    "ms": Decimal("0.001"), "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "d": 86400,
    "day": 86400, "week": 604800,
}  # fmt: skip
_PART = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*,?", re.IGNORECASE)
_NET = re.compile(r"(?P<sign>-)?(?:(?P<days>\d+)\.)?(?P<hours>\d{1,2}):(?P<minutes>\d{2}):(?P<seconds>\d{2}(?:\.\d+)?)")


def of_seconds(seconds: float) -> timedelta:
    """Rounded to the microsecond, but never to zero unless `seconds` is zero (SB-039). Raises OverflowError."""
    duration = timedelta(seconds=seconds)
    if duration or not seconds:
        return duration
    return timedelta.resolution if seconds > 0 else -timedelta.resolution


def parse_iso(text: str, name: str = "duration") -> timedelta | None:
    """Parse an ISO 8601 duration without years and months. Returns None for one so long that it means never.

    Raises InvalidArgument with this name for anything else.
    """
    match = _ISO.fullmatch(text.strip())
    if not match or not any(v for k, v in match.groupdict().items() if k != "sign"):
        raise InvalidArgument(name, f"{text!r} must be an ISO 8601 duration such as PT1M30S or P14D")
    return _total(match, name, text)


def parse_timespan(text: str, name: str = "duration") -> timedelta | None:
    """Parse a .NET time span, `d.hh:mm:ss.fffffff`. Returns None for never."""
    match = _NET.fullmatch(text.strip())
    if not match:
        raise InvalidArgument(name, f"{text!r} must be a time span such as 0.00:01:30")
    return _total(match, name, text)


def parse_human_or_iso(text: str, name: str = "duration") -> timedelta | None:
    """Parse user input: "90 s", "1 min 30 s", "2 days", "PT90S", "1:30:00", or "never" (None)."""
    text = text.strip()
    if text.lower() in ("never", "none", "forever"):
        return None
    if text[:1].upper() == "P" or text[:2].upper() == "-P":
        return parse_iso(text, name)
    if ":" in text:
        return parse_timespan(text, name)
    position, seconds = 0, Decimal(0)
    while position < len(text):
        part = _PART.match(text, position)
        unit = _unit(part.group(2)) if part else None
        if part is None or unit is None:
            raise InvalidArgument(name, f"{text!r} is not a duration; use for example 30 s, 5 min, 2 h, 14 days, PT5M or never")
        seconds, position = seconds + Decimal(part.group(1)) * unit, part.end()
    if not text:
        raise InvalidArgument(name, "is empty; use for example 30 s, 5 min, PT5M or never")
    return _bounded(seconds, name, text)


def format_iso(duration: timedelta | None) -> str:
    """Format as ISO 8601; None becomes the largest .NET TimeSpan, which means never."""
    if duration is None:
        return "P10675199DT2H48M5.4775807S"
    sign, duration = ("-", -duration) if duration < timedelta(0) else ("", duration)
    hours, rest = divmod(duration.seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    fraction = f".{duration.microseconds:06d}".rstrip("0") if duration.microseconds else ""
    time = "".join(
        [f"{hours}H" if hours else "", f"{minutes}M" if minutes else "", f"{seconds}{fraction}S" if seconds or fraction else ""]
    )
    days = f"{duration.days}D" if duration.days else ""
    return sign + "P" + (days + ("T" + time if time else "") or "T0S")


def human(duration: timedelta | None) -> str:
    """Format for people, with at most two units: "1 min 30 s", "14 days", "250 ms"; None is "never"."""
    if duration is None:
        return "never"
    sign = "-" if duration < timedelta(0) else ""
    milliseconds = round(abs(duration) / timedelta(milliseconds=1))
    if milliseconds < 1000:
        return f"{sign}{milliseconds} ms"
    units = (("day", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))
    parts = []
    for word, size in units:
        count, milliseconds = divmod(milliseconds, size)
        if count:
            parts.append(f"{count} {word}" + ("s" if word == "day" and count > 1 else ""))
        elif parts:
            break
    return sign + " ".join(parts[:2])


def _unit(word: str) -> Decimal | int | None:
    word = word.lower()
    return _UNITS.get(word) or _UNITS.get(word.removesuffix("s"))


def _total(match: re.Match, name: str, text: str) -> timedelta | None:
    parts = {k: Decimal(v) for k, v in match.groupdict().items() if v and k != "sign"}
    size = {"weeks": 604800, "days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}
    seconds = sum((count * size[unit] for unit, count in parts.items()), Decimal(0))
    return _bounded(-seconds if match["sign"] else seconds, name, text)


def _bounded(seconds: Decimal, name: str, text: str) -> timedelta | None:
    """To the microsecond, as `of_seconds`, which has not so many digits for long ones."""
    if seconds >= _MOST_SECONDS:
        return None
    if seconds < -_MOST_SECONDS:
        raise InvalidArgument(name, f"{text!r} is out of range")
    return timedelta(microseconds=round(seconds * 1_000_000)) or of_seconds(float(seconds))
