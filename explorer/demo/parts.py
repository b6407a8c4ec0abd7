"""The demo's parts, one for each family that registers one (FamilyPages.demo)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from random import Random
from typing import Protocol, cast

from broker_core import namespaces
from explorer.frames.family import installed

Turns = Generator[float, None, None]
"""A running program: each step acts, then yields the number of seconds until its next step."""
Program = Callable[[], Turns]


class InjectedFailure(Exception):
    """Thrown into a program that shall fail: a consumer gives its message back as failed; any other program is restarted."""


class Crashed(Exception):
    """Thrown into a program that is killed or disconnected: it ends without releasing its locks."""


@dataclass(frozen=True, slots=True)
class DesignedFailure:
    """A failure that a part of the demo is made to have.

    path: of the entity. rule: which problem of it, one of RULES in explorer/pages/attention.py. why: in a short sentence.
    reasons: of the dead letters that are meant; others are a real problem. Empty: any.
    """

    path: str
    rule: str
    why: str
    reasons: frozenset[str] = frozenset()

    def explains(self, path: str, rule: str, reasons: Collection[str | None]) -> bool:
        return (path, rule) == (self.path, self.rule) and (not self.reasons or bool(reasons) and self.reasons.issuperset(reasons))


class DemoPart(Protocol):
    """A family's demo module. NAMESPACE: the namespace that its programs use. DOES: what each of them does, in words. DESIGNED:
    the failures that it is made to have."""

    NAMESPACE: str
    DOES: Mapping[str, str]
    DESIGNED: Sequence[DesignedFailure]

    def seed(self) -> None:
        """Create what is missing: namespace, entities, examples."""

    def programs(self, namespace: str, dice: Random, site: str) -> Mapping[str, Program]:
        """The programs by name. dice: their source of chance. site: base URL of the HTTP front end."""


def parts() -> Iterator[DemoPart]:
    """The registered parts. Their modules are imported here, so that pages do not load them."""
    for pages in installed():
        if pages.demo:
            yield cast(DemoPart, import_module(pages.demo))


def existing() -> list[DemoPart]:
    """The parts whose namespace exists: a user may have deleted it."""
    names = {namespace.name for namespace in namespaces.list_namespaces()}
    return [part for part in parts() if part.NAMESPACE in names]


def programs(dice: Random, site: str) -> dict[str, Program]:
    """The programs of all existing parts."""
    return {name: program for part in existing() for name, program in part.programs(part.NAMESPACE, dice, site).items()}
