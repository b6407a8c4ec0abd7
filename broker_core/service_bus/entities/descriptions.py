"""Entities whole, as clients that administer them see and change them: all settings, shared-access policies, counts and times.

Every function is a use case and requires the right MANAGE, since keys are a part. A change is one transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker_core.common.arguments import require_count, require_kind
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import Actor, EntityAddress, EntityKind, Family, Right
from broker_core.namespaces.namespaces import namespace_to_configure
from broker_core.service_bus.rules.entity_settings import FIXED, KEPT, OURS, values_of
from broker_core.service_bus.rules.filters import Rule
from broker_core.service_bus.rules.kept_properties import FIXED_KEPT
from broker_core.service_bus.rules.values import GivenPolicy
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from . import lifecycle, shared_access
from .kinds import Entity, defaults_of, from_row
from .rows import entity_row, lock_entity
from .shared_access import AccessPolicy


@dataclass(frozen=True, slots=True)
class EntityCounts:
    """Messages by list, as Service Bus counts them (SB, section 1.5). active: locked and deferred ones included; transfer: those
    that wait to be forwarded."""

    active: int
    dead_letter: int
    scheduled: int
    transfer: int
    transfer_dead_letter: int

    @property
    def total(self) -> int:
        return self.active + self.dead_letter + self.scheduled + self.transfer + self.transfer_dead_letter


@dataclass(frozen=True, slots=True)
class Description:
    """An entity with its policies and counts.

    size_bytes, accessed_at: of a topic, with its subscriptions. accessed_at: the last use (SB-190 to SB-192), to within 20 s;
    None: it was not used since it was created. sql_filters, correlation_filters: the rules of a subscription, or of
    all subscriptions of a topic.
    """

    entity: Entity
    counts: EntityCounts
    size_bytes: int
    accessed_at: datetime | None
    policies: tuple[AccessPolicy, ...] = ()
    subscriptions: int = 0
    sql_filters: int = 0
    correlation_filters: int = 0


@use_case
def describe_entity(address: EntityAddress, *, actor: Actor | None = None) -> Steps[Description]:
    """One entity. Raises EntityNotFound."""
    _authorize(actor, address)
    found = yield from _described([(yield from entity_row(address)).id])
    if not found:
        raise EntityNotFound(str(address))
    return found[0]


@use_case
def describe_entities(
    namespace: str,
    kind: EntityKind,
    topic: EntityAddress | None = None,
    *,
    first: int = 0,
    max_count: int,
    actor: Actor | None = None,
) -> Steps[list[Description]]:
    """A page of the queues or topics of a namespace, or of the subscriptions of a topic, by name.

    first: how many to leave out before the page. Raises EntityNotFound for a missing topic.
    """
    _authorize(actor, topic or namespace)
    require_count("max_count", max_count)
    if topic is None:
        page = yield call("page_of_entities", namespace=namespace, kind=str(kind), first=first, max_count=max_count)
    else:
        row = yield from entity_row(topic)
        if row.kind != EntityKind.TOPIC:
            raise EntityNotFound(str(topic))
        page = yield call("page_of_subscriptions", topic_id=row.id, first=first, max_count=max_count)
    return (yield from _described([row.id for row in page]))


@use_case
def create_entity(
    address: EntityAddress,
    kind: EntityKind,
    settings: Mapping[str, Any],
    *,
    policies: Sequence[GivenPolicy] = (),
    rule: Rule | None = None,
    actor: Actor | None = None,
) -> Steps[Description]:
    """Create an entity with its policies. settings: by name; others take the defaults of the tier. rule: the only rule of a
    subscription; None: `$Default`. Raises what create_queue and create_policy raise."""
    _authorize(actor, address)
    require_kind("kind", kind, EntityKind)
    shared_access.check_policies(policies)

    def steps() -> Steps[Description]:
        match kind:
            case EntityKind.QUEUE:
                created = yield from lifecycle.create_queue.steps(address, actor=actor, **settings)
            case EntityKind.TOPIC:
                created = yield from lifecycle.create_topic.steps(address, actor=actor, **settings)
            case EntityKind.SUBSCRIPTION:
                created = yield from lifecycle.create_subscription.steps(address, rule=rule, actor=actor, **settings)
        if policies:
            yield from shared_access.replace_policies.steps(created.address, policies, actor=actor)
        return (yield from describe_entity.steps(created.address, actor=actor))

    return (yield Atomically(steps()))


@use_case
def replace_entity(
    address: EntityAddress,
    kind: EntityKind,
    settings: Mapping[str, Any],
    *,
    policies: Sequence[GivenPolicy] | None = None,
    actor: Actor | None = None,
) -> Steps[Description]:
    """Change an entity as a whole: settings that are not given take the defaults of the tier.

    What cannot be changed, and what the service does not know (entity_settings.OURS), is kept if it is not given. policies: None:
    they are kept. Raises EntityNotFound, InvalidArgument for an entity of another kind, and what update_entity raises.
    """
    _authorize(actor, address)
    require_kind("kind", kind, EntityKind)
    shared_access.check_policies(policies or ())

    def steps() -> Steps[Description]:
        namespace = yield from namespace_to_configure(address, actor or Actor.local(), Family.SERVICE_BUS)
        current = yield from lock_entity(address, kind)
        present = values_of(current.settings)
        whole = defaults_of(kind, namespace.tier, namespace.is_system) | {name: present[name] for name in OURS if name in present}
        whole |= {name: present[name] for name in FIXED if name in present} | dict(settings)
        whole[KEPT] = {name: value for name, value in present[KEPT].items() if name in FIXED_KEPT} | dict(settings.get(KEPT, {}))
        changes = {name: value for name, value in whole.items() if name not in present or value != present[name]}
        yield from lifecycle.update_entity.steps(address, actor=actor, **changes)
        if policies is not None:
            yield from shared_access.replace_policies.steps(current.address, policies, actor=actor)
        return (yield from describe_entity.steps(current.address, actor=actor))

    return (yield Atomically(steps()))


def _described(ids: list[int]) -> Steps[list[Description]]:
    """These entities by name, without those that were deleted meanwhile."""
    rows = yield call("describe_entities", ids=ids)
    policies: dict[int, list[AccessPolicy]] = {}
    for row in (yield call("list_policies_of", entity_ids=ids)):
        policies.setdefault(row.entity_id, []).append(AccessPolicy(*row[1:]))
    return [_description(row, policies.get(row.id, [])) for row in rows]


def _description(row: Any, policies: Sequence[AccessPolicy]) -> Description:
    counts = EntityCounts(row.active + row.deferred, row.dead_letter, row.scheduled, row.transfer, row.transfer_dead_letter)
    filters = (row.subscriptions, row.sql_filters, row.correlation_filters)
    return Description(from_row(row), counts, row.size_bytes, row.accessed_at, tuple(policies), *filters)


def _authorize(actor: Actor | None, scope: EntityAddress | str) -> None:
    (actor or Actor.local()).require(Right.MANAGE, scope)
