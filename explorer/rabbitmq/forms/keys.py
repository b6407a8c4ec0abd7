"""Names, descriptions and units of queue arguments, exchange arguments and policy keys.

One table for forms and pages. Values are validated by the broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any

from broker_core.common.durations import human
from broker_core.rabbitmq.rules.policies import OPERATOR_KEYS


class Unit(StrEnum):
    """The unit of a value, which determines its form field and display."""

    MILLISECONDS = "milliseconds"
    COUNT = "count"
    BYTES = "bytes"
    TEXT = "text"
    CHOICE = "choice"
    FLAG = "flag"


@dataclass(frozen=True, slots=True)
class Key:
    """One setting.

    argument: its name in a declaration; policy: in a policy's definition. Empty: it cannot be set there.
    tag: abbreviation in lists. quorum: True: only for quorum queues; False: only for classic queues; None: for both.
    """

    label: str
    meaning: str
    unit: Unit
    argument: str = ""
    policy: str = ""
    tag: str = ""
    choices: tuple[str, ...] = ()
    quorum: bool | None = None
    for_exchanges: bool = False

    @property
    def help(self) -> str:
        """What the setting does, and the types of queues that have it."""
        only = {True: " Quorum queues only.", False: " Classic queues only.", None: ""}
        return self.meaning + only[self.quorum]

    @property
    def operator(self) -> bool:
        """Whether operator policies may set it (RMQ-203)."""
        return self.policy in OPERATOR_KEYS

    @property
    def effective(self) -> str:
        return (self.policy or self.argument.removeprefix("x-")).replace("-", "_")

    @property
    def name(self) -> str:
        """Name of the form field."""
        return self.effective


KEYS = (
    Key("Message time-to-live", "Messages that wait longer are dead-lettered or dropped.",
        Unit.MILLISECONDS, "x-message-ttl", "message-ttl", "TTL"),
    Key("Queue expires", "The queue is deleted with all its messages after this time without use.",
        Unit.MILLISECONDS, "x-expires", "expires", "Exp"),
    Key("Dead-letter exchange", "Receives rejected, expired and surplus messages. Without one, they are dropped.",
        Unit.TEXT, "x-dead-letter-exchange", "dead-letter-exchange", "DLX"),
    Key("Dead-letter routing key", "Routing key for dead-lettered messages. Without one, they keep their own.",
        Unit.TEXT, "x-dead-letter-routing-key", "dead-letter-routing-key", "DLK"),
    Key("Max length", "Maximum number of ready messages.",
        Unit.COUNT, "x-max-length", "max-length", "Lim"),
    Key("Max length in bytes", "Maximum total size of the bodies of ready messages.",
        Unit.BYTES, "x-max-length-bytes", "max-length-bytes", "LimB"),
    Key("Overflow", "When the queue is full: drop the oldest message (drop-head) or reject the new one.",
        Unit.CHOICE, "x-overflow", "overflow", "Ovfl", ("drop-head", "reject-publish", "reject-publish-dlx")),
    Key("Max priority", "Priorities from 0 to this value; higher priorities are delivered first.",
        Unit.COUNT, "x-max-priority", "", "Pri", quorum=False),
    Key("Single active consumer", "Only one consumer receives messages; the next takes over when it disconnects.",
        Unit.FLAG, "x-single-active-consumer", "", "SAC"),
    Key("Delivery limit", "How often a message may be returned before it is dead-lettered.",
        Unit.COUNT, "x-delivery-limit", "delivery-limit", "DelL", quorum=True),
    Key("Dead-letter strategy", "At-least-once keeps a dead letter until the target queue has stored it.",
        Unit.CHOICE, "x-dead-letter-strategy", "dead-letter-strategy", "DLS", ("at-most-once", "at-least-once"), quorum=True),
    Key("Consumer timeout", "How long a delivery may stay unacknowledged before its channel is closed.",
        Unit.MILLISECONDS, "x-consumer-timeout", "consumer-timeout", "CTO"),
    Key("Queue mode", "Accepted for compatibility; has no effect.",
        Unit.CHOICE, "x-queue-mode", "queue-mode", "", ("default", "lazy"), quorum=False),
    Key("Alternate exchange", "Receives messages that the exchange cannot route.",
        Unit.TEXT, "alternate-exchange", "alternate-exchange", "AE", for_exchanges=True),
)  # fmt: skip
BY_EFFECTIVE = {key.effective: key for key in KEYS}
BY_ARGUMENT = {key.argument: key for key in KEYS if key.argument}
BY_POLICY = {key.policy: key for key in KEYS if key.policy}
QUEUE_ARGUMENTS = tuple(key for key in KEYS if key.argument and not key.for_exchanges)
POLICY_KEYS = tuple(key for key in KEYS if key.policy)

EXCHANGE_TYPES = {
    "direct": "Routes a message along bindings whose key equals its routing key.",
    "fanout": "Routes a message along every binding; keys are ignored.",
    "topic": "Keys are words separated by dots; in a binding, * matches one word and # any number of words.",
    "headers": "Compares the binding's arguments with the message headers; x-match selects whether all or any must match.",
}
APPLY_TO = {
    "all": "queues and exchanges",
    "queues": "queues",
    "exchanges": "exchanges",
    "classic_queues": "classic queues",
    "quorum_queues": "quorum queues",
}


def value_text(key: Key | None, value: Any) -> str:
    """A value for display: milliseconds also in words, and an empty exchange name as the default exchange."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value == "":
        return '"" (the default exchange)' if key and "exchange" in key.label.lower() else '""'
    if key is not None and isinstance(value, int):
        if key.unit is Unit.MILLISECONDS:
            return f"{human(timedelta(milliseconds=value))} ({value:,} ms)" if value >= 1000 else f"{value} ms"
        return f"{value:,}"
    return str(value)
