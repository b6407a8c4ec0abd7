"""The route of a message as nested steps, and the replay of recent messages with a draft, as the pages of families show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.urls import reverse

from broker_core.common.routes import Comparison, Outcome, RouteStep, StepKind, Verdict
from broker_core.common.types import EntityAddress

from .presenters import plural

_ICONS = {
    StepKind.TOPIC: "topic",
    StepKind.EXCHANGE: "exchange",
    StepKind.SUBSCRIPTION: "subscription",
    StepKind.QUEUE: "queue",
    StepKind.RULE: "rules",
    StepKind.BINDING: "forward",
}
# Of each verdict, the icon and the class of its state.
_STATES = {
    Verdict.PASSES: ("forward", "state-active"),
    Verdict.STORED: ("done", "state-active"),
    Verdict.MATCHES: ("done", "state-active"),
    Verdict.NO_MATCH: ("cross", "state-gone"),
    Verdict.NO_COPY: ("cross", "state-gone"),
    Verdict.DEAD: ("dead", "state-dead"),
    Verdict.REFUSED: ("warning", "state-expired"),
    Verdict.DROPPED: ("warning", "state-expired"),
    Verdict.FAILS: ("warning", "state-dead"),
}
_OUTCOMES = {
    Outcome.DROPPED: "would be dropped",
    Outcome.ELSEWHERE: "would go elsewhere",
    Outcome.MORE: "would get more copies",
    Outcome.FEWER: "would get fewer copies",
    Outcome.FOUND: "would be stored instead of dropped",
    Outcome.MODIFIED: "would get other properties",
}


@dataclass(slots=True)
class ShownStep:
    """A step with those that follow from it. url: of its entity or exchange. detail: the rule or binding in words, as HTML."""

    step: RouteStep
    icon: str
    state_icon: str
    state_class: str
    url: str
    detail: str
    steps: list[ShownStep] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ShownChange:
    """A destination of a replay. difference: "+5 −3". gained, lost: numbers and URLs of examples."""

    name: str
    url: str
    before: int
    after: int
    difference: str
    gained: list[tuple[int, str]]
    lost: list[tuple[int, str]]


@dataclass(frozen=True, slots=True)
class ShownReplay:
    """A replay of recent messages. capped: there were more messages."""

    sentence: str
    changes: list[ShownChange]
    capped: bool


def nested(
    steps: Iterable[RouteStep], detail: Callable[[RouteStep], str], url: Callable[[RouteStep], str] | None = None
) -> list[ShownStep]:
    """The steps of a route as a tree. detail: a rule or binding in words. url: of a step without an entity."""
    roots: list[ShownStep] = []
    open_steps: list[ShownStep] = []
    for step in steps:
        address = step.address
        link = _entity_url(address) if address else url(step) if url else ""
        shown_step = ShownStep(step, _ICONS[step.kind], *_STATES[step.verdict], link, detail(step))
        del open_steps[step.depth :]
        (open_steps[-1].steps if open_steps else roots).append(shown_step)
        open_steps.append(shown_step)
    return roots


def replayed(
    comparison: Comparison[Any, Any],
    capped: bool,
    *,
    name: Callable[[Any], str],
    address: Callable[[Any], EntityAddress],
    message: Callable[[Any], tuple[int, str]],
) -> ShownReplay:
    """A comparison for the page. name, address: of a destination. message: the number and URL of an example."""
    changes = [
        ShownChange(
            name(destination.destination), _entity_url(address(destination.destination)), destination.before, destination.after,
            _difference(destination.gains, destination.losses),
            [message(m) for m in destination.gained], [message(m) for m in destination.lost],
        )
        for destination in comparison.destinations
    ]  # fmt: skip
    return ShownReplay(sentence(comparison), changes, capped)


def sentence(comparison: Comparison[Any, Any]) -> str:
    """How many messages would be routed differently, and how."""
    if not comparison.messages:
        return "There were no messages in the last hour to replay."
    if not comparison.changed:
        return f"All {plural(comparison.messages, 'message')} of the last hour would be routed as they are now."
    parts = [f"{comparison.outcomes[outcome]:,} {words}" for outcome, words in _OUTCOMES.items() if comparison.outcomes[outcome]]
    return f"Of {plural(comparison.messages, 'message')} of the last hour, {_joined(parts)}."


def _difference(gains: int, losses: int) -> str:
    """New and lost copies: "+5 −3"."""
    parts = [f"+{gains:,}" if gains else "", f"−{losses:,}" if losses else ""]
    return " ".join(filter(None, parts)) or "none"


def _joined(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _entity_url(address: EntityAddress) -> str:
    return reverse("explorer:entity", args=(address.namespace, address.path))
