"""Pages and forms of a namespace's clock: pause, step and resume (docs/design.md D6).

After a step, everything that became due is processed at once, so that the page shows the result without waiting for a sweep.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from broker_core import namespaces, reads, sweeps
from broker_core.common.durations import human
from broker_core.common.errors import EntityNotFound, InvalidArgument
from broker_core.common.family import definition_of
from broker_core.common.types import Actor, EntityAddress, Family
from broker_core.reads import Change, ClockReading, NextChange
from explorer.frames import presenters
from explorer.frames.shell import Act, May, act, notify_error, page, wants_fragment
from explorer.people.preferences import safe_next

from . import time_scale
from .forms import StepForm

STEPS = ("1 s", "10 s", "1 min", "5 min")
SAME = timedelta(seconds=1)  # a clock with a smaller difference counts as real time
_HAPPENS = {
    Change.LOCK: "the lock of message {} ends",
    Change.SESSION: "the lock of a session ends",
    Change.DUE: "message {} becomes due",
    Change.VISIBLE: "message {} becomes visible",
    Change.LIFE: "message {} expires",
    Change.REMOVAL: "expired message {} is removed",
    Change.UNACKNOWLEDGED: "the acknowledgement timeout of message {} ends",
    Change.QUEUE: "the queue itself expires",
    Change.IDLE: "the entity is deleted for being idle",
}
_CHANGES = {
    "activated": ("scheduled message became active", "scheduled messages became active"),
    "locks_ended": ("lock ended", "locks ended"),
    "overdue": ("delivery timed out and was requeued", "deliveries timed out and were requeued"),
    "expired": ("message expired or was moved", "messages expired or were moved"),
    "forwarded": ("message was forwarded", "messages were forwarded"),
}


@dataclass(frozen=True, slots=True)
class ClockView:
    """A namespace's clock for display.

    entity: path of the entity that the page is about, where there is one; next: what the clock changes in it next, in words.
    page: the address of the page, to come back to.
    """

    namespace: str
    family: Family
    is_system: bool
    clock: ClockReading
    page: str
    entity: str = ""
    next: str = ""

    @property
    def set_word(self) -> str:
        return definition_of(self.family).container_noun

    @property
    def time_text(self) -> str:
        """The time, in the format of live.js."""
        return presenters.clock_shown(self.clock.now, self.clock.rate)

    @property
    def off(self) -> str:
        """The difference from real time, in words; empty if it is less than SAME."""
        by = self.clock.now - self.clock.real_now
        if abs(by) < SAME:
            return ""
        return f"{human(abs(by))} {'behind' if by < timedelta(0) else 'ahead of'} real time"

    @property
    def is_otherwise(self) -> bool:
        """Whether it differs from real time, or will soon."""
        return bool(self.clock.is_manual and self.off or self.speed)

    @property
    def is_notable(self) -> bool:
        """Whether it must be seen without being asked for: it is paused, or differs from real time."""
        return self.clock.is_paused or self.is_otherwise

    @property
    def is_behind(self) -> bool:
        """Whether it is behind real time, so that it can be advanced to it."""
        return self.clock.real_now - self.clock.now >= SAME

    @property
    def speed(self) -> str:
        """The speed in words; empty for that of real time."""
        return "" if self.clock.rate in (0, 1) else f"at {self.clock.rate:g}x speed"

    @property
    def url(self) -> str:
        return reverse("explorer:clock", args=(self.namespace,))


def view_of(namespace: str, actor: Actor, *, page: str, entity: str = "") -> ClockView:
    """The clock of a namespace for one of its pages. Raises EntityNotFound, NotAuthorized."""
    row = namespaces.get_namespace(namespace, actor=actor)
    clock = reads.now(namespace, actor=actor)
    following = ""
    if entity and clock.is_manual:
        with suppress(EntityNotFound):  # the page says so itself
            following = next_words(EntityAddress(row.name, entity), clock, actor)
    return ClockView(row.name, row.family, row.is_system, clock, page, entity, following)


def next_words(address: EntityAddress, clock: ClockReading, actor: Actor) -> str:
    """The next timed change in an entity, in words. Raises EntityNotFound."""
    return happens_next(reads.next_change(address, actor=actor), clock)


def happens(change: NextChange) -> str:
    """A change in words."""
    return _HAPPENS[change.what].format(change.sequence_number)


def happens_next(change: NextChange | None, clock: ClockReading) -> str:
    """A change in words that stay true: a duration if the clock is paused, else an instant."""
    if change is None:
        return "no timed change is pending"
    words = happens(change)
    return f"{words}, {human(change.at - clock.now)} from now" if clock.is_paused else f"{words}, at {change.at:%H:%M:%S}"


@page
@require_http_methods(["GET", "POST"])
def clock(request: HttpRequest, namespace: str) -> HttpResponse:
    """GET renders the control, for htmx alone, else as a page; POST changes the clock and redirects back."""
    parameters = request.POST if request.method == "POST" else request.GET
    back, entity = safe_next(request, parameters.get("page", "")), parameters.get("entity", "")
    name = namespaces.get_namespace(namespace, actor=request.actor).name
    if request.method != "POST":
        return _draw(request, name, back, entity)
    done = _move(request, name, entity)
    if wants_fragment(request):
        return _draw(request, name, back, entity, done)
    if done.error:
        notify_error(request, done.error)
    return HttpResponseRedirect(back)


def _draw(request: HttpRequest, namespace: str, back: str, entity: str, done: Act = Act()) -> HttpResponse:
    context = {
        "section": "entities",
        "namespace": namespace,
        "clock_view": view_of(namespace, request.actor, page=back, entity=entity),
        "with_control": not wants_fragment(request) or (request.POST or request.GET).get("control") == "1",
        "clock_error": done.error,
        "may": May(request.actor.rights),
    }
    template = "explorer/_clock.html" if wants_fragment(request) else "explorer/clock.html"
    return render(request, template, context, status=done.status)


def _move(request: HttpRequest, namespace: str, entity: str) -> Act:
    """Carry out the posted action."""
    actor, what = request.actor, request.POST.get("act") or "step"
    typed = request.POST.get("by") or request.POST.get("step", "").strip()
    acts: dict[str, tuple[str, Callable[[], Any], Callable[[Any], str], str]] = {
        "pause": ("pause clock", lambda: namespaces.pause_clock(namespace, actor=actor), _paused, ""),
        "play": ("resume clock", lambda: _play(namespace, request.POST.get("rate", ""), actor), _resumed, ""),
        "ahead": ("step clock", lambda: _ahead(namespace, request.POST.get("ahead", ""), actor), _stepped, ": on the time bar"),
        "resume": ("resume clock", lambda: namespaces.resume_clock(namespace, actor=actor), _resumed, ""),
        "catch-up": ("resume clock", lambda: _catch_up(namespace, actor), _stepped, ": to real time"),
        "step": ("step clock", lambda: _step(namespace, typed, actor), _stepped, f": {typed}"),
        "next": ("step clock", lambda: _to_next(namespace, entity, actor), _stepped, f": to the next change in {entity}"),
    }
    if what not in acts:
        return Act(error=InvalidArgument("act", f"{what!r} must be one of {', '.join(acts)}"))
    action, call, says, how = acts[what]
    return act(request, action, None, call, target=f"{namespace}{how}", says=says)


@dataclass(frozen=True, slots=True)
class Stepped:
    """The result of a step: the new clock, and the changes that became due (sweeps.follow_clock)."""

    clock: namespaces.Clock
    by: timedelta
    changes: Mapping[str, Any]


def _step(namespace: str, typed: str, actor: Actor) -> Stepped:
    """Advance the clock by a duration or to an instant. Raises InvalidArgument."""
    form = StepForm({"step": typed})
    if not form.is_valid():
        raise InvalidArgument("step", " ".join(form.errors["step"]))
    return _follow(namespace, form.cleaned_data["step"], actor)


def _play(namespace: str, rate: str, actor: Actor) -> namespaces.Clock:
    """Run the clock at a speed. Raises InvalidArgument."""
    try:
        return namespaces.resume_clock(namespace, float(rate), actor=actor)
    except ValueError as exc:
        raise InvalidArgument("rate", f"{rate!r} is not a number") from exc


def _ahead(namespace: str, step: str, actor: Actor) -> Stepped:
    """Advance the clock to a place on the time bar. Raises InvalidArgument."""
    place = time_scale.step_of(step)
    if not place:
        raise InvalidArgument("ahead", f"must be a whole number from 1 to {time_scale.STEPS:,}")
    return _follow(namespace, time_scale.distance(place), actor)


def _to_next(namespace: str, path: str, actor: Actor) -> Stepped | None:
    """Advance the clock to the next timed change in an entity. None: there is none, which is not an error."""
    address = EntityAddress(namespace, path)
    change = reads.next_change(address, actor=actor)
    if change is None:
        return None
    return _follow(namespace, change.at, actor)


def _catch_up(namespace: str, actor: Actor) -> Stepped:
    stepped = _follow(namespace, reads.now(namespace, actor=actor).real_now, actor)
    return Stepped(namespaces.resume_clock(namespace, actor=actor), stepped.by, stepped.changes)


def _follow(namespace: str, target: timedelta | datetime, actor: Actor) -> Stepped:
    before = namespaces.get_clock(namespace, actor=actor)
    if isinstance(target, timedelta):
        after, by = namespaces.step_clock(namespace, target, actor=actor), target
    else:
        after = namespaces.step_clock_to(namespace, target, actor=actor)
        by = after.now - before.now
    return Stepped(after, by, sweeps.follow_clock(namespace))


def _paused(clock: namespaces.Clock) -> str:
    return f"Paused the clock of {clock.namespace} at {presenters.absolute(clock.now)}."


def _resumed(clock: namespaces.Clock) -> str:
    speed = "normal speed" if clock.rate == 1 else f"{clock.rate:g} times the normal speed"
    return f"Resumed the clock of {clock.namespace} from {presenters.absolute(clock.now)} at {speed}."


def _stepped(done: Stepped | None) -> str:
    """The result of a step in words."""
    if done is None:
        return "No timed change is pending, so the clock was not moved."
    counts = {name: done.changes[name] for name in _CHANGES if done.changes.get(name)}
    parts = [f"{count:,} {_CHANGES[name][count != 1]}" for name, count in counts.items()]
    parts += [f"{address} was deleted" for address in done.changes.get("deleted", ())]
    text = f"Advanced the clock of {done.clock.namespace} by {human(done.by)} to {presenters.absolute(done.clock.now)}"
    return f"{text}: {', '.join(parts)}." if parts else f"{text}."
