"""Purges messages after a confirmation that shows which and how many, since it cannot be undone."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from broker_core import reads, service_bus
from broker_core.common.types import EntityAddress, Right
from broker_core.reads import Counts, Tab
from broker_core.service_bus import preview
from explorer.shared.actions import selected_numbers
from explorer.shared.forms.typed_name import TypedNameForm
from explorer.shared.presenters import numbered, plural
from explorer.shared.shell import Act, about, act, address_of, page, show

TABS = {
    Tab.ALL: "present",
    Tab.ACTIVE: "active",
    Tab.DEFERRED: "deferred",
    Tab.SCHEDULED: "scheduled",
    Tab.DEAD_LETTER: "dead-lettered",
}


@page
@require_http_methods(["GET", "POST"])
def purge(request: HttpRequest, tab: str, namespace: str, path: str) -> HttpResponse:
    """GET asks to confirm purging a list, or with `?session=` one session of it; POST with numbers asks about these messages;
    POST with `confirmed` or the typed name purges."""
    if tab not in TABS:
        raise Http404(f"{tab} cannot be purged")
    tab = Tab(tab)
    main = address_of(namespace, path)
    request.actor.require(Right.OPERATE, main)
    entity = reads.entity(main, actor=request.actor)
    numbers = selected_numbers(request.POST.getlist("numbers")) if "numbers" in request.POST else None
    if request.method == "POST" and numbers is not None and "confirmed" not in request.POST:
        return _ask(request, entity, tab, numbers)
    given = request.POST if request.method == "POST" else request.GET
    session = given.get("session", "") or None if numbers is None else None
    if request.method != "POST":
        return _ask(request, entity, tab, None, session)
    form = None if numbers else TypedNameForm(request.POST, expected=entity.address.name)
    if form is not None and not form.is_valid():
        return _ask(request, entity, tab, None, session, form=form, status=400)
    address = EntityAddress(entity.address.namespace, entity.address.path, tab.subqueue)
    target = numbered(numbers) if numbers else f"all {TABS[tab]}{f' of session {session}' if session else ''}"
    done = act(
        request, "purge", address, target=target, says=lambda count: f"Purged {plural(count, 'message')}.",
        call=lambda: service_bus.purge(
            address, states=tab.states, sequence_numbers=numbers, session_id=session, actor=request.actor
        ),
    )  # fmt: skip
    if done.error:
        return _ask(request, entity, tab, numbers, session, done=done, status=done.status)
    if numbers and done.result < len(numbers):
        skipped = len(numbers) - done.result
        messages.warning(
            request,
            f"{skipped} of the {len(numbers)} selected messages were not purged: they are locked or no longer in the queue.",
        )
    url = reverse("explorer:entity", args=(main.namespace, main.path))
    return HttpResponseRedirect(f"{url}?tab={tab}")


def _ask(
    request: HttpRequest,
    entity: reads.EntityRow,
    tab: Tab,
    numbers: list[int] | None,
    session: str | None = None,
    *,
    form: TypedNameForm | None = None,
    done: Act = Act(),
    status: int = 200,
) -> HttpResponse:
    of_session = None if session is None else preview.preview_purge(
        EntityAddress(entity.address.namespace, entity.address.path, tab.subqueue), states=tab.states, session_id=session,
        actor=request.actor,
    )  # fmt: skip
    context = {
        **about(request, entity),
        "tab": tab,
        "kind": TABS[tab],
        "numbers": numbers,
        "session": session,
        "count": len(numbers)
        if numbers
        else of_session.count(preview.SettingsEffect.PURGED)
        if of_session
        else count_of(entity.counts, tab),
        "capped": bool(of_session and of_session.capped),
        "locked": 0 if numbers or session is not None else locked_of(entity.counts, tab),
        "form": form or TypedNameForm(expected=entity.address.name),
        "error": done.error,
    }
    return show(request, "service_bus/purge", context, fragment="service_bus/purge", status=status)


def count_of(counts: Counts, tab: Tab) -> int:
    """How many messages a purge of this list would remove now. Locked ones stay (SB-153)."""
    total = {
        Tab.ALL: counts.active + counts.deferred + counts.scheduled,
        Tab.ACTIVE: counts.active,
        Tab.DEFERRED: counts.deferred,
        Tab.SCHEDULED: counts.scheduled,
        Tab.DEAD_LETTER: counts.dead_letter,
    }
    return total[tab] - locked_of(counts, tab)


def locked_of(counts: Counts, tab: Tab) -> int:
    locked = {
        Tab.ALL: counts.locked + counts.deferred_locked,
        Tab.ACTIVE: counts.locked,
        Tab.DEFERRED: counts.deferred_locked,
        Tab.DEAD_LETTER: counts.dead_letter_locked,
    }
    return locked.get(tab, 0)
