"""Create, change, delete and find queues, topics and subscriptions. The three kinds share the code and differ in their
settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from broker_core import operations
from broker_core.common.arguments import require_kind
from broker_core.common.errors import EntityExists, EntityNotFound, InvalidArgument, LimitReached, NotAllowed
from broker_core.common.types import SUBSCRIPTIONS, Actor, EntityAddress, EntityKind, EntityStatus, Family, Right
from broker_core.namespaces.namespaces import Namespace, namespace_to_configure
from broker_core.namespaces.protection import record_revisions, require_unprotected
from broker_core.runtime.find_or_create import find_or_create
from broker_core.runtime.pacing import BATCH
from broker_core.runtime.waiting import wake
from broker_core.service_bus.configured_limits import limits_of
from broker_core.service_bus.messages.operating import drop_locks
from broker_core.service_bus.messages.tidying import end_expired_locks
from broker_core.service_bus.rules.entity_settings import (
    FORWARDS,
    Settings,
    changed_forwards,
    changed_settings,
    check_path,
    check_subscription_name,
    new_settings,
    resolved,
    values_of,
)
from broker_core.service_bus.rules.filters import DEFAULT_RULE_NAME, Rule
from broker_core.service_bus.rules.values import QueueSettings, SubscriptionSettings, TopicSettings
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import by_namespace, use_case

from . import rules
from .kinds import Entity, Subscription, Topic, as_parameters, defaults_of, from_row
from .rows import entity_row, fanout_changed, lock_entity
from .rows import require_kind as require_entity_kind

QUEUE, TOPIC, SUBSCRIPTION = EntityKind.QUEUE, EntityKind.TOPIC, EntityKind.SUBSCRIPTION
FAMILY = str(Family.SERVICE_BUS)


# Create


@use_case
def create_queue(
    address: EntityAddress, settings: QueueSettings | None = None, *, actor: Actor | None = None, **changes: Any
) -> Steps:
    """Create a queue; settings that are not given take the service's defaults. Sequence numbers start at 1 (SB-241).

    settings, changes: all settings, single ones, or both; single ones take precedence.
    Returns the Queue. Raises EntityExists if a queue or topic has this path (case-insensitive).
    """
    return (yield from _create(QUEUE, address, settings, actor, changes))


@use_case
def create_topic(
    address: EntityAddress, settings: TopicSettings | None = None, *, actor: Actor | None = None, **changes: Any
) -> Steps:
    """Create a topic, as create_queue does. Messages sent to it before it has a subscription are not delivered (SB-221)."""
    return (yield from _create(TOPIC, address, settings, actor, changes))


@use_case
def create_subscription(
    address: EntityAddress,
    settings: SubscriptionSettings | None = None,
    *,
    rule: Rule | None = None,
    actor: Actor | None = None,
    **changes: Any,
) -> Steps:
    """Create a subscription of an existing topic, as create_queue does. It gets messages sent from now on (SB-221).

    address: topic/Subscriptions/name, as returned by EntityAddress.subscription.
    rule:    its only rule; None: `$Default`, which matches every message.
    """
    return (yield from _create(SUBSCRIPTION, address, settings, actor, changes, rule))


@use_case
def ensure_queue(
    address: EntityAddress, settings: QueueSettings | None = None, *, actor: Actor | None = None, **changes: Any
) -> Steps:
    """Return the queue of this address; create it with these settings if it does not exist. An existing one is not changed."""
    return (yield from _ensure(QUEUE, address, settings, actor, changes))


@use_case
def ensure_topic(
    address: EntityAddress, settings: TopicSettings | None = None, *, actor: Actor | None = None, **changes: Any
) -> Steps:
    """Return or create a topic, as ensure_queue does."""
    return (yield from _ensure(TOPIC, address, settings, actor, changes))


@use_case
def ensure_subscription(
    address: EntityAddress,
    settings: SubscriptionSettings | None = None,
    *,
    rule: Rule | None = None,
    actor: Actor | None = None,
    **changes: Any,
) -> Steps:
    """Return or create a subscription, as ensure_queue does; the rules of an existing one are not changed."""
    return (yield from _ensure(SUBSCRIPTION, address, settings, actor, changes, rule))


# Change


@use_case
def update_queue(address: EntityAddress, *, actor: Actor | None = None, **changes: Any) -> Steps:
    """Change settings of a queue; the others are kept. Returns the Queue.

    Existing locks keep their duration, unless the queue has drops_locks_on_change (SB-072, SB-907). A new default time-to-live
    applies at once to waiting messages without a time-to-live of their own (SB-023, SB-921).
    """
    return (yield from _update(QUEUE, address, actor, changes))


@use_case
def update_topic(address: EntityAddress, *, actor: Actor | None = None, **changes: Any) -> Steps:
    """Change settings of a topic; the others are kept. Returns the Topic."""
    return (yield from _update(TOPIC, address, actor, changes))


@use_case
def update_subscription(address: EntityAddress, *, actor: Actor | None = None, **changes: Any) -> Steps:
    """Change settings of a subscription, as update_queue does; its rules are kept. Returns the Subscription."""
    return (yield from _update(SUBSCRIPTION, address, actor, changes))


@use_case
def update_entity(address: EntityAddress, *, actor: Actor | None = None, **changes: Any) -> Steps:
    """Change settings of the queue, topic or subscription of this address. Returns it."""
    return (yield from _update(None, address, actor, changes))


@use_case
def set_status(address: EntityAddress, status: EntityStatus, *, actor: Actor | None = None) -> Steps:
    """Pause or resume sending and receiving (SB-231 to SB-233). Requires the right OPERATE. Returns the entity."""
    return (yield from _update(None, address, actor, {"status": status}, right=Right.OPERATE))


# Delete


@use_case
def delete_queue(address: EntityAddress, *, actor: Actor | None = None) -> Steps[None]:
    """Delete a queue with its dead-letter queue (SB-240). Its name can be reused at once; the sweep removes its messages.

    Messages that other entities forward to it are then handled as in SB-174 (SB-242).
    """
    yield from _delete(QUEUE, address, actor)


@use_case
def delete_topic(address: EntityAddress, *, actor: Actor | None = None) -> Steps[None]:
    """Delete a topic with its subscriptions, as delete_queue does (SB-240)."""
    yield from _delete(TOPIC, address, actor)


@use_case
def delete_subscription(address: EntityAddress, *, actor: Actor | None = None) -> Steps[None]:
    """Delete a subscription with its rules, as delete_queue does."""
    yield from _delete(SUBSCRIPTION, address, actor)


@use_case
def delete_entity(address: EntityAddress, *, operation_id: int | None = None, actor: Actor | None = None) -> Steps[None]:
    """Delete the queue, topic or subscription of this address. operation_id: a new number, under which it can be restored for 30
    minutes (operations.restore)."""
    yield from _delete(None, address, actor, operation_id)


# Find


@use_case
def get_queue(address: EntityAddress, *, actor: Actor | None = None) -> Steps:
    """One queue; its address is case-insensitive. This does not count as activity (SB-196)."""
    return (yield from _get(QUEUE, address, actor))


@use_case
def get_topic(address: EntityAddress, *, actor: Actor | None = None) -> Steps:
    """One topic, as get_queue."""
    return (yield from _get(TOPIC, address, actor))


@use_case
def get_subscription(address: EntityAddress, *, actor: Actor | None = None) -> Steps:
    """One subscription, as get_queue."""
    return (yield from _get(SUBSCRIPTION, address, actor))


@use_case
def get_entity(address: EntityAddress, *, actor: Actor | None = None) -> Steps:
    """The Queue, Topic or Subscription of this address."""
    return (yield from _get(None, address, actor))


@use_case(combine=by_namespace)
def list_queues(namespace: str | None = None, *, actor: Actor | None = None) -> Steps:
    """The queues of a namespace, or of all, by address."""
    return (yield from _list(QUEUE, namespace, actor))


@use_case(combine=by_namespace)
def list_topics(namespace: str | None = None, *, actor: Actor | None = None) -> Steps:
    """The topics of a namespace, or of all, by address."""
    return (yield from _list(TOPIC, namespace, actor))


@use_case
def list_subscriptions(topic: EntityAddress, *, actor: Actor | None = None) -> Steps:
    """The subscriptions of a topic, by name. Raises EntityNotFound if there is no such topic."""
    stored_topic = yield from _get(TOPIC, topic, actor)
    rows = yield call("list_entities", namespace=topic.namespace, family=FAMILY, kind=str(SUBSCRIPTION), topic_id=stored_topic.id)
    return [from_row(row) for row in rows]


@use_case(combine=by_namespace)
def list_entities(namespace: str | None = None, *, actor: Actor | None = None) -> Steps:
    """Queues, topics and subscriptions of a namespace, or of all, by address; a topic is followed by its subscriptions."""
    return (yield from _list(None, namespace, actor))


# Shared by the three kinds


def _create(
    kind: EntityKind,
    address: EntityAddress,
    base: Settings | None,
    actor: Actor | None,
    changes: dict[str, Any],
    rule: Rule | None = None,
) -> Steps:
    actor = _authorize_configuration(address, actor)
    if rule is not None:
        require_kind("rule", rule, Rule)
    check_subscription_name(address.name) if kind is SUBSCRIPTION and address.topic else check_path(address.path)

    def steps() -> Steps:
        namespace = yield from namespace_to_configure(address, actor, Family.SERVICE_BUS)
        topic, path = yield from _parent_and_path(kind, address, namespace)
        defaults = defaults_of(kind, namespace.tier, namespace.is_system)
        settings = new_settings(kind, {**(values_of(base) if base else defaults), **changes}, limits_of(namespace))
        settings = yield from _with_destinations(EntityAddress(namespace.name, path), settings, FORWARDS)
        rows = yield call(
            "create_entity",
            namespace_id=namespace.id,
            path=path,
            kind=str(kind),
            topic_id=topic and topic.id,
            **as_parameters(settings),
        )
        if not rows:
            raise EntityExists(str(address))
        created = from_row(rows[0])
        if isinstance(created, Subscription):
            yield from rules.insert_rule(created, rule or Rule(DEFAULT_RULE_NAME), limits_of(namespace))
            yield from fanout_changed(created.topic_id)
        yield from record_revisions([created.id], actor)
        return created

    return (yield Atomically(steps()))


def _parent_and_path(kind: EntityKind, address: EntityAddress, namespace: Namespace) -> Steps:
    """The topic of a new entity, with its row locked, or None, and its path. Raises LimitReached, and NotAllowed in the tier
    Basic."""
    allowed = limits_of(namespace)
    if kind is not QUEUE and not allowed.topics:
        raise NotAllowed(
            f"The namespace '{namespace.name}' is of the tier Basic, which does not support topics. Use Standard or Premium."
        )
    if kind is not SUBSCRIPTION:
        (present,) = yield call("count_queues_and_topics", namespace_id=namespace.id)
        if present.n >= allowed.entities_per_namespace:
            raise LimitReached(f"The namespace '{namespace.name}' has {present.n:,} queues and topics, the maximum.")
        return None, address.path
    if address.topic is None:
        raise InvalidArgument("address", f"'{address}' is not a subscription; use the form <topic>/{SUBSCRIPTIONS}/<name>")
    topic = yield from lock_entity(address.topic, TOPIC)
    (present,) = yield call("count_subscriptions", topic_id=topic.id)
    if present.n >= allowed.subscriptions_per_topic:
        raise LimitReached(f"The topic '{topic.address}' has {present.n:,} subscriptions, the maximum.")
    return topic, topic.address.subscription(address.name).path


def _ensure(
    kind: EntityKind,
    address: EntityAddress,
    base: Settings | None,
    actor: Actor | None,
    changes: dict[str, Any],
    rule: Rule | None = None,
) -> Steps:
    def create() -> Steps:
        return _create(kind, address, base, actor, changes, rule)

    return (yield from find_or_create(lambda: _get(kind, address, actor), create))


def _update(
    kind: EntityKind | None, address: EntityAddress, actor: Actor | None, changes: dict[str, Any], right: Right = Right.MANAGE
) -> Steps:
    actor = _authorize_configuration(address, actor, right)

    def steps() -> Steps:
        namespace = yield from namespace_to_configure(address, actor, Family.SERVICE_BUS)
        current = yield from lock_entity(address, kind)
        settings = yield from settings_after(current, changes, namespace)
        rows = yield call("update_entity", entity_id=current.id, **as_parameters(settings))
        yield from _after_change(current, settings, namespace, actor)
        yield from record_revisions([current.id], actor)
        yield from wake([current.id])  # they may no longer receive
        return from_row(rows[0])

    return (yield Atomically(steps()))


def settings_after(current: Entity, changes: Mapping[str, Any], namespace: Namespace) -> Steps:
    """The settings an entity would have after a change, checked. Raises InvalidArgument."""
    settings = changed_settings(current.settings, changes, limits_of(namespace))
    return (yield from _with_destinations(current.address, settings, changed_forwards(current.settings, settings)))


def _after_change(before: Entity, after: Settings, namespace: Namespace, actor: Actor) -> Steps[None]:
    """Apply the other effects of a change of settings: on the topic's fan-out (SB-218), and on existing locks (SB-072)."""
    flag = "dead_lettering_on_filter_evaluation_exceptions"
    if isinstance(before, Subscription) and getattr(after, flag) != getattr(before.settings, flag):
        yield from fanout_changed(before.topic_id)
    if after != before.settings and resolved(after, namespace.behaviour).get("drops_locks_on_change"):
        # The entity's setting, or its namespace's behaviour, requires this, so the actor needs no right to operate.
        by = replace(actor, rights=actor.rights | Right.OPERATE)
        yield from drop_locks.steps(before.address, actor=by)


