"""A sender or receiver, a person or the broker itself, as pages show it: one name, one icon and one page for each."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from django.urls import reverse

from broker_core.common.actors import parsed
from broker_core.common.types import BROKER as STORED_BROKER

_TASKS = ("schedule", "operations")  # names under which the explorer's background tasks act


class ActorKind(StrEnum):
    """What an actor is. CLIENT: a client that is known by a name of its own choice only."""

    PROCESS = "process"
    KEY = "key"
    USER = "user"
    BROKER = "broker"
    TASK = "task"
    CLIENT = "client"


ICONS = {
    ActorKind.PROCESS: "process", ActorKind.KEY: "key", ActorKind.USER: "user", ActorKind.BROKER: "system",
    ActorKind.TASK: "sweep", ActorKind.CLIENT: "connection",
}  # fmt: skip
WORDS = {
    ActorKind.PROCESS: "process", ActorKind.KEY: "access key", ActorKind.USER: "user",
    ActorKind.BROKER: "the broker itself", ActorKind.TASK: "background task", ActorKind.CLIENT: "client",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ShownActor:
    """An actor for display. client, protocol: who used a key, and how, if that is known: part of what happened, not of the
    identity."""

    kind: ActorKind
    name: str
    client: str = field(default="", compare=False)
    protocol: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.name

    @property
    def icon(self) -> str:
        return ICONS[self.kind]

    @property
    def words(self) -> str:
        """What it is: "access key, used from 10.0.0.7 over HTTP"."""
        over = f" over {self.protocol.upper()}" if self.protocol else ""
        return WORDS[self.kind] + (f", used from {self.client}{over}" if self.client else "")

    @property
    def stored(self) -> str:
        """As events and locks store it."""
        match self.kind:
            case ActorKind.BROKER:
                return STORED_BROKER
            case ActorKind.TASK:
                return f"process:{self.name}"
            case ActorKind.CLIENT:
                return self.name
        return f"{self.kind}:{self.name}"

    @property
    def url(self) -> str:
        return reverse("explorer:actor", args=(self.kind, self.name))


BROKER = ShownActor(ActorKind.BROKER, "broker")


def shown_actor(stored: str | None) -> ShownActor:
    """The actor of a stored text. None or empty: what nobody else caused, the broker did."""
    if not stored:
        return BROKER
    actor = parsed(stored)
    if actor.kind == "process" and str(actor) == STORED_BROKER or not actor.kind and actor.name == BROKER.name:
        return BROKER
    if actor.kind == "process" and actor.name in _TASKS:
        return ShownActor(ActorKind.TASK, actor.name)
    return ShownActor(ActorKind(actor.kind) if actor.kind else ActorKind.CLIENT, actor.name, actor.client, actor.protocol)
