"""The page of all locks, leases, unacknowledged deliveries and held sessions: who holds what, and releasing it."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from broker_core import reads
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import EntityAddress, Family
from broker_core.reads import EntityFilter, LockFilter
from explorer import sandbox_names
from explorer.frames import releasing
from explorer.frames.forms.queries import LockQuery
from explorer.frames.shell import Act, cleaned, page, show, shown_or_acted_on
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
    form = LockQuery(request.GET)
    query = cleaned(form)
    lock_filter = _filter(query, sandbox_names.hidden_sandboxes(request.user, request.actor, own=query["all"]))
    return shown_or_acted_on(
        request, lambda done=Act(): _show(request, form, query, lock_filter, done), lambda: _release(request, lock_filter)
    )


def _show(request: HttpRequest, form: LockQuery, query: dict[str, Any], lock_filter: LockFilter, done: Act) -> HttpResponse:
    locks = reads.locks(lock_filter, cursor=query["cursor"] or None, actor=request.actor)
    filtered = any(query[name] for name in ("holder", "q", "family"))
    context = {
        "section": "locks",
        "own_count": None if filtered else locks.matching.value,
        "form": form,
        "query": query,
        "locks": locks,
        "filtered": filtered,
        "release_all_says": RELEASE_ALL,
        "most_released": releasing.MOST_RELEASED,
        "error": done.error,
    }
    live_parts = Live({"explorer/_locks.html": 0.0, COUNTS: 0.0}, refresh_seconds=SECONDS, personal=True)  # own locks differ
    return show(request, "locks", context, status=done.status, live=live_parts)


def _filter(query: dict[str, Any], hidden: tuple[str, ...]) -> LockFilter:
    """Vitrine's own entities are left out unless they are asked for. hidden: sandboxes that are left out, too."""
    entities = EntityFilter(
        family=Family(query["family"]) if query["family"] else None,
        part=query["q"].strip().lower().replace("/subscriptions/", "/"),
        include_hidden=True,
        include_system=query["all"],
        except_namespaces=hidden,
    )
    return LockFilter(entities, query["holder"].strip())


def _release(request: HttpRequest, lock_filter: LockFilter) -> Act:
    data = request.POST
    if data.get("action") == "release-all":
        return releasing.release_all(request, lock_filter)
    address = EntityAddress(data.get("namespace", ""), data.get("path", ""))
    number = data.get("number", "")
    if number.isascii() and number.isdigit() and len(number) <= 18:
        return releasing.release_message(request, address, int(number))
    if data.get("session"):
        return releasing.release_session(request, address, data["session"])
    return Act(error=InvalidArgument("number", "must be the number of a locked message"))
