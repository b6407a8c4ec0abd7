"""The families of a soak, each with its scene, what its clients do, how the rest is received, and what must be true."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from . import rabbit, service_bus, storage, truth
from .findings import Findings
from .scene import Scene


class Family(NamedTuple):
    """kinds: what it is asked for by. scene: of a namespace's name and the kinds wanted. acts: of clients, by their role.

    locks: how its events tell who holds a message. drain: one round of receiving what is there.
    come_to_rest: called once all clients have ended.
    """

    kinds: tuple[str, ...]
    scene: Callable[[str, tuple[str, ...]], Any]
    acts: Mapping[str, Callable[[Any], None]]
    locks: truth.Locks
    drain: Callable[[Any], None]
    come_to_rest: Callable[[Any], None] = lambda scene: None


FAMILIES = {
    "servicebus": Family(
        ("queues", "topics", "sessions"), Scene, service_bus.ACTS, service_bus.LOCKS, service_bus.drain, service_bus.come_to_rest
    ),
    "storage": Family(("storage",), storage.Scene, storage.ACTS, storage.LOCKS, storage.drain),
    "rabbit": Family(("rabbit",), rabbit.Scene, rabbit.ACTS, rabbit.LOCKS, rabbit.drain, rabbit.come_to_rest),
}
KINDS = tuple(kind for family in FAMILIES.values() for kind in family.kinds)


class Part(NamedTuple):
    """A family's part in a soak, as child processes get it."""

    family: str
    scene: Any

    @property
    def acts(self) -> Mapping[str, Callable[[Any], None]]:
        return FAMILIES[self.family].acts

    def drain(self) -> None:
        FAMILIES[self.family].drain(self.scene)

    def come_to_rest(self) -> None:
        FAMILIES[self.family].come_to_rest(self.scene)

    def examine(self, dsn: str, folder: Path, *, empty: bool = False) -> Findings:
        return truth.examine(self.scene, FAMILIES[self.family].locks, dsn, folder, empty=empty)


def parts_of(kinds: tuple[str, ...]) -> tuple[Part, ...]:
    """The parts that these kinds ask for, each with a namespace of its own."""
    parts = []
    for name, family in FAMILIES.items():
        if wanted := tuple(kind for kind in family.kinds if kind in kinds):
            parts.append(Part(name, family.scene(f"soak{name}{uuid4().hex[:8]}", wanted)))
    return tuple(parts)
