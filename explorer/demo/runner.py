"""Gives each program its turns, one after the other in one thread, and lets them rest while somebody has paused them."""

from __future__ import annotations

import http.client
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from django.db import Error, connection

from broker_core.common.errors import BrokerError
from explorer.models import Demonstration

from .http_queue import Refused
from .traffic import Program, Turns

log = logging.getLogger(__name__)
FAILURES = (BrokerError, OSError, http.client.HTTPException, Refused)
AFTER_FAILURE = 2.0  # seconds before a failed program starts anew
AFTER_REFUSAL = 15.0  # and where trying the same again hardly helps: a queue was deleted or disabled
SAID_AFTER = 15.0  # a trouble that lasts so long is said, once
LOOK_SECONDS = 1.0  # between two looks at whether it is paused
LONGEST_SLEEP = 0.25  # so soon it stops when asked to


@dataclass(slots=True)
class Performer:
    """A program and its turns: `steps` while it runs. due, failing_since: seconds of the runner's clock."""

    name: str
    program: Program
    due: float = 0.0
    steps: Turns | None = None
    failing_since: float | None = None

    def act(self) -> float:
        """One turn; seconds until the next."""
        self.steps = self.steps or self.program()
        return next(self.steps)

    def leave(self) -> None:
        """End the program, which gives back what it holds."""
        if self.steps is not None:
            self.steps.close()
            self.steps = None


class Runner:
    """Runs programs until told to stop. is_paused: asked every second. clock: seconds that only grow."""

    def __init__(
        self, programs: Mapping[str, Program], *, is_paused: Callable[[], bool], clock: Callable[[], float] = time.monotonic
    ):
        self._performers = [Performer(name, program) for name, program in programs.items()]
        self._asks_whether_paused, self._clock = is_paused, clock
        self._paused, self._look_at = False, clock()
        self._said = False
        self.stopping = False

    def run(self) -> None:
        """Until `stopping` is set, by a signal handler for example."""
        try:
            while not self.stopping:
                time.sleep(min(self.tick(), LONGEST_SLEEP))
        finally:
            self.rest()

    def tick(self) -> float:
        """Give their turn to all whose time has come; seconds until the next one's."""
        self._look()
        if self._paused:
            return LOOK_SECONDS
        for performer in self._performers:
            if self.stopping:
                return 0
            if performer.due <= self._clock():
                performer.due = self._clock() + self._act(performer)
        return max(0.0, min(performer.due for performer in self._performers) - self._clock())

    def rest(self) -> None:
        """Have everybody give back what they hold, and start from their beginnings next time."""
        for performer in self._performers:
            performer.leave()

    def _look(self) -> None:
        if self._clock() < self._look_at:
            return
        self._look_at = self._clock() + LOOK_SECONDS
        was, self._paused = self._paused, self._asks_whether_paused()
        if self._paused and not was:
            self.rest()

    def _act(self, performer: Performer) -> float:
        try:
            pause = performer.act()
        except FAILURES as problem:
            performer.steps = None
            self._note_trouble(performer, problem)
            final = isinstance(problem, BrokerError) and not problem.retryable
            return AFTER_REFUSAL if final else AFTER_FAILURE
        performer.failing_since = None
        self._said = self._said and any(other.failing_since is not None for other in self._performers)
        return pause

    def _note_trouble(self, performer: Performer, problem: Exception) -> None:
        if performer.failing_since is None:
            performer.failing_since = self._clock()
        if not self._said and self._clock() - performer.failing_since >= SAID_AFTER:
            self._said = True
            log.warning("Demo program %s failed and will retry: %s", performer.name, problem)


class PauseButton:
    """What the database says about the pause; while it cannot be asked, what it said last."""

    def __init__(self) -> None:
        self._last = False

    def __call__(self) -> bool:
        try:
            self._last = Demonstration.objects.filter(pk=Demonstration.ONLY, is_paused=True).exists()
        except Error:
            connection.close()
        return self._last
