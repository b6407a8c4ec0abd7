"""The interface of a family for code that works on entities of any family. broker_core/families.py registers the installed ones.

Packages below the families (namespaces, reads) look definitions up here and therefore import no family.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any

from .connection_strings import ConnectionString
from .errors import InvalidArgument
from .types import Actor, EntityAddress, Family

Steps = Generator[Any, Any, Any]  # see store.driver


@dataclass(frozen=True, slots=True)
class Sweep:
    """A background task. title: what it is about, as a noun. every_seconds: the default interval, which an administrator can
    change; None: once a night."""

    run: Callable[[], Any]
    title: str
    every_seconds: int | None
    description: str

    @property
    def name(self) -> str:
        return self.run.__name__


@dataclass(frozen=True, slots=True)
class WellKnown:
    """The namespace that clients of the family's emulator, or of its fresh server, expect. key: what they sign in with, which is
    published; empty: there is none."""

    name: str
    description: str
    key: str = field(default="", repr=False)


class FamilyDefinition(ABC):
    """What a family provides. Methods without a body of their own here have to be provided; the others have a default.

    Rows are those of the statements named. Steps run in the caller's transaction (store/driver.py).
    """

    family: Family
    #: The product's name, "Service Bus".
    title: str
    #: The family's noun for a namespace, "storage account".
    container_noun: str
    #: The family's noun for a queue in lists of all families, "storage queue".
    queue_noun: str
    #: The namespace that a new site has for clients of the family.
    well_known: WellKnown
    #: The dotted path of the module that adds the family to Django's admin, imported with the admin.
    admin: str
    #: The module with the family's part of an export (export_format/part.py).
    transfer: ModuleType
    #: The background tasks that only this family needs.
    sweeps: tuple[Sweep, ...] = ()
    #: How long a delivery may stay unacknowledged by default, in milliseconds; None: the family's locks expire instead.
    delivery_timeout_ms: int | None = None
    #: Where a message's lock is stored: "locked_until", "visible_at" or "owner_id" (message_tables.sql).
    lock_column: str = "locked_until"
    #: Whether the names of queues are case-sensitive.
    paths_have_case: bool = False

    # Namespaces

    @abstractmethod
    def check_namespace_name(self, name: str) -> str:
        """Return the name unchanged. Raises InvalidArgument."""

    @abstractmethod
    def create_namespace(self, name: str, description: str, tier: Any, actor: Actor) -> Any:
        """Create a namespace of this family, and return it."""

    @abstractmethod
    def delete_namespace(self, name: str, *, actor: Actor) -> Any:
        """Delete a namespace."""

    def namespace_created(self, namespace_id: int, name: str) -> Steps:
        """Add the family's objects to a new namespace. The well-known one gets the published key."""
        yield from ()

    def check_tier(self, namespace: Any, tier: Any) -> Steps:
        """Raise NotAllowed if an entity of the namespace does not fit the tier."""
        yield from ()

    def clock_stepped(self, namespace: str) -> Steps:
        """Do what else a step of the namespace's clock made due. Returns counts by name."""
        yield from ()
        return {}

    @abstractmethod
    def connection_strings(
        self, namespace: str, path: str | None = None, policy: str | None = None, *, is_hidden: bool = False, actor: Actor
    ) -> list[ConnectionString]:
        """What clients of a namespace need to connect. Reading its key requires MANAGE.

        path: of an entity whose own policy is meant. policy: None: the one with all rights. is_hidden: with HIDDEN instead of the
        key. Raises EntityNotFound, NotAuthorized.
        """

    # Entities

    @abstractmethod
    def check_queue_name(self, name: str) -> Any:
        """Raise InvalidArgument, or the family's own error, for an invalid name."""

    @abstractmethod
    def create_queue(self, address: EntityAddress, *, actor: Actor | None = None) -> Any:
        """Create a queue with the family's defaults."""

    @abstractmethod
    def delete_entity(self, address: EntityAddress, *, actor: Actor) -> Any:
        """Delete an entity with its messages."""

    def entities_restored(self, namespace: str, rows: Sequence[Any], bindings: Sequence[int], actor: Actor) -> Steps:
        """After entities that were deleted were restored, in that transaction: end the locks that were held when they were
        deleted, and tell who caches them. rows: of `soft_deleted_by`. bindings: ids of those that were restored, too."""
        yield from ()

    def delete_idle(self, row: Any) -> Steps:
        """Delete an entity of `idle_entities`, if the family deletes idle entities. Returns whether it was deleted."""
        yield from ()
        return False

    # Messages

    @abstractmethod
    def display_state(self, row: Any, now: datetime) -> Any:
        """The state of a message's row, a member of the family's DisplayState."""

    @abstractmethod
    def next_change_at(self, row: Any, now: datetime) -> datetime | None:
        """When that state changes by itself; None: never."""

    @abstractmethod
    def why_not(self, row: Any, now: datetime) -> str | None:
        """Why the message cannot be received now, in a sentence; None: it can."""

    @abstractmethod
    def life_ends_at(self, own: datetime | None, enqueued_at: datetime, default: timedelta | None) -> datetime | None:
        """When a message of a main queue expires. own: by its own time-to-live. default: the entity's time-to-live."""

    def has_expired(self, row: Any) -> bool:
        """Whether an entity of `entities_with_due` may have expired messages."""
        return row.expired

    @abstractmethod
    def expire(self, row: Any, deadline: float, pause: Callable[[float], None]) -> Steps:
        """Remove expired messages of an entity of `entities_with_due`. Returns their number."""

    def end_locks(self, row: Any, deadline: float) -> Steps:
        """End expired locks of such an entity. Returns their number."""
        yield from ()
        return 0

    def activate(self, row: Any, deadline: float) -> Steps:
        """Enqueue due scheduled messages of such an entity. Returns their number."""
        yield from ()
        return 0

    def forward(self, namespace: str) -> Steps:
        """Forward the messages of the namespace's entities. Returns counts by name."""
        yield from ()
        return {}


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
