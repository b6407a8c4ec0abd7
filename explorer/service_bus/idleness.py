"""The idleness of an entity in words: what its last use was, and what keeps it from being deleted. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from broker_core.common.types import UseKind
from broker_core.reads import EntityRow, Idleness, KeptBy

_USES = {
    UseKind.CREATE: "created",
    UseKind.SEND: "send",
    UseKind.RECEIVE: "receive",
    UseKind.PEEK: "peek",
    UseKind.CHANGE: "change of its configuration",
    UseKind.ACTIVATE: "a scheduled message became active",
    UseKind.CANCEL: "a scheduled message was cancelled or removed",
    UseKind.RESUBMIT: "dead letters resubmitted",
    UseKind.RESTORE: "operation undone",
}
_KEPT = {
    KeptBy.FORWARDS: "it forwards its messages",
    KeptBy.WAITING: "a receiver is waiting",
    KeptBy.SCHEDULED: "it has scheduled messages",
    KeptBy.SUBSCRIPTION_FORWARDS: "a subscription forwards its messages",
    KeptBy.SUBSCRIPTION_WAITING: "a receiver is waiting at a subscription",
}


@dataclass(frozen=True, slots=True)
class ShownIdleness:
    """at: when the entity is deleted; None: not while `kept` is true. is_due: the sweep is about to delete it.
    used: the last use in words; empty: unknown."""

    found: Idleness
    is_due: bool
    kept: str
    used: str

    @property
    def at(self) -> datetime | None:
        return self.found.at


def shown_idleness(entity: EntityRow, found: Idleness | None) -> ShownIdleness | None:
    if found is None:
        return None
    used = _USES[found.used] if found.used is not None else ""
    if found.used_address.path != entity.address.path and used:
        used += f" (subscription {found.used_address.name})"
    is_due = found.at is not None and found.at <= found.read_at
    return ShownIdleness(found, is_due, _KEPT[found.kept_by] if found.kept_by else "", used)
