"""Create or update the entities that a configuration file describes, in one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from broker_core import namespaces
from broker_core.common.arguments import require_kind
from broker_core.common.errors import BrokerError, EntityNotFound, InvalidArgument, NotAllowed
from broker_core.common.types import Actor, Behaviour, EntityAddress, EntityKind, Family
from broker_core.namespaces import Namespace
from broker_core.service_bus.configured_limits import limits_of
from broker_core.service_bus.rules.emulator_config import NamespacePlan, Plan, QueuePlan, SubscriptionPlan, TopicPlan
from broker_core.service_bus.rules.entity_settings import (
    FORWARDS,
    KEPT,
    OURS,
    SERVICE_NAMES,
    Settings,
    new_settings,
    values_of,
)
from broker_core.service_bus.rules.filters import rule_to_json
from broker_core.service_bus.rules.kept_properties import FIXED_KEPT, effective_kept
from broker_core.store.driver import Atomically, Steps
from broker_core.store.use_cases import UseCase, use_case

from . import entities
from .entities import Entity

_CREATE: dict[EntityKind, UseCase[..., Any]] = {
    EntityKind.QUEUE: entities.create_queue,
    EntityKind.TOPIC: entities.create_topic,
    EntityKind.SUBSCRIPTION: entities.create_subscription,
}


_KEYS = {**SERVICE_NAMES, **{name: name for name in FIXED_KEPT}}  # of the file, by the names in errors
_Planned = QueuePlan | TopicPlan | SubscriptionPlan


@dataclass(frozen=True, slots=True)
class Change:
    """The change made to a namespace, queue, topic, subscription or rule (`what`).

    did: "created", "updated", "deleted" or "unchanged"; settings: (before, after).
    """

    did: str
    what: str
    address: str
    settings: dict[str, tuple]


@dataclass(frozen=True, slots=True)
class _Target:
    """One entity of a plan, with all its settings. created: it was created now, and has no forwards yet."""

    kind: EntityKind
    address: EntityAddress
    settings: Settings
    plan: _Planned
    created: bool


@use_case
def apply_plan(plan: Plan, *, actor: Actor | None = None) -> Steps:
    """Create or update namespaces, queues, topics, subscriptions and rules as planned; returns a list of Change.

    Settings that the plan does not name take their defaults. A subscription gets exactly the rules of the plan; if the plan has
    none, existing rules stay and a new subscription gets `$Default`. Entities that are not in the plan are not changed. An entity
    may forward to a later one. Requires MANAGE. Raises NotAllowed for the system namespace; error texts start with the path in
    the file.
    """

    def steps() -> Steps:
        changes = []
        for namespace in plan.namespaces:
            require_kind("plan", namespace, NamespacePlan)
            changes += yield from _with_location(namespace.where, _namespace(namespace, actor))
        return changes

    return (yield Atomically(steps()))


def _namespace(plan: NamespacePlan, actor: Actor | None) -> Steps:
    did, settings = "unchanged", {}
    try:
        namespace = yield from namespaces.get_namespace.steps(plan.name, actor=actor)
    except EntityNotFound:
        behaviour = plan.behaviour or Behaviour.CONVENIENT
        create = namespaces.create_namespace.steps(plan.name, Family.SERVICE_BUS, behaviour=behaviour, actor=actor)
        did, namespace = "created", (yield from create)
    if namespace.is_system:
        raise NotAllowed(f"The namespace '{plan.name}' is used by Vitrine itself; a file cannot change it. Choose another name.")
    if plan.behaviour not in (None, namespace.behaviour):
        did, settings = "updated", {"behaviour": (namespace.behaviour, plan.behaviour)}
        namespace = yield from namespaces.update_namespace.steps(plan.name, behaviour=plan.behaviour, actor=actor)
    return [Change(did, "namespace", namespace.name, settings), *(yield from _entities(plan, namespace, actor))]


def _entities(plan: NamespacePlan, namespace: Namespace, actor: Actor | None) -> Steps:
    """Create missing entities first, then set forwards, since an entity can only forward to an existing one (SB-177)."""
    targets = []
    for kind, address, planned in _plans(plan):
        targets.append((yield from _with_location(planned.where, _create(kind, address, planned, namespace, actor))))
    changes = []
    for target in targets:
        changes += yield from _with_location(target.plan.where, _update(target, actor))
    return changes


def _plans(plan: NamespacePlan) -> Iterator[tuple]:
    """The entities of the plan as (kind, address, plan), topics before their subscriptions."""
    for queue in plan.queues:
        yield EntityKind.QUEUE, EntityAddress(plan.name, queue.path), queue
    for topic in plan.topics:
        address = EntityAddress(plan.name, topic.path)
        yield EntityKind.TOPIC, address, topic
        for subscription in topic.subscriptions:
            yield EntityKind.SUBSCRIPTION, address.subscription(subscription.name), subscription


def _create(
    kind: EntityKind, address: EntityAddress, plan: _Planned, namespace: Namespace, actor: Actor | None
) -> Steps[_Target]:
    """Create the entity if it is missing, without forwards at first."""
    settings = new_settings(kind, plan.settings, limits_of(namespace))
    try:
        yield from entities.get_entity.steps(address, actor=actor)
        return _Target(kind, address, settings, plan, created=False)
    except EntityNotFound:
        pass
    rules = getattr(plan, "rules", [])
    first = {"rule": rules[0].rule} if rules else {}
    without = {name: value for name, value in values_of(settings).items() if name not in FORWARDS}
    yield from _CREATE[kind].steps(address, actor=actor, **without, **first)
    return _Target(kind, address, settings, plan, created=True)


def _update(target: _Target, actor: Actor | None) -> Steps:
    current = yield from entities.get_entity.steps(target.address, actor=actor)
    differing = _differing(current, target)
    if differing:
        yield from entities.update_entity.steps(
            current.address, actor=actor, **{name: after for name, (_, after) in differing.items()}
        )
    did = "created" if target.created else "updated" if differing else "unchanged"
    change = Change(did, str(target.kind), str(target.address), {} if target.created else _by_property(target.kind, differing))
    return [change, *(yield from _rules(target, actor))]


def _differing(current: Entity, target: _Target) -> dict[str, tuple]:
    """The settings to change, as (before, after). Vitrine's own settings, which the file cannot contain, are kept."""
    if current.kind is not target.kind:
        raise NotAllowed(f"'{current.address}' is a {current.kind}, not a {target.kind}. Delete it or choose another name.")
    before, after = values_of(current.settings), values_of(target.settings)
    return {n: (before[n], after[n]) for n in before if n not in OURS and _normalized(n, before[n]) != _normalized(n, after[n])}


