"""The names and settings of Celery queues on the broker. Pure.

Celery allows any text as a queue's name (`celery@host.celery.pidbox`), but the path of an entity only some characters; others are
escaped as ~ and two hex digits per byte. Paths are case-insensitive, so the names of two Celery queues must not differ in case
alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from broker_core.common.errors import InvalidArgument
from broker_core.service_bus.rules.limits import STRICT, Limits
from broker_core.service_bus.rules.values import QueueSettings

_ESCAPED = re.compile(r"[^A-Za-z0-9._/-]")
_ESCAPES = re.compile(r"(?:~[0-9a-f]{2})+")

# Celery's own mailboxes: of `celery inspect` and `celery control`, their replies, and events.
_OWN_MAILBOX = re.compile(r"(\.pidbox|^celeryev\..*)$")
MAILBOX_LIFE = timedelta(minutes=1)
_NOT_FOR_TASKS = {
    "requires_duplicate_detection": "a retried task keeps its id and would be dropped",
    "requires_session": "tasks have no session id",
    "forward_to": "nothing could be received from the queue",
}
_DURATIONS = ("lock_duration", "default_message_time_to_live", "auto_delete_on_idle")
SHORTEST_IDLE = STRICT.auto_delete_on_idle.minimum


def path_of(queue: str) -> str:
    """The path of a Celery queue's entity."""
    return _ESCAPED.sub(lambda match: "".join(f"~{byte:02x}" for byte in match[0].encode()), queue)


def name_of(path: str) -> str:
    """The name of the Celery queue with this path."""
    return _ESCAPES.sub(lambda match: bytes.fromhex(match[0].replace("~", "")).decode(errors="replace"), path)


def is_node_mailbox(queue: str) -> bool:
    """Whether the queue is one worker's mailbox for remote control, which is useless after the worker has ended."""
    return queue.endswith(".pidbox")


def settings(queue: str, declared: Mapping[str, Any], options: Mapping[str, Any], limits: Limits = STRICT) -> dict[str, Any]:
    """The settings of a new queue, by their names in QueueSettings; others keep the broker's default.

    declared: kombu's arguments of the declaration (`auto_delete`, `arguments` with x-expires and x-message-ttl in ms).
    options:  the transport options: any name of QueueSettings, with durations in seconds or as timedelta.
    limits:   those of the namespace; the queue gets the largest message size that they allow.
    A temporary queue is hidden and deleted when idle; in Celery's own mailboxes messages expire as well.
    Raises InvalidArgument for an option that a task queue cannot have.
    """
    for name, why in _NOT_FOR_TASKS.items():
        if options.get(name):
            raise InvalidArgument(name, f"cannot be set for a Celery queue: {why}")
    chosen: dict[str, Any] = {
        "max_message_size_in_kilobytes": limits.max_message_size_in_kilobytes.maximum,
        "max_size_in_megabytes": limits.max_size_in_megabytes.maximum,
    }
    chosen |= {name: _value(name, options[name]) for name in QueueSettings.__dataclass_fields__ if name in options}
    arguments = declared.get("arguments") or {}
    is_own_mailbox = bool(_OWN_MAILBOX.search(queue))
    if is_own_mailbox or declared.get("auto_delete") or declared.get("exclusive") or "x-expires" in arguments:
        idle = timedelta(milliseconds=arguments.get("x-expires") or 0)
        chosen |= {"hidden": True, "auto_delete_on_idle": max(idle, SHORTEST_IDLE)}
    if arguments.get("x-message-ttl"):
        chosen["default_message_time_to_live"] = max(timedelta(milliseconds=arguments["x-message-ttl"]), timedelta(seconds=1))
    elif is_own_mailbox:
        chosen["default_message_time_to_live"] = MAILBOX_LIFE
    return chosen


def _value(name: str, option: Any) -> Any:
    return timedelta(seconds=option) if name in _DURATIONS and isinstance(option, (int, float)) else option
