"""All reports, and the questions that they answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from explorer.frames.questions import TITLES

from . import (
    fan_out,
    flow,
    forecast,
    incidents,
    journeys,
    locks,
    losses,
    overview,
    promise,
    properties,
    receivers,
    redelivery,
    waiting,
    what_if,
)
from .report import Analysis

ANALYSES: tuple[Analysis, ...] = tuple(module.ANALYSIS for module in (
    overview, waiting, flow, promise, forecast, losses, redelivery, incidents, fan_out, journeys, locks, receivers, properties,
    what_if,
))  # fmt: skip
BY_SLUG = {analysis.slug: analysis for analysis in ANALYSES}


@dataclass(frozen=True, slots=True)
class Question:
    """A question of users. reports: the slugs of the reports that answer it; the first one answers in a sentence."""

    slug: str
    title: str
    reports: Sequence[str]

    def analyses(self, *, of_entity: bool) -> Iterator[Analysis]:
        """Its reports. of_entity: about one queue; otherwise without those that need one."""
        own_analyses = (BY_SLUG[slug] for slug in self.reports)
        return (analysis for analysis in own_analyses if of_entity or not analysis.needs_entity)


QUESTIONS = (
    Question("slow", TITLES["slow"], ("waiting", "flow", "promise", "forecast")),
    Question("lost", TITLES["lost"], ("losses", "redelivery", "incidents", "fan-out")),
    Question("locks", TITLES["locks"], ("locks",)),
    Question("who", TITLES["who"], ("receivers", "properties", "journeys")),
    Question("what-if", TITLES["what-if"], ("what-if",)),
)
QUESTION_BY_SLUG = {question.slug: question for question in QUESTIONS}