def _delete(kind: EntityKind | None, address: EntityAddress, actor: Actor | None, operation_id: int | None = None) -> Steps[None]:
    actor = _authorize_configuration(address, actor)
    operations.require_operation_id(operation_id)

    def steps() -> Steps:
        yield from namespace_to_configure(address, actor, Family.SERVICE_BUS)
        current = yield from lock_entity(address, kind)
        yield from require_unprotected([current.id])
        yield from _delete_locked(current, actor, operation_id)

    yield Atomically(steps())


def delete_idle(row: Any) -> Steps[bool]:
    """Delete an entity that a sweep found idle, unless it was used or replaced in the meantime; also a protected one, since
    protection, like a delete lock of the service, does not concern expiry (SB-197). row: of `idle_entities`. Returns whether it
    was deleted."""
    address, actor = EntityAddress(row.namespace_name, row.path), Actor.local("broker")

    def steps() -> Steps:
        yield from namespace_to_configure(address, actor, Family.SERVICE_BUS)
        current = yield from lock_entity(address, None)
        if current.id != row.entity_id or not (yield call("is_idle", entity_id=current.id)):
            return False
        yield from _delete_locked(current, actor)
        return True

    try:
        return (yield Atomically(steps()))
    except EntityNotFound:
        return False


def _delete_locked(current: Entity, actor: Actor, operation_id: int | None = None) -> Steps[None]:
    """Delete an entity whose row is locked."""
    yield from operations.delete_rows(current.id, current.address, Family.SERVICE_BUS, str(current.kind), actor, operation_id)
    if isinstance(current, Topic):  # the topic first: publishing locks its counter before its subscriptions'
        yield from _delete_subscriptions(current, actor, operation_id)
    elif isinstance(current, Subscription):
        yield from fanout_changed(current.topic_id)
    yield from wake([current.id])  # waiting calls are refused


