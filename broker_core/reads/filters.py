"""The language of message filters: conditions separated by spaces, all of which must hold.

    id:order-47 reason=TTLExpired* prop.tenant:acme body:"net total" $.order.id>4700 state:dead age>1h at:09:00..09:30 -held-by:*

`:` finds a part of a text, `=` the whole of it; `*` stands for any text. `-` negates a condition. A word without a key is
searched in the message id and some other fields. Quotes keep spaces together; `\\"`, `\\\\` and `\\*` are the characters
themselves. The text is what URLs, saved filters and operations store. docs/search.md describes the keys.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from difflib import get_close_matches

from broker_core.common.durations import parse_human_or_iso
from broker_core.common.errors import FilterError, InvalidArgument

from .conditions import (
    ANY,
    CONNECTIVES,
    Age,
    BodyText,
    Condition,
    InState,
    JsonValue,
    NumberRange,
    Pattern,
    Property,
    State,
    Text,
    TimeRange,
)

MOST_CHARACTERS = 2_000
MOST_CONDITIONS = 20
LONGEST_AGE = timedelta(days=10_000)

# The keys of texts, with what they find.
TEXTS = {
    "id": "message id",
    "subject": "subject",
    "correlation": "correlation id",
    "session": "session id",
    "reason": "dead-letter reason",
    "description": "dead-letter description",
    "origin": "queue in which it failed, in a poison queue",
    "held-by": "holder of the lock",
    "content-type": "content type",
    "reply-to": "reply address",
    "to": "destination as sent",
    "exchange": "exchange",
    "routing-key": "routing key",
    "type": "type as sent",
    "user": "user id as sent",
    "app": "application id as sent",
    "entity": "namespace and path of the entity",
}
NUMBERS = {"number": "sequence number", "deliveries": "delivery count", "size": "size in bytes", "priority": "priority"}
TIMES = {"at": "time of arrival", "dead-at": "time of dead-lettering"}
AGES = {"age": "time since arrival", "dead-age": "time since dead-lettering"}
KEYS = {
    **TEXTS, "body": "text in the body", "state": "state", **AGES, **TIMES, **NUMBERS,
}  # fmt: skip
STATES = {
    **{str(state): state for state in State},
    **dict.fromkeys(("ready", "visible", "available"), State.ACTIVE),
    **dict.fromkeys(("unacked", "invisible", "unacknowledged"), State.LOCKED),
    **dict.fromkeys(("dead-letter", "dead-lettered"), State.DEAD),
    "delayed": State.SCHEDULED,
    "removed": State.GONE,
}
_SYNONYMS = {
    "message-id": "id", "correlation-id": "correlation", "session-id": "session", "label": "subject", "holder": "held-by",
    "enqueued": "at", "delivery-count": "deliveries", "dequeue-count": "deliveries", "queue": "entity", "sender": "user",
}  # fmt: skip
_KEY = re.compile(r"([A-Za-z][\w-]*)(!=|>=|<=|[:=<>])")
_PROPERTY = re.compile(r"(?:prop|property|header)\.", re.IGNORECASE)
_PROPERTY_NAME = re.compile(r"[^\s\":=<>!]+")
_OPERATOR = re.compile(r"!=|>=|<=|[:=<>]")
_JSON_STEP = re.compile(r'\[(\d{1,9}|\*)\]|\.([^\s".\[\]:=<>!*]+)|\.(")')
_SIZE = re.compile(r"(\d{1,18})\s*([KMG]?)i?B?", re.IGNORECASE)
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?Z?")
_MINUTE, _SECOND, _DAY = timedelta(minutes=1), timedelta(seconds=1), timedelta(days=1)


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Conditions on messages, all of which must hold. str() is the filter in the language of this module.

    holds: in a storage or RabbitMQ queue, why the message cannot be received, one of: 0, it can; 10, 12, 13, 14, it is invisible
           or unacknowledged (HoldKind); EXPIRED. It selects a list and is no part of the text.
    """

    conditions: tuple[Condition, ...] = ()
    holds: tuple[int, ...] | None = None

    def __bool__(self) -> bool:
        return bool(self.conditions) or self.holds is not None

    def __str__(self) -> str:
        return " ".join(map(str, self.conditions))

    def at(self, instant: datetime) -> MessageFilter:
        """The same filter with ages as instants, so that it matches later what it matches at this instant."""
        return replace(
            self,
            conditions=tuple(
                _at(condition, instant) if isinstance(condition, Age) else condition for condition in self.conditions
            ),
        )

    @property
    def needs_bodies(self) -> bool:
        """Whether it requires Right.SEE_BODIES."""
        return any(isinstance(condition, BodyText | JsonValue) for condition in self.conditions)


