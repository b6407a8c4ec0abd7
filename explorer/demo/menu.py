"""What the menus of the demo offer: to pause it, and to let a program, a background task or the database connections fail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from random import Random

from django.conf import settings
from django.utils import timezone

from broker_core.common.durations import human
from explorer.frames import background_tasks
from explorer.models import Fault, FaultKind

from . import faults
from .parts import existing, parts, programs
from .state import demo_state

MENU, MENU_SECONDS = "explorer/demo/_menu.html", 2.0  # for a page's live fragments, and the seconds between two drawings
_EFFECTS = {
    FaultKind.FAILING: "fails for each message, and abandons it",
    FaultKind.SLOW: f"takes {faults.SLOWER} times as long for each message",
    FaultKind.KILLED: "ends without releasing its locks, and is started again later",
    FaultKind.DISCONNECTED: "loses its connection and what it holds, and starts again at once",
    FaultKind.STOPPED: "is not run",
}


@dataclass(frozen=True, slots=True)
class FaultChoice:
    """A fault that can be started. effect: what the program does then; lasts: in words."""

    kind: FaultKind
    effect: str
    lasts: str


@dataclass(frozen=True, slots=True)
class Program:
    """A program of the demo. does: in words. fault: the one that runs."""

    name: str
    does: str
    fault: Fault | None


@dataclass(frozen=True, slots=True)
class DemoMenu:
    """The demo's state as its menu shows it. faults: those that run, the one that ends first before the others. tasks: names of
    background tasks that can be stopped."""

    is_paused: bool
    faults: tuple[Fault, ...]
    tasks: tuple[str, ...]
    now: datetime
    cut: FaultChoice
    stop: FaultChoice


def choice(kind: FaultKind) -> FaultChoice:
    return FaultChoice(kind, _EFFECTS[kind], human(faults.LASTS[kind]))


PROGRAM_CHOICES = tuple(choice(kind) for kind in faults.PROGRAM_KINDS)


def demo_menu(namespace: str | None) -> DemoMenu | None:
    """The menu for a page about a namespace, or about all; None if this site has no demo, or none there."""
    demo = demo_state()
    if demo is None or namespace is not None and namespace not in {part.NAMESPACE for part in parts()}:
        return None
    now = timezone.now()
    tasks = tuple(sweep.name for sweep in background_tasks.sweeps({}, now) if sweep.enabled)
    return DemoMenu(
        demo.is_paused, tuple(faults.running()), tasks, now, choice(FaultKind.DISCONNECTED), choice(FaultKind.STOPPED)
    )


def programs_named(names: Iterable[str]) -> list[Program]:
    """Those of these names that are programs of the demo."""
    running = {fault.target: fault for fault in faults.running()}
    does = {name: text for part in existing() for name, text in part.DOES.items()}
    return [Program(name, does[name], running.get(name)) for name in names if name in does]


def faults_of_programs() -> Mapping[str, str]:
    """The programs of the demo, each with the kind of its fault; empty: it has none. Nothing if this site has no demo."""
    if not getattr(settings, "VITRINE_DEMO", False):
        return {}
    running = {fault.target: fault.kind for fault in faults.running()}
    return {name: running.get(name, "") for name in programs(Random(), "")}
