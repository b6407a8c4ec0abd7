"""Writes the audit of user actions (docs/design.md D13). An action and its record are in two separate transactions."""

from __future__ import annotations

from datetime import datetime

from broker_core.common.errors import BrokerError
from broker_core.common.types import Actor, EntityAddress

from .models import AuditRecord


def done(
    actor: Actor, action: str, address: EntityAddress | None = None, *, target: str = "", detail: str = "",
    at: datetime | None = None,
) -> None:  # fmt: skip
    """Record an action that succeeded. target: the affected part of the entity, in words. detail: the result, in words. at: in
    the past of generated history; None: now."""
    record = _write(actor, action, address, AuditRecord.Outcome.DONE, target=target, detail=detail)
    if at is not None:
        AuditRecord.objects.filter(pk=record.pk).update(at=at)


def refused(actor: Actor, action: str, address: EntityAddress | None, error: BrokerError, *, target: str = "") -> None:
    """Record an action that the broker refused."""
    _write(
        actor, action, address, AuditRecord.Outcome.REFUSED, target=target, detail=str(error), tracking_id=error.tracking_id
    )  # fmt: skip


def record_refusal(actor: Actor, action: str, *, target: str, detail: str) -> None:
    """Record an action that the site itself refused."""
    _write(actor, action, None, AuditRecord.Outcome.REFUSED, target=target, detail=detail)


def _write(actor: Actor, action: str, address: EntityAddress | None, outcome: str, *, target: str, **values: str) -> AuditRecord:
    named = {
        "actor": str(actor),
        "action": action,
        "namespace": address.namespace if address else "",
        "path": str(address).partition("/")[2] if address else "",
        "target": target,
    }
    return AuditRecord.objects.create(**{name: _fitting(name, text) for name, text in named.items()}, outcome=outcome, **values)


def _fitting(field: str, text: str) -> str:
    """A refused action may name something longer than any name; its record must not fail for that."""
    return text[: AuditRecord._meta.get_field(field).max_length]
