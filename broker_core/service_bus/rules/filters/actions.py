"""Rule actions: SET and REMOVE on the copy that a rule makes (SB-260 to SB-265)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from broker_core.common.durations import parse_human_or_iso
from broker_core.common.errors import InvalidArgument
from broker_core.common.typed import Typed
from broker_core.service_bus.rules.amqp.properties import decode_properties, encode_properties
from broker_core.service_bus.rules.values import Message

from . import syntax
from .evaluation import compile_value
from .operators import as_text, failure, kind_of
from .parser import parse_action
from .view import SETTABLE, MessageView, comparable

_INTEGERS = ("long", "int", "short", "byte", "ulong", "uint", "ushort", "ubyte")
_FRACTIONS = ("double", "float", "decimal128", "decimal64", "decimal32")
# The AMQP types of a result: the default first, then those it is converted to if the property already has one of them.
_CONVERSIONS = {
    bool: ("boolean",),
    int: (*_INTEGERS, *_FRACTIONS),
    float: _FRACTIONS,
    str: ("string", "symbol", "uri", "char"),
    datetime: ("timestamp",),
    timedelta: ("timespan",),
    UUID: ("uuid",),
    bytes: ("binary",),
}


@dataclass(frozen=True, slots=True)
class Action:
    """A compiled action, from compile_action. It changes copies, never the given message (SB-215)."""

    text: str
    parameters: Mapping[str, Any]
    _statements: tuple[Callable[[_Draft], None], ...] = field(compare=False, repr=False)

    def apply(self, message: Message, view: MessageView | None = None) -> Message:
        """The changed copy. view: the view that the filters used, for the sequence number and times.

        The statements run in order, each seeing the changes of earlier ones (SB-262). Raises FilterEvaluationError.
        """
        draft = _Draft(message, view or MessageView.of(message))
        for statement in self._statements:
            statement(draft)
        return replace(draft.message, properties=draft.properties)


class _Draft(MessageView):
    """A copy being changed, and the view that expressions are evaluated on. names: the spelling of each application property."""

    __slots__ = ("names", "properties")

    def __init__(self, message: Message, view: MessageView):
        super().__init__(
            message,
            view.sequence_number,
            view.enqueued_at,
            view.size,
            view.enqueued_sequence_number,
            view.dead_letter_source,
            view.new_id,
        )
        self.properties = dict(message.properties)
        self.names: dict[str, str] = {}
        for name in self.properties:
            self.names.setdefault(name.lower(), name)

    def put(self, name: str, value: Any) -> None:
        """Overwrite a property under its existing spelling, or add it under this one (SB-260)."""
        name = self.names.setdefault(name.lower(), name)
        self.properties[name] = value
        self.user[name.lower()] = comparable(name, value)

    def remove(self, name: str) -> None:
        """Remove a property in every spelling (SB-260); a missing one is not an error."""
        lower = name.lower()
        self.properties = {name: value for name, value in self.properties.items() if name.lower() != lower}
        self.names.pop(lower, None)
        self.user.pop(lower, None)


def compile_action(text: str, parameters: Mapping[str, Any] | None = None) -> Action:
    """Compile an action. Raises InvalidFilter and InvalidArgument as compile_filter does."""
    statements = parse_action(text, parameters)
    compiled = tuple(_STATEMENTS[type(statement), type(statement.property)](statement) for statement in statements)
    return Action(text, dict(parameters or {}), compiled)


def _set_user(statement: syntax.Set) -> Callable[[_Draft], None]:
    """Set an application property. An Unknown result changes nothing (SB-264). A property that is only copied keeps its type."""
    name, value, source = statement.property.name, compile_value(statement.value), statement.value
    position = statement.property.position
    copied = source.name.lower() if isinstance(source, syntax.UserProperty) else None

    def run(draft: _Draft) -> None:
        result = value(draft)
        if result is None:
            return
        if copied is not None and (name.lower() not in draft.names or name.lower() == copied):
            draft.put(name, draft.properties[draft.names[copied]])
            return
        existing = draft.properties[draft.names[name.lower()]] if name.lower() in draft.names else None
        draft.put(name, _convert(name, result, existing, position))

    return run


def _convert(name: str, result: Any, existing: Any, position: int) -> Any:
    """Convert the result to the property's existing type if it is of the same kind, otherwise to the default type (SB-261).

    The default type of integers is the 64-bit one, as for constants.
    """
    types = _CONVERSIONS[next(kind for kind in _CONVERSIONS if isinstance(result, kind))]
    try:
        existing_type = encode_properties({name: existing})[name][0]
        for kind in dict.fromkeys([*(kind for kind in types if kind == existing_type), types[0]]):
            stored = _as_amqp(name, kind, result)
            if stored is not None:
                return stored
    except InvalidArgument as exc:
        raise failure(position, str(exc)) from exc
    raise failure(position, f"{kind_of(result)} that a property cannot hold")


def _as_amqp(name: str, kind: str, result: Any) -> Any:
    """The result as a property of an AMQP type; None if it does not fit."""
    if kind == "char" and len(result) != 1:
        return None
    try:
        return decode_properties(encode_properties({name: Typed(kind, result)}))[name]
    except InvalidArgument:
        return None


def _set_system(statement: syntax.Set) -> Callable[[_Draft], None]:
    changed, value, position = SETTABLE[statement.property.name], compile_value(statement.value), statement.property.position
    converters: dict[str, Callable[[Any, int], Any]] = {"time_to_live": _duration, "scheduled_enqueue_at": _instant}
    convert: Callable[[Any, int], Any] = converters.get(changed, as_text)

    def run(draft: _Draft) -> None:
        result = value(draft)
        if result is not None:
            change: dict[str, Any] = {changed: convert(result, position)}
            draft.message = replace(draft.message, **change)

    return run


def _duration(value: Any, position: int) -> timedelta | None:
    """A duration, or a string such as 00:10:00 or PT10M (SB-F18); it must be positive."""
    if isinstance(value, str):
        try:
            value = parse_human_or_iso(value)
        except InvalidArgument as exc:
            raise failure(position, exc.problem) from exc
    elif not isinstance(value, timedelta):
        raise failure(position, f"a time-to-live is a duration, not {kind_of(value)}")
    if value is not None and value <= timedelta(0):
        raise failure(position, "a time-to-live must be positive")
    return value


def _instant(value: Any, position: int) -> datetime:
    """A timestamp, or a string in ISO 8601, in UTC if it has no time zone (SB-F18)."""
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError as exc:
            raise failure(position, f"{value[:40]!r} must be a timestamp such as 2026-01-31T12:00:00Z") from exc
    elif not isinstance(value, datetime):
        raise failure(position, f"a timestamp is required, not {kind_of(value)}")
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def _remove_user(statement: syntax.Remove) -> Callable[[_Draft], None]:
    name = statement.property.name
    return lambda draft: draft.remove(name)


def _remove_system(statement: syntax.Remove) -> Callable[[_Draft], None]:
    unset: dict[str, Any] = {SETTABLE[statement.property.name]: None}

    def run(draft: _Draft) -> None:
        draft.message = replace(draft.message, **unset)

    return run


_STATEMENTS: dict[tuple[type, type], Callable[[Any], Callable[[_Draft], None]]] = {
    (syntax.Set, syntax.UserProperty): _set_user,
    (syntax.Set, syntax.SystemProperty): _set_system,
    (syntax.Remove, syntax.UserProperty): _remove_user,
    (syntax.Remove, syntax.SystemProperty): _remove_system,
}
