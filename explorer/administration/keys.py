"""What programs sign in with, in all families. The page of one is the family's own."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from broker_core.common.types import Right
from explorer.frames.family import installed
from explorer.frames.shell import page, show


@page
@require_GET
def keys(request: HttpRequest) -> HttpResponse:
    """Without Right.MANAGE, the page says so instead."""
    may_manage = Right.MANAGE in request.actor.rights
    groups = [
        (family, family.keys, family.keys.lines(request.actor) if may_manage else []) for family in installed() if family.keys
    ]
    return show(request, "administration/keys", {"section": "administration", "tab": "keys", "groups": groups})
