"""Rules of subscriptions: which messages of their topic they copy, and what happens to a copy.

A rule holds for what is sent after it was added (SB-216). A subscription without one gets nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker_core.common.errors import EntityExists, EntityNotFound, InvalidArgument, NotAllowed
from broker_core.common.limits import Limits
from broker_core.common.types import Actor, EntityAddress, EntityKind, Right
from broker_core.namespaces.namespaces import namespace_to_configure
from broker_core.service_bus.rules.filters import CorrelationFilter, Rule, rule_from_json, rule_to_json
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .kinds import Subscription, from_row
from .rows import entity_row, fanout_changed, lock_entity, require_kind


@dataclass(frozen=True, slots=True)
class StoredRule:
    """A rule as stored; created_at is the database's time."""

    rule: Rule
    created_at: datetime


@use_case
def create_rule(subscription: EntityAddress, rule: Rule, *, actor: Actor | None = None) -> Steps:
    """Add a rule; returns it as a StoredRule. This is activity of the subscription (SB-192).

    Raises EntityExists where it has a rule of that name, in whatever casing, and NotAllowed where its topic has no room for more.
    """

    _require_rule(rule)
    return (yield from _changing(subscription, actor, lambda held, limits: insert_rule(held, rule, limits)))


@use_case
def update_rule(subscription: EntityAddress, rule: Rule, *, actor: Actor | None = None) -> Steps:
    """Put a rule in the place of the one of its name; returns it as a StoredRule. Activity, as adding one."""
    _require_rule(rule)

    def steps(held, limits) -> Steps:
        yield from _require_room(held, rule, limits)
        rows = yield call("replace_rule", subscription_id=held.id, **_columns(rule))
        if not rows:
            raise EntityNotFound(_label(subscription, rule.name))
        return _stored(rows[0])

    return (yield from _changing(subscription, actor, steps))


@use_case
def delete_rule(subscription: EntityAddress, name: str, *, actor: Actor | None = None) -> Steps[None]:
    """Take a rule away, be it `$Default`. Its subscription may be without one: then it receives nothing. No activity (SB-196)."""

    def steps(held, limits) -> Steps:
        if not (yield call("delete_rule", subscription_id=held.id, name=name)):
            raise EntityNotFound(_label(subscription, name))

    yield from _changing(subscription, actor, steps)


@use_case
def list_rules(subscription: EntityAddress, *, actor: Actor | None = None) -> Steps[list[StoredRule]]:
    """The rules of a subscription as StoredRules, by name."""
    (actor or Actor.local()).require(Right.BROWSE, subscription)
    found = require_kind(from_row((yield from entity_row(subscription))), EntityKind.SUBSCRIPTION)
    return [_stored(row) for row in (yield call("list_rules", subscription_id=found.id))]


def insert_rule(held: Subscription, rule: Rule, limits: Limits) -> Steps[StoredRule]:
    """The writing part of create_rule, for a subscription whose topic the caller's transaction holds."""
    yield from _require_room(held, rule, limits)
    rows = yield call("create_rule", subscription_id=held.id, **_columns(rule))
    if not rows:
        raise EntityExists(_label(held.address, rule.name))
    return _stored(rows[0])


def _changing(address: EntityAddress, actor: Actor | None, change: Callable[[Subscription, Limits], Steps]) -> Steps:
    actor = actor or Actor.local()
    actor.require(Right.MANAGE, address)

    def steps() -> Steps:
        namespace = yield from namespace_to_configure(address, actor)
        held = yield from lock_entity(address, EntityKind.SUBSCRIPTION)
        done = yield from change(held, namespace.limits)
        yield from fanout_changed(held.topic_id)
        return done

    return (yield Atomically(steps()))


def _require_rule(rule: Rule) -> None:
    if not isinstance(rule, Rule):
        raise InvalidArgument("rule", f"must be a Rule, not a {type(rule).__name__}")


def _require_room(held: Subscription, rule: Rule, limits: Limits) -> Steps[None]:
    """Raise NotAllowed where the topic's subscriptions have as many filters of the rule's sort as they may."""
    (there,) = yield call("count_rules", topic_id=held.topic_id, subscription_id=held.id, name=rule.name)
    word, count, most = "SQL", there.sql, limits.sql_filters_per_topic
    if isinstance(rule.filter, CorrelationFilter):
        word, count, most = "correlation", there.correlation, limits.correlation_filters_per_topic
    if count >= most:
        raise NotAllowed(f"The topic '{held.topic}' has {count:,} {word} filters in its subscriptions, the maximum.")


def _columns(rule: Rule) -> dict[str, Any]:
    kept = rule_to_json(rule)
    return {
        "name": rule.name,
        "filter": json.dumps(kept["filter"]),
        "action": None if kept["action"] is None else json.dumps(kept["action"]),
    }


def _stored(row: Any) -> StoredRule:
    return StoredRule(rule_from_json({"name": row.name, "filter": row.filter, "action": row.action}), row.created_at)


def _label(subscription: EntityAddress, name: str) -> str:
    return f"{subscription}/Rules/{name}"
