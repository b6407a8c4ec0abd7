"""Entities that were deleted, whose rows are kept as long as events may refer to them (history/retention.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker_core.common.types import Actor, EntityAddress, EntityKind, Family, HistoryLevel, Right
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .shared import ClockReading, clock_of, require

SETTINGS = (
    "status", "lock_duration", "max_delivery_count", "default_message_time_to_live", "dead_lettering_on_message_expiration",
    "requires_session", "requires_duplicate_detection", "duplicate_detection_history_time_window", "auto_delete_on_idle",
    "forward_to", "forward_dead_lettered_messages_to", "max_size_in_megabytes", "max_message_size_in_kilobytes", "user_metadata",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DeletedEntity:
    """An entity that was deleted. created_at, deleted_at: the database's time.

    deleted_by: "user:alice", "key:Root"; "process:broker" if it was unused for too long. messages: how many it had.
    settings:   the last ones, by name: those that only its family has, or else those of a Service Bus entity.
    kept_properties: those without effect that differed from their defaults (SB-940).
    """

    id: int
    address: EntityAddress
    kind: EntityKind
    family: Family
    history_level: HistoryLevel
    created_at: datetime
    deleted_at: datetime
    deleted_by: str
    messages: int
    settings: Mapping[str, Any]
    kept_properties: Mapping[str, Any]
    clock: ClockReading


@use_case
def deleted_entity(
    address: EntityAddress, *, entity_id: int | None = None, actor: Actor | None = None
) -> Steps[DeletedEntity | None]:
    """The entity that was deleted last at this address, or the one with this id; None: there is none, or no longer."""
    require(actor, Right.BROWSE, address)
    rows = yield call("read_deleted_entity", namespace=address.namespace, path=address.path, entity_id=entity_id)
    if not rows:
        return None
    [row] = rows
    return DeletedEntity(
        id=row.id,
        address=EntityAddress(row.namespace_name, row.path),
        kind=EntityKind(row.kind),
        family=Family(row.family),
        history_level=HistoryLevel(row.history_level),
        created_at=row.created_at,
        deleted_at=row.deleted_at,
        deleted_by=row.deleted_by or "",
        messages=row.deleted_messages or 0,
        settings={**row.options, **row.effective} or {name: getattr(row, name) for name in SETTINGS},
        kept_properties=dict(sorted(row.kept_properties.items())),
        clock=clock_of(row),
    )
