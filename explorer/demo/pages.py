"""The button that pauses and resumes the demo, and its faults on demand. The runner reads their rows every second."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from random import Random

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from broker_core.common.durations import human
from broker_core.common.errors import InvalidArgument
from explorer.frames import background_tasks
from explorer.frames.shell import act, notify_error, page, show
from explorer.models import Fault, FaultKind

from . import faults
from .parts import Program, existing, programs
from .state import demo_state, set_paused

_MESSAGES = {
    "pause": "Demo paused. Waiting messages stay; TTLs, locks and schedules keep running.",
    "resume": "Demo running.",
}


@page
@require_POST
def demonstration(request: HttpRequest) -> HttpResponse:
    """POST `do`: pause or resume. Idempotent."""
    action = request.POST.get("do", "")
    if action not in _MESSAGES:
        raise InvalidArgument("do", "must be pause or resume")
    done = act(
        request, f"{action} demonstration", None, says=lambda _: _MESSAGES[action],
        call=lambda: set_paused(action == "pause", request.actor),
    )  # fmt: skip
    if done.error:
        notify_error(request, done.error)
    return HttpResponseRedirect(reverse("explorer:entities"))


# Faults on demand

_EFFECTS = {
    FaultKind.KILLED: "Ends without releasing its locks; is restarted later",
    FaultKind.SLOW: f"Takes {faults.SLOWER} times as long for each message",
    FaultKind.FAILING: "Fails for each message, and gives it back",
    FaultKind.DISCONNECTED: "Loses its connection and what it holds, then restarts",
    FaultKind.STOPPED: "Is not run",
}


@dataclass(frozen=True, slots=True)
class FaultChoice:
    """A fault that can be started. lasts: in words."""

    kind: FaultKind
    effect: str
    lasts: str


@dataclass(frozen=True, slots=True)
class FaultTarget:
    """A program, a background task or the database connections, with the fault that runs on it. name: what people call it. does:
    what a program does, in words."""

    target: str
    name: str
    choices: list[FaultChoice]
    fault: Fault | None
    does: str = ""


@page
@require_http_methods(["GET", "POST"])
def faults_on_demand(request: HttpRequest) -> HttpResponse:
    """GET lists what can be made to fail; POST `kind` and `target` starts a fault, `end` and `target` ends one."""
    if demo_state() is None:
        raise Http404("This site has no demo")
    if request.method == "POST":
        _change(request, programs(Random(), ""))
        return HttpResponseRedirect(reverse("explorer:faults"))
    running = {fault.target: fault for fault in faults.running()}
    programs_of_demo = [
        (part.NAMESPACE, "programs", [_program(name, does, running) for name, does in sorted(part.DOES.items())])
        for part in sorted(existing(), key=lambda part: part.NAMESPACE)
    ]
    tasks = [
        _target(sweep.name, sweep.name, [FaultKind.STOPPED], running) for sweep in background_tasks.sweeps({}, timezone.now())
    ]
    context = {
        "section": "now",
        "now": timezone.now(),
        "effects": [_choice(kind) for kind in FaultKind],
        "groups": [
            *programs_of_demo,
            ("Database", "", [_target(faults.DATABASE, "connections of the demo", [FaultKind.DISCONNECTED], running)]),
            ("Background tasks", "what they do waits until they run again", tasks),
        ],
    }
    return show(request, "faults", context)


def faults_of_programs() -> dict[str, str]:
    """The programs of the demo, each with the kind of its fault; empty: it has none. Nothing if this site has no demo."""
    if not getattr(settings, "VITRINE_DEMO", False):
        return {}
    running = {fault.target: fault.kind for fault in faults.running()}
    return {name: running.get(name, "") for name in programs(Random(), "")}


def _change(request: HttpRequest, known: Mapping[str, Program]) -> None:
    target = request.POST.get("target", "")
    name = target or "database connections"
    if "end" in request.POST:
        done = act(
            request, "end fault", None, lambda: faults.end(target, request.actor), target=name,
            says=lambda _: f"The fault of {name} has ended.",
        )  # fmt: skip
    else:
        kind = faults.check(request.POST.get("kind", ""), target, known)
        done = act(
            request, "start fault", None, lambda: faults.start(kind, target, request.actor), target=f"{name}: {kind}",
            says=lambda fault: f"{name} is {fault.kind} for {human(faults.LASTS[kind])}.",
        )  # fmt: skip
    if done.error:
        notify_error(request, done.error)


def _target(target: str, name: str, kinds: Iterable[FaultKind], running: Mapping[str, Fault]) -> FaultTarget:
    return FaultTarget(target, name, [_choice(kind) for kind in kinds], running.get(target))


def _program(name: str, does: str, running: Mapping[str, Fault]) -> FaultTarget:
    return replace(_target(name, name, faults.PROGRAM_KINDS, running), does=does)


def _choice(kind: FaultKind) -> FaultChoice:
    return FaultChoice(kind, _EFFECTS[kind], human(faults.LASTS[kind]))