def _by_property(kind: EntityKind, differing: dict[str, tuple]) -> dict[str, tuple]:
    """The differences, with the kept properties one by one."""
    before, after = (effective_kept(kind, kept) for kept in differing.get(KEPT, ({}, {})))
    kept = {name: (before[name], after[name]) for name in before if before[name] != after[name]}
    return {name: pair for name, pair in differing.items() if name != KEPT} | kept


def _normalized(name: str, value):
    return value.lower() if name in FORWARDS and value else value


def _rules(target: _Target, actor: Actor | None) -> Steps:
    """Create, update and delete rules of a subscription as planned."""
    planned = {plan.rule.name.lower(): plan for plan in getattr(target.plan, "rules", [])}
    if not planned:
        return []
    stored = {
        entry.rule.name.lower(): entry.rule for entry in (yield from entities.list_rules.steps(target.address, actor=actor))
    }
    changes = []
    for name, rule in stored.items():
        if name not in planned:
            yield from entities.delete_rule.steps(target.address, rule.name, actor=actor)
            changes.append(_rule_change("deleted", target, rule.name))
    for name, plan in planned.items():
        did = yield from _with_location(plan.where, _rule(target.address, plan.rule, stored.get(name), actor))
        first = target.created and did == "unchanged"  # it was created with the subscription
        changes.append(_rule_change("created" if first else did, target, plan.rule.name))
    return changes


def _rule(address: EntityAddress, rule, stored, actor: Actor | None) -> Steps[str]:
    if stored is None:
        yield from entities.create_rule.steps(address, rule, actor=actor)
        return "created"
    if rule_to_json(stored) | {"name": rule.name} == rule_to_json(rule):
        return "unchanged"
    yield from entities.update_rule.steps(address, rule, actor=actor)
    return "updated"


def _rule_change(did: str, target: _Target, name: str) -> Change:
    return Change(did, "rule", f"{target.address}/Rules/{name}", {})


def _with_location(where: str, steps: Steps) -> Steps:
    """Run the steps; prefix the text of an error with the innermost path in the file."""
    try:
        return (yield from steps)
    except BrokerError as exc:
        if where and not exc.where:
            exc.where, problem = where, exc.message
            if isinstance(exc, InvalidArgument) and (setting := _KEYS.get(exc.name)):
                exc.where, problem = f"{where}.Properties.{setting}", exc.problem
            exc.message = f"{exc.where}: {problem}"
        raise
