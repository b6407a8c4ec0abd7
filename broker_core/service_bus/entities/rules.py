"""Rules of subscriptions: which messages of the topic are copied, and how a copy is changed.

A rule applies to messages sent after it was added (SB-216). A subscription without rules gets no messages.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker_core.common.errors import EntityExists, EntityNotFound, InvalidArgument, LimitReached
from broker_core.common.types import Actor, EntityAddress, EntityKind, Family, Right
from broker_core.namespaces.namespaces import namespace_to_configure
from broker_core.service_bus.configured_limits import limits_of
from broker_core.service_bus.rules.filters import CorrelationFilter, Rule, rule_from_json, rule_to_json
from broker_core.service_bus.rules.limits import Limits
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .kinds import Entity, Subscription, from_row
from .rows import entity_row, fanout_changed, lock_entity, require_kind


@dataclass(frozen=True, slots=True)
class StoredRule:
    """A rule as stored. created_at: database time. subscription: its address as it was created."""

    rule: Rule
    created_at: datetime
    subscription: EntityAddress


@use_case
def create_rule(subscription: EntityAddress, rule: Rule, *, actor: Actor | None = None) -> Steps:
    """Add a rule. Returns it as a StoredRule. Counts as activity of the subscription (SB-192).

    Raises EntityExists if the subscription has a rule of this name (case-insensitive), and LimitReached if the topic has the
    maximum number of such rules.
    """

    _require_rule(rule)
    return (yield from _change_rules(subscription, actor, lambda locked, limits: insert_rule(locked, rule, limits)))


@use_case
def update_rule(subscription: EntityAddress, rule: Rule, *, actor: Actor | None = None) -> Steps:
    """Replace the rule of the same name. Returns it as a StoredRule. Counts as activity, as adding a rule does."""
    _require_rule(rule)

    def steps(locked, limits) -> Steps:
        yield from _require_room(locked, rule, limits)
        rows = yield call("replace_rule", subscription_id=locked.id, **_columns(rule))
        if not rows:
            raise EntityNotFound(_label(subscription, rule.name))
        return _stored(rows[0], locked)

    return (yield from _change_rules(subscription, actor, steps))


@use_case
def delete_rule(subscription: EntityAddress, name: str, *, actor: Actor | None = None) -> Steps[None]:
    """Delete a rule, `$Default` included. Without rules, a subscription gets no messages. Not counted as activity (SB-196)."""

    def steps(locked, limits) -> Steps:
        if not (yield call("delete_rule", subscription_id=locked.id, name=name)):
            raise EntityNotFound(_label(subscription, name))

    yield from _change_rules(subscription, actor, steps)


@use_case
def list_rules(
    subscription: EntityAddress, *, first: int = 0, max_count: int | None = None, actor: Actor | None = None
) -> Steps[list[StoredRule]]:
    """The rules of a subscription as StoredRules, by name, `$Default` first. first: how many to leave out. max_count: None:
    all."""
    (actor or Actor.local()).require(Right.BROWSE, subscription)
    entity = require_kind(from_row((yield from entity_row(subscription))), EntityKind.SUBSCRIPTION)
    rows = yield call("list_rules", subscription_id=entity.id, first=first, max_count=max_count)
    return [_stored(row, entity) for row in rows]


@use_case
def get_rule(subscription: EntityAddress, name: str, *, actor: Actor | None = None) -> Steps[StoredRule]:
    """One rule; its name is case-insensitive. Raises EntityNotFound for a missing subscription or rule."""
    (actor or Actor.local()).require(Right.BROWSE, subscription)
    entity = require_kind(from_row((yield from entity_row(subscription))), EntityKind.SUBSCRIPTION)
    rows = yield call("get_rule", subscription_id=entity.id, name=name)
    if not rows:
        raise EntityNotFound(_label(subscription, name))
    return _stored(rows[0], entity)


def insert_rule(locked: Subscription, rule: Rule, limits: Limits) -> Steps[StoredRule]:
    """Insert a rule; the caller's transaction has locked the subscription's topic."""
    yield from _require_room(locked, rule, limits)
    rows = yield call("create_rule", subscription_id=locked.id, **_columns(rule))
    if not rows:
        raise EntityExists(_label(locked.address, rule.name))
    return _stored(rows[0], locked)


def _change_rules(address: EntityAddress, actor: Actor | None, change: Callable[[Subscription, Limits], Steps]) -> Steps:
    actor = actor or Actor.local()
    actor.require(Right.MANAGE, address)

    def steps() -> Steps:
        namespace = yield from namespace_to_configure(address, actor, Family.SERVICE_BUS)
        locked = yield from lock_entity(address, EntityKind.SUBSCRIPTION)
        done = yield from change(locked, limits_of(namespace))
        yield from fanout_changed(locked.topic_id)
        return done

    return (yield Atomically(steps()))


def _require_rule(rule: Rule) -> None:
    if not isinstance(rule, Rule):
        raise InvalidArgument("rule", f"must be a Rule, not a {type(rule).__name__}")


def _require_room(locked: Subscription, rule: Rule, limits: Limits) -> Steps[None]:
    """Raise LimitReached if the topic has the maximum number of filters of the rule's type."""
    (present,) = yield call("count_rules", topic_id=locked.topic_id, subscription_id=locked.id, name=rule.name)
    word, count, most = "SQL", present.sql, limits.sql_filters_per_topic
    if isinstance(rule.filter, CorrelationFilter):
        word, count, most = "correlation", present.correlation, limits.correlation_filters_per_topic
    if count >= most:
        raise LimitReached(f"The topic '{locked.topic}' has {count:,} {word} filters in its subscriptions, the maximum.")


def _columns(rule: Rule) -> dict[str, Any]:
    stored = rule_to_json(rule)
    return {
        "name": rule.name,
        "filter": json.dumps(stored["filter"]),
        "action": None if stored["action"] is None else json.dumps(stored["action"]),
    }


def _stored(row: Any, subscription: Entity) -> StoredRule:
    rule = rule_from_json({"name": row.name, "filter": row.filter, "action": row.action})
    return StoredRule(rule, row.created_at, subscription.address)


def _label(subscription: EntityAddress, name: str) -> str:
    return f"{subscription}/Rules/{name}"
