"""The conditions of a message filter, as values. str() is a condition in the language of filters.py, in its normal form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_PLAIN = re.compile(r"[^\s\"\\*]+")
_MINUTE, _SECOND, _DAY = timedelta(minutes=1), timedelta(seconds=1), timedelta(days=1)


class State(StrEnum):
    """States by which messages of all families are found. The words of the families for them are in filters.STATES."""

    ACTIVE = "active"  # can be received
    LOCKED = "locked"
    DEFERRED = "deferred"
    SCHEDULED = "scheduled"
    DEAD = "dead"
    EXPIRED = "expired"
    GONE = "gone"  # removed; only a search over all entities finds these


@dataclass(frozen=True, slots=True)
class Pattern:
    """A text with wildcards: the parts between them. A text without any is one part."""

    parts: tuple[str, ...]

    @property
    def is_plain(self) -> bool:
        return len(self.parts) == 1

    @property
    def text(self) -> str:
        """With wildcards written as *."""
        return "*".join(self.parts)

    @property
    def like(self) -> str:
        """As a pattern of LIKE."""
        return "%".join(re.sub(r"([\\%_])", r"\\\1", part) for part in self.parts)

    @property
    def regex(self) -> str:
        """As a regular expression of PostgreSQL."""
        return ".*".join(re.sub(r"([^\w\s])", r"\\\1", part) for part in self.parts)

    def __str__(self) -> str:
        text = "*".join(re.sub(r'(["\\*])', r"\\\1", part) for part in self.parts)
        plain = all(_PLAIN.fullmatch(part) for part in self.parts if part) and text != ""
        return text if plain else f'"{text}"'


@dataclass(frozen=True, slots=True)
class Text:
    """A field contains the pattern, in any case; or, if `exact`, is the pattern. field: a key, or ANY."""

    field: str
    pattern: Pattern
    exact: bool = False
    negated: bool = False

    def __str__(self) -> str:
        text = str(self.pattern)
        if self.field != ANY:
            return f"{_minus(self)}{self.field}{'=' if self.exact else ':'}{text}"
        is_word = _WORD.fullmatch(text) and text not in CONNECTIVES
        return _minus(self) + (text if is_word or text.startswith('"') else f'"{text}"')


@dataclass(frozen=True, slots=True)
class BodyText:
    """The body contains this text, in UTF-8 and in this case."""

    text: str
    negated: bool = False

    def __str__(self) -> str:
        return f"{_minus(self)}body:{Pattern((self.text,))}"


@dataclass(frozen=True, slots=True)
class Property:
    """An application property, or a header. operator: None, it exists; ":" contains, "=", ">", ">=", "<", "<="."""

    name: str
    operator: str | None = None
    pattern: Pattern = Pattern(("",))
    negated: bool = False

    def __str__(self) -> str:
        return f"{_minus(self)}prop.{quoted_name(self.name)}" + (
            "" if self.operator is None else f"{self.operator}{self.pattern}"
        )


@dataclass(frozen=True, slots=True)
class JsonValue:
    """The value at a path in a JSON body. steps: names and indexes; None: every element or member. operator: as in Property.

    is_quoted: whether the value is a text even if it looks like a number, true, false or null.
    """

    steps: tuple[str | int | None, ...]
    operator: str | None = None
    pattern: Pattern = Pattern(("",))
    is_quoted: bool = False
    negated: bool = False

    @property
    def path(self) -> str:
        return "$" + "".join(_step(step) for step in self.steps)

    def __str__(self) -> str:
        value = str(self.pattern)
        if self.is_quoted and not value.startswith('"'):
            value = f'"{value}"'
        return _minus(self) + self.path + ("" if self.operator is None else f"{self.operator}{value}")


@dataclass(frozen=True, slots=True)
class NumberRange:
    """A number within bounds, both included. None: no bound."""

    field: str
    low: int | None
    high: int | None
    negated: bool = False

    def __str__(self) -> str:
        return _minus(self) + self.field + _range(self.low, self.high)


@dataclass(frozen=True, slots=True)
class Age:
    """Time since the message was enqueued or dead-lettered, by the namespace's clock: at least `low`, less than `high`."""

    field: str
    low: timedelta | None
    high: timedelta | None
    negated: bool = False

    def __str__(self) -> str:
        low, high = (None if bound is None else _duration(bound) for bound in (self.low, self.high))
        if low and high:
            return f"{_minus(self)}{self.field}:{low}..{high}"
        return f"{_minus(self)}{self.field}" + (f">{low}" if low else f"<{high}")


@dataclass(frozen=True, slots=True)
class TimeRange:
    """An instant from `start` on and before `end`, by the namespace's clock."""

    field: str
    start: datetime | None
    end: datetime | None
    negated: bool = False

    def __str__(self) -> str:
        unit = timedelta.resolution
        if self.end is not None:
            unit = next(unit for unit in (_DAY, _MINUTE, _SECOND, unit) if (self.end - _EPOCH) % unit == timedelta(0))
        low = "" if self.start is None else _instant(self.start)
        high = "" if self.end is None else _instant(self.end - unit, unit)
        return f"{_minus(self)}{self.field}:{low}..{high}"


@dataclass(frozen=True, slots=True)
class InState:
    """Is in this state at the instant of the namespace's clock."""

    state: State
    negated: bool = False

    def __str__(self) -> str:
        return f"{_minus(self)}state:{self.state}"


Condition = Text | BodyText | Property | JsonValue | NumberRange | Age | TimeRange | InState
ANY = "any"  # the field of words without a key
CONNECTIVES = ("AND", "OR", "NOT")
_WORD = re.compile(r"[\w*][\w*./@#+-]*")  # a word that no key, sign or quote begins
_NAME = re.compile(r"[^\s\":=<>!]+")  # a property's name that needs no quotes
_STEP = re.compile(r"[^\s\"\[\].:=<>!*]+")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def quoted_name(name: str) -> str:
    """The name of a property, in quotes if it needs them."""
    return name if _NAME.fullmatch(name) else f'"{_escaped(name)}"'


def _minus(condition: Condition) -> str:
    return "-" if condition.negated else ""


def _escaped(text: str) -> str:
    return re.sub(r'(["\\])', r"\\\1", text)


def _step(step: str | int | None) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    if step is None:
        return "[*]"
    return f".{step}" if _STEP.fullmatch(step) else f'."{_escaped(step)}"'


def _range(low: int | None, high: int | None) -> str:
    if low is not None and high is not None:
        return f"={low}" if low == high else f":{low}..{high}"
    return f">={low}" if low is not None else f"<={high}"


def _duration(duration: timedelta) -> str:
    hours, seconds = divmod(duration.seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    fraction = f".{duration.microseconds:06d}".rstrip("0") if duration.microseconds else ""
    parts = ((duration.days, "d"), (hours, "h"), (minutes, "m"))
    text = "".join(f"{number}{unit}" for number, unit in parts if number)
    return text + (f"{seconds}{fraction}s" if seconds or fraction or not text else "")


def _instant(instant: datetime, unit: timedelta | None = None) -> str:
    """In UTC and as short as it can be; if a unit is given, to that unit."""
    at = instant.astimezone(UTC).replace(tzinfo=None)
    if unit is None:
        unit = next(
            candidate
            for candidate in (_DAY, _MINUTE, _SECOND, timedelta.resolution)
            if (instant - _EPOCH) % candidate == timedelta(0)
        )
    if unit == _DAY:
        return at.date().isoformat()
    return at.isoformat(timespec={_MINUTE: "minutes", _SECOND: "seconds"}.get(unit, "microseconds"))
