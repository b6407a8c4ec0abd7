"""What a family provides to the parts that work on entities of any family. broker_core/families.py registers the installed ones.

The parts beneath the families (namespaces, reads) look a definition up here and so import no family.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any

from .errors import InvalidArgument
from .types import Family

Steps = Generator[Any, Any, Any]  # of a use case (see store.driver)


def _nothing(*_: Any) -> Steps:
    yield from ()


@dataclass(frozen=True, slots=True)
class FamilyDefinition:
    """A family's answers to the questions that every family is asked.

    title:          the product's name, "Service Bus".
    container_noun: what a set of entities is called, "storage account".
    check_namespace_name: returns the name unchanged. Raises InvalidArgument.
    display_state:  (message row, now) -> the state's name, a member of the family's DisplayState.
    next_change_at: (message row, now) -> the instant at which the clock alone changes that state; None: never.
    why_not:        (message row, now) -> one sentence on why the message cannot be received now; None where it can.
    life_ends_at:   (own expiry, enqueued at, the entity's default time-to-live) -> when a message of a main queue expires.
    namespace_created: a use case's steps with what the family adds to a new namespace, given its id.
    check_tier:     a use case's steps that raise NotAllowed if an entity of a namespace does not fit into another tier.
    has_expired:    (row of `entities_with_due`) -> whether the expiry sweep is to look at the entity.
    expire:         (that row, deadline, pause) -> a use case's steps that remove what has expired; they return how many messages.
    delete_idle:    (row of `idle_entities`) -> a use case's steps that delete an idle entity; they return whether it was deleted.
    create_namespace: (name, description, tier, actor) -> the namespace created.
    delete_namespace: the use case that deletes a namespace by its name.
    queue_noun:     what one of its queues is called where all families are listed, "storage queue".
    check_queue_name: (name) raises InvalidArgument or the family's own error for a name that a queue cannot have.
    create_queue, delete_entity: use cases, given an address.
    paths_have_case: whether names of queues differ by case alone.
    admin:          the dotted path of the module that adds the family to Django's admin, imported when the admin is.
    transfer:       the module that knows the family's part of an export (see transfer.part).
    delivery_timeout_ms: how long a delivery may stay unacknowledged by default; None: the family's locks end by themselves.
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
    delivery_timeout_ms: int | None = None
    paths_have_case: bool = False


_registered: dict[Family, FamilyDefinition] = {}


def register(definition: FamilyDefinition) -> None:
    """Make an installed family known."""
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
