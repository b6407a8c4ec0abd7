"""The Service Bus entities of a soak, the messages it sends there, and what must become of them.

All is known here, not asked of the broker.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from broker_core import namespaces
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message

LOCK = timedelta(milliseconds=300)
COLOURS = ("red", "green", "blue")
SCHEDULED_SECONDS = 0.3
LIFE = timedelta(milliseconds=400)


@dataclass(frozen=True)
class Scene:
    """A Service Bus namespace's entities of the kinds wanted."""

    namespace: str
    kinds: tuple[str, ...]
    queues: tuple[str, ...] = ("work", "few")
    subscriptions: tuple[str, ...] = ("all", "reds", "large", "reds-or-large", "labelled", "none")
    sources: dict[str, str] = field(default_factory=lambda: {"front": "back"})

    def address(self, path: str) -> EntityAddress:
        return EntityAddress(self.namespace, path)

    @property
    def sent_to(self) -> list[str]:
        """Paths that senders choose from."""
        more = {"queues": list(self.queues), "topics": ["topic", "front", "once"], "sessions": ["talks"]}
        return [path for kind in self.kinds for path in more[kind]]

    @property
    def received_from(self) -> list[str]:
        """Paths that anybody may receive from, without a session."""
        more = {"queues": list(self.queues), "topics": ["back", "once", *map(_subscription, self.subscriptions)], "sessions": []}
        return [path for kind in self.kinds for path in more[kind]]

    @property
    def all_paths(self) -> list[str]:
        return list(dict.fromkeys([*self.sent_to, *self.received_from]))

    def make(self) -> None:
        """Create everything. Needs relaxed limits, for the short locks."""
        namespaces.create_namespace(self.namespace, Family.SERVICE_BUS)
        common: dict[str, Any] = {"lock_duration": LOCK}
        if "queues" in self.kinds:
            entities.create_queue(self.address("work"), max_delivery_count=4, dead_lettering_on_message_expiration=True, **common)
            entities.create_queue(self.address("few"), max_delivery_count=1000, **common)
        if "topics" in self.kinds:
            self._make_topic(common)
            entities.create_queue(self.address("back"), max_delivery_count=1000, **common)
            entities.create_queue(self.address("front"), forward_to="back", **common)
            entities.create_queue(self.address("once"), requires_duplicate_detection=True, max_delivery_count=1000, **common)
        if "sessions" in self.kinds:
            entities.create_queue(self.address("talks"), requires_session=True, max_delivery_count=100_000, **common)

    def _make_topic(self, common: dict[str, Any]) -> None:
        from broker_core.service_bus.rules.filters.correlation import CorrelationFilter
        from broker_core.service_bus.rules.filters.rules import Rule
        from broker_core.service_bus.rules.filters.sql import compile_filter

        entities.create_topic(self.address("topic"))
        rules = {
            "all": [],
            "reds": [Rule("r", compile_filter("colour = 'red'"))],
            "large": [Rule("r", compile_filter("number > 50"))],
            "reds-or-large": [
                Rule("a", CorrelationFilter(properties={"colour": "red"})),
                Rule("b", compile_filter("number > 50")),
            ],
            "labelled": [Rule("r", CorrelationFilter(subject="label"))],
            "none": [Rule("r", compile_filter("colour = 'black'"))],
        }
        for name, (first, *others) in ((n, r or [None]) for n, r in rules.items()):
            address = self.address("topic").subscription(name)
            entities.create_subscription(address, rule=first, max_delivery_count=1000, **common)
            for rule in others:
                entities.create_rule(address, rule)


def _subscription(name: str) -> str:
    return f"topic/Subscriptions/{name}"


def taken_by(message_id: str) -> set[str]:
    """The subscriptions that take a message of the topic, by the facts in its id."""
    _, colour, number, label, _ = message_id.split("|")
    red, large = colour == "red", int(number) > 50
    chosen = {"all": True, "reds": red, "large": large, "reds-or-large": red or large, "labelled": label == "label"}
    return {_subscription(name) for name, takes in chosen.items() if takes}


def a_message(path: str, unique: str, dice: random.Random) -> Message:
    """A message whose id and body say all about it. unique: no other message has it."""
    colour, number, label = dice.choice(COLOURS), dice.randrange(100), dice.choice(("label", "other"))
    message_id = "|".join((path, colour, str(number), label, unique))
    scheduled, life = None, None
    if path not in ("talks", "few", "once"):
        if dice.random() < 0.1:
            scheduled = datetime.now(UTC) + timedelta(seconds=dice.uniform(0, SCHEDULED_SECONDS))
        elif path == "work" and dice.random() < 0.1:
            life = LIFE
    return Message(
        body_of(message_id),
        message_id=message_id,
        subject=label,
        properties={"colour": colour, "number": number},
        scheduled_enqueue_at=scheduled,
        time_to_live=life,
    )


def body_of(message_id: str) -> bytes:
    return message_id.encode() * 3