def _at(age: Age, instant: datetime) -> TimeRange:
    """The instants of messages that have this age: a range that excludes its start and includes its end."""
    after = timedelta.resolution
    start = None if age.high is None else instant - age.high + after
    end = None if age.low is None else instant - age.low + after
    return TimeRange(age.field.replace("age", "at"), start, end, age.negated)


@dataclass(frozen=True, slots=True)
class Token:
    """A condition and its place in the text."""

    condition: Condition
    start: int
    end: int


def parse_filter(text: str, *, now: datetime) -> MessageFilter:
    """Parse a filter. now: of the clock that times without a date refer to; they mean the last such time. Raises FilterError."""
    return MessageFilter(tuple(token.condition for token in parse_tokens(text, now=now)))


def parse_tokens(text: str, *, now: datetime) -> list[Token]:
    """Parse a filter into its conditions with their places. Raises FilterError."""
    if len(text) > MOST_CHARACTERS:
        raise FilterError(MOST_CHARACTERS, f"A filter has at most {MOST_CHARACTERS:,} characters.")
    for position, character in enumerate(text):
        if character == "\0" or "\ud800" <= character <= "\udfff":
            raise FilterError(position, "This character cannot be searched for. Remove it.")
    parser = _Parser(text, now)
    tokens: list[Token] = []
    while (token := parser.token()) is not None:
        if len(tokens) == MOST_CONDITIONS:
            raise FilterError(token.start, f"A filter has at most {MOST_CONDITIONS} conditions.")
        tokens.append(token)
    return tokens


def exactly(key: str, value: str) -> str:
    """The condition that a text or a property ("prop.NAME") is this value, in the language."""
    return f"{key}={Pattern((value,))}"


@dataclass(frozen=True, slots=True)
class _Value:
    """A value: its pattern, its place, and whether it was quoted."""

    pattern: Pattern
    start: int
    is_quoted: bool

    @property
    def text(self) -> str:
        """As written: what is no pattern has no wildcards."""
        return self.pattern.text


