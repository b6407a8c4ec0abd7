"""Correlation filters: equality of named properties, which a RuleIndex decides by lookup (SB-F16, SB-F17)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, ClassVar

from broker_core.common.errors import InvalidArgument
from broker_core.service_bus.rules.amqp.properties import encode_properties

from .view import MessageView, comparable

ELEMENTS = {  # the broker properties by their names in the service, in its order
    "CorrelationId": "correlation_id",
    "MessageId": "message_id",
    "To": "to",
    "ReplyTo": "reply_to",
    "Label": "subject",
    "SessionId": "session_id",
    "ReplyToSessionId": "reply_to_session_id",
    "ContentType": "content_type",
}
FIELDS = tuple(ELEMENTS.values())


@dataclass(frozen=True)
class CorrelationFilter:
    """Matches messages whose properties equal all of these; None is not compared (SB-F16).

    subject is called Label by the service. Strings are compared case-sensitively, and values must be of one kind: 5 equals 5.0,
    but neither "5" nor true (SB-F17). Raises InvalidArgument for a filter without conditions, or a value that cannot be compared.
    """

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    subject: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)

    always: ClassVar[None] = None

    def __post_init__(self) -> None:
        for name, value in self.texts.items():
            if not isinstance(value, str):
                raise InvalidArgument(f"correlation filter: {name}", f"must be a string, not {type(value).__name__}")
            if "\x00" in value:
                raise InvalidArgument(f"correlation filter: {name}", "contains a NUL character")
        if not self.texts and not self.properties:
            raise InvalidArgument(
                "correlation filter", f"has no conditions; use at least one of {', '.join(FIELDS)} or a property"
            )
        _check_properties(self.properties)

    @cached_property
    def texts(self) -> dict[str, str]:
        """The broker properties that are compared, by their names in Message."""
        return {name: value for name in FIELDS if (value := getattr(self, name)) is not None}

    @cached_property
    def values(self) -> dict[str, Any]:
        """The application properties that are compared, by their names in lower case."""
        return {name.lower(): distinct(comparable(name, value)) for name, value in self.properties.items()}

    @property
    def compared(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The names of the compared broker properties and application properties. Equal for filters in one lookup."""
        return tuple(self.texts), tuple(sorted(self.values))

    @property
    def key(self) -> Any:
        """The value of key_reader(*self.compared) for a matching message."""
        key = (*self.texts.values(), *(self.values[name] for name in sorted(self.values)))
        return key[0] if len(key) == 1 else key

    def matches(self, view: MessageView) -> bool:
        return self._read(view) == self.key

    @cached_property
    def _read(self) -> Callable[[MessageView], Any]:
        return key_reader(*self.compared)


def key_reader(texts: tuple[str, ...], values: tuple[str, ...]) -> Callable[[MessageView], Any]:
    """A function that returns the named properties of a message: one value, or a tuple of several."""
    if not values:
        return attrgetter(*(f"message.{name}" for name in texts))
    if not texts and len(values) == 1:
        return _reader(values[0])
    readers = [attrgetter(f"message.{name}") for name in texts] + [_reader(name) for name in values]
    return lambda view: tuple([read(view) for read in readers])


def _reader(name: str) -> Callable[[MessageView], Any]:
    def read(view: MessageView) -> Any:
        value = view.user.get(name)
        return value if value.__class__ is not bool else distinct(value)

    return read


def distinct(value: Any) -> Any:
    """A value as a dictionary key; in Python, True equals 1."""
    return ("boolean", value) if isinstance(value, bool) else value


def _check_properties(properties: Mapping[str, Any]) -> None:
    if not isinstance(properties, Mapping):
        raise InvalidArgument("correlation filter: properties", f"must be a mapping, not {repr(properties)[:80]}")
    seen = set()
    encode_properties(properties)
    for name, value in properties.items():
        label = f"correlation filter: property {name!r}"
        if name.lower() in seen:
            raise InvalidArgument(label, "appears twice (names are case-insensitive)")
        seen.add(name.lower())
        comparable_value = comparable(name, value)
        if comparable_value is None or (isinstance(comparable_value, float) and math.isnan(comparable_value)):
            raise InvalidArgument(label, f"{value!r} never equals anything")
