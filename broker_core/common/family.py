"""The interface of a family for code that works on entities of any family. broker_core/families.py registers the installed ones.

Packages below the families (namespaces, reads) look definitions up here and therefore import no family.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any

from .errors import InvalidArgument
from .types import Family

Steps = Generator[Any, Any, Any]  # see store.driver


def _nothing(*_: Any) -> Steps:
    yield from ()


def _no_counts(*_: Any) -> Steps:
    yield from ()
    return {}


def _zero(*_: Any) -> Steps:
    yield from ()
    return 0


@dataclass(frozen=True, slots=True)
class Sweep:
    """A background task. every_seconds: the default interval, which an administrator can change; None: once a night."""

    run: Callable[[], Any]
    every_seconds: int | None
    description: str

    @property
    def name(self) -> str:
        return self.run.__name__


@dataclass(frozen=True, slots=True)
class FamilyDefinition:
    """What a family provides.

    title:          the product's name, "Service Bus".
    container_noun: the family's noun for a namespace, "storage account".
    check_namespace_name: returns the name unchanged. Raises InvalidArgument.
    display_state:  (message row, now) -> the state's name, a member of the family's DisplayState.
    next_change_at: (message row, now) -> the instant at which that state changes by itself; None: never.
    why_not:        (message row, now) -> one sentence on why the message cannot be received now; None if it can.
    life_ends_at:   (own expiry, enqueued at, the entity's default time-to-live) -> when a message of a main queue expires.
    namespace_created: (namespace id) -> steps that add the family's objects to a new namespace.
    check_tier:     (namespace, tier) -> steps that raise NotAllowed if an entity of the namespace does not fit the tier.
    has_expired:    (row of `entities_with_due`) -> whether the entity may have expired messages.
    expire:         (that row, deadline, pause) -> steps that remove expired messages and return their number.
    end_locks, activate: (that row, deadline) -> steps that end expired locks, or enqueue due scheduled messages, and return their
                    number.
    clock_stepped:  (namespace) -> steps that do what else a step of its clock made due, and return counts by name.
    forward:        (namespace) -> steps that forward the messages of its entities, and return counts by name.
    sweeps:         the background tasks that only this family needs.
    delete_idle:    (row of `idle_entities`) -> steps that delete an idle entity and return whether it was deleted.
    create_namespace: (name, description, tier, actor) -> the namespace created.
    delete_namespace: the use case that deletes a namespace by its name.
    queue_noun:     the family's noun for a queue in lists of all families, "storage queue".
    check_queue_name: (name) raises InvalidArgument or the family's own error for an invalid name.
    create_queue, delete_entity: use cases that take an address.
    paths_have_case: whether the names of queues are case-sensitive.
    admin:          the dotted path of the module that adds the family to Django's admin, imported with the admin.
    transfer:       the module with the family's part of an export (see transfer.part).
    lock_column:    where a message's lock is stored: "locked_until", "visible_at" or "owner_id" (message_tables.sql).
    delivery_timeout_ms: how long a delivery may stay unacknowledged by default; None: the family's locks expire instead.
    """

    family: Family
    title: str
    container_noun: str
    check_namespace_name: Callable[[str], str]
    display_state: Callable[[Any, datetime], Any]
    next_change_at: Callable[[Any, datetime], datetime | None]
    why_not: Callable[[Any, datetime], str | None]
    life_ends_at: Callable[[datetime | None, datetime, timedelta | None], datetime | None]
    has_expired: Callable[[Any], bool]
    expire: Callable[[Any, float, Callable[[float], None]], Steps]
    delete_idle: Callable[[Any], Steps]
    create_namespace: Callable[[str, str, Any, Any], Any]
    delete_namespace: Callable[..., Any]
    queue_noun: str
    check_queue_name: Callable[[str], Any]
    create_queue: Callable[..., Any]
    delete_entity: Callable[..., Any]
    admin: str
    transfer: ModuleType
    namespace_created: Callable[[int], Steps] = _nothing
    check_tier: Callable[[Any, Any], Steps] = _nothing
    end_locks: Callable[[Any, float], Steps] = _zero
    activate: Callable[[Any, float], Steps] = _zero
    clock_stepped: Callable[[str], Steps] = _no_counts
    forward: Callable[[str], Steps] = _no_counts
    sweeps: tuple[Sweep, ...] = ()
    delivery_timeout_ms: int | None = None
    lock_column: str = "locked_until"
    paths_have_case: bool = False


_registered: dict[Family, FamilyDefinition] = {}


def register(definition: FamilyDefinition) -> None:
    """Add an installed family."""
    _registered[definition.family] = definition


def definition_of(family: Family | str) -> FamilyDefinition:
    """The definition of an installed family. Raises InvalidArgument for one that is not installed."""
    try:
        return _registered[Family(family)]
    except (KeyError, ValueError) as exc:
        raise InvalidArgument("family", f"{family!r} is not installed: choose one of {', '.join(_registered)}") from exc


def installed() -> tuple[FamilyDefinition, ...]:
    """All installed families, in the registry's order."""
    return tuple(_registered.values())
