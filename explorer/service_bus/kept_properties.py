"""Shows the properties of an entity that are kept for clients, without effect (SB-940). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from broker_core.common.types import EntityKind
from broker_core.service_bus.rules.kept_properties import KeptValue, effective_kept

TITLE = "Kept for clients, without effect"


@dataclass(frozen=True, slots=True)
class KeptProperties:
    """changed: those that differ from their defaults, by name. defaults: the others, in words; empty: there are none."""

    changed: Mapping[str, KeptValue]
    defaults: str


def kept_of(kind: EntityKind, stored: Mapping[str, KeptValue]) -> KeptProperties:
    others = {name: value for name, value in effective_kept(kind, stored).items() if name not in stored}
    return KeptProperties(dict(sorted(stored.items())), _listed(others))


def in_words(stored: Mapping[str, KeptValue]) -> str:
    """Those that differ from their defaults: "EnablePartitioning yes, SupportOrdering yes"."""
    return _listed(stored) or "all default"


def _listed(properties: Mapping[str, KeptValue]) -> str:
    return ", ".join(f"{name} {_word(value)}" for name, value in sorted(properties.items()))


def _word(value: KeptValue) -> str:
    return value if isinstance(value, str) else "yes" if value else "no"
