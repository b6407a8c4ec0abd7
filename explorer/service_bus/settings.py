"""Creates, changes and deletes queues, topics and subscriptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods

from broker_core import reads
from broker_core.common.durations import human
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import Actor, EntityAddress, EntityKind, EntityStatus, ExpiryMode, Family, HistoryLevel, Right
from broker_core.service_bus import entities, preview
from broker_core.service_bus.rules.entity_settings import (
    BY_BEHAVIOUR,
    FIXED,
    KEPT,
    MAY_BE_NEVER,
    SERVICE_NAMES,
    SETTINGS_OF,
    SETTINGS_TYPE,
)
from broker_core.service_bus.rules.filters import Rule, compile_filter, filter_from_json
from explorer.frames.settings_page import SettingsPage, change_settings, delete_entity, proposed
from explorer.frames.shell import Act, act, address_of, page, show_form
from explorer.frames.well_known import used_first
from explorer.pages.revisions import revision_to_restore
from explorer.service_bus.forms.entity import EntitySettingsForm, NewEntityForm, NewSubscriptionForm

from . import kept_properties, names
from .kept_properties import TITLE, kept_of
from .presenters import filter_text

FIRST_RULE = "Filter"
LIMITS = ("lock_duration", "max_delivery_count", "default_message_time_to_live")  # that analyses propose
_FIELDS = {"subscription": "name"}  # argument names of errors whose form field has another name


@page
@require_http_methods(["GET", "POST"])
def create(request: HttpRequest, kind: str) -> HttpResponse:
    """`?namespace=` and `?topic=namespace/path` fill the form."""
    if kind not in list(EntityKind):
        raise Http404(f"{kind} is not a kind of entity")
    kind = EntityKind(kind)
    form = _new_form(request, kind)
    if not form.is_valid():
        return _show(request, form, kind=kind)
    address = _new_address(form)
    done = act(
        request, f"create {kind}", address, lambda: _create(address, form, request.actor),
        says=lambda created: f"Created the {kind} {created.address}.",
    )  # fmt: skip
    if done.error:
        return _show(request, form, done=done, kind=kind)
    return HttpResponseRedirect(reverse("explorer:entity", args=(address.namespace, address.path)))


def _new_form(request: HttpRequest, kind: EntityKind) -> NewEntityForm | NewSubscriptionForm:
    namespaces = used_first(reads.namespaces(actor=request.actor))
    writable = [n.name for n in namespaces if not n.is_system and n.family is Family.SERVICE_BUS]
    request.actor.require(Right.MANAGE, ", ".join(writable) or "namespaces")
    data = request.POST if request.method == "POST" else None
    query = request.GET if data is None else data
    initial = _initial(SETTINGS_TYPE[kind]()) | {"namespace": request.GET.get("namespace"), "topic": request.GET.get("topic")}
    if kind == EntityKind.SUBSCRIPTION:
        topics, more = names.topics("", names.MOST_LISTED, request.actor)
        namespace = (query.get("topic") or next(iter(topics), "")).partition("/")[0]
        topics_at = reverse("explorer:names", args=("topics",)) if more else None
        common = {"initial": initial, **_completion(namespace, request.actor)}
        return NewSubscriptionForm(data, topics=topics, topics_at=topics_at, **common)
    namespace = query.get("namespace") or next(iter(writable), "")
    return NewEntityForm(data, kind=kind, namespaces=writable, initial=initial, **_completion(namespace, request.actor))


def _completion(namespace: str, actor: Actor, existing: EntityAddress | None = None) -> dict:
    """Suggestions of the forwarding fields. A new entity's form sends its namespace itself; for others it is in the URL."""
    at, but = reverse("explorer:names", args=("targets",)), existing.path if existing else None
    return {
        "targets": names.targets("", namespace, names.MOST_LISTED, actor, but=but),
        "names_at": f"{at}?{urlencode({'namespace': namespace, 'but': but})}" if existing else at,
    }


def _new_address(form: NewEntityForm | NewSubscriptionForm) -> EntityAddress:
    values = form.cleaned_data
    if form.kind == EntityKind.SUBSCRIPTION:
        return EntityAddress.parse(values["topic"]).subscription(values["name"])
    return EntityAddress(values["namespace"], values["path"])


def _create(address: EntityAddress, form: NewEntityForm | NewSubscriptionForm, actor: Any) -> Any:
    defaults = SETTINGS_TYPE[form.kind]()
    # Settings that are not changed get the tier's default.
    settings = {name: value for name, value in form.settings().items() if value != getattr(defaults, name)}
    match form.kind:
        case EntityKind.QUEUE:
            return entities.create_queue(address, **settings, actor=actor)
        case EntityKind.TOPIC:
            return entities.create_topic(address, **settings, actor=actor)
        case EntityKind.SUBSCRIPTION:
            text = form.cleaned_data["filter"]
            rule = Rule(FIRST_RULE, compile_filter(text)) if text else None
            return entities.create_subscription(address, rule=rule, **settings, actor=actor)


