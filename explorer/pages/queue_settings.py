"""Create, change and delete queues."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from broker_core import entities, reads
from broker_core.semantics.durations import human
from broker_core.semantics.entity_settings import SERVICE_NAMES
from broker_core.semantics.errors import InvalidArgument
from broker_core.semantics.types import EntityAddress, QueueSettings, Right
from explorer.forms.queue import NewQueueForm, QueueSettingsForm, TypedNameForm
from explorer.pages.shell import Act, May, act, address_of, page


@page
@require_http_methods(["GET", "POST"])
def create(request: HttpRequest) -> HttpResponse:
    names = [n.name for n in reads.namespaces(actor=request.actor) if not n.is_system]
    request.actor.require(Right.MANAGE, ", ".join(names) or "namespaces")
    initial = _initial(QueueSettings()) | {"namespace": request.GET.get("namespace")}
    if request.method != "POST":
        return _show(request, "queue_new", NewQueueForm(namespaces=names, initial=initial))
    form = NewQueueForm(request.POST, namespaces=names)
    if not form.is_valid():
        return _show(request, "queue_new", form, status=400)
    address = EntityAddress(form.cleaned_data["namespace"], form.cleaned_data["path"])
    done = act(
        request, "create queue", address, lambda: entities.create_queue(address, **form.settings(), actor=request.actor),
        says=lambda queue: f"Created the queue {queue.address}.",
    )  # fmt: skip
    if done.error:
        return _show(request, "queue_new", form, done=done)
    return HttpResponseRedirect(reverse("explorer:queue", args=(address.namespace, address.path)))


@page
@require_http_methods(["GET", "POST"])
def change(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    queue = entities.get_queue(address_of(namespace, path), actor=request.actor)
    request.actor.require(Right.MANAGE, queue.address)
    current = _initial(queue.settings)
    if request.method != "POST":
        return _show(request, "queue_settings", QueueSettingsForm(initial=current), address=queue.address)
    form = QueueSettingsForm(request.POST, initial=current)
    if not form.is_valid():
        return _show(request, "queue_settings", form, address=queue.address, status=400)
    changes = {name: value for name, value in form.settings().items() if value != getattr(queue.settings, name)}
    done = act(
        request, "change settings", queue.address, lambda: entities.update_queue(queue.address, **changes, actor=request.actor),
        target=", ".join(SERVICE_NAMES.get(name, name) for name in changes), says=lambda _: changed(queue.settings, changes),
    )  # fmt: skip
    if done.error:
        return _show(request, "queue_settings", form, done=done, address=queue.address)
    return HttpResponseRedirect(reverse("explorer:queue", args=(queue.address.namespace, queue.address.path)))


@page
@require_http_methods(["GET", "POST"])
def delete(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    entity = reads.entity(address_of(namespace, path), actor=request.actor)
    address = entity.address
    request.actor.require(Right.MANAGE, address)
    form = TypedNameForm(request.POST or None, expected=address.path)
    context = {"address": address, "entity": entity, "clock": entity.clock}
    if request.method != "POST":
        return _show(request, "queue_delete", form, **context)
    if not form.is_valid():
        return _show(request, "queue_delete", form, status=400, **context)
    done = act(
        request, "delete queue", address, lambda: entities.delete_queue(address, actor=request.actor),
        says=lambda _: f"Deleted the queue {address} with {entity.counts.total:,} messages.",
    )  # fmt: skip
    if done.error:
        return _show(request, "queue_delete", form, done=done, **context)
    return HttpResponseRedirect(reverse("explorer:namespace", args=(address.namespace,)))


def changed(before: QueueSettings, changes: dict) -> str:
    """What was changed, from what to what: also what the audit keeps."""
    if not changes:
        return "Nothing was changed."
    parts = [
        f"{SERVICE_NAMES.get(name, name)} from {_shown(getattr(before, name))} to {_shown(value)}"
        for name, value in changes.items()
    ]
    return f"Changed {', '.join(parts)}."


def _shown(value) -> str:
    return human(value) if value is None or hasattr(value, "total_seconds") else str(value)


def _initial(settings: QueueSettings) -> dict:
    values = {name: getattr(settings, name) for name in QueueSettings.__slots__}
    never = {name: "never" for name in ("default_message_time_to_live", "auto_delete_on_idle") if values[name] is None}
    return values | never | {"history_level": int(settings.history_level)}


def _show(request: HttpRequest, name: str, form, *, done: Act = Act(), status: int | None = None, **context) -> HttpResponse:
    if isinstance(done.error, InvalidArgument) and done.error.name in form.fields:
        form.add_error(done.error.name, done.error.problem)
    context |= {"section": "overview", "form": form, "error": done.error, "may": May(request.actor.rights)}
    return render(request, f"explorer/{name}.html", context, status=status or done.status)
