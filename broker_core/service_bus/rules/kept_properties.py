"""Properties of entities that the service defines and that have no effect here (SB-940): they are kept for clients, which read
back what they wrote.

Pure functions over mappings of names, as the service spells them, to values. Only values that differ from their defaults are
stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import EntityKind

KeptValue = bool | str

AVAILABILITY = ("Available", "Limited", "Renaming", "Restoring", "Unknown")
FIXED_KEPT = ("EnableExpress", "EnablePartitioning", "EnableSubscriptionPartitioning")  # after creation

_QUEUE: Mapping[str, KeptValue] = {
    "EnableBatchedOperations": True,
    "EnableExpress": False,
    "EnablePartitioning": False,
    "EntityAvailabilityStatus": AVAILABILITY[0],
    "IsAnonymousAccessible": False,
    "SupportOrdering": True,  # unless EnablePartitioning is true
}
_DEFAULTS: Mapping[EntityKind, Mapping[str, KeptValue]] = {
    EntityKind.QUEUE: _QUEUE,
    EntityKind.TOPIC: {**_QUEUE, "EnableSubscriptionPartitioning": False, "FilteringMessagesBeforePublishing": False},
    EntityKind.SUBSCRIPTION: {name: _QUEUE[name] for name in ("EnableBatchedOperations", "EntityAvailabilityStatus")},
}
KEPT_OF = {kind: tuple(sorted(defaults)) for kind, defaults in _DEFAULTS.items()}


def check_kept(kind: EntityKind, given: Mapping[str, Any]) -> dict[str, KeptValue]:
    """The given properties as stored: those that differ from their defaults, sorted by name.

    Raises InvalidArgument for a property that this kind of entity does not have, and for an invalid value.
    """
    if not isinstance(given, Mapping):
        raise InvalidArgument("kept_properties", f"{_formatted(given)} must map names of properties to their values")
    for name in given:
        if name not in KEPT_OF[kind]:
            raise InvalidArgument(str(name), f"is not a property of a {kind}; valid names are {', '.join(KEPT_OF[kind])}")
    checked = {name: _checked(name, given[name]) for name in sorted(given)}
    defaults = _defaults(kind, checked)
    return {name: value for name, value in checked.items() if value != defaults[name]}


def check_fixed_kept(kind: EntityKind, before: Mapping[str, KeptValue], after: Mapping[str, KeptValue]) -> None:
    """Raise InvalidArgument if a change of stored properties concerns one that is fixed when the entity is created."""
    old, new = effective_kept(kind, before), effective_kept(kind, after)
    for name in FIXED_KEPT:
        if old.get(name) != new.get(name):
            raise InvalidArgument(name, f"cannot be changed after creation; delete and recreate the {kind}")


def effective_kept(kind: EntityKind, stored: Mapping[str, KeptValue]) -> dict[str, KeptValue]:
    """All such properties of this kind of entity with their values, sorted by name. stored: as returned by check_kept."""
    return dict(sorted({**_defaults(kind, stored), **stored}.items()))


def _defaults(kind: EntityKind, given: Mapping[str, KeptValue]) -> dict[str, KeptValue]:
    """The defaults beside these values: a partitioned entity does not support ordering."""
    ordering = {"SupportOrdering": False} if given.get("EnablePartitioning") else {}
    return {**_DEFAULTS[kind], **ordering}


def _checked(name: str, value: Any) -> KeptValue:
    if name != "EntityAvailabilityStatus":
        if not isinstance(value, bool):
            raise InvalidArgument(name, f"{_formatted(value)} must be true or false")
        return value
    for status in AVAILABILITY:
        if isinstance(value, str) and value.lower() == status.lower():
            return status
    raise InvalidArgument(name, f"{_formatted(value)} must be one of {', '.join(AVAILABILITY)}")


def _formatted(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
