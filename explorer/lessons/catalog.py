"""The installed lessons, and the actions of each family. Files and modules are read at their first use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from broker_core.common.errors import EntityNotFound
from broker_core.common.types import Actor, Family
from broker_core.reads import EntityRow, Event
from explorer.frames.family import installed, pages_of
from explorer.models import FaultKind

from .lesson import Action, Effect, Lesson, load
from .stage import COMMON, Stage

TOOLBOX = "sandbox.toml"
Derive = Callable[[Event, Actor, dict[str, Any]], list[dict[str, Any]] | None]


def _module(family: Family) -> ModuleType:
    return import_module(pages_of(family).lessons)


def actions_of(family: Family) -> Mapping[str, Action]:
    """What a `do` can name in a lesson of this family. Raises InvalidArgument if the family is not installed."""
    return COMMON | _module(family).ACTIONS


def faults_of(family: Family) -> Mapping[FaultKind, Effect]:
    """The faults that a receiver in a sandbox of this family can have."""
    return _module(family).FAULTS


def stage(namespace: str, family: Family, person: Actor) -> Stage:
    """A namespace to play in."""
    module = _module(family)
    return Stage(namespace, family, person, actions_of(family), getattr(module, "has_policy", lambda *_: False))


def derive(family: Family) -> Derive:
    """(event, the person, memory of earlier events) -> the actions that cause such an event. Empty: it is an effect of an earlier
    action. None: somebody caused it by what no action does; of a receive, also if it is recorded with the settlement."""
    return _module(family).derive


def configuration(namespace: str, family: Family, actor: Actor) -> list[dict[str, Any]]:
    """The actions that create the entities of a namespace as they are now."""
    return _module(family).configuration(namespace, actor)


def change(family: Family, entity: EntityRow, columns: Mapping[str, Any]) -> dict[str, Any] | None:
    """The action that gives an entity the settings of a revision; None: the family has none."""
    return _module(family).change(entity, columns)


def _folder(family: Family) -> Path:
    return Path(str(_module(family).__file__)).parent


@cache
def toolbox(family: Family) -> Lesson:
    """What a sandbox without a lesson begins with, and what can be done in it: each step is an action with a button of its own.
    Raises BadLesson."""
    return load(_folder(family) / TOOLBOX, actions_of)


@cache
def lessons() -> tuple[Lesson, ...]:
    """All lessons, in the order in which they build on each other. Raises BadLesson."""
    loaded = [
        load(path, actions_of)
        for pages in installed()
        if pages.lessons
        for path in sorted(_folder(pages.family).glob("*.toml"))
        if path.name != TOOLBOX
    ]
    return tuple(sorted(loaded, key=lambda lesson: (lesson.order, lesson.slug)))


def lesson(slug: str) -> Lesson:
    """Raises EntityNotFound."""
    match = next((candidate for candidate in lessons() if candidate.slug == slug), None)
    if match is None:
        raise EntityNotFound(slug, "lesson")
    return match
