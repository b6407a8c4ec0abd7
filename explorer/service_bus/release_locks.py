"""Releases all locks of an entity, as a service update does, so that operators can test how clients react (SB-073)."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from broker_core import reads, service_bus
from broker_core.common.types import Right
from explorer.frames.presenters import plural
from explorer.frames.shell import Act, about, act, address_of, page, show


@page
@require_http_methods(["GET", "POST"])
def release_locks(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """GET asks for confirmation; POST releases the locks."""
    entity = reads.entity(address_of(namespace, path), actor=request.actor)
    address = entity.address
    request.actor.require(Right.OPERATE, address)
    if request.method != "POST":
        return _ask(request, entity)
    done = act(
        request, "release locks", address, lambda: service_bus.drop_locks(address, actor=request.actor),
        says=lambda count: f"Ended {plural(count, 'lock')} on {address}.",
    )  # fmt: skip
    if done.error:
        return _ask(request, entity, done)
    return HttpResponseRedirect(reverse("explorer:entity", args=(address.namespace, address.path)))


def _ask(request: HttpRequest, entity: reads.EntityRow, done: Act = Act()) -> HttpResponse:
    counts = entity.counts
    context = {
        **about(request, entity),
        "locked": counts.locked + counts.deferred_locked + counts.dead_letter_locked,
        "error": done.error,
    }
    return show(request, "service_bus/release_locks", context, fragment="service_bus/release_locks", status=done.status)
