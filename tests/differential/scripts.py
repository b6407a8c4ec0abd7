"""Scripts of operations, made from a seed. A script is data: execution.py tells it to either broker, shrinking.py shortens it.

Names are few, so that operations meet: queues q0 to q3, exchanges x0 to x3, clients a and b. What is done to a message names it
by its place among those that are held, so that a script stays one when steps are left out. What the generator leaves out is in
LEFT_OUT, each with its reason.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

LEFT_OUT = {
    "policies of one priority that match the same": "RMQ-917: RabbitMQ leaves open which applies",
    "streams": "RMQ-908",
    "transactions, confirms of several, direct reply-to": "docs/rabbitmq.md, not implemented yet",
    "bad arguments of every kind": "told one by one by the stories",
}

LONG = 3_600_000  # ms: nothing lives for so long here, and nothing dies
QUEUES = ("q0", "q1", "q2", "q3")
EXCHANGES = ("x0", "x1", "x2", "x3")
SYSTEM = ("amq.direct", "amq.fanout", "amq.topic", "amq.headers")
KEYS = ("q0", "q1", "q2", "q3", "a", "a.b", "b", "", "a.b.c")
PATTERNS = ("a", "a.*", "#", "*.b", "a.#", "q0", "q1", "b", "")
POLICIES = ("p1", "p2", "p3")
TICK = 0.6  # seconds: in a script with time, everything is done right after a multiple of it
LIVES = (150, 750, 1350)  # ms: what begins after a tick ends between two; so does what begins there, and what begins then


@dataclass(frozen=True)
class Step:
    """An operation: the name of a method of execution.Teller, and what it is given."""

    what: str
    given: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.what}({', '.join(f'{name}={value!r}' for name, value in self.given.items())})"


Script = tuple[Step, ...]


class Maker:
    """Makes one script. timed: with short lives, and ticks between the steps."""

    def __init__(self, seed: int, timed: bool = False):
        self.random, self.timed = random.Random(f"{seed} {timed}"), timed
        self.bodies = 0
        self.declared: list[str] = []  # queues, as far as the maker knows
        self.exchanges = list(SYSTEM)
        self.consumers: dict[str, tuple[str, str]] = {}
        self.tags = 0
        self.has_quorum = self.random.random() < 0.3

    def make(self) -> Script:
        steps = [self.declare() for _ in range(self.random.randint(1, 3))]
        steps += [self.exchange() for _ in range(self.random.choice((0, 0, 1, 2)))]
        steps += [self.bind() for _ in range(self.random.choice((0, 1, 2, 4)))]
        length = self.random.randint(5, 12) if self.timed else self.random.randint(10, 35)
        while len(steps) < length:
            steps.append(getattr(self, self.random.choices(*self._weights())[0])())
            if self.timed and self.random.random() < 0.5:
                steps.append(Step("tick", {"count": self.random.choice((1, 1, 1, 2, 3))}))
        if self.timed:
            steps.append(Step("tick", {"count": 4}))
        return (*steps, *(Step("read_out", {"name": name}) for name in sorted(set(self.declared))))

    def _weights(self) -> tuple[list[str], list[int]]:
        weights = {
            "publish": 40, "get": 14, "settle": 18, "declare": 5, "bind": 6, "consume": 6, "policy": 4, "exchange": 3,
            "bind_exchange": 2, "cancel": 2, "close_channel": 2, "purge": 1, "delete": 1, "unbind": 1, "delete_exchange": 1,
            "unbind_exchange": 1, "delete_policy": 2, "disconnect": 1, "recover": 1, "unknown_tag": 1, "passive": 1,
        }  # fmt: skip
        return list(weights), list(weights.values())

    # Topology

    def declare(self) -> Step:
        pick = self.random
        name = pick.choice(QUEUES[: 3 if pick.random() < 0.8 else 4])
        values: dict[str, Any] = {"name": name}
        arguments = self._queue_arguments(name)
        if self.has_quorum and pick.random() < 0.5:
            arguments["x-queue-type"] = "quorum"
            if pick.random() < 0.4:
                arguments["x-delivery-limit"] = pick.choice((0, 1, 2))
            if pick.random() < 0.9:
                arguments.pop("x-max-priority", None)
        else:
            for flag, chance in (("exclusive", 0.06), ("auto_delete", 0.08)):
                if pick.random() < chance:
                    values[flag] = True
            if pick.random() < 0.08:
                values["durable"] = False
        if arguments:
            values["arguments"] = arguments
        self.declared.append(name)
        return self._step("declare", values)

    def _queue_arguments(self, name: str) -> dict[str, Any]:
        pick, arguments = self.random, {}
        lives = (0, *LIVES) if self.timed else (0, LONG)
        for argument, chance, values in (
            ("x-message-ttl", 0.6 if self.timed else 0.15, lives),
            ("x-expires", 0.15 if self.timed else 0.05, LIVES[1:] if self.timed else (LONG,)),
            ("x-max-length", 0.25, (0, 1, 2, 3)),
            ("x-max-length-bytes", 0.12, (0, 4, 10)),
            ("x-overflow", 0.25, ("drop-head", "reject-publish", "reject-publish-dlx")),
            ("x-dead-letter-exchange", 0.55, ("", "", "", "x0", "x1", "amq.fanout", "gone")),
            ("x-max-priority", 0.15, (1, 3, 0)),
            ("x-single-active-consumer", 0.08, (True, False)),
        ):
            if pick.random() < chance:
                arguments[argument] = pick.choice(values)
        if "x-dead-letter-exchange" in arguments and pick.random() < 0.75 or pick.random() < 0.02:
            arguments["x-dead-letter-routing-key"] = pick.choice([*(q for q in QUEUES[:3] if q != name), *KEYS[:6]])
        return arguments

    def exchange(self) -> Step:
        pick = self.random
        values: dict[str, Any] = {"name": pick.choice(EXCHANGES[: 2 if pick.random() < 0.7 else 4])}
        values["type"] = pick.choice(("direct", "fanout", "topic", "headers"))
        self.exchanges += [values["name"]] * 3
        for flag, chance in (("auto_delete", 0.1), ("internal", 0.06)):
            if pick.random() < chance:
                values[flag] = True
        if pick.random() < 0.3:
            values["arguments"] = {"alternate-exchange": pick.choice((*EXCHANGES, "amq.fanout", "", "gone"))}
        return self._step("exchange", values)

    def bind(self) -> Step:
        return self._step("bind", {"queue": self._queue(), "exchange": self._exchange(), **self._binding()})

    def unbind(self) -> Step:
        return self._step("unbind", {"queue": self._queue(), "exchange": self._exchange(), **self._binding()})

    def bind_exchange(self) -> Step:
        return self._step("bind_exchange", {"destination": self._exchange(), "source": self._exchange(), **self._binding()})

    def unbind_exchange(self) -> Step:
        return self._step("unbind_exchange", {"destination": self._exchange(), "source": self._exchange(), **self._binding()})

    def _binding(self) -> dict[str, Any]:
        definition: dict[str, Any] = {"key": self.random.choice(PATTERNS)}
        if self.random.random() < 0.3:
            arguments: dict[str, Any] = {}
            if self.random.random() < 0.5:
                arguments["x-match"] = self.random.choice(("all", "any", "any", "all-with-x", "any-with-x"))
            for name in ("h", "g", "x-h"):
                if self.random.random() < 0.4:
                    arguments[name] = self.random.choice((1, "1", 2, None, True))
            definition["arguments"] = arguments
        return definition

    def delete(self) -> Step:
        conditions = {name: True for name in ("if_unused", "if_empty") if self.random.random() < 0.25}
        return self._step("delete", {"name": self._queue(), **conditions})

    def passive(self) -> Step:
        return self._step("declare", {"name": self._queue(), "passive": True})

    def delete_exchange(self) -> Step:
        return self._step("delete_exchange", {"name": self._exchange(), "if_unused": self.random.random() < 0.4})

    def purge(self) -> Step:
        return self._step("purge", {"name": self._queue()})

    def policy(self) -> Step:
        pick, name = self.random, self.random.choice(POLICIES)
        operator = pick.random() < 0.3
        values: dict[str, Any] = {"name": name, "pattern": pick.choice((".*", "^q0$", "^q[01]$", "^q", "1", "^x"))}
        values["apply_to"] = pick.choice(("queues", "queues", "all", "exchanges"))
        lives = (0, *LIVES) if self.timed else (LONG, 0)
        limits = {"message-ttl": lives, "max-length": (0, 1, 2, 3), "max-length-bytes": (0, 4, 10)}
        limits["expires"] = LIVES[1:] if self.timed else (LONG,)
        ways = {
            "dead-letter-exchange": ("", "", "x0", "amq.fanout", "gone"),
            "dead-letter-routing-key": KEYS,
            "overflow": ("drop-head", "reject-publish", "reject-publish-dlx"),
            "alternate-exchange": ("x0", "x1", "amq.fanout"),
            "delivery-limit": (0, 1),
        }
        known = limits if operator and pick.random() < 0.95 else limits | ways
        keys = pick.sample(sorted(known), pick.choice((1, 1, 2, 2, 3)))
        values["definition"] = {key: pick.choice(known[key]) for key in keys}
        values["priority"] = int(name[1:])
        if operator:
            values["operator"] = True
        return Step("policy", values)

    def delete_policy(self) -> Step:
        values: dict[str, Any] = {"name": self.random.choice(POLICIES)}
        return Step("delete_policy", values | ({"operator": True} if self.random.random() < 0.3 else {}))

    # Messages

    def publish(self) -> Step:
        pick = self.random
        self.bodies += 1
        body = f"m{self.bodies}" + "." * pick.choice((0, 0, 0, 3, 7))
        given: dict[str, Any] = {"body": body, "exchange": "", "key": self._queue()}
        if pick.random() < 0.45:
            given |= {"exchange": self._exchange(), "key": pick.choice(KEYS)}
        headers: dict[str, Any] = {}
        for name, chance, values in (
            ("h", 0.2, (1, "1", 2, True, None)),
            ("g", 0.1, (1, "1", 2)),
            ("x-h", 0.05, (1, "1")),
            ("CC", 0.08, (["q0"], ["q1", "a"], [], ["q2", 5])),
            ("BCC", 0.05, (["q0"], ["q1", "b"])),
        ):
            if pick.random() < chance:
                headers[name] = pick.choice(values)
        if headers:
            given["headers"] = headers
        lives = [str(life) for life in (0, *(LIVES if self.timed else (LONG,)))]
        for name, chance, values in (
            ("mandatory", 0.15, (True,)),
            ("expiration", 0.4 if self.timed else 0.1, lives),
            ("priority", 0.2, (0, 1, 2, 5, 200)),
            ("delivery_mode", 0.3, (1, 2)),
            ("message_id", 0.1, ("id",)),
            ("type", 0.05, ("t",)),
            ("correlation_id", 0.05, ("c",)),
        ):
            if pick.random() < chance:
                given[name] = pick.choice(values)
        return self._step("publish", given)

    def get(self) -> Step:
        values: dict[str, Any] = {"queue": self._queue(), "channel": self.random.choice(("g0", "g0", "g1"))}
        return self._step("get", values | ({"no_ack": True} if self.random.random() < 0.3 else {}))

    def settle(self) -> Step:
        pick = self.random
        values: dict[str, Any] = {"nth": pick.randint(0, 5), "how": pick.choice(("ack", "nack", "nack", "reject"))}
        if values["how"] != "ack":
            values["requeue"] = pick.random() < 0.5
        if values["how"] != "reject" and pick.random() < 0.3:
            values["multiple"] = True
        return Step("settle", values)

    def unknown_tag(self) -> Step:
        how = self.random.choice(("ack", "nack", "reject"))
        return self._step("unknown_tag", {"channel": self.random.choice(("g0", "g1")), "how": how})

    def recover(self) -> Step:
        return self._step("recover", {"channel": self.random.choice(("g0", "g1", "k0"))})

    # Consumers

    def consume(self) -> Step:
        pick = self.random
        self.tags += 1
        tag, channel = f"c{self.tags}", f"k{self.tags}" if self.timed or pick.random() < 0.5 else "k0"
        if self.consumers and pick.random() < 0.03:  # again, while it is there or after it has gone
            tag = pick.choice(sorted(self.consumers))
            _, channel = self.consumers[tag]
        values: dict[str, Any] = {
            "tag": tag,
            "queue": self._queue(),
            "channel": channel,
            "prefetch": pick.choice((0, 1, 1, 2, 3)),
        }
        for flag, chance in (("no_ack", 0.15), ("exclusive", 0.1)):
            if pick.random() < chance:
                values[flag] = True
        if pick.random() < 0.1:
            values["arguments"] = {"x-priority": pick.choice((1, 5, -1))}
        step = self._step("consume", values)
        self.consumers[tag] = (step.given.get("client", "a"), channel)
        return step

    def cancel(self) -> Step:
        tag = self.random.choice(sorted(self.consumers) or ["c1"])
        client, channel = self.consumers.get(tag, ("a", "k0"))
        return Step("cancel", {"tag": tag, "channel": channel, "client": client})

    def close_channel(self) -> Step:
        channels = ["g0", "g1", *(channel for _, channel in self.consumers.values())]
        return self._step("close_channel", {"channel": self.random.choice(channels)})

    def disconnect(self) -> Step:
        return self._step("disconnect", {})

    # Inside

    def _step(self, what: str, given: dict[str, Any]) -> Step:
        return Step(what, given | ({"client": "b"} if self.random.random() < 0.12 else {}))

    def _queue(self) -> str:
        return self.random.choice(self.declared) if self.declared and self.random.random() < 0.95 else self.random.choice(QUEUES)

    def _exchange(self) -> str:
        return self.random.choice(self.exchanges if self.random.random() < 0.92 else EXCHANGES)


def made(seed: int, timed: bool = False) -> Script:
    """The script of a seed."""
    return Maker(seed, timed).make()
