"""The page of the audit: user actions in the explorer, including refused ones."""

from __future__ import annotations

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from broker_core.common.types import Right
from explorer.models import AuditRecord
from explorer.shared.forms.queries import AuditQuery

from .shell import cleaned, page, show

ROWS = 50


@page
@require_GET
def audit_log(request: HttpRequest) -> HttpResponse:
    request.actor.require(Right.BROWSE, "the audit")
    form = AuditQuery(request.GET)
    query = cleaned(form)
    rows = list(matching(query)[: ROWS + 1])
    shown = rows[:ROWS]
    context = {
        "section": "audit", "form": form, "records": shown, "filtered": any(query[n] for n in ("actor", "queue", "outcome")),
        "older": shown[-1].pk if len(rows) > ROWS else None,
    }  # fmt: skip
    return show(request, "audit", context)


def matching(query: dict) -> QuerySet[AuditRecord]:
    """The matching records, newest first. `before`: the last row of the previous page."""
    found = AuditRecord.objects.order_by("-id")
    if query["actor"]:
        found = found.filter(actor__icontains=query["actor"])
    if query["queue"]:
        found = found.filter(path__icontains=query["queue"])
    if query["outcome"]:
        found = found.filter(outcome=query["outcome"])
    return found.filter(pk__lt=query["before"]) if query["before"] else found
