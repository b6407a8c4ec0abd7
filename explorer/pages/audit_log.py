"""The page of the audit: user actions in the explorer, including refused ones."""

from __future__ import annotations

from functools import reduce
from operator import or_

from django.db.models import Case, Func, Q, QuerySet, Value, When
from django.db.models.functions import Concat, Lower
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from broker_core.common.actors import parsed
from broker_core.common.types import Right
from explorer import sandbox_names
from explorer.frames.forms.queries import AuditQuery
from explorer.frames.shell import cleaned, page, show
from explorer.frames.vocabularies import ACTIVITY
from explorer.frames.vocabulary import Terms, canonical, field_of
from explorer.models import AuditRecord

ROWS = 50
_FOUND_IN = {"action": ("action",), "entity": ("address",)}


@page
@require_GET
def audit_log(request: HttpRequest) -> HttpResponse:
    request.actor.require(Right.BROWSE, "the audit")
    if redirect := canonical(request, ACTIVITY):
        return redirect
    query, field = cleaned(AuditQuery(request.GET)), field_of(request, ACTIVITY)
    context = {"section": "administration", "tab": "activity", "filter": field}
    if not field.problem:
        hidden = sandbox_names.hidden_sandboxes(request.user, request.actor, own=True)
        rows = list(matching(field.terms, query["before"], hidden)[: ROWS + 1])
        context |= {"records": rows[:ROWS], "older": rows[ROWS - 1].pk if len(rows) > ROWS else None}
    return show(request, "audit", context, status=field.status)


def matching(terms: Terms, before: int | None = None, hidden: tuple[str, ...] = ()) -> QuerySet[AuditRecord]:
    """The matching records, newest first, without those about the `hidden` namespaces. `before`: the last row of the previous
    page. An action on a namespace as a whole names it at the beginning of its target."""
    records = AuditRecord.objects.order_by("-id")
    if hidden:
        first_word = Func(Lower("target"), Value("[^[:alnum:].-].*"), Value(""), function="regexp_replace")
        records = records.annotate(place=Case(When(namespace="", then=first_word), default=Lower("namespace")))
        records = records.exclude(place__in=[name.lower() for name in hidden])
    records = records.annotate(address=Concat("namespace", Value("/"), "path"))
    if actor := terms.get("actor"):  # with its kind, as links name it, it is that one
        records = records.filter(actor=actor) if parsed(actor).kind else records.filter(_contains(actor, ("actor",)))
    for key, fields in _FOUND_IN.items():
        if text := terms.get(key):
            records = records.filter(_contains(text, fields))
    for word in terms.words:
        records = records.filter(_contains(word, ("address", "action", "target")))
    if outcome := terms.get("outcome"):
        records = records.filter(outcome=outcome)
    start, end = terms.get("at") or (None, None)
    if start:
        records = records.filter(at__gte=start)
    if end:
        records = records.filter(at__lt=end)
    return records.filter(pk__lt=before) if before else records


def _contains(text: str, fields: tuple[str, ...]) -> Q:
    return reduce(or_, (Q(**{f"{field}__icontains": text}) for field in fields))
