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
    """at: when the entity is deleted; None: it is not deleted, for the reason in `kept_because`. is_due: the sweep is about to
    delete it. used: the last use in words; empty: unknown."""

    facts: Idleness
    is_due: bool
    kept_because: str
    used: str

    @property
    def at(self) -> datetime | None:
        return self.facts.at


def shown_idleness(entity: EntityRow, idleness: Idleness | None) -> ShownIdleness | None:
    if idleness is None:
        return None
    used = _USES[idleness.used] if idleness.used is not None else ""
    if idleness.used_address.path != entity.address.path and used:
        used += f" (subscription {idleness.used_address.name})"
    is_due = idleness.at is not None and idleness.at <= idleness.read_at
    return ShownIdleness(idleness, is_due, _KEPT[idleness.kept_by] if idleness.kept_by else "", used)
