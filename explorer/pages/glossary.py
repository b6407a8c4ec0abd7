"""The glossary, the second tab of Learn, and the page of keyboard shortcuts."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from explorer.frames.glossary import TERMS
from explorer.frames.shell import page, show

from .attention import RULES

FILTER_EXAMPLES = (
    ("order-47", "contained in the message id, correlation id, subject, session id, or dead-letter reason or description"),
    ("id:order-47", "contained in the message id; id= for the whole id. Also subject, correlation, session, reason, description"),
    ("reason=TTL*", "a dead-letter reason that begins with TTL"),
    ("prop.tenant:acme", "an application property or header; also = > >= < <=. prop.tenant alone: has the property"),
    ("held-by:worker", "the holder of the lock; held-by:* for any"),
    ('body:"net total"', "text in the body, with this case"),
    ("$.order.id>4700", "a value in a JSON body; also : = >= < <=, and $.items[*].sku"),
    ("state:dead", "active, locked, deferred, scheduled, dead, expired; in the search also gone"),
    ("age>1h", "time since arrival; also age<30m, age:1h..2h, and dead-age since dead-lettering"),
    ("at:09:00..09:30", "time of arrival; also at:2026-11-22, at>2026-11-22T09:00, and dead-at for dead-lettering"),
    ("number>700", "sequence number; also deliveries, priority, and size>10KB"),
    ("-id:test", "not: messages that do not match id:test"),
)


@page
@require_GET
def glossary(request: HttpRequest) -> HttpResponse:
    context = {"section": "help", "rules": RULES, "filter_examples": FILTER_EXAMPLES, **TERMS}
    return show(request, "glossary", context, fragment="glossary")


@page
@require_GET
def keys(request: HttpRequest) -> HttpResponse:
    """The keyboard shortcuts. next: the page to return to from their switch."""
    return show(request, "keys", {"section": "help", "next": request.GET.get("next", "")})
