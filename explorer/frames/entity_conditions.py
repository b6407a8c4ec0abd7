"""The conditions of a page's field as a filter of entities."""

from __future__ import annotations

from typing import Any

from broker_core.common.types import EntityKind, Family
from broker_core.reads import EntityFilter
from broker_core.reads.conditions import NumberRange

from .vocabularies import COUNTS
from .vocabulary import Terms


def filter_of(terms: Terms, **others: Any) -> EntityFilter:
    """The entities that meet the conditions. A subscription is found by the name that is shown, too. others: attributes that are
    no conditions of the field."""
    family, kind, state = (terms.get(name) for name in ("family", "kind", "state"))
    counts = [NumberRange(COUNTS[name], *bounds) for name in COUNTS if (bounds := terms.get(name))]
    if state == "no-receivers":
        counts.append(NumberRange("neglected", 1, None))
    given = {
        "namespace": terms.get("namespace"),
        "family": Family(family.replace("-", "_")) if family else None,
        "kind": EntityKind(kind) if kind else None,
        "parts": tuple(word.lower().replace("/subscriptions/", "/") for word in terms.words),
        "prefix": terms.get("prefix") or "",
        "is_paused": {"active": False, "paused": True}.get(state),
        "counts": tuple(counts),
    }
    return EntityFilter(**given | others)
