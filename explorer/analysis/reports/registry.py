"""All analyses that are answered at once, in the order in which the page lists them."""

from __future__ import annotations

from collections.abc import Iterable

from . import (
    changes,
    deliveries,
    fan_out,
    flow,
    hot,
    idle,
    journeys,
    lock,
    lock_losses,
    losses,
    overview,
    receivers,
    redelivery,
    replay,
    time_to_live,
    waiting,
)
from .report import Analysis

GROUPS = {
    "happened": "What happened?",
    "why": "Why did it happen?",
    "what_if": "What if?",
}
MODULES = (
    *(overview, flow, waiting, losses, fan_out, journeys, idle),
    *(lock_losses, redelivery, receivers, hot, changes),
    *(time_to_live, lock, deliveries, replay),
)
ANALYSES: tuple[Analysis, ...] = tuple(module.ANALYSIS for module in MODULES)
BY_SLUG = {one.slug: one for one in ANALYSES}


def grouped(*, of_entity: bool) -> Iterable[tuple[str, list[Analysis]]]:
    """(heading, analyses). of_entity: of one queue; otherwise those that a whole namespace has."""
    for name, heading in GROUPS.items():
        found = [one for one in ANALYSES if one.group == name and (of_entity or not one.needs_entity)]
        if found:
            yield heading, found
