"""Clears a storage queue or removes selected messages, after a confirmation, since neither can be undone."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from broker_core import queue_storage, reads
from broker_core.common.types import Right
from broker_core.reads import EntityRow
from explorer.shared.actions import selected_numbers
from explorer.shared.forms.typed_name import TypedNameForm
from explorer.shared.presenters import numbered, plural
from explorer.shared.shell import Act, about, act, address_of, show

from . import counts
from .queue import left, named


def clear(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """GET asks to confirm clearing the queue; POST with numbers asks about these; POST with `confirmed` or the name removes."""
    address = address_of(namespace, path)
    request.actor.require(Right.OPERATE, address)
    entity = reads.entity(address, actor=request.actor)
    if request.method != "POST":
        return _ask(request, entity)
    numbers = selected_numbers(request.POST.getlist("numbers")) if "numbers" in request.POST else None
    if numbers is not None:
        return _remove(request, entity, numbers) if "confirmed" in request.POST else _ask(request, entity, numbers)
    form = TypedNameForm(request.POST, expected=entity.address.path)
    if not form.is_valid():
        return _ask(request, entity, form=form, status=400)
    done = act(
        request, "clear", entity.address, lambda: queue_storage.clear(entity.address, actor=request.actor), target="all messages",
        says=lambda count: f"Cleared {plural(count, 'message')}.",
    )  # fmt: skip
    return _ask(request, entity, done=done, status=done.status) if done.error else _to_queue(entity)


def _remove(request: HttpRequest, entity: EntityRow, numbers: list[int]) -> HttpResponse:
    done = act(
        request, "remove", entity.address, lambda: queue_storage.remove(entity.address, numbers, actor=request.actor),
        target=numbered(numbers), says=lambda removed: _removed(removed, numbers),
    )  # fmt: skip
    return _ask(request, entity, numbers, done=done, status=done.status) if done.error else _to_queue(entity)


def _removed(done: list[int], asked: list[int]) -> str:
    said = f"Removed {named(done)}." if done else "No messages were removed."
    return said + left([n for n in asked if n not in done], "no longer in the queue")


def _to_queue(entity: EntityRow) -> HttpResponse:
    return HttpResponseRedirect(reverse("explorer:entity", args=(entity.address.namespace, entity.address.path)))


def _ask(
    request: HttpRequest,
    entity: EntityRow,
    numbers: list[int] | None = None,
    *,
    form: TypedNameForm | None = None,
    done: Act = Act(),
    status: int = 200,
) -> HttpResponse:
    context = {
        **about(request, entity),
        "numbers": numbers,
        "count": len(numbers) if numbers else entity.counts.active,
        "delayed": counts.delayed(entity),
        "leased": counts.leased(entity),
        "form": form or TypedNameForm(expected=entity.address.path),
        "error": done.error,
    }
    return show(request, "queue_storage/clear", context, fragment="queue_storage/clear", status=status)
