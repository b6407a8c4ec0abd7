"""RabbitMQ's errors: one function for each text, worded exactly as clients expect it.

Each function returns the error to raise. Its docstring names the rules.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from broker_core.common.errors import BrokerError

from .erlang import Atom, term

MAX_TEXT = 255  # bytes: a reply text is a short string (RMQ-349)

# Reply codes by name, and whether the error closes the connection instead of only the channel.
CODES = {
    "CONTENT_TOO_LARGE": (311, False),
    "CONNECTION_FORCED": (320, True),
    "ACCESS_REFUSED": (403, False),
    "NOT_FOUND": (404, False),
    "RESOURCE_LOCKED": (405, False),
    "PRECONDITION_FAILED": (406, False),
    "FRAME_ERROR": (501, True),
    "SYNTAX_ERROR": (502, True),
    "COMMAND_INVALID": (503, True),
    "CHANNEL_ERROR": (504, True),
    "UNEXPECTED_FRAME": (505, True),
    "RESOURCE_ERROR": (506, True),
    "NOT_ALLOWED": (530, True),
    "NOT_IMPLEMENTED": (540, True),
    "INTERNAL_ERROR": (541, True),
}


class AmqpError(BrokerError):
    """An AMQP 0-9-1 error. Nothing was stored.

    reply_code, reply_name: 404 and "NOT_FOUND". text: as sent, "NOT_FOUND - no queue 'q' in vhost '/'". is_connection_error:
    whether it closes the connection instead of only the channel. argument: the argument that was refused, if any.
    """

    def __init__(self, reply_name: str, problem: str, argument: str | None = None, *, advice: str = ""):
        self.reply_name, self.problem, self.argument = reply_name, problem, argument
        self.reply_code, self.is_connection_error = CODES[reply_name]
        self.text = cut(f"{reply_name} - {problem}")
        super().__init__(self.text, advice)


class ConnectionLost(AmqpError):
    """The connection ended, but not by its client; its messages were requeued. Connect again."""

    def __init__(self, name: str, why: str):
        super().__init__("CONNECTION_FORCED", f"connection '{name}' is lost: {why}; its messages were requeued, connect again")
        self.name, self.why = name, why


class InvalidPolicy(BrokerError):
    """A refused policy (RMQ-370 to RMQ-376): the management API responds 400 with `reason`. field: the invalid part."""

    def __init__(self, field: str, reason: str, *, advice: str = ""):
        super().__init__(reason, advice)
        self.field, self.reason = field, reason


def cut(text: str) -> str:
    """A reply text truncated to MAX_TEXT at a character boundary (RMQ-349)."""
    return text.encode()[:MAX_TEXT].decode(errors="ignore")


def queue(vhost: str, name: str) -> str:
    """A queue as named in error texts."""
    return f"queue '{name}' in vhost '{vhost}'"


def exchange(vhost: str, name: str) -> str:
    """An exchange as named in error texts."""
    return f"exchange '{name}' in vhost '{vhost}'"


def refused(problem: str, *, advice: str = "") -> AmqpError:
    return AmqpError("ACCESS_REFUSED", problem, advice=advice)


def paused_queue(vhost: str, name: str) -> AmqpError:
    """Publishing to a queue that an operator has paused (RMQ-929)."""
    return failed(
        f"{queue(vhost, name)} is paused and accepts no messages", advice="Nothing was stored. Publish again once it is resumed."
    )


def full_queue(vhost: str, name: str, limit: int) -> AmqpError:
    """An edit that would exceed the queue's length limit in bytes (RMQ-931)."""
    problem = f"{queue(vhost, name)} may have {limit} bytes of ready messages and would exceed them"
    return failed(problem, advice="Nothing was changed. Shorten the body, or raise the queue's length limit.")


def failed(problem: str, argument: str | None = None, *, advice: str = "") -> AmqpError:
    return AmqpError("PRECONDITION_FAILED", problem, argument, advice=advice)


class Reason(NamedTuple):
    """Why the value of an argument is refused: an Erlang term, and advice."""

    term: Any
    advice: str = ""


