"""The policies of all namespaces whose family has them."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from broker_core import reads
from explorer import sandbox_names
from explorer.frames.family import pages_of
from explorer.frames.shell import page, show


@page
@require_GET
def policies(request: HttpRequest) -> HttpResponse:
    groups = []
    for namespace in sandbox_names.without(reads.namespaces(actor=request.actor)):
        family = pages_of(namespace.family)
        if family.policies:
            lines = family.policies.lines(namespace.name, request.actor)
            groups.append((namespace.name, family, family.policies.url(namespace.name), lines))
    return show(request, "administration/policies", {"section": "administration", "tab": "policies", "groups": groups})
