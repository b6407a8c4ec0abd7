"""Runs all programs in turn, in one thread; stops them while the demo is paused, and applies faults to them."""

from __future__ import annotations

import http.client
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from django.db import Error, connection

from broker_core.common.errors import BrokerError
from explorer.models import Demonstration, Fault, FaultKind

from .faults import DATABASE, SLOWER, cut_database_connections
from .parts import Crashed, InjectedFailure, Program, Turns

log = logging.getLogger(__name__)
FAILURES = (BrokerError, OSError, http.client.HTTPException, InjectedFailure)
AFTER_FAILURE = 2.0  # seconds before a failed program is restarted
AFTER_REFUSAL = 15.0  # likewise, if a retry will hardly succeed: a queue was deleted or disabled
WARN_AFTER = 15.0  # seconds of failing before a warning is logged, once
PAUSE_CHECK_SECONDS = 1.0  # between two checks of the pause button
LONGEST_SLEEP = 0.25  # seconds: the delay until `stopping` takes effect


@dataclass(slots=True)
class RunningProgram:
    """A program and its state. steps: its generator while it runs. due, failing_since: seconds of the runner's clock. fault: the
    one that was applied last, and runs."""

    name: str
    program: Program
    due: float = 0.0
    steps: Turns | None = None
    failing_since: float | None = None
    fault: Fault | None = None

    def act(self) -> float:
        """Make one step. Returns the seconds until the next."""
        kind = self.fault.kind if self.fault else None
        if kind == FaultKind.FAILING and self.steps is not None:
            return self.steps.throw(InjectedFailure())
        self.steps = self.steps or self.program()
        return next(self.steps) * (SLOWER if kind == FaultKind.SLOW else 1)

    def set_fault(self, fault: Fault | None) -> bool:
        """Apply a fault, or its end. Returns whether the program restarts."""
        is_same = (fault and fault.started_at) == (self.fault and self.fault.started_at)
        was_killed = self.fault is not None and self.fault.kind == FaultKind.KILLED
        self.fault = fault
        if is_same:
            return False
        if fault is not None and fault.kind in (FaultKind.KILLED, FaultKind.DISCONNECTED):
            self._crash()
            return fault.kind == FaultKind.DISCONNECTED
        return was_killed

    def _crash(self) -> None:
        if self.steps is not None:
            with suppress(Crashed, StopIteration, *FAILURES):
                self.steps.throw(Crashed())
            self.close()

    @property
    def is_killed(self) -> bool:
        return self.fault is not None and self.fault.kind == FaultKind.KILLED

    def close(self) -> None:
        """End the program, which releases the locks it holds."""
        if self.steps is not None:
            self.steps.close()
            self.steps = None


class Runner:
    """Runs programs until `stopping` is set. is_paused, faults (by target): called every second. clock: monotonic, in seconds."""

    def __init__(
        self,
        programs: Mapping[str, Program],
        *,
        is_paused: Callable[[], bool],
        faults: Callable[[], Mapping[str, Fault]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._runnings = [RunningProgram(name, program) for name, program in programs.items()]
        self._is_paused, self._faults, self._clock = is_paused, faults, clock
        self._cut_at: datetime | None = None  # when the database connections were cut last
        self._paused, self._next_check = False, clock()
        self._warned = False
        self.stopping = False

    def run(self) -> None:
        """Run until `stopping` is set, by a signal handler for example."""
        try:
            while not self.stopping:
                time.sleep(min(self.tick(), LONGEST_SLEEP))
        finally:
            self.rest()

    def tick(self) -> float:
        """Run all programs that are due. Returns the seconds until the next one is due."""
        self._check_pause()
        if self._paused:
            return PAUSE_CHECK_SECONDS
        for running in self._runnings:
            if self.stopping:
                return 0
            if running.due <= self._clock() and not running.is_killed:
                running.due = self._clock() + self._act(running)
        due = [running.due for running in self._runnings if not running.is_killed]
        return max(0.0, min(due, default=self._next_check) - self._clock())

    def rest(self) -> None:
        """End all programs, which release their locks; they restart from the beginning."""
        for running in self._runnings:
            running.close()

    def _check_pause(self) -> None:
        if self._clock() < self._next_check:
            return
        self._next_check = self._clock() + PAUSE_CHECK_SECONDS
        was_paused, self._paused = self._paused, self._is_paused()
        if self._paused and not was_paused:
            self.rest()
        self._apply(self._faults())

    def _apply(self, faults: Mapping[str, Fault]) -> None:
        for running in self._runnings:
            if running.set_fault(faults.get(running.name)):
                running.due = self._clock()
        cut = faults.get(DATABASE)
        if cut is not None and cut.started_at != self._cut_at:
            self._cut_at = cut.started_at
            cut_database_connections()

    def _act(self, running: RunningProgram) -> float:
        try:
            pause = running.act()
        except FAILURES as problem:
            running.steps = None
            self._note_failure(running, problem)
            final = isinstance(problem, BrokerError) and not problem.retryable
            return AFTER_REFUSAL if final else AFTER_FAILURE
        running.failing_since = None
        self._warned = self._warned and any(other.failing_since is not None for other in self._runnings)
        return pause

    def _note_failure(self, running: RunningProgram, problem: Exception) -> None:
        if running.failing_since is None:
            running.failing_since = self._clock()
        if not self._warned and self._clock() - running.failing_since >= WARN_AFTER:
            self._warned = True
            log.warning("Demo program %s failed and will retry: %s", running.name, problem)


class PauseButton:
    """Whether the demo is paused, read from the database; the last known answer while the database is unavailable."""

    def __init__(self) -> None:
        self._last = False

    def __call__(self) -> bool:
        try:
            self._last = Demonstration.objects.filter(pk=Demonstration.ONLY, is_paused=True).exists()
        except Error:
            connection.close()
        return self._last
