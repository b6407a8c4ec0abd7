"""What each policy applies to, and what it matches but loses to another policy. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from broker_core.rabbitmq.rules import policies as rules
from broker_core.rabbitmq.rules.policies import Policy


@dataclass(frozen=True, slots=True)
class PolicyTarget:
    """A queue or an exchange that policies can match. queue_type: None for an exchange."""

    name: str
    kind: str
    queue_type: str | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """A queue or exchange that a policy matches, but another one applies to. tied: both have the same priority (RMQ-917)."""

    target: PolicyTarget
    winner: str
    tied: bool


@dataclass(slots=True)
class Ruling:
    """What one policy applies to and loses."""

    policy: Policy
    applies: list[PolicyTarget] = field(default_factory=list)
    loses: list[Lost] = field(default_factory=list)

    @property
    def ties(self) -> list[Lost]:
        return [lost for lost in self.loses if lost.tied]


def rulings(policies: Sequence[Policy], targets: Iterable[PolicyTarget]) -> list[Ruling]:
    """The ruling of each policy, in the given order. Policies and operator policies do not compete with each other."""
    by_policy = {(policy.is_operator, policy.name): Ruling(policy) for policy in policies}
    for target in targets:
        ranked = rules.ranking(policies, target.name, target.kind, target.queue_type)
        for operator in (False, True):
            _rank(target, [policy for policy in ranked if policy.is_operator is operator], by_policy)
    return list(by_policy.values())


def _rank(target: PolicyTarget, ranked: Sequence[Policy], by_policy: dict[tuple[bool, str], Ruling]) -> None:
    for place, policy in enumerate(ranked):
        ruling, winner = by_policy[policy.is_operator, policy.name], ranked[0]
        if place:
            ruling.loses.append(Lost(target, winner.name, policy.priority == winner.priority))
        else:
            ruling.applies.append(target)


def targets_of(queues: Iterable, exchanges: Iterable) -> list[PolicyTarget]:
    """queues: EntityRow of queues; exchanges: StoredExchange. No policy applies to the default exchange (RMQ-316)."""
    of_queues = [PolicyTarget(queue.address.path, "queue", queue.options.get("type", "classic")) for queue in queues]
    return of_queues + [PolicyTarget(exchange.name, "exchange") for exchange in exchanges if exchange.name]