@page
@require_http_methods(["GET", "POST"])
def change(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    entity = reads.entity(address_of(namespace, path), actor=request.actor)
    request.actor.require(Right.MANAGE, entity.address)
    stored = entities.get_entity(entity.address, actor=request.actor)
    revision = revision_to_restore(request, entity.address)
    restored = _settings_in(revision.columns, entity.kind) if revision else _proposed(request, entity.kind)
    settings = replace(stored.settings, **restored or {})
    form = EntitySettingsForm(
        request.POST if request.method == "POST" else None,
        kind=entity.kind, existing=True, initial=_initial(settings),
        **_completion(entity.address.namespace, request.actor, entity.address),
    )  # fmt: skip
    frame = SettingsPage(
        "service_bus/entity_settings",
        SERVICE_NAMES,
        stored=partial(getattr, stored.settings),
        in_words=_in_words,
        preview=lambda changes: preview.preview(entity.address, **changes, actor=request.actor),
        change=lambda changes, token: preview.change(entity.address, **changes, token=token, actor=request.actor),
    )
    form.kept = kept_of(entity.kind, settings.kept_properties)
    return change_settings(request, entity, form, lambda: form.settings() | {KEPT: settings.kept_properties}, frame, restored)


@page
@require_http_methods(["GET", "POST"])
def delete(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    entity = reads.entity(address_of(namespace, path), actor=request.actor)
    address = entity.address
    request.actor.require(Right.MANAGE, address)
    return delete_entity(
        request, entity, typed=address.name, count=_messages_of(request, entity),
        delete=lambda number: entities.delete_entity(address, operation_id=number, actor=request.actor),
        after=_after_deleting(address),
    )  # fmt: skip


def _after_deleting(address: EntityAddress) -> str:
    if address.topic:
        return reverse("explorer:entity", args=(address.namespace, address.topic.path))
    return reverse("explorer:namespace", args=(address.namespace,))


def _messages_of(request: HttpRequest, entity: reads.EntityRow) -> int:
    """How many messages are deleted with the entity; for a topic, also those of its subscriptions."""
    if entity.kind != EntityKind.TOPIC:
        return entity.counts.total
    try:
        subscriptions = reads.subscriptions(entity.address, actor=request.actor)
    except EntityNotFound:  # deleted in the meantime
        subscriptions = []
    return sum(row.counts.total for row in [entity, *subscriptions])


def _in_words(name: str, value: Any) -> str:
    if value is None and name in BY_BEHAVIOUR:
        return "as the namespace behaves"
    if name == KEPT:
        return kept_properties.in_words(value)
    if value is None and name not in MAY_BE_NEVER:
        return "nothing"
    return human(value) if value is None or hasattr(value, "total_seconds") else str(value)


def _settings_in(columns: Mapping[str, Any], kind: EntityKind) -> dict[str, Any]:
    """The settings in the columns of a revision; those that are fixed when an entity is created are left out."""
    types = {"status": EntityStatus, "expiry_mode": ExpiryMode, "history_level": HistoryLevel}
    names = [name for name in SETTINGS_OF[kind] if name in columns and name not in FIXED]
    return {name: types[name](columns[name]) if name in types and columns[name] is not None else columns[name] for name in names}


def _proposed(request: HttpRequest, kind: EntityKind) -> dict[str, Any] | None:
    """The limits that the query proposes."""
    fields = EntitySettingsForm.base_fields
    return proposed(request, {name: fields[name] for name in LIMITS if name in SETTINGS_OF[kind]})


def propose(entity: Any, lock: timedelta | None, deliveries: int | None, time_to_live: timedelta | None) -> str:
    """The URL that previews these limits."""
    texts = (lock and human(lock), deliveries, time_to_live and human(time_to_live))
    query = {name: text for name, text in zip(LIMITS, texts, strict=True) if text}
    address = reverse("explorer:entity_settings", args=(entity.namespace.name, entity.path))
    return f"{address}?{urlencode(query)}" if query else ""


def in_words(entity: reads.EntityRow, columns: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a revision in words, by their Azure names."""
    settings = _settings_in(columns, entity.kind)
    names = SERVICE_NAMES | {KEPT: TITLE}
    return {names[name]: _in_words(name, value) for name, value in settings.items() if name != "status"}


def setting_words(kind: str, name: str, value: Any) -> tuple[str, str]:
    """A setting of an entity, rule or shared-access policy in words."""
    if kind in list(EntityKind):
        if value is not None and name == "history_level":
            value = HistoryLevel(value).name.lower()
        return SERVICE_NAMES.get(name, name), _in_words(name, value)
    if name == "filter":
        return "Filter", filter_text(filter_from_json(value))[0] if value else "none"
    if name == "action":
        return "Action", value["expression"] if value else "none"
    return name.capitalize(), "yes" if value else "no"


def _initial(settings: Any) -> dict:
    values = asdict(settings)
    never = {name: "never" for name in MAY_BE_NEVER if name in values and values[name] is None}
    return values | never | {"history_level": int(settings.history_level)}


def _show(request: HttpRequest, form, *, done: Act = Act(), **context) -> HttpResponse:
    if isinstance(done.error, EntityNotFound) and "topic" in form.fields:
        form.add_error("topic", "This topic does not exist.")
    return show_form(request, "service_bus/entity_new", form, done=done, fields=_FIELDS, **context)
