"""The page of the audit: user actions in the explorer, including refused ones."""

from __future__ import annotations

from django.db.models import Case, Func, QuerySet, Value, When
from django.db.models.functions import Lower
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from broker_core.common.types import Right
from explorer import sandbox_names
from explorer.frames.forms.queries import AuditQuery
from explorer.frames.shell import cleaned, page, show
from explorer.models import AuditRecord

ROWS = 50


@page
@require_GET
def audit_log(request: HttpRequest) -> HttpResponse:
    request.actor.require(Right.BROWSE, "the audit")
    form = AuditQuery(request.GET)
    query = cleaned(form)
    hidden = sandbox_names.hidden_sandboxes(request.user, request.actor, own=True)
    rows = list(matching(query, hidden)[: ROWS + 1])
    page_rows = rows[:ROWS]
    context = {
        "section": "administration", "tab": "activity", "form": form,
        "records": page_rows, "filtered": any(query[n] for n in ("actor", "queue", "outcome")),
        "older": page_rows[-1].pk if len(rows) > ROWS else None,
    }  # fmt: skip
    return show(request, "audit", context)


def matching(query: dict, hidden: tuple[str, ...] = ()) -> QuerySet[AuditRecord]:
    """The matching records, newest first, without those about the `hidden` namespaces. `before`: the last row of the previous
    page. An action on a namespace as a whole names it at the beginning of its target."""
    records = AuditRecord.objects.order_by("-id")
    if hidden:
        first_word = Func(Lower("target"), Value("[^[:alnum:].-].*"), Value(""), function="regexp_replace")
        records = records.annotate(place=Case(When(namespace="", then=first_word), default=Lower("namespace")))
        records = records.exclude(place__in=[name.lower() for name in hidden])
    if query["actor"]:
        records = records.filter(actor__icontains=query["actor"])
    if query["queue"]:
        records = records.filter(path__icontains=query["queue"])
    if query["outcome"]:
        records = records.filter(outcome=query["outcome"])
    return records.filter(pk__lt=query["before"]) if query["before"] else records
