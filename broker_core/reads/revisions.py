"""The history of an entity's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .shared import entity_id_of, require

MOST_REVISIONS = 200
_BOOKKEEPING = ("revision_id", "at", "actor", "settings")


@dataclass(frozen=True, slots=True)
class Revision:
    """The settings of an entity after a change. at: real time. actor: who changed them, "user:alice". columns: the settings as
    typed values, by the names of their columns."""

    id: int
    at: datetime
    actor: str
    columns: Mapping[str, Any]


@use_case
def revisions(address: EntityAddress, *, actor: Actor | None = None) -> Steps[list[Revision]]:
    """The newest revisions of an entity's settings, newest first; the first is how they are now. Raises EntityNotFound."""
    require(actor, Right.BROWSE, address)
    entity_id = yield from entity_id_of(address)
    rows = yield call("read_revisions", entity_id=entity_id, max_count=MOST_REVISIONS)
    return [_revision(row) for row in rows]


def settings_at(entity_id: int, at: datetime | None) -> Steps[Mapping[str, Any]]:
    """The settings that an entity had at an instant of real time, as in Revision.columns; None: now."""
    [row] = yield call("read_settings_at", entity_id=entity_id, at=at)
    return _revision(row).columns


def _revision(row: Any) -> Revision:
    columns = {name: value for name, value in row._asdict().items() if name not in _BOOKKEEPING}
    return Revision(row.revision_id, row.at, row.actor, columns)
