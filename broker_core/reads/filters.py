"""The language of message filters: conditions separated by spaces, all of which must hold.

    id:order-47 reason=TTLExpired* prop.tenant:acme body:"net total" $.order.id>4700 state:dead age>1h at:09:00..09:30 -held-by:*

`:` finds a part of a text, `=` the whole of it; `*` stands for any text. `-` negates a condition. A word without a key is
searched in the message id and some other fields. Quotes keep spaces together; `\\"`, `\\\\` and `\\*` are the characters
themselves. The text is what URLs, saved filters and operations store. docs/search.md describes the keys.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from difflib import get_close_matches

from broker_core.common.errors import FilterError
from broker_core.common.types import TERMINAL_KINDS

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
from .lexing import KEY, OPERATOR, Lexer, Token, Value
from .ranges import ages, numbers, times

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
_LEFT = {kind.name.lower().replace("_", "-") for kind in TERMINAL_KINDS}
_SYNONYMS = {
    "message-id": "id", "correlation-id": "correlation", "session-id": "session", "label": "subject", "holder": "held-by",
    "enqueued": "at", "delivery-count": "deliveries", "dequeue-count": "deliveries", "queue": "entity", "sender": "user",
}  # fmt: skip
_PROPERTY = re.compile(r"(?:prop|property|header)\.", re.IGNORECASE)
_PROPERTY_NAME = re.compile(r"[^\s\":=<>!]+")
_JSON_STEP = re.compile(r'\[(\d{1,9}|\*)\]|\.([^\s".\[\]:=<>!*]+)|\.(")')


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


def parse_filter(text: str, *, now: datetime) -> MessageFilter:
    """Parse a filter. now: of the clock that times without a date refer to; they mean the last such time. Raises FilterError."""
    return MessageFilter(tuple(token.condition for token in parse_tokens(text, now=now)))


def parse_tokens(text: str, *, now: datetime) -> list[Token[Condition]]:
    """Parse a filter into its conditions with their places. Raises FilterError."""
    return _Parser(text, now).tokens()


def exactly(key: str, value: str) -> str:
    """The condition that a text or a property ("prop.NAME") is this value, in the language."""
    return f"{key}={Pattern((value,))}"


class _Parser(Lexer[Condition]):
    def __init__(self, text: str, now: datetime):
        super().__init__(text)
        self.now = now

    def condition(self, negated: bool) -> Condition:
        if self.text[self.at] == "$":
            return self._json(negated)
        if match := _PROPERTY.match(self.text, self.at):
            self.at = match.end()
            return self._property(negated)
        match = KEY.match(self.text, self.at)
        if match is None:
            return self._words(negated)
        start, name = self.at, match[1].lower()
        key = _SYNONYMS.get(name, name)
        if key not in KEYS:
            raise FilterError(start, _unknown(match[1], match[2]))
        self.at = match.end(1)
        at, operator, negated = self.operator(negated)
        return self._keyed(key, operator, at, self._value_after(key + operator), negated)

    def _keyed(self, key: str, operator: str, at: int, value: Value, negated: bool) -> Condition:
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
            return NumberRange(key, *numbers(key, operator, value), negated)
        if key in AGES:
            return Age(key, *ages(key, operator, value), negated)
        return TimeRange(key, *times(key, operator, value, self.now), negated)

    def _value_after(self, before: str) -> Value:
        any_text = ", or * for any." if before.rstrip(":=") in TEXTS else "."
        return self.value(f"Write a value after {before}{any_text}")

    def _words(self, negated: bool) -> Text:
        value = self.value("")
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
            name = self.quoted().text
        elif match := _PROPERTY_NAME.match(self.text, self.at):
            name, self.at = match[0], match.end()
        else:
            name = ""
        if not name:
            raise FilterError(start, "The name of the property is missing. Write for example prop.tenant:acme.")
        if self.at_end():
            return Property(name, negated=negated)
        at, operator, negated = self.operator(negated)
        return Property(name, operator, self._value_after(f"prop.{name}{operator}").pattern, negated)

    @staticmethod
    def _only(operators: str, key: str, operator: str, at: int) -> None:
        if operator not in operators:
            raise FilterError(at, f"{key} is a text: write {' or '.join(key + sign for sign in operators)} before the value.")

    def _json(self, negated: bool) -> JsonValue:
        self.at += 1
        steps: list[str | int | None] = []
        while match := _JSON_STEP.match(self.text, self.at):
            if match[3]:
                self.at = match.end() - 1
                steps.append(self.quoted().text)
                continue
            self.at = match.end()
            steps.append(match[2] or (None if match[1] == "*" else int(match[1])))
        if self.at_end():
            return JsonValue(tuple(steps), negated=negated)
        if not OPERATOR.match(self.text, self.at):
            raise FilterError(
                self.at,
                "This is no path to a JSON value. Write for example $.order.id>4700, $.items[0].sku:A1 or $.items[*].sku:A1.",
            )
        at, operator, negated = self.operator(negated)
        value = self._value_after(f"${operator}")
        return JsonValue(tuple(steps), operator, value.pattern, value.is_quoted, negated)


def _unknown(key: str, operator: str) -> str:
    near = get_close_matches(key.lower(), [*KEYS, *_SYNONYMS], 1, 0.75)
    meant = f"{_SYNONYMS.get(near[0], near[0])}{operator}" if near else f"prop.{key}{operator} or $.{key}{operator}"
    return f"There is no key {key}. Write {meant}, or put the text in quotes to search for it."


def _state(value: Value) -> State:
    state = STATES.get(value.text.lower())
    if state is None and value.text.lower() in _LEFT:
        raise FilterError(value.start, f"{value.text} is how a message left, not a state. Write state:gone for all that left.")
    if state is None:
        raise FilterError(value.start, f"There is no state {value.text}. Write one of {', '.join(State)}.")
    return state