_IN_USE = "Unbind it, or stop its consumers, first."
_RESERVED = "Names that start with amq. are reserved for the broker. Choose another name."
_X_MATCH = "x-match must be the text all, any, all-with-x or any-with-x."
_FIXED = (
    "Arguments cannot be changed after the queue is declared. Change the value with a policy, which takes effect at once, or "
    "delete the queue and declare it again."
)
_EXISTS = "It already exists with other properties. Use the same properties, choose another name, or delete it first."
_NOT_SUPPORTED = "This broker does not support it."


# Virtual hosts and users


def vhost_not_found(vhost: str) -> AmqpError:
    return AmqpError("NOT_ALLOWED", f"vhost {vhost} not found")


def connection_forced(reason: str) -> AmqpError:
    return AmqpError("CONNECTION_FORCED", reason)


# Exchanges


def not_found_exchange(vhost: str, name: str) -> AmqpError:
    """RMQ-309"""
    return AmqpError(
        "NOT_FOUND", f"no {exchange(vhost, name)}", advice="Check the name and its case, or declare the exchange first."
    )


def default_exchange_refused() -> AmqpError:
    """RMQ-305"""
    return refused(
        "operation not permitted on the default exchange",
        advice="The default exchange is always bound to every queue by the queue's name. Use another exchange.",
    )


def unknown_exchange_type(type: str) -> AmqpError:
    """RMQ-306"""
    return AmqpError("COMMAND_INVALID", f"unknown exchange type '{type}'", advice="Choose direct, fanout, topic or headers.")


def reserved_exchange_name(name: str) -> AmqpError:
    """RMQ-307"""
    return refused(f"exchange name '{name}' contains reserved prefix 'amq.*'", advice=_RESERVED)


def system_exchange_deletion(vhost: str, name: str) -> AmqpError:
    """RMQ-307"""
    return refused(
        f"deletion of system {exchange(vhost, name)} not allowed",
        advice="Every virtual host has this exchange. Unbind what it should not route to.",
    )


def exchange_in_use(vhost: str, name: str) -> AmqpError:
    """RMQ-308"""
    return failed(f"{exchange(vhost, name)} in use", advice=_IN_USE)


def internal_exchange(vhost: str, name: str) -> AmqpError:
    """RMQ-312"""
    return refused(f"cannot publish to internal {exchange(vhost, name)}", advice="Publish to an exchange that is bound to it.")


def invalid_x_match_value(value: str) -> AmqpError:
    """RMQ-352"""
    problem = f"Invalid x-match field value {term(value)}; expected all, any, all-with-x, or any-with-x"
    return failed(problem, advice=_X_MATCH)


def invalid_x_match_type(type: str, value: Any) -> AmqpError:
    """RMQ-352"""
    return failed(f"Invalid x-match field type {type} (value {term(value)}); expected longstr", advice=_X_MATCH)


# Queues


def not_found_queue(vhost: str, name: str) -> AmqpError:
    """RMQ-325"""
    return AmqpError(
        "NOT_FOUND",
        f"no {queue(vhost, name)}",
        advice="Check the name and its case, or declare the queue first. It may have expired, or been deleted.",
    )


def no_previously_declared_queue() -> AmqpError:
    """RMQ-321"""
    return AmqpError("NOT_FOUND", "no previously declared queue")


def reserved_queue_name(name: str) -> AmqpError:
    """RMQ-324"""
    return refused(f"queue name '{name}' contains reserved prefix 'amq.*'", advice=_RESERVED)


def queue_in_use(vhost: str, name: str) -> AmqpError:
    """RMQ-326"""
    return failed(f"{queue(vhost, name)} in use", advice=_IN_USE)


def queue_not_empty(vhost: str, name: str) -> AmqpError:
    """RMQ-326"""
    return failed(f"{queue(vhost, name)} not empty", advice="Purge the queue first, or delete it with its messages.")


def locked_queue(vhost: str, name: str) -> AmqpError:
    """RMQ-330"""
    return AmqpError(
        "RESOURCE_LOCKED",
        f"cannot obtain exclusive access to locked {queue(vhost, name)}. It could be originally declared on another connection "
        "or the exclusive property value does not match that of the original declaration.",
        advice="It belongs to the connection that declared it and is deleted with it. Other connections can only publish to it.",
    )


def no_get(vhost: str, name: str) -> AmqpError:
    """RMQ-387"""
    return AmqpError(
        "RESOURCE_LOCKED",
        f"cannot obtain access to locked {queue(vhost, name)}. basic.get operations are not supported by quorum queues with "
        "single active consumer",
    )


