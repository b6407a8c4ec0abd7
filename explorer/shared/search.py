"""Finds messages by id in all queues, including messages that are gone."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from broker_core import reads
from explorer.shared.forms.queries import SearchQuery

from .shell import cleaned, page, show


@page
@require_GET
def search(request: HttpRequest) -> HttpResponse:
    text = cleaned(SearchQuery(request.GET))["q"]
    result = reads.find(text, actor=request.actor) if text else None
    families = {one.name: one.family for one in reads.namespaces(actor=request.actor)} if result and result.found else {}
    found = [(one, families.get(one.address.namespace) if one.address else None) for one in result.found] if result else []
    return show(request, "search", {"section": "search", "q": text, "result": result, "found": found})
