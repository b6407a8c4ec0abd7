"""The well-known namespaces that nobody has used yet: programs find them, and lists of what is in use leave them out."""

from __future__ import annotations

from collections.abc import Iterable

from broker_core.common.family import definition_of
from broker_core.reads import NamespaceRow


def is_unused(row: NamespaceRow) -> bool:
    """Whether a namespace is its family's well-known one (FamilyDefinition.well_known), and has no entities."""
    return row.entities == 0 and row.name == definition_of(row.family).well_known.name


def without_unused(rows: Iterable[NamespaceRow], keep: str | None = "") -> list[NamespaceRow]:
    """These namespaces without those. keep: the name of one that stays."""
    return [row for row in rows if row.name == keep or not is_unused(row)]


def used_first(rows: Iterable[NamespaceRow]) -> list[NamespaceRow]:
    """These namespaces in their order, but those at the end, for a list to choose from."""
    return sorted(rows, key=is_unused)