def _delete_subscriptions(topic: Topic, actor: Actor, operation_id: int | None) -> Steps[None]:
    rows = yield call(
        "list_entities", namespace=topic.address.namespace, family=FAMILY, kind=str(SUBSCRIPTION), topic_id=topic.id
    )
    yield from operations.delete_entities([row.id for row in rows], str(actor), operation_id)
    yield from wake([row.id for row in rows])


def entities_restored(rows: Sequence[Any], actor: Actor) -> Steps[None]:
    """End the locks that were held when these entities were deleted, as failed deliveries, and have the rules of topics read
    again. rows: of `soft_deleted_by`."""
    for topic_id in {row.topic_id or row.entity_id for row in rows if row.kind != str(QUEUE)}:
        yield from fanout_changed(topic_id)
    for row in rows:
        if row.kind != str(TOPIC):
            yield call("drop_session_locks", entity_id=row.entity_id, session_id=None)
            deadlines = BATCH
            while deadlines == BATCH:
                deadlines = (yield from end_expired_locks(row.entity_id, dropped_by=str(actor))).deadlines


def _get(kind: EntityKind | None, address: EntityAddress, actor: Actor | None) -> Steps:
    (actor or Actor.local()).require(Right.BROWSE, address)
    return require_entity_kind(from_row((yield from entity_row(address))), kind)


