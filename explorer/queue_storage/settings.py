"""Creates, changes and deletes storage queues."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods

from broker_core import queue_storage, reads
from broker_core.common.durations import human
from broker_core.common.types import EntityAddress, Family, HistoryLevel, Right
from broker_core.queue_storage.forms import QueueOptionsForm, as_lines
from broker_core.queue_storage.rules.options import from_json
from broker_core.queue_storage.rules.service_properties import Logging, Metrics
from explorer.frames.settings_page import SettingsPage, change_settings, delete_entity, proposed, to_entity
from explorer.frames.shell import act, address_of, page, show_form
from explorer.frames.well_known import used_first
from explorer.pages.revisions import revision_to_restore

from . import policy_forms
from .forms import NewQueueForm
from .policy_forms import QueueSettingsForm

LIMIT = "max_dequeue_count"  # that analyses propose
POLICIES = "access_policies"
LABELS = {name: field.label for name, field in QueueOptionsForm.base_fields.items()} | {POLICIES: "Access policies"}
SERVICE_LABELS = {
    "cors": "CORS rules", "logging": "Logging", "hour_metrics": "Hour metrics", "minute_metrics": "Minute metrics",
}  # fmt: skip


@page
@require_http_methods(["GET", "POST"])
def create(request: HttpRequest) -> HttpResponse:
    """`?namespace=` preselects the account."""
    names = [n.name for n in used_first(reads.namespaces(actor=request.actor)) if n.family is Family.QUEUE_STORAGE]
    request.actor.require(Right.MANAGE, ", ".join(names) or "storage accounts")
    data = request.POST if request.method == "POST" else None
    form = NewQueueForm(data, accounts=names, initial={"account": request.GET.get("namespace")})
    if not form.is_valid():
        return show_form(request, "queue_storage/queue_new", form)
    address = EntityAddress(form.cleaned_data["account"], form.cleaned_data["queue"])
    done = act(
        request, "create queue", address,
        lambda: queue_storage.create_queue(address, **form.options(), actor=request.actor), says=created,
    )  # fmt: skip
    return show_form(request, "queue_storage/queue_new", form, done=done) if done.error else to_entity(address)


def created(queue: queue_storage.StorageQueue) -> str:
    if queue.created:
        return f"Created the queue {queue.address}."
    return f"The queue {queue.address} already exists with the same metadata; nothing was changed (QS-085)."


def change(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    entity = reads.entity(address_of(namespace, path), actor=request.actor)
    address = entity.address
    request.actor.require(Right.MANAGE, address)
    stored = queue_storage.get_queue(address, actor=request.actor)
    revision = revision_to_restore(request, address)
    restored = _options_in(revision.columns) if revision else proposed(request, {LIMIT: QueueOptionsForm.base_fields[LIMIT]})
    initial = _as_initial({name: _stored(stored, name) for name in LABELS} | (restored or {}))
    form = QueueSettingsForm(request.POST if request.method == "POST" else None, initial=initial)
    page = SettingsPage(
        "queue_storage/queue_settings",
        LABELS,
        stored=lambda name: _stored(stored, name),
        in_words=lambda _, value: words(value),
        preview=lambda changes: queue_storage.preview_options(address, **changes, actor=request.actor),
        change=lambda changes, token: queue_storage.change_options(address, **changes, token=token, actor=request.actor),
    )
    return change_settings(request, entity, form, form.options, page, restored)


def delete(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    entity = reads.entity(address_of(namespace, path), actor=request.actor)
    address = entity.address
    request.actor.require(Right.MANAGE, address)
    return delete_entity(
        request, entity, typed=address.path, count=entity.counts.total,
        delete=lambda number: queue_storage.delete_queue(address, operation_id=number, actor=request.actor),
        after=reverse("explorer:namespace", args=(address.namespace,)),
    )  # fmt: skip


def words(value: Any) -> str:
    """The value of a setting in words."""
    match value:
        case None:
            return "none"
        case bool():
            return "yes" if value else "no"
        case dict():
            return ", ".join(f"{name}={text}" for name, text in value.items()) or "none"
        case tuple():
            return " | ".join(map(str, value)) or "none"
        case Logging() | Metrics():
            return str(value)
    return human(value) if hasattr(value, "total_seconds") else getattr(value, "name", str(value)).lower()


def _stored(queue: queue_storage.StorageQueue, name: str) -> Any:
    value = getattr(queue, name)
    return dict(value) if name == "metadata" else value


def _options_in(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The options in the columns of a revision."""
    options = from_json(columns["options"])
    values = {name: getattr(options, name) for name in LABELS if name != "history_level"}
    return values | {"metadata": dict(options.metadata), "history_level": HistoryLevel(columns["history_level"])}


def in_words(entity: reads.EntityRow, columns: Mapping[str, Any]) -> dict[str, str]:
    """The options of a revision in words, by their labels; each access policy has an entry of its own."""
    options = _options_in(columns)
    policies = policy_forms.in_words(options.pop(POLICIES))
    return {LABELS[name]: words(value) for name, value in options.items()} | policies


def setting_words(kind: str, name: str, value: Any) -> tuple[str, str]:
    """A setting of a queue, or a part of its account's service properties, in words."""
    return str((LABELS | SERVICE_LABELS).get(name, name.capitalize())), words(value)


def propose(entity: Any, lock: timedelta | None, deliveries: int | None, time_to_live: timedelta | None) -> str:
    """The URL that previews this maximum dequeue count. The other limits are given with each message or get."""
    address = reverse("explorer:entity_settings", args=(entity.namespace.name, entity.path))
    return f"{address}?{urlencode({LIMIT: deliveries})}" if deliveries else ""


def _as_initial(options: Mapping[str, Any]) -> dict:
    return {**options, "metadata": as_lines(options["metadata"]), "history_level": int(options["history_level"])}
