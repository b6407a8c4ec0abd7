"""Queues, topics and subscriptions as values and as rows, which have the same columns for the three kinds.

A row has every setting; those that a kind does not have are stored as the model's defaults and never read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

from broker_core.common.types import EntityAddress, EntityKind, EntityStatus, ExpiryMode, Family, HistoryLevel, Tier
from broker_core.namespaces.entity_columns import entity_columns
from broker_core.service_bus.rules.entity_settings import (
    KEPT,
    SETTINGS_OF,
    Settings,
    default_settings,
    values_of,
)
from broker_core.service_bus.rules.values import QueueSettings, SubscriptionSettings, TopicSettings

_AS_STORED: Mapping[str, Callable[[Any], Any]] = {
    "status": EntityStatus,
    "expiry_mode": ExpiryMode,
    "history_level": HistoryLevel,
    KEPT: lambda stored: dict(sorted(stored.items())),  # PostgreSQL orders the names by their length
}


@dataclass(frozen=True, slots=True)
class _Stored:
    """created_at, updated_at: database time."""

    id: int
    address: EntityAddress
    settings: Settings
    is_system: bool
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Queue(_Stored):
    """A queue as stored."""

    kind: ClassVar[EntityKind] = EntityKind.QUEUE
    settings: QueueSettings


@dataclass(frozen=True, slots=True)
class Topic(_Stored):
    """A topic as stored."""

    kind: ClassVar[EntityKind] = EntityKind.TOPIC
    settings: TopicSettings


@dataclass(frozen=True, slots=True)
class Subscription(_Stored):
    """A subscription as stored, with its topic's address."""

    kind: ClassVar[EntityKind] = EntityKind.SUBSCRIPTION
    settings: SubscriptionSettings
    topic: EntityAddress
    topic_id: int

    @property
    def name(self) -> str:
        return self.address.name


Entity = Queue | Topic | Subscription


def from_row(row: Any) -> Entity:
    """An entity from a row with the columns of `entity_columns`."""
    kind, address = EntityKind(row.kind), EntityAddress(row.namespace, row.path)
    values = {name: _value(name, getattr(row, name)) for name in SETTINGS_OF[kind]}
    stored = (row.is_system, row.created_at, row.updated_at)
    if kind is EntityKind.SUBSCRIPTION and (topic := address.topic) is not None:
        return Subscription(row.id, address, SubscriptionSettings(**values), *stored, topic, row.topic_id)
    if kind is EntityKind.TOPIC:
        return Topic(row.id, address, TopicSettings(**values), *stored)
    return Queue(row.id, address, QueueSettings(**values), *stored)


def as_parameters(settings: Settings) -> Mapping[str, Any]:
    """The columns of an entity with these settings, as statement parameters."""
    return entity_columns(Family.SERVICE_BUS, values_of(settings))


def defaults_of(kind: EntityKind, tier: Tier | None, is_system: bool) -> dict[str, Any]:
    """The defaults of a new entity. The system namespace keeps no history; sweeps would record themselves (docs/design.md D2)."""
    defaults = default_settings(kind, None if is_system else tier)
    return defaults | {"history_level": HistoryLevel.OFF} if is_system else defaults


def _value(name: str, stored: Any) -> Any:
    return _AS_STORED[name](stored) if name in _AS_STORED and stored is not None else stored