def invalid_property(property: str, vhost: str, name: str) -> AmqpError:
    """property: non-durable, exclusive-owner or auto-delete (RMQ-332)."""
    return failed(
        f"invalid property '{property}' for {queue(vhost, name)}",
        advice="Quorum queues are durable, not exclusive and never auto-deleted. Choose the type classic, or clear the flag.",
    )


def invalid_argument(argument: str, vhost: str, name: str, reason: Reason) -> AmqpError:
    """RMQ-333"""
    problem = f"invalid arg '{argument}' for {queue(vhost, name)}: {term(reason.term)}"
    return failed(problem, argument, advice=reason.advice)


def invalid_argument_type(type: str, argument: str, what: str) -> AmqpError:
    """An exchange name that is not a string (RMQ-337, RMQ-311). what: from `queue` or `exchange` above."""
    return failed(
        f"invalid type '{type}' for arg '{argument}' in {what}", argument, advice="Enter the name of an exchange as a string."
    )


def unsupported_argument(argument: str, vhost: str, name: str, queue_type: str) -> AmqpError:
    """RMQ-343"""
    return failed(
        f"invalid arg '{argument}' for {queue(vhost, name)} of queue type rabbit_{queue_type}_queue",
        argument,
        advice="Queues of this type do not have this argument. Remove it, or choose the other type.",
    )


def inequivalent(argument: str, what: str, received: str, current: str) -> AmqpError:
    """A repeated declaration that differs (RMQ-310, RMQ-311, RMQ-344, RMQ-345). received, current: formatted values."""
    problem = f"inequivalent arg '{argument}' for {what}: received {received} but current is {current}"
    return failed(problem, argument, advice=_FIXED if argument.startswith("x-") else _EXISTS)


# Messages


def invalid_expiration(expiration: str, reason: Any) -> AmqpError:
    """reason: an Erlang term (RMQ-006)."""
    return failed(
        f"invalid expiration '{expiration}': {term(reason)}",
        advice="Enter milliseconds as digits, such as 60000, or a duration such as 10 s or 5 min; at most ten years.",
    )


def invalid_message(reason: tuple) -> AmqpError:
    """reason: an Erlang term."""
    return failed(f"invalid message: {term(reason)}")


def unknown_delivery_mode(mode: int) -> AmqpError:
    """RMQ-361"""
    return invalid_message((Atom("delivery_mode_unknown"), mode))


def message_too_large(size: int, limit: int) -> AmqpError:
    """Sizes in bytes (RMQ-369)."""
    return failed(f"message size {size} is larger than configured max size {limit}")


# Consumers, channels and deliveries


def not_implemented(what: str) -> AmqpError:
    """what: "immediate=true" (RMQ-365), "prefetch_size!=0 (10)" (RMQ-142), "requeue=false" (RMQ-125), "active=false"."""
    return AmqpError("NOT_IMPLEMENTED", what, advice=_NOT_SUPPORTED)


def unsupported_deletion(vhost: str, name: str, condition: str) -> AmqpError:
    """RMQ-385"""
    return not_implemented(
        f"cannot delete {queue(vhost, name)}. queue.delete operations with {condition} flag set are not supported by quorum "
        "queues"
    )


def consumer_tag_reused(tag: str) -> AmqpError:
    """RMQ-380"""
    return AmqpError("NOT_ALLOWED", f"attempt to reuse consumer tag '{tag}'")


def exclusive_use(vhost: str, name: str) -> AmqpError:
    """RMQ-381, RMQ-148"""
    return refused(f"{queue(vhost, name)} in exclusive use")


def unknown_delivery_tag(tag: int) -> AmqpError:
    """RMQ-112"""
    return failed(f"unknown delivery tag {tag}")


def delivery_released(tag: int) -> AmqpError:
    """RMQ-928"""
    return failed(f"unknown delivery tag {tag}: its delivery was released by an operator")


def acknowledgement_timed_out(channel: int, milliseconds: int) -> AmqpError:
    """RMQ-126"""
    return failed(
        f"delivery acknowledgement on channel {channel} timed out. Timeout value used: {milliseconds} ms. "
        "This timeout value can be configured, see consumers doc guide to learn more"
    )
