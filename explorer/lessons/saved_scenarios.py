"""Scenarios with a load that a person saves, imports and starts again in a sandbox."""

from __future__ import annotations

from typing import Any

from broker_core.common.durations import human
from broker_core.common.errors import EntityNotFound, InvalidArgument, NotAllowed
from broker_core.common.types import Actor, Family
from broker_core.store import connections
from explorer.models import Sandbox, Scenario

from . import catalog, load, sandboxes, scenario
from .lesson import BadLesson, Lesson, read

MOST_OF_ONE = 50  # scenarios of a person
LARGEST = 65_536  # characters of a file
SAVED_FOR = "1 min"  # how long the load of a saved scenario lasts, if a command runs it


def of(user: Any) -> list[Scenario]:
    return list(Scenario.objects.filter(owner=user))


def owned(user: Any, scenario_id: int) -> Scenario:
    """Raises EntityNotFound."""
    saved = Scenario.objects.filter(owner=user, pk=scenario_id).first()
    if saved is None:
        raise EntityNotFound(str(scenario_id), "scenario of yours")
    return saved


def text_of(sandbox: Sandbox, settings: load.LoadSettings, title: str, actor: Actor) -> str:
    """The file of a load: the queues of the sandbox as they are now, and the settings."""
    family, queue = Family(sandbox.family), catalog.lesson(sandbox.lesson).load
    with connections.of(sandbox.namespace):
        setup = catalog.configuration(sandbox.namespace, family, actor)
    action = {"action": "load", "queue": queue, "for": SAVED_FOR, **settings.as_values}
    return scenario.written_load(title, family, setup, action, settings.forecast)


def save(user: Any, name: str, text: str) -> Scenario:
    """Save a file, in place of one of this name. Raises InvalidArgument, NotAllowed."""
    name = name.strip()
    if not name or len(name) > 80 or not name.isprintable():
        raise InvalidArgument("name", "must have 1 to 80 characters")
    read_load(text)
    saved = Scenario.objects.filter(owner=user, name=name).first()
    if saved is None and Scenario.objects.filter(owner=user).count() >= MOST_OF_ONE:
        raise NotAllowed(f"You have {MOST_OF_ONE} scenarios, the maximum. Delete one of them first.")
    return Scenario.objects.update_or_create(owner=user, name=name, defaults={"text": text})[0]


def read_load(text: str) -> tuple[Lesson, load.LoadSettings]:
    """A scenario with a load, and the settings of its first one. Raises InvalidArgument."""
    if len(text) > LARGEST:
        raise InvalidArgument("file", f"has more than {LARGEST:,} characters")
    try:
        lesson = read(text, "scenario", "The file", catalog.actions_of)
    except BadLesson as problem:
        raise InvalidArgument("file", f"is not a scenario. {problem}") from problem
    loads = [
        do.arguments for step in lesson.steps for do in step.do if do.action == "load" and do.arguments["queue"] == lesson.load
    ]
    if not loads:
        raise InvalidArgument("file", "has no load. Run other scenarios with manage.py scenario FILE")
    return lesson, load.LoadSettings.read({name: value for name, value in loads[0].items() if name in load.LIMITS})


def start(user: Any, saved: Scenario) -> Sandbox:
    """Start a saved load in the person's sandbox for loads, which is reset. Raises InvalidArgument, NotAllowed."""
    wanted, settings = read_load(saved.text)
    lesson = next((each for each in catalog.lessons() if each.load == wanted.load and each.family == wanted.family), None)
    if lesson is None:
        names = ", ".join(sorted({each.load for each in catalog.lessons() if each.load}))
        raise InvalidArgument("file", f"must put its load on a queue of this name: {names}")
    existing = next((sandbox for sandbox in sandboxes.of(user) if sandbox.lesson == lesson.slug), None)
    if existing:
        sandboxes.reset(existing, setup=wanted.setup)
    sandbox = existing or sandboxes.start(user, wanted.family, lesson, setup=wanted.setup)
    load.start(sandbox, wanted.load, settings)
    return sandbox


def summary(saved: Scenario) -> str:
    """The load of a scenario in a line; of one that an earlier version saved and this one cannot read, why."""
    try:
        _, settings = read_load(saved.text)
    except InvalidArgument as problem:
        return f"Cannot be started: the file {problem.problem}"
    parts = (
        f"{settings.rate:g} messages/s", f"{settings.receivers} receivers", f"work {settings.work:g} s",
        f"{settings.failures} % failing", f"prefetch {settings.prefetch}", f"at most {human(load.DURATION)}",
    )  # fmt: skip
    return " · ".join(parts)
