"""What people changed that may show in a chart: settings, rules, policies, purges, pauses. From the audit."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Q

from broker_core.common.types import EntityAddress
from explorer.models import AuditRecord

from .traffic_charts import MOST_MARKS

ACTIONS = (
    *(f"{verb} {kind}" for verb in ("create", "delete") for kind in ("queue", "topic", "subscription")),
    *(f"{verb} {kind}policy" for verb in ("set", "delete") for kind in ("", "operator ")),
    *(f"{verb} {kind}" for verb in ("create", "change") for kind in ("policy", "operator policy", "exchange", "binding")),
    *(f"{verb}{what}" for verb in ("pause", "resume") for what in ("", " clock", " demonstration")),
    "declare queue", "declare exchange", "delete exchange", "bind", "unbind", "import definitions", "import configuration",
    "change settings", "change queue options", "create rule", "change rule", "delete rule", "purge", "release locks",
)  # fmt: skip


def latest(since: datetime, *, namespace: str | None = None, entity: EntityAddress | None = None) -> list[AuditRecord]:
    """The newest changes since then. Those of a namespace as a whole count for each of its entities, too."""
    found = AuditRecord.objects.filter(at__gte=since, action__in=ACTIONS, outcome=AuditRecord.Outcome.DONE)
    if namespace:
        of_all = Q(namespace="") & (Q(target=namespace) | Q(target__startswith=f"{namespace}: "))
        found = found.filter(Q(namespace=namespace) | of_all)
    if entity:
        found = found.filter(path__in=(entity.path, ""))
    return list(found.order_by("-at")[:MOST_MARKS])
