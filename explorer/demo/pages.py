"""What the menus of the demo do: pause and resume it, start and end its faults. The runner reads their rows every second."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_POST

from broker_core.common.durations import human
from broker_core.common.errors import InvalidArgument
from explorer.frames.shell import act, notify_error, page
from explorer.frames.values import Act
from explorer.people.preferences import safe_next

from . import faults
from .parts import programs
from .state import demo_state, set_paused

_DATABASE_NAME = "database connections"


@page
@require_POST
def demonstration(request: HttpRequest) -> HttpResponse:
    """POST `do`: one of ACTIONS. Goes back to the page `next`."""
    action = ACTIONS.get(request.POST.get("do", ""))
    if action is None:
        raise InvalidArgument("do", f"must be one of {', '.join(ACTIONS)}")
    if demo_state() is None:
        raise Http404("This site has no demo")
    done = action(request)
    if done.error:
        notify_error(request, done.error)
    return HttpResponseRedirect(safe_next(request, request.POST.get("next", "")))


def _pause(request: HttpRequest) -> Act:
    text = "Demo paused. Waiting messages stay; TTLs, locks and schedules keep running."
    return act(request, "pause demonstration", None, lambda: set_paused(True, request.actor), says=lambda _: text)


def _resume(request: HttpRequest) -> Act:
    return act(request, "resume demonstration", None, lambda: set_paused(False, request.actor), says=lambda _: "Demo running.")


def _start(request: HttpRequest) -> Act:
    """`kind` and `target`."""
    target = request.POST.get("target", "")
    kind, name = faults.check(request.POST.get("kind", ""), target, programs(Random(), "")), target or _DATABASE_NAME
    return act(
        request, "start fault", None, lambda: faults.start(kind, target, request.actor), target=f"{name}: {kind}",
        says=lambda fault: f"{name} is {fault.kind} for {human(faults.LASTS[kind])}.",
    )  # fmt: skip


def _end(request: HttpRequest) -> Act:
    """`target`."""
    target = request.POST.get("target", "")
    name = target or _DATABASE_NAME
    return act(
        request, "end fault", None, lambda: faults.end(target, request.actor), target=name,
        says=lambda _: f"The fault of {name} has ended.",
    )  # fmt: skip


def _end_all(request: HttpRequest) -> Act:
    return act(request, "end faults", None, lambda: faults.end_all(request.actor), says=lambda _: "All faults have ended.")


ACTIONS: dict[str, Callable[[HttpRequest], Act]] = {
    "pause": _pause,
    "resume": _resume,
    "start": _start,
    "end": _end,
    "end_all": _end_all,
}
