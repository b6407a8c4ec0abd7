"""Reads, pauses, steps and resumes a namespace's clock (docs/design.md D6)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from broker_core.common.durations import human
from broker_core.common.errors import EntityNotFound, InvalidArgument
from broker_core.common.types import Actor, Right
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .namespaces import changeable_namespace

LAST_YEAR_OF_A_CLOCK = 3000  # far below the maximum of a datetime, so that adding a time-to-live cannot overflow
LONGEST_STEP = timedelta(days=36_500)
FASTEST_RATE = 86_400.0  # a day in a second


@dataclass(frozen=True, slots=True)
class Clock:
    """The state of a namespace's clock. rate: its seconds per real second, 0 while paused. is_manual: it no longer shows real
    time."""

    namespace: str
    now: datetime
    rate: float
    is_manual: bool


@use_case
def get_clock(namespace: str, *, actor: Actor | None = None) -> Steps[Clock]:
    """Read the namespace's clock."""
    (actor or Actor.local()).require(Right.BROWSE, namespace)
    rows = yield call("get_clock", name=namespace)
    if not rows:
        raise EntityNotFound(namespace, "namespace")
    return _clock(rows[0])


@use_case
def pause_clock(namespace: str, *, actor: Actor | None = None) -> Steps[Clock]:
    """Pause the namespace's clock; returns the Clock. Statements already running may have read a slightly later time."""
    return (yield from _set_clock(namespace, actor, step=timedelta(0), rate=0.0))


@use_case
def step_clock(namespace: str, step: timedelta, *, actor: Actor | None = None) -> Steps[Clock]:
    """Move the namespace's clock, running or paused, forward by `step`; returns the Clock."""
    if not isinstance(step, timedelta) or not timedelta(0) <= step <= LONGEST_STEP:
        step_text = human(step) if isinstance(step, timedelta) else repr(step)
        raise InvalidArgument(
            "step", f"{step_text} is out of range: a clock only moves forward, by at most {human(LONGEST_STEP)}"
        )
    return (yield from _set_clock(namespace, actor, step=step, rate=None))


@use_case
def step_clock_to(namespace: str, at: datetime, *, actor: Actor | None = None) -> Steps[Clock]:
    """Move the namespace's clock, running or paused, forward to the aware instant `at`; returns the Clock. Concurrent calls with
    the same instant move it only once. Raises InvalidArgument if the instant is in the past."""
    if at.tzinfo is None:
        raise InvalidArgument("at", f"needs a time zone, such as UTC: {at}")
    clock = yield from get_clock.steps(namespace, actor=actor)
    if at <= clock.now:
        when = f"{clock.now:%Y-%m-%d %H:%M:%S} UTC"
        raise InvalidArgument("at", f"is in the past: the clock of '{namespace}' shows {when} and never goes back")
    if at - clock.now > LONGEST_STEP:
        raise InvalidArgument("at", f"a clock moves forward by at most {human(LONGEST_STEP)} at a time")
    return (yield from _set_clock(namespace, actor, step=timedelta(0), rate=None, to=at))


@use_case
def resume_clock(namespace: str, rate: float = 1.0, *, actor: Actor | None = None) -> Steps[Clock]:
    """Run the namespace's clock from its current time, `rate` times as fast as real time; returns the Clock."""
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not math.isfinite(rate) or not 0 < rate <= FASTEST_RATE:
        problem = f"{rate!r} must be greater than 0 and at most {FASTEST_RATE:,.0f}; to stop the clock, pause it"
        raise InvalidArgument("rate", problem)
    return (yield from _set_clock(namespace, actor, step=timedelta(0), rate=float(rate)))


def _set_clock(
    namespace: str, actor: Actor | None, *, step: timedelta, rate: float | None, to: datetime | None = None
) -> Steps[Clock]:
    target = yield from changeable_namespace(namespace, actor)

    def steps() -> Steps:
        rows = yield call("set_clock", namespace_id=target.id, step=step, rate=rate, to=to)
        if rows[0].now.year >= LAST_YEAR_OF_A_CLOCK:
            raise InvalidArgument("step", f"the clock of '{namespace}' would pass the year {LAST_YEAR_OF_A_CLOCK}")
        return _clock(rows[0])

    return (yield Atomically(steps()))


def _clock(row: Any) -> Clock:
    return Clock(row.name, row.now, row.rate, row.is_manual)