class _Parser:
    def __init__(self, text: str, now: datetime):
        self.text, self.now, self.at = text, now, 0

    def token(self) -> Token | None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        if self.at == len(self.text):
            return None
        start = self.at
        negated = self.text[self.at] == "-" and self.at + 1 < len(self.text) and not self.text[self.at + 1].isspace()
        self.at += negated
        return Token(self._condition(negated), start, self.at)

    def _condition(self, negated: bool) -> Condition:
        if self.text[self.at] == "$":
            return self._json(negated)
        if match := _PROPERTY.match(self.text, self.at):
            self.at = match.end()
            return self._property(negated)
        match = _KEY.match(self.text, self.at)
        if match is None:
            return self._words(negated)
        start, name = self.at, match[1].lower()
        key = _SYNONYMS.get(name, name)
        if key not in KEYS:
            raise FilterError(start, _unknown(match[1], match[2]))
        self.at = match.end(1)
        at, operator, negated = self._operator(negated)
        return self._keyed(key, operator, at, self._value(key + operator), negated)

    def _keyed(self, key: str, operator: str, at: int, value: _Value, negated: bool) -> Condition:
        if key in TEXTS:
            self._only(":=", key, operator, at)
            return Text(key, value.pattern, operator == "=", negated)
        if key == "body":
            self._only(":", key, operator, at)
            return BodyText(value.text, negated)
        if key == "state":
            self._only(":=", key, operator, at)
            return InState(_state(value), negated)
        if key in NUMBERS:
            return NumberRange(key, *_numbers(key, operator, value), negated)
        if key in AGES:
            return Age(key, *_ages(key, operator, value), negated)
        return TimeRange(key, *_times(key, operator, value, self.now), negated)

    def _words(self, negated: bool) -> Text:
        value = self._value("")
        if not value.is_quoted and value.text in CONNECTIVES:
            raise FilterError(
                value.start,
                f"All conditions must hold, and a minus negates one: there is no {value.text}. Remove it, or put it in quotes to "
                "search for the word.",
            )
        return Text(ANY, value.pattern, False, negated)

    def _property(self, negated: bool) -> Property:
        start = self.at
        if self.text.startswith('"', self.at):
            name = self._quoted().text
        elif match := _PROPERTY_NAME.match(self.text, self.at):
            name, self.at = match[0], match.end()
        else:
            name = ""
        if not name:
            raise FilterError(start, "The name of the property is missing. Write for example prop.tenant:acme.")
        if self._at_end():
            return Property(name, negated=negated)
        at, operator, negated = self._operator(negated)
        return Property(name, operator, self._value(f"prop.{name}{operator}").pattern, negated)

    def _json(self, negated: bool) -> JsonValue:
        self.at += 1
        steps: list[str | int | None] = []
        while match := _JSON_STEP.match(self.text, self.at):
            if match[3]:
                self.at = match.end() - 1
                steps.append(self._quoted().text)
                continue
            self.at = match.end()
            steps.append(match[2] or (None if match[1] == "*" else int(match[1])))
        if self._at_end():
            return JsonValue(tuple(steps), negated=negated)
        if not _OPERATOR.match(self.text, self.at):
            raise FilterError(
                self.at,
                "This is no path to a JSON value. Write for example $.order.id>4700, $.items[0].sku:A1 or $.items[*].sku:A1.",
            )
        at, operator, negated = self._operator(negated)
        value = self._value(f"${operator}")
        return JsonValue(tuple(steps), operator, value.pattern, value.is_quoted, negated)

    def _operator(self, negated: bool) -> tuple[int, str, bool]:
        """The operator's place, the operator, and whether the condition is negated. != is = negated."""
        match = _OPERATOR.match(self.text, self.at)
        if match is None:
            raise FilterError(self.at, "Write a space before the next condition, or one of : = > < before a value.")
        self.at = match.end()
        return (match.start(), "=", not negated) if match[0] == "!=" else (match.start(), match[0], negated)

    @staticmethod
    def _only(operators: str, key: str, operator: str, at: int) -> None:
        if operator not in operators:
            raise FilterError(at, f"{key} is a text: write {' or '.join(key + sign for sign in operators)} before the value.")

    def _value(self, before: str) -> _Value:
        if self._at_end():
            advice = f" Write a value after {before}" + (", or * for any." if before.rstrip(":=") in TEXTS else ".")
            raise FilterError(self.at, f"A value is missing.{advice}")
        if self.text[self.at] == '"':
            value = self._quoted()
            if not self._at_end():
                raise FilterError(self.at, "Write a space after the closing quote.")
            return value
        start, end = self.at, self.at
        while end < len(self.text) and not self.text[end].isspace():
            end += 2 if self.text[end] == "\\" and self.text[end + 1 : end + 2] in ('"', "\\", "*") else 1
        self.at = end
        return _Value(_pattern(self.text[start:end]), start, False)

    def _quoted(self) -> _Value:
        start = self.at
        match = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL).match(self.text, start)
        if match is None:
            raise FilterError(start, 'The quote is not closed. Add a " at the end of the text.')
        self.at = match.end()
        return _Value(_pattern(match[1]), start, True)

    def _at_end(self) -> bool:
        return self.at >= len(self.text) or self.text[self.at].isspace()


def _pattern(text: str) -> Pattern:
    """A text with escapes as a pattern. A backslash before any other character stands for itself."""
    parts = [""]
    for match in re.finditer(r'\\(["\\*])|(\*)|(.)', text, re.DOTALL):
        if match[2]:
            parts.append("")
        else:
            parts[-1] += match[1] or match[3]
    return Pattern(tuple(parts))


def _unknown(key: str, operator: str) -> str:
    near = get_close_matches(key.lower(), [*KEYS, *_SYNONYMS], 1, 0.75)
    meant = f"{_SYNONYMS.get(near[0], near[0])}{operator}" if near else f"prop.{key}{operator} or $.{key}{operator}"
    return f"There is no key {key}. Write {meant}, or put the text in quotes to search for it."


def _state(value: _Value) -> State:
    state = STATES.get(value.text.lower())
    if state is None:
        raise FilterError(value.start, f"There is no state {value.text}. Write one of {', '.join(State)}.")
    return state


Part = tuple[str, int]  # a part of a value and its place


def _ends(value: _Value, operator: str, example: str) -> tuple[Part | None, Part | None] | None:
    """The two ends of a range; None: the value is no range."""
    if operator not in (":", "=") or ".." not in value.text:
        return None
    low, _, high = value.text.partition("..")
    if not low and not high:
        raise FilterError(value.start, f"Write a value before or after the dots, as in {example}.")
    return (low, value.start) if low else None, (high, value.start + len(low) + 2) if high else None


def _ordered(in_order: bool, value: _Value) -> None:
    if not in_order:
        raise FilterError(value.start, "The range ends before it begins. Exchange the two values.")


def _numbers(key: str, operator: str, value: _Value) -> tuple[int | None, int | None]:
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


def _ages(key: str, operator: str, value: _Value) -> tuple[timedelta | None, timedelta | None]:
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


def _times(key: str, operator: str, value: _Value, now: datetime) -> tuple[datetime | None, datetime | None]:
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