def _list(kind: EntityKind | None, namespace: str | None, actor: Actor | None) -> Steps:
    (actor or Actor.local()).require(Right.BROWSE, namespace or "namespaces")
    rows = yield call("list_entities", namespace=namespace, family=FAMILY, kind=kind and str(kind), topic_id=None)
    return [from_row(row) for row in rows]


def _with_destinations(address: EntityAddress, settings: Settings, names: Sequence[str]) -> Steps:
    """The settings with the named forwards spelled as their destinations' paths. Raises InvalidArgument for an invalid
    destination.

    A destination must exist now, and may be deleted later (SB-177, SB-242). It may be the entity itself, also one that is being
    created, or a subscription's own topic; the hop limit ends such a loop (SB-173, SB-176).
    """
    for name in names:
        path = getattr(settings, name, None)
        if path is None:
            continue
        is_own = path.lower() == address.path.lower()
        rows: list[Any] = [address] if is_own else (yield call("get_entity", namespace=address.namespace, path=path))
        if not rows:
            raise InvalidArgument(name, f"'{path}' is not a queue or topic of '{address.namespace}'; create it first")
        settings = replace(settings, **{name: rows[0].path})
    return settings


def _authorize_configuration(address: EntityAddress, actor: Actor | None, right: Right = Right.MANAGE) -> Actor:
    actor = actor or Actor.local()
    actor.require(right, address)
    if address.subqueue:
        raise InvalidArgument("address", f"'{address}' is a sub-queue; it is created, deleted and configured with its entity")
    return actor
