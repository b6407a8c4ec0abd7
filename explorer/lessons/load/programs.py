"""The senders and receivers of a load, which act in turn in one thread. The time is passed in, in seconds.

What they hold is plain data, so that another slice of the load, in another process, goes on where this one ended.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any, Protocol

from broker_core.common.errors import BrokerError
from broker_core.common.types import Actor, EntityAddress, Right

from .settings import MOST_MESSAGES, LoadSettings

IDLE = 0.25  # seconds after which a receiver asks again, if the queue was empty
MOST_AT_ONCE = 20  # messages of one send: what a slow machine could not send in time is left out


class Client(Protocol):
    """A family's operations on the queue of a load. Tokens are texts."""

    def send(self, queue: EntityAddress, bodies: Sequence[bytes], actor: Actor) -> None: ...

    def receive(self, queue: EntityAddress, count: int, actor: Actor) -> list[str]:
        """Lock messages. Returns their tokens."""

    def complete(self, queue: EntityAddress, token: str, actor: Actor) -> bool:
        """Returns whether the message was still locked."""

    def fail(self, queue: EntityAddress, token: str, actor: Actor) -> bool:
        """Release it as a failed delivery. Returns the same."""

    def release(self, queue: EntityAddress, tokens: Sequence[str], actor: Actor) -> None:
        """Release them as if they had not been delivered."""

    def lock(self, queue: EntityAddress, actor: Actor) -> timedelta | None:
        """For how long a message is locked; None: without an end."""


@dataclass(slots=True)
class Sender:
    name: str
    due: float


@dataclass(slots=True)
class Receiver:
    """held: the tokens of its messages, the one it works on first."""

    name: str
    due: float
    held: list[str] = field(default_factory=list)


class Programs:
    """All senders and receivers of a load. count: what they did, by word. may_send: set to False while the queue is full."""

    def __init__(self, queue: EntityAddress, client: Client, settings: LoadSettings, count: Mapping[str, int], dice: Random):
        self.queue, self.client, self.dice = queue, client, dice
        self.count = Counter(count)
        self.settings = settings
        self.senders: list[Sender] = []
        self.receivers: list[Receiver] = []
        self.may_send = True

    def restore(self, held: Mapping[str, Sequence[str]], now: float) -> None:
        """Go on with what the receivers held at the end of another slice."""
        self.receivers = [Receiver(name, now, list(tokens)) for name, tokens in held.items()]

    @property
    def held(self) -> dict[str, list[str]]:
        return {receiver.name: receiver.held for receiver in self.receivers}

    def change(self, settings: LoadSettings, now: float) -> None:
        """Follow changed settings. A receiver that is no longer wanted releases what it holds."""
        self.settings = settings
        self.senders = [*self.senders, *(Sender(f"sender-{i + 1}", now) for i in range(len(self.senders), settings.senders))]
        self.senders = self.senders[: settings.senders]
        for extra in self.receivers[settings.receivers :]:
            self._release(extra)
        known = self.receivers[: settings.receivers]
        self.receivers = known + [Receiver(f"worker-{i + 1}", now) for i in range(len(known), settings.receivers)]

    def tick(self, now: float) -> float:
        """Let all act that are due. Returns when the next one is due."""
        for sender in self.senders:
            if sender.due <= now:
                self._send(sender, now)
        for receiver in self.receivers:
            if receiver.due <= now:
                self._receive(receiver, now)
        due = [sender.due for sender in self.senders] + [receiver.due for receiver in self.receivers]
        return min(due, default=now + IDLE)

    def release_all(self) -> None:
        for receiver in self.receivers:
            self._release(receiver)

    def _send(self, sender: Sender, now: float) -> None:
        left = MOST_MESSAGES - self.count["sent"]
        if not self.settings.rate or not self.may_send or left <= 0:
            sender.due = now + IDLE
            return
        interval = self.settings.senders / self.settings.rate
        count = min(left, MOST_AT_ONCE, 1 + int((now - sender.due) / interval))
        first = self.count["sent"] + 1
        bodies = [json.dumps({"number": first + i, "sender": sender.name}).encode() for i in range(count)]
        sender.due = max(sender.due + count * interval, now - interval) if sender.due else now + interval
        self.client.send(self.queue, bodies, _actor(sender.name))
        self.count["sent"] += count

    def _receive(self, receiver: Receiver, now: float) -> None:
        if receiver.held:
            self._settle(receiver)
        if not receiver.held:
            receiver.held = self.client.receive(self.queue, self.settings.prefetch, _actor(receiver.name))
            self.count["received"] += len(receiver.held)
        receiver.due = now + (self.settings.work if receiver.held else IDLE)

    def _settle(self, receiver: Receiver) -> None:
        fails = self.dice.random() * 100 < self.settings.failures
        settle = self.client.fail if fails else self.client.complete
        token = receiver.held.pop(0)
        was_locked = settle(self.queue, token, _actor(receiver.name))
        self.count["lost" if not was_locked else "failed" if fails else "completed"] += 1

    def _release(self, receiver: Receiver) -> None:
        tokens, receiver.held = receiver.held, []
        if tokens:
            with suppress(BrokerError):
                self.client.release(self.queue, tokens, _actor(receiver.name))

    def as_values(self) -> dict[str, Any]:
        return {"count": dict(self.count), "held": self.held}


def _actor(name: str) -> Actor:
    return Actor("process", name, Right.ALL)
