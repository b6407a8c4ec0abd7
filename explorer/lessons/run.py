"""One person's run of a lesson: the current step, what of it is done, and how far the person came.

A sandbox's state has start (which events were committed when it was started or reset), and of the current step: mark (the same
when it began), clock (then), answer (the choice taken), done (whether its actions were performed); and memory and log (of the
stage, see stage.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from typing import Any

from django.utils import timezone

from broker_core import reads
from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import Actor, Family
from broker_core.reads import Event
from explorer.models import LessonProgress, Sandbox

from . import catalog
from .lesson import Expect, Lesson, Look, Step
from .stage import Stage, matches

READ = ("events", "unmet", "is_done", "timeline")  # properties that are read once until something is done


@dataclass
class Run:
    """actor: the person, with the rights in the sandbox."""

    sandbox: Sandbox
    lesson: Lesson
    actor: Actor

    @cached_property
    def stage(self) -> Stage:
        stage = catalog.stage(self.sandbox.namespace, Family(self.sandbox.family), self.actor)
        stage.memory, stage.log = self.state.setdefault("memory", {}), self.state.setdefault("log", [])
        return stage

    @property
    def state(self) -> dict[str, Any]:
        return self.sandbox.state

    @property
    def index(self) -> int:
        return min(self.sandbox.step, len(self.lesson.steps) - 1)

    @property
    def step(self) -> Step:
        return self.lesson.steps[self.index]

    @property
    def is_last(self) -> bool:
        return self.index == len(self.lesson.steps) - 1

    @property
    def is_over(self) -> bool:
        """Whether the last step was left."""
        return self.sandbox.step >= len(self.lesson.steps)

    @property
    def answer(self) -> int | None:
        return self.state.get("answer")

    @property
    def is_answered(self) -> bool:
        return self.step.ask is None or self.answer is not None

    @property
    def is_performed(self) -> bool:
        return bool(self.state.get("done"))

    @cached_property
    def is_done(self) -> bool:
        """Whether the person can go on: the prediction is made, and the broker has done what the step expects, or, where it
        expects nothing, the actions were performed."""
        step = self.step
        if not self.is_answered:
            return False
        if step.expect:
            return not self.unmet
        return self.is_performed or not step.do

    @cached_property
    def events(self) -> list[Event]:
        """What happened since the step began."""
        return self.stage.events_since(self.state.get("mark", self.sandbox.start))

    @cached_property
    def unmet(self) -> list[Expect]:
        """What the step expects and the broker has not done yet."""
        began_at = datetime.fromisoformat(self.state["clock"]) if "clock" in self.state else None
        return self.stage.unmet(self.step.expect, self.events, began_at)

    @cached_property
    def timeline(self) -> Callable[[int, int], list[Event]]:
        """(entity id, number) -> the events of a message."""
        return cache(lambda entity_id, number: reads.timeline(entity_id, number, actor=self.actor))

    @property
    def expected_events(self) -> list[Event]:
        """Those of them that the step expects."""
        return [
            event
            for event in self.events
            if any(matches(event, expectation, self.actor) for expectation in self.step.expect if expectation.kind)
        ]

    @property
    def look(self) -> Look:
        """The message that the step is about: as it says, or as its actions or expectations say."""
        step = self.step
        queue, number = step.look.queue, step.look.number
        for attributes in [*(expectation.attributes for expectation in step.expect), *(do.arguments for do in step.do)]:
            if number is None and attributes.get("queue", queue) in (queue, "") or not queue:
                queue, number = queue or attributes.get("queue", ""), number or attributes.get("number")
        return Look(queue, number)

    def _forget(self, *names: str) -> None:
        """Let these properties be computed again."""
        for name in names:
            self.__dict__.pop(name, None)

    def _begin(self) -> None:
        """Note where the current step begins."""
        kept_state = {"start": self.sandbox.start, "memory": self.stage.memory, "log": self.stage.log}
        self.sandbox.state = self.stage.beginning() | kept_state
        self._forget("stage", *READ)
        self.sandbox.save_step()

    def take_answer(self, number: str) -> None:
        """Note the prediction of the current step; only the first one counts. Raises InvalidArgument."""
        ask = self.step.ask
        if ask is None or self.is_over:
            raise InvalidArgument("answer", "is not asked for in this step")
        choice = ask.choice(number)
        if self.answer is None:
            self.state["answer"] = choice
            self.sandbox.save_step()
            progress = self.progress()
            progress.answers.setdefault(str(self.index), choice)
            progress.save()

    def perform(self) -> tuple[list[str], BrokerError | None]:
        """Perform the step's actions. Returns what happened, in words, and the broker's refusal. Raises InvalidArgument."""
        if not self.is_answered:
            raise InvalidArgument("answer", "is missing; make your prediction first")
        if self.is_over or not self.step.do or (self.is_performed and self.is_done):
            return [], None
        results, refusal = self.stage.perform(self.step.do)
        self.state["done"] = True
        self.state["memory"], self.state["log"] = self.stage.memory, self.stage.log
        self.sandbox.save_step()
        self._forget(*READ)
        return results, refusal

    def go_on(self) -> None:
        """To the next step. Raises InvalidArgument if the current one is not done."""
        if self.is_over:
            return
        if not self.is_done:
            raise InvalidArgument("step", "is not done yet; follow its instruction first")
        progress = self.progress()
        self.sandbox.step += 1
        progress.step = max(progress.step, min(self.sandbox.step, len(self.lesson.steps) - 1))
        if self.is_over and progress.completed_at is None:
            progress.completed_at = timezone.now()
        progress.save()
        self._begin()

    def progress(self) -> LessonProgress:
        return LessonProgress.objects.get_or_create(owner=self.sandbox.owner, lesson=self.lesson.slug)[0]


def run_of(sandbox: Sandbox, actor: Actor) -> Run | None:
    """The run in a sandbox; None: it has no lesson."""
    return Run(sandbox, catalog.lesson(sandbox.lesson), actor) if sandbox.lesson else None
