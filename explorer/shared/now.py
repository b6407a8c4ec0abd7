"""Now, the first page: what the broker does at this moment, and what needs a person."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from broker_core import reads
from broker_core.reads import EntityFilter
from explorer.live.page import Live, live

from . import overview
from .shell import page, show

TOTALS_SECONDS = 1.0  # between two drawings


@live
@page
@require_GET
def now(request: HttpRequest) -> HttpResponse:
    found = reads.tallies(EntityFilter(), actor=request.actor)
    context = {
        "section": "now",
        "found": found,
        "totals": overview.totals(found.rows, overview.figures_of(None, found.rows)),
    }
    return show(request, "now", context, live=Live({"explorer/_now.html": TOTALS_SECONDS}))
