"""Create, change and delete storage queues."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from broker_core import queue_storage, reads
from broker_core.common.durations import human
from broker_core.common.errors import BrokerError, InvalidArgument, WorldMoved
from broker_core.common.types import Actor, EntityAddress, Family, Right
from broker_core.queue_storage.forms import QueueOptionsForm, as_lines
from broker_core.runtime.previews import Preview
from explorer.shared.forms.typed_name import TypedNameForm
from explorer.shared.presenters import effects_told
from explorer.shared.shell import Act, May, act, address_of, page

from .forms import NewQueueForm

LABELS = {name: field.label for name, field in QueueOptionsForm.base_fields.items()}


@page
@require_http_methods(["GET", "POST"])
def create(request: HttpRequest) -> HttpResponse:
    """`?namespace=` chooses the account."""
    names = [n.name for n in reads.namespaces(actor=request.actor) if n.family is Family.QUEUE_STORAGE]
    request.actor.require(Right.MANAGE, ", ".join(names) or "storage accounts")
    data = request.POST if request.method == "POST" else None
    form = NewQueueForm(data, accounts=names, initial={"account": request.GET.get("namespace")})
    context: dict[str, Any] = {}
    if not form.is_valid():
        return _show(request, "queue_new", form, status=400 if form.is_bound else 200, **context)
    address = EntityAddress(form.cleaned_data["account"], form.cleaned_data["queue"])
    done = act(
        request, "create queue", address,
        lambda: queue_storage.create_queue(address, **form.options(), actor=request.actor), says=created,
    )  # fmt: skip
    return _show(request, "queue_new", form, done=done, **context) if done.error else _go(address)


def created(queue: queue_storage.StorageQueue) -> str:
    if queue.created:
        return f"Created the queue {queue.address}."
    return f"The queue {queue.address} already exists with the same metadata; nothing was changed (QS-085)."


def change(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    entity = reads.entity(address_of(namespace, path), actor=request.actor)
    address = entity.address
    request.actor.require(Right.MANAGE, address)
    stored = queue_storage.get_queue(address, actor=request.actor)
    form = QueueOptionsForm(request.POST if request.method == "POST" else None, initial=_initial(stored))
    context: dict[str, Any] = {"entity": entity, "address": address, "clock": entity.clock}
    if not form.is_valid():
        return _show(request, "queue_settings", form, status=400 if form.is_bound else 200, **context)
    changes = {name: value for name, value in form.options().items() if value != _stored(stored, name)}
    if "preview" in request.POST:
        return _show(request, "queue_settings", form, **_previewed(address, changes, request.actor), **context)
    done = act(
        request, "change settings", address,
        lambda: queue_storage.change_options(
            address, **changes, token=request.POST.get("token") or None, actor=request.actor
        ),
        target=", ".join(LABELS[name] for name in changes), says=lambda told: changed(stored, changes, told),
    )  # fmt: skip
    if isinstance(done.error, WorldMoved):
        context |= _previewed(address, changes, request.actor)
    return _show(request, "queue_settings", form, **{"done": done, **context}) if done.error else _go(address)


def delete(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    entity = reads.entity(address_of(namespace, path), actor=request.actor)
    address, count = entity.address, entity.counts.total
    request.actor.require(Right.MANAGE, address)
    form = TypedNameForm(request.POST or None, expected=address.path)
    context: dict[str, Any] = {"address": address, "entity": entity, "clock": entity.clock, "count": count}
    if not form.is_valid():
        return _page(request, "explorer/entity_delete.html", form, status=400 if form.is_bound else 200, **context)
    done = act(
        request, "delete queue", address, lambda: queue_storage.delete_queue(address, actor=request.actor),
        says=lambda _: f"Deleted the queue {address} with {count:,} messages.",
    )  # fmt: skip
    if done.error:
        return _page(request, "explorer/entity_delete.html", form, done=done, **context)
    return HttpResponseRedirect(reverse("explorer:namespace", args=(address.namespace,)))


def _previewed(address: EntityAddress, changes: Mapping[str, Any], actor: Actor) -> dict[str, Any]:
    """What the changes would do now, for the page; or why they are refused."""
    try:
        return {"previewed": queue_storage.preview_options(address, **changes, actor=actor)}
    except BrokerError as exc:
        return {"done": Act(error=exc)}


def changed(before: queue_storage.StorageQueue, changes: Mapping[str, Any], told: Preview) -> str:
    """What was changed, from what to what, and what that does to messages: also what the audit keeps."""
    if not changes:
        return "Nothing was changed."
    parts = [f"{LABELS[name]} from {_words(_stored(before, name))} to {_words(value)}" for name, value in changes.items()]
    return f"Changed {', '.join(parts)}. {effects_told(told.effects)}"


def _words(value: Any) -> str:
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case dict():
            return ", ".join(f"{name}={text}" for name, text in value.items()) or "none"
    return human(value) if hasattr(value, "total_seconds") else getattr(value, "name", str(value)).lower()


def _stored(queue: queue_storage.StorageQueue, name: str) -> Any:
    value = getattr(queue, name)
    return dict(value) if name == "metadata" else value


def _initial(queue: queue_storage.StorageQueue) -> dict:
    given = {name: getattr(queue, name) for name in LABELS}
    return given | {"metadata": as_lines(queue.metadata), "history_level": int(queue.history_level)}


def _go(address: EntityAddress) -> HttpResponse:
    return HttpResponseRedirect(reverse("explorer:entity", args=(address.namespace, address.path)))


def _show(request: HttpRequest, name: str, form, **context) -> HttpResponse:
    return _page(request, f"explorer/queue_storage/{name}.html", form, **context)


def _page(request: HttpRequest, template: str, form, *, done: Act = Act(), status: int | None = None, **context) -> HttpResponse:
    if isinstance(done.error, InvalidArgument) and done.error.name in form.fields:
        form.add_error(done.error.name, done.error.problem)
    context |= {"section": "overview", "form": form, "error": done.error, "may": May(request.actor.rights)}
    return render(request, template, context, status=status or done.status)
