"""Runs all programs in turn, in one thread, and stops them while the demo is paused."""

from __future__ import annotations

import http.client
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from django.db import Error, connection

from broker_core.common.errors import BrokerError
from explorer.models import Demonstration

from .parts import Program, Turns

log = logging.getLogger(__name__)
FAILURES = (BrokerError, OSError, http.client.HTTPException)
AFTER_FAILURE = 2.0  # seconds before a failed program is restarted
AFTER_REFUSAL = 15.0  # likewise, if a retry will hardly succeed: a queue was deleted or disabled
WARN_AFTER = 15.0  # seconds of failing before a warning is logged, once
PAUSE_CHECK_SECONDS = 1.0  # between two checks of the pause button
LONGEST_SLEEP = 0.25  # seconds: the delay until `stopping` takes effect


@dataclass(slots=True)
class RunningProgram:
    """A program and its state. steps: its generator while it runs. due, failing_since: seconds of the runner's clock."""

    name: str
    program: Program
    due: float = 0.0
    steps: Turns | None = None
    failing_since: float | None = None

    def act(self) -> float:
        """Make one step. Returns the seconds until the next."""
        self.steps = self.steps or self.program()
        return next(self.steps)

    def close(self) -> None:
        """End the program, which releases the locks it holds."""
        if self.steps is not None:
            self.steps.close()
            self.steps = None


class Runner:
    """Runs programs until `stopping` is set. is_paused: called every second. clock: monotonic, in seconds."""

    def __init__(
        self, programs: Mapping[str, Program], *, is_paused: Callable[[], bool], clock: Callable[[], float] = time.monotonic
    ):
        self._runnings = [RunningProgram(name, program) for name, program in programs.items()]
        self._is_paused, self._clock = is_paused, clock
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
            if running.due <= self._clock():
                running.due = self._clock() + self._act(running)
        return max(0.0, min(running.due for running in self._runnings) - self._clock())

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
