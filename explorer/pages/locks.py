"""The page of all locks, leases, unacknowledged deliveries and held sessions: who holds what, and releasing it."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from broker_core import reads
from broker_core.common.errors import InvalidArgument
from broker_core.reads import LockFilter
from explorer import sandbox_names
from explorer.frames import connections, entity_conditions, releasing, view_menu
from explorer.frames.forms.queries import LockQuery
from explorer.frames.shell import Act, cleaned, page, show, shown_or_acted_on, targets
from explorer.frames.view_menu import ViewMenu
from explorer.frames.vocabularies import LOCKS
from explorer.frames.vocabulary import Terms, TermsField, canonical, field_of
from explorer.live.page import Live, live

from .navigation import COUNTS

RELEASE_ALL = (
    "Every lock that this filter shows ends now. Each delivery counts as failed in the families that count failed deliveries."
)
SECONDS = 1.0  # a lock of any entity may begin or end: they are read so often


@live
@page
@require_http_methods(["GET", "POST"])
def locks(request: HttpRequest) -> HttpResponse:
    """GET shows the locks; POST releases one, or all that match the filter."""
    if redirect := canonical(request, LOCKS):
        return redirect
    query, field = cleaned(LockQuery(request.GET)), field_of(request, LOCKS)
    hidden = sandbox_names.hidden_sandboxes(request.user, request.actor, own=query["all"])
    lock_filter = _filter(field.terms, include_system=query["all"], except_namespaces=hidden)
    return shown_or_acted_on(
        request,
        lambda done=Act(): _show(request, field, query, lock_filter, done),
        lambda: Act(error=InvalidArgument("q", field.problem.text)) if field.problem else _release(request, lock_filter),
    )


def _show(request: HttpRequest, field: TermsField, query: dict[str, Any], lock_filter: LockFilter, done: Act) -> HttpResponse:
    context = {
        "section": "locks",
        "filter": field,
        "query": query,
        "view": ViewMenu("held-locks", hidden=view_menu.hidden(request.GET, is_shown=query["all"])),
        "error": done.error,
    }
    if not field.problem:
        locks = reads.locks(lock_filter, cursor=query["cursor"] or None, actor=request.actor)
        context |= {
            "own_count": None if field else locks.matching.value,
            "locks": locks,
            "connected": connections.urls_of_holders((lock.holder for lock in locks.rows), request.actor),
            "holders": [(holder, field.narrowed(request.GET, "holder", holder.name)) for holder in locks.holders],
            "release_all_says": RELEASE_ALL,
            "most_released": releasing.MOST_RELEASED,
        }  # fmt: skip
    parts = {} if field.problem else {"explorer/_locks.html": 0.0, COUNTS: 0.0}
    fragment = "_locks" if targets(request, "locks") else "_lock_list"
    return show(
        request, "locks", context, fragment=fragment, status=field.status if field.problem else done.status,
        live=Live(parts, refresh_seconds=SECONDS, personal=True),  # own locks differ
    )  # fmt: skip


def _filter(terms: Terms, **others: Any) -> LockFilter:
    """Vitrine's own entities are left out unless they are asked for, and so are some sandboxes."""
    return LockFilter(entity_conditions.filter_of(terms, include_hidden=True, **others), terms.get("holder") or "")


def _release(request: HttpRequest, lock_filter: LockFilter) -> Act:
    if request.POST.get("action") == "release-all":
        return releasing.release_all(request, lock_filter)
    return releasing.release_posted(request)
