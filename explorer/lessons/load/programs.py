"""The senders and receivers of a load, which act in turn in one thread. The time is passed in, in seconds.

What they hold is plain data, so that another slice of the load, in another process, continues where this one ended.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any, NamedTuple, Protocol

from broker_core.common.errors import BrokerError
from broker_core.common.types import Actor, EntityAddress, Right

from .settings import MOST_MESSAGES, LoadSettings

IDLE = 0.25  # seconds after which a receiver asks again, if the queue was empty
MOST_AT_ONCE = 20  # messages of one send: what a slow machine could not send in time is left out


class Words(NamedTuple):
    """What a family calls what happens to messages of a load. dead: those that left the queue after failures. late: the warning
    for a receiver that needs longer than a message is locked, in which {} is that time."""

    failed: str
    lost: str
    dead: str
    late: str


class Client(Protocol):
    """A family's operations on the queue of a load, for one slice of it. Tokens are texts.

    is_portable: whether another process can settle what this one received. fills_up: whether a receiver gets more after each
    message, not only when it has none left. has_dead_letters: whether they stay in the queue.
    """

    words: Words
    is_portable: bool
    fills_up: bool
    has_dead_letters: bool

    def send(self, queue: EntityAddress, bodies: Sequence[bytes], actor: Actor) -> None: ...

    def receive(self, queue: EntityAddress, count: int, actor: Actor) -> list[str]:
        """Lock messages. Returns their tokens."""

    def complete(self, queue: EntityAddress, token: str, actor: Actor) -> bool:
        """Returns whether the message was still locked."""

    def fail(self, queue: EntityAddress, token: str, actor: Actor) -> bool:
        """End it as a failed delivery. Returns the same."""

    def leave(self, queue: EntityAddress, tokens: Sequence[str], actor: Actor) -> None:
        """A receiver ends: what it holds is released."""

    def lock(self, queue: EntityAddress, actor: Actor) -> timedelta | None:
        """For how long a message is locked; None: without an end."""

    def dead(self, queue: EntityAddress) -> int:
        """How many messages failed for good, and are still somewhere."""


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
        """Continue with what the receivers held at the end of another slice."""
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
            self._end(extra)
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

    def end_all(self) -> None:
        """Let all receivers release what they hold."""
        for receiver in self.receivers:
            self._end(receiver)

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
        missing = self.settings.prefetch - len(receiver.held)
        if missing > 0 and (self.client.fills_up or not receiver.held):
            received = self.client.receive(self.queue, missing, _actor(receiver.name))
            receiver.held += received
            self.count["received"] += len(received)
        receiver.due = now + (self.settings.work if receiver.held else IDLE)

    def _settle(self, receiver: Receiver) -> None:
        fails = self.dice.random() * 100 < self.settings.failures
        settle = self.client.fail if fails else self.client.complete
        token = receiver.held.pop(0)
        was_locked = settle(self.queue, token, _actor(receiver.name))
        self.count["lost" if not was_locked else "failed" if fails else "completed"] += 1

    def _end(self, receiver: Receiver) -> None:
        tokens, receiver.held = receiver.held, []
        with suppress(BrokerError):
            self.client.leave(self.queue, tokens, _actor(receiver.name))

    def as_values(self) -> dict[str, Any]:
        return {"count": dict(self.count), "held": self.held}


def _actor(name: str) -> Actor:
    return Actor("process", name, Right.ALL)
