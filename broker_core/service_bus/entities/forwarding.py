"""What the forwards of an entity lead to."""

from __future__ import annotations

from collections.abc import Sequence

from broker_core.common.types import Actor, EntityAddress
from broker_core.service_bus.rules.entity_settings import FORWARDS, Settings, kind_of
from broker_core.service_bus.rules.forwarding import MAX_HOPS, Loop
from broker_core.service_bus.rules.forwarding import forwarding_notes as notes_of
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .lifecycle import get_entity


@use_case
def forwarding_notes(address: EntityAddress, *, actor: Actor | None = None) -> Steps[list[str]]:
    """Forwards of this entity that the broker accepts, as the service does, and that may be a mistake, in sentences: loops, which
    the hop limit ends (SB-173, SB-176), and sessions that cannot be accepted (SB-175)."""
    entity = yield from get_entity.steps(address, actor=actor)
    return (yield from notes_on_forwards(entity.id, entity.settings, FORWARDS))


def notes_on_forwards(entity_id: int, settings: Settings, names: Sequence[str]) -> Steps[list[str]]:
    """As forwarding_notes, for these forwards of an entity that has, or would have, these settings."""
    paths = {name: path for name in names if (path := getattr(settings, name, None)) is not None}
    if not paths:
        return []
    rows = yield call("forwarding_loops", entity_id=entity_id, paths=list(paths.values()), max_hops=MAX_HOPS)
    forwards = list(paths.items())
    loops = {name: Loop(path, row.hops, row.drops) for row in rows for name, path in [forwards[row.place - 1]]}
    requires_session = getattr(settings, "requires_session", False)
    return list(notes_of(kind_of(settings), requires_session, paths.get("forward_to"), loops))
