"""The arguments of queues, exchanges, bindings and consumers: types, ranges, and equivalence of repeated declarations.

Decides whether a declaration is accepted (docs/rules.md#rabbitmq-queues-and-their-arguments). Does not depend on what is
stored: the caller checks whether objects exist. Arguments are decoded tables: see table.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from broker_core.common.errors import InvalidArgument

from . import errors
from .erlang import Atom, Chars, term
from .errors import Reason
from .names import DEFAULT_EXCHANGE, RESERVED, check_new_exchange_name
from .table import INTEGERS, encode, typed

Arguments = Mapping[str, Any]

MAX_EXPIRY = 315_360_000_000  # ms: 10 times 365 days (RMQ-001)
CLASSIC, QUORUM, STREAM = "classic", "quorum", "stream"
MOST_BYTES = 128 * 1024  # the size of one AMQP frame
QUEUE_TYPES = (CLASSIC, QUORUM)  # streams are not supported (RMQ-908)
EXCHANGE_TYPES = ("direct", "fanout", "topic", "headers")
OVERFLOWS = ("drop-head", "reject-publish", "reject-publish-dlx")
STRATEGIES = ("at-most-once", "at-least-once")
QUEUE_MODES = ("default", "lazy")
QUEUE_VERSIONS = (1, 2)
LEADER_LOCATORS = ("client-local", "balanced", "random", "least-leaders")
X_MATCH = ("all", "any", "all-with-x", "any-with-x")
ALTERNATE_EXCHANGE = "alternate-exchange"

_BOTH = (CLASSIC, QUORUM)
_Check = Callable[[str, Any, Arguments], Reason | None]  # type, value, all arguments -> why it is refused


@dataclass(frozen=True, slots=True)
class QueueDef:
    """A declared queue. owner_id: the connection that owns an exclusive queue."""

    name: str
    type: str = CLASSIC
    durable: bool = True
    auto_delete: bool = False
    owner_id: int | None = None
    arguments: Arguments = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExchangeDef:
    """A declared exchange. alternate_exchange: the effective one, by argument or policy (RMQ-316)."""

    name: str
    type: str = "direct"
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Arguments = field(default_factory=dict)
    alternate_exchange: str | None = None


def queue_type(type: str | None, arguments: Arguments) -> str:
    """The requested type of a queue: given directly, else by argument, else classic. Not validated."""
    _, named = typed(arguments.get("x-queue-type"))
    return type or (named if isinstance(named, str) else CLASSIC)


def check_size(arguments: Arguments) -> None:
    """Limit the size of arguments to one frame, since every policy change reads them. Raises InvalidArgument."""
    if (size := len(json.dumps(encode(arguments, "argument")).encode())) > MOST_BYTES:
        raise InvalidArgument("arguments", f"have {size:,} bytes; at most {MOST_BYTES:,} are allowed")


def check_queue(
    vhost: str, name: str, *, type: str | None, durable: bool, exclusive: bool, auto_delete: bool, arguments: Arguments
) -> str:
    """Validate the declaration of a new queue. Returns its type. Raises AmqpError (RMQ-332 to RMQ-343, RMQ-001, RMQ-908)."""
    check_size(arguments)
    exchange_type, _ = typed(arguments.get("x-dead-letter-exchange", ""))
    if exchange_type != "longstr":
        raise errors.invalid_argument_type(exchange_type, "x-dead-letter-exchange", errors.queue(vhost, name))
    named = arguments if type is None else {**arguments, "x-queue-type": type}
    if type is not None and typed(arguments.get("x-queue-type", type))[1] != type:
        raise errors.inequivalent("x-queue-type", errors.queue(vhost, name), _formatted(arguments["x-queue-type"]), f"'{type}'")
    _check_value(vhost, name, "x-queue-type", named)
    resolved_type = queue_type(type, arguments)
    for argument, known in _ARGUMENTS.items():
        if resolved_type in known.types:
            _check_value(vhost, name, argument, arguments)
    for argument in arguments:
        if argument in _ARGUMENTS and resolved_type not in _ARGUMENTS[argument].types:
            raise errors.unsupported_argument(argument, vhost, name, resolved_type)
    if resolved_type == QUORUM:
        _check_quorum(vhost, name, durable, exclusive, auto_delete)
    return resolved_type


def check_equivalent_queue(vhost: str, current: QueueDef, requested: QueueDef) -> None:
    """Check that a repeated declaration is equivalent. Raises AmqpError for the first difference (RMQ-344 to RMQ-348).

    The type may be given directly or by argument. Only arguments supported by the queue type are compared.
    """
    if current.owner_id != requested.owner_id:
        raise errors.locked_queue(vhost, current.name)
    what = errors.queue(vhost, current.name)
    _check_same("durable", what, current.durable, requested.durable)
    _check_same("auto_delete", what, current.auto_delete, requested.auto_delete)
    of_classic = (argument for argument, known in _ARGUMENTS.items() if CLASSIC in known.types)
    compared = _OF_QUORUM if current.type == QUORUM else tuple(of_classic)
    _check_same_arguments(what, _with_type(current), _with_type(requested), compared)


def check_queue_deletion(vhost: str, name: str, type: str, *, if_unused: bool, if_empty: bool) -> None:
    """Check whether a queue of this type supports conditional deletion. Raises AmqpError (RMQ-385)."""
    asked = "if-unused" if if_unused else "if-empty" if if_empty else None
    if type == QUORUM and asked:
        raise errors.unsupported_deletion(vhost, name, asked)


def check_exchange(vhost: str, name: str, type: str, arguments: Arguments, *, exists: bool) -> None:
    """Validate the declaration of an exchange. Raises AmqpError (RMQ-305 to RMQ-307)."""
    if type not in EXCHANGE_TYPES:
        raise errors.unknown_exchange_type(type)
    check_not_default_exchange(name)
    if exists:
        return
    check_new_exchange_name(name)
    check_size(arguments)
    alternate, _ = typed(arguments.get(ALTERNATE_EXCHANGE, ""))
    if alternate != "longstr":
        raise errors.invalid_argument_type(alternate, ALTERNATE_EXCHANGE, errors.exchange(vhost, name))


def check_not_default_exchange(name: str) -> None:
    """The default exchange cannot be declared, deleted, bound or unbound (RMQ-305)."""
    if name == DEFAULT_EXCHANGE:
        raise errors.default_exchange_refused()


def check_exchange_deletion(vhost: str, name: str) -> None:
    """Check whether an exchange of this name can be deleted (RMQ-305, RMQ-307)."""
    check_not_default_exchange(name)
    if name.startswith(RESERVED):
        raise errors.system_exchange_deletion(vhost, name)


def check_equivalent_exchange(vhost: str, current: ExchangeDef, requested: ExchangeDef) -> None:
    """Check that a repeated declaration is equivalent. Raises AmqpError (RMQ-310, RMQ-311)."""
    what = errors.exchange(vhost, current.name)
    for property in ("type", "durable", "auto_delete", "internal"):
        _check_same(property, what, getattr(current, property), getattr(requested, property))
    _check_same_arguments(what, current.arguments, requested.arguments, (ALTERNATE_EXCHANGE,))


def check_binding_arguments(exchange_type: str, arguments: Arguments) -> None:
    """Validate the arguments of a binding for this exchange type. Raises AmqpError (RMQ-352)."""
    check_size(arguments)
    if exchange_type != "headers" or "x-match" not in arguments:
        return
    kind, value = typed(arguments["x-match"])
    if kind != "longstr":
        raise errors.invalid_x_match_type(kind, value)
    if value not in X_MATCH:
        raise errors.invalid_x_match_value(value)


def consumer_priority(vhost: str, queue: str, arguments: Arguments) -> int:
    """The requested priority of a consumer, 0 by default. Raises AmqpError (RMQ-382)."""
    kind, value = typed(arguments.get("x-priority", 0))
    if reason := _integer(kind, value, arguments):
        raise errors.invalid_argument("x-priority", vhost, queue, reason)
    return value


# Values


def _check_value(vhost: str, name: str, argument: str, arguments: Arguments) -> None:
    if argument in arguments:
        kind, value = typed(arguments[argument])
        reason = _ARGUMENTS[argument].check(kind, value, arguments)
        if reason is not None:
            raise errors.invalid_argument(argument, vhost, name, reason)


def _check_quorum(vhost: str, name: str, durable: bool, exclusive: bool, auto_delete: bool) -> None:
    if auto_delete:
        raise errors.invalid_property("auto-delete", vhost, name)
    if exclusive:
        raise errors.invalid_property("exclusive-owner", vhost, name)
    if not durable:
        raise errors.invalid_property("non-durable", vhost, name)


_WHOLE = "Enter a whole number; a duration can have a unit, such as 30 s, 5 min or 2 days."
_NOT_NEGATIVE = "Enter a whole number that is not negative."


def _integer(kind: str, value: Any, _: Arguments) -> Reason | None:
    return None if kind in INTEGERS else Reason(Chars(f"expected integer, got {kind}"), _WHOLE)


def _not_negative(kind: str, value: Any, arguments: Arguments) -> Reason | None:
    reason = _integer(kind, value, arguments)
    return reason or (Reason((Atom("value_negative"), value), _NOT_NEGATIVE) if value < 0 else None)


def _duration(kind: str, value: Any, arguments: Arguments) -> Reason | None:
    reason = _integer(kind, value, arguments)
    return reason or expiry_problem(value)


def expiry_problem(milliseconds: int) -> Reason | None:
    """Why a number of milliseconds is not a valid time-to-live (RMQ-001, RMQ-006)."""
    if milliseconds > MAX_EXPIRY:
        return Reason((Atom("value_too_large"), milliseconds), "Enter at most ten years, 315360000000 milliseconds.")
    return Reason((Atom("value_negative"), milliseconds), _NOT_NEGATIVE) if milliseconds < 0 else None


def _positive_duration(kind: str, value: Any, arguments: Arguments) -> Reason | None:
    reason = _duration(kind, value, arguments)
    return reason or _zero(value, "Enter a whole number of at least 1: a queue cannot expire at once.")


def _positive(kind: str, value: Any, arguments: Arguments) -> Reason | None:
    reason = _not_negative(kind, value, arguments)
    return reason or _zero(value, "Enter a whole number of at least 1.")


def _zero(value: int, advice: str) -> Reason | None:
    return Reason((Atom("value_zero"), value), advice) if value == 0 else None


def _priority(kind: str, value: Any, arguments: Arguments) -> Reason | None:
    reason = _not_negative(kind, value, arguments)
    return reason or (Reason((Atom("max_value_exceeded"), value), "Enter at most 255.") if value > 255 else None)


def _boolean(kind: str, value: Any, _: Arguments) -> Reason | None:
    return None if kind == "bool" else _unacceptable(kind, "Use a boolean: true or false.")


def _text(kind: str, value: Any, _: Arguments) -> Reason | None:
    return None if kind == "longstr" else _unacceptable(kind)


def _dead_letter_routing_key(kind: str, value: Any, arguments: Arguments) -> Reason | None:
    if kind != "longstr":
        return _unacceptable(kind)
    if "x-dead-letter-exchange" in arguments:
        return None
    return Reason(Atom("routing_key_but_no_dlx_defined"), "Set a dead-letter exchange as well, or clear the routing key.")


def _one_of(allowed: Sequence[str], reason: str, unsupported: str | None = None) -> _Check:
    """reason: an atom. unsupported: what the value is called, for problems worded as a string instead of an atom."""

    def check(kind: str, value: Any, _: Arguments) -> Reason | None:
        if kind != "longstr":
            return _unacceptable(kind)
        if value in allowed:
            return None
        problem = Chars(f"unsupported {unsupported} '{value}'") if unsupported else Atom(reason)
        return Reason(problem, f"Choose {' or '.join(allowed)}.")

    return check


def _version(kind: str, value: Any, arguments: Arguments) -> Reason | None:
    reason = _not_negative(kind, value, arguments)
    return reason or (None if value in QUEUE_VERSIONS else Reason(Chars(f"unsupported queue version '{value}'"), "Enter 1 or 2."))


def _unacceptable(kind: str, advice: str = "Use a text.") -> Reason:
    return Reason((Atom("unacceptable_type"), Atom(kind)), advice)


@dataclass(frozen=True, slots=True)
class _Argument:
    """check: returns why a value is refused. types: queue types that support the argument."""

    check: _Check
    types: Sequence[str] = _BOTH


# In the order of validation, and of comparison for classic queues.
_ARGUMENTS: dict[str, _Argument] = {
    "x-expires": _Argument(_positive_duration),
    "x-message-ttl": _Argument(_duration),
    "x-dead-letter-exchange": _Argument(_text),
    "x-dead-letter-routing-key": _Argument(_dead_letter_routing_key),
    "x-dead-letter-strategy": _Argument(_one_of(STRATEGIES, "invalid_dlx_strategy"), (QUORUM,)),
    "x-max-length": _Argument(_not_negative),
    "x-max-length-bytes": _Argument(_not_negative),
    "x-max-in-memory-length": _Argument(_not_negative, (QUORUM,)),
    "x-max-in-memory-bytes": _Argument(_not_negative, (QUORUM,)),
    "x-max-priority": _Argument(_priority, (CLASSIC,)),
    "x-overflow": _Argument(_one_of(OVERFLOWS, "invalid_overflow")),
    "x-queue-mode": _Argument(_one_of(QUEUE_MODES, "", "queue mode"), (CLASSIC,)),
    "x-queue-version": _Argument(_version, (CLASSIC,)),
    "x-single-active-consumer": _Argument(_boolean),
    "x-queue-type": _Argument(_one_of(QUEUE_TYPES, "", "queue type")),
    "x-quorum-initial-group-size": _Argument(_positive, (QUORUM,)),
    "x-delivery-limit": _Argument(_integer, (QUORUM,)),
    "x-max-age": _Argument(_text, (STREAM,)),
    "x-stream-max-segment-size-bytes": _Argument(_not_negative, (STREAM,)),
    "x-initial-cluster-size": _Argument(_integer, (STREAM,)),
    "x-queue-leader-locator": _Argument(_one_of(LEADER_LOCATORS, "invalid_queue_locator_arg"), (QUORUM, STREAM)),
    "x-queue-master-locator": _Argument(
        _one_of(("client-local", "min-masters", "random"), "", "queue master locator"), (CLASSIC,)
    ),
    "x-consumer-timeout": _Argument(_not_negative),
}
# In the order of comparison for quorum queues: only the first difference is reported (RMQ-384).
_OF_QUORUM = (
    *("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-expires", "x-max-length"),
    *("x-max-length-bytes", "x-max-in-memory-length", "x-max-in-memory-bytes", "x-overflow", "x-single-active-consumer"),
    *("x-queue-type", "x-quorum-initial-group-size", "x-delivery-limit", "x-message-ttl", "x-queue-leader-locator"),
    "x-consumer-timeout",
)


# Repeated declarations


def _with_type(queue: QueueDef) -> Arguments:
    """Its arguments including its type; the type classic can be omitted (RMQ-347)."""
    return queue.arguments if queue.type == CLASSIC else {**queue.arguments, "x-queue-type": queue.type}


def _check_same(property: str, what: str, current: Any, requested: Any) -> None:
    if current != requested:
        raise errors.inequivalent(property, what, _quoted(requested), _quoted(current))


def _check_same_arguments(what: str, current: Arguments, requested: Arguments, compared: Sequence[str]) -> None:
    for argument in compared:
        if argument in current and argument in requested:
            (old_type, old), (new_type, new) = typed(current[argument]), typed(requested[argument])
            if _class(old_type) != _class(new_type) or old != new:
                raise errors.inequivalent(argument, what, _quoted(new), _quoted(old))
        elif (argument in current or argument in requested) and not _is_classic(argument, current, requested):
            sides = (_formatted(side[argument]) if argument in side else "none" for side in (requested, current))
            raise errors.inequivalent(argument, what, *sides)


def _is_classic(argument: str, current: Arguments, requested: Arguments) -> bool:
    """Whether one side specifies the type classic and the other no type."""
    return argument == "x-queue-type" and typed({**current, **requested}[argument])[1] == CLASSIC


def _class(kind: str) -> str:
    """The width of an integer does not matter (RMQ-346)."""
    return "int" if kind in INTEGERS or kind == "decimal" else "float" if kind in ("float", "double") else kind


def _quoted(value: Any) -> str:
    if value is None:
        return "none"
    return f"'{value}'" if isinstance(value, str) else f"'{term(value)}'"


def _formatted(value: Any) -> str:
    kind, value = typed(value)
    return f"the value {_quoted(value)} of type '{kind}'"
