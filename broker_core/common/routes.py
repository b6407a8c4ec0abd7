"""The route of a message through topics, subscriptions, exchanges and queues, and the comparison of two routes. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

from .types import EntityAddress

MOST_EXAMPLES = 5  # messages given for each change of a destination

D = TypeVar("D", bound=Hashable)
M = TypeVar("M")


class StepKind(StrEnum):
    """What a step is about."""

    TOPIC = "topic"
    SUBSCRIPTION = "subscription"
    RULE = "rule"
    EXCHANGE = "exchange"
    BINDING = "binding"
    QUEUE = "queue"


class Verdict(StrEnum):
    """What happens to the message at a step."""

    PASSES = "passes on"
    STORED = "stored"
    DEAD = "dead-lettered"
    MATCHES = "matches"
    NO_MATCH = "does not match"
    NO_COPY = "no copy"
    REFUSED = "refused"
    DROPPED = "dropped"
    FAILS = "cannot be evaluated"


class RouteStep(NamedTuple):
    """A decision on the way of a message.

    depth:   0 for the first; steps that follow from a step come after it and are one deeper.
    name:    of the entity, exchange, rule or binding. address: of an entity.
    reason:  why, as a sentence; empty: the verdict is explanation enough.
    changes: what an action changed, one line per property. subject: the Rule or BindingDef that the step is about.
    """

    depth: int
    kind: StepKind
    name: str
    verdict: Verdict
    reason: str = ""
    address: EntityAddress | None = None
    changes: Sequence[str] = ()
    subject: Any = None


class Outcome(StrEnum):
    """How the route of a message changes."""

    SAME = "same"
    MODIFIED = "modified"  # the same destinations, but a copy has other properties
    MORE = "more copies"
    FEWER = "fewer copies"
    ELSEWHERE = "elsewhere"
    DROPPED = "dropped"  # it had a destination before, and has none after
    FOUND = "found"  # the opposite


class Rerouted(NamedTuple, Generic[M]):
    """A message with its routes before and after a change: the copies that each destination gets. weight: how many messages have
    this route."""

    message: M
    before: Mapping[Any, Sequence[Any]]
    after: Mapping[Any, Sequence[Any]]
    weight: int = 1


@dataclass(slots=True)
class DestinationChange(Generic[D, M]):
    """The copies that a destination gets before and after. gains, losses: copies that are new, or gone. gained, lost: examples of
    messages with more or fewer copies."""

    destination: D
    before: int = 0
    after: int = 0
    gains: int = 0
    losses: int = 0
    gained: list[M] = field(default_factory=list)
    lost: list[M] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Comparison(Generic[D, M]):
    """The routes of messages before and after a change. outcomes: how many messages have each; destinations: all of them, those
    with the most gains and losses first."""

    messages: int
    outcomes: Mapping[Outcome, int]
    destinations: tuple[DestinationChange[D, M], ...]

    @property
    def changed(self) -> int:
        """The number of messages whose route changes."""
        return self.messages - self.outcomes[Outcome.SAME]


def compare(routes: Iterable[Rerouted[M]]) -> Comparison[Any, M]:
    """Compare the routes of messages before and after a change."""
    outcomes = dict.fromkeys(Outcome, 0)
    destinations: dict[Any, DestinationChange] = {}
    total = 0
    for route in routes:
        total += route.weight
        outcomes[outcome(route.before, route.after)] += route.weight
        for name in route.before.keys() | route.after.keys():
            change = destinations.setdefault(name, DestinationChange(name))
            before, after = len(route.before.get(name, ())), len(route.after.get(name, ()))
            change.before += before * route.weight
            change.after += after * route.weight
            change.gains += max(0, after - before) * route.weight
            change.losses += max(0, before - after) * route.weight
            examples = change.gained if after > before else change.lost if after < before else None
            if examples is not None and len(examples) < MOST_EXAMPLES:
                examples.append(route.message)
    ranked = sorted(destinations.values(), key=lambda entry: (-entry.gains - entry.losses, str(entry.destination)))
    return Comparison(total, outcomes, tuple(ranked))


def outcome(before: Mapping[Any, Sequence[Any]], after: Mapping[Any, Sequence[Any]]) -> Outcome:
    """How a route changes. A destination without copies counts as absent."""
    old = {name: len(copies) for name, copies in before.items() if copies}
    new = {name: len(copies) for name, copies in after.items() if copies}
    if old == new:
        return Outcome.SAME if all(list(before[name]) == list(after[name]) for name in old) else Outcome.MODIFIED
    if not new:
        return Outcome.DROPPED
    if not old:
        return Outcome.FOUND
    if all(new.get(name, 0) >= count for name, count in old.items()):
        return Outcome.MORE
    if all(old.get(name, 0) >= count for name, count in new.items()):
        return Outcome.FEWER
    return Outcome.ELSEWHERE
