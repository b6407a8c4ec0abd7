"""Admin pages of namespaces with their clocks, and of entities."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import Count, Q

from broker_core import namespaces
from broker_core.common.durations import human
from broker_core.common.family import definition_of
from broker_core.common.types import Behaviour, EntityKind, Family
from broker_core.model_admin import UseCaseAdmin, actor_of, address_of, entity_parts
from broker_core.models import Entity, Namespace
from broker_core.service_bus import entities
from broker_core.service_bus.forms import FORM_SETTINGS
from broker_core.service_bus.rules.entity_settings import DURATIONS, FIXED, SETTINGS_OF, default_settings
from broker_core.service_bus.rules.kept_properties import effective_kept
from broker_core.store.use_cases import UseCase

from .forms import OTHER_QUEUES, EntityForm, NamespaceForm


@admin.register(Namespace)
class NamespaceAdmin(UseCaseAdmin):
    form = NamespaceForm
    list_display = ["name", "family", "description", "tier", "entity_count", "clock_shows", "is_system"]
    list_filter = ["family", "tier"]
    search_fields = ["name", "description"]
    actions = ["pause", "run", "step_a_minute", "step_an_hour", "step_a_day"]

    def get_fieldsets(self, request, obj=None):
        if obj is None:
            return [(None, {"fields": ["new_family", "name", "description", "tier", "behaviour"]})]
        tier = ["tier", "behaviour"] if obj.family == Family.SERVICE_BUS else []
        fields = [
            "name",
            "family",
            "description",
            *tier,
            "max_size_in_megabytes",
            "archive_days",
            "is_system",
            "created_at",
            "clock_shows",
        ]
        main_fieldset = (None, {"fields": fields})
        return [main_fieldset] if obj.is_system else [main_fieldset, ("Clock", {"fields": ["step", "clock", "rate"]})]

    def get_readonly_fields(self, request, obj=None):
        return ["name", "family", "is_system", "created_at", "clock_shows"] if obj else []

    def get_queryset(self, request):
        present = Count("entities", filter=Q(entities__deleted_at=None))
        return super().get_queryset(request).filter(deleted_at=None).annotate(present=present)

    def has_change_permission(self, request, obj=None):
        return super().has_change_permission(request, obj) and not (obj and obj.is_system)

    def has_delete_permission(self, request, obj=None):
        return super().has_delete_permission(request, obj) and not (obj and obj.is_system)

    @admin.display(description="entities", ordering="present")
    def entity_count(self, obj):
        return obj.present

    @admin.display(description="clock")
    def clock_shows(self, obj):
        clock = namespaces.get_clock(obj.name)
        if not clock.is_manual:
            return "real time"
        return f"{clock.now:%Y-%m-%d %H:%M:%S} UTC, " + ("paused" if clock.rate == 0 else f"{clock.rate:g} x real time")

    def save_model(self, request, obj, form, change):
        actor = actor_of(request)
        if not change:
            family = definition_of(form.cleaned_data["new_family"])
            behaviour = obj.behaviour
            obj.pk = family.create_namespace(obj.name, obj.description, obj.tier, actor).id
            if behaviour != Behaviour.CONVENIENT and family.family is Family.SERVICE_BUS:
                namespaces.update_namespace(obj.name, behaviour=behaviour, actor=actor)
            obj.refresh_from_db()
            return
        changes = {name: form.cleaned_data[name] for name in ("description", "tier", "behaviour") if name in form.changed_data}
        for name in ("archive_days", "max_size_in_megabytes"):
            if name in form.changed_data:
                changes[name] = form.cleaned_data[name] or 0
        if changes:
            namespaces.update_namespace(obj.name, **changes, actor=actor)
        asked = form.cleaned_data
        if asked.get("step"):
            namespaces.step_clock(obj.name, asked["step"], actor=actor)
        if asked.get("clock") == form.PAUSE:
            namespaces.pause_clock(obj.name, actor=actor)
        elif asked.get("clock") == form.RUN:
            namespaces.resume_clock(obj.name, 1.0 if asked.get("rate") is None else asked["rate"], actor=actor)

    def delete_one(self, request, obj):
        definition_of(obj.family).delete_namespace(obj.name, actor=actor_of(request))

    @admin.action(description="Pause the clock of the selected namespaces", permissions=["change"])
    def pause(self, request, queryset):
        self._each(request, queryset, "clock paused", lambda name, actor: namespaces.pause_clock(name, actor=actor))

    @admin.action(description="Resume the clock of the selected namespaces at normal speed", permissions=["change"])
    def run(self, request, queryset):
        self._each(request, queryset, "clock resumed", lambda name, actor: namespaces.resume_clock(name, actor=actor))

    @admin.action(description="Step the clock of the selected namespaces by 1 minute", permissions=["change"])
    def step_a_minute(self, request, queryset):
        self._step(request, queryset, timedelta(minutes=1))

    @admin.action(description="Step the clock of the selected namespaces by 1 hour", permissions=["change"])
    def step_an_hour(self, request, queryset):
        self._step(request, queryset, timedelta(hours=1))

    @admin.action(description="Step the clock of the selected namespaces by 1 day", permissions=["change"])
    def step_a_day(self, request, queryset):
        self._step(request, queryset, timedelta(days=1))

    def _step(self, request, queryset, step: timedelta) -> None:
        self._each(
            request,
            queryset,
            f"clock stepped by {human(step)}",
            lambda name, actor: namespaces.step_clock(name, step, actor=actor),
        )

    def _each(self, request, queryset, did: str, change: Callable[[str, Any], Any]) -> None:
        for namespace in queryset:
            change(namespace.name, actor_of(request))
            self.log_change(request, namespace, did)
        self.message_user(request, f"{queryset.count()} namespaces: {did}.")


@admin.register(Entity)
class EntityAdmin(UseCaseAdmin):
    """Queues, topics and subscriptions. The form for a new one has a field for its kind, which decides on its settings.

    A RabbitMQ queue is fixed once it is declared: policies change its effective settings.
    """

    durations = DURATIONS
    form = EntityForm
    list_display = [
        "address",
        "what",
        "status",
        "lock",
        "deliveries",
        "time_to_live",
    ]  # more columns would not fit beside the filters
    list_filter = ["family", "namespace", "kind", "requires_session", "status", "expiry_mode", "history_level", "hidden"]
    search_fields = ["path", "user_metadata"]
    list_select_related = ["namespace"]
    ordering = ["namespace__name", "path"]

    def get_form(self, request, obj=None, change=False, **kwargs):
        if obj and (part := entity_parts.get(obj.family)) and part.form:
            kwargs["form"] = part.form
        return super().get_form(request, obj, change, **kwargs)

    def get_fieldsets(self, request, obj=None):
        if obj and (part := entity_parts.get(obj.family)):
            about = ["namespace", "path", "family", "created_at", "updated_at"]
            return [(None, {"fields": about}), (part.title, {"fields": part.fields})]
        own = (
            *("expiry_mode", "expires_whole_sessions", "drops_locks_on_change", "peek_shows_default_expiry"),
            *("history_level", "hidden"),
        )
        settings = [name for name in FORM_SETTINGS if obj is None or name in SETTINGS_OF[EntityKind(obj.kind)]]
        ours, service = [n for n in own if n in settings], [n for n in settings if n not in own]
        about = ["namespace", "path", "family", "kind", "created_at", "updated_at"] if obj else ["new_kind", "namespace", "path"]
        kept = [("Kept for clients, without effect", {"fields": ["kept"]})] if obj else []
        return [
            (None, {"fields": about}),
            ("Service Bus settings", {"fields": service}),
            ("Vitrine's own settings", {"fields": ours}),
            *kept,
        ]

    def get_readonly_fields(self, request, obj=None):
        if obj is None:
            return []
        if part := entity_parts.get(obj.family):
            return ["namespace", "path", "family", "created_at", "updated_at", *part.read_only]
        fixed = [name for name in FIXED if name in SETTINGS_OF[EntityKind(obj.kind)]]
        return ["namespace", "path", "family", "kind", "created_at", "updated_at", "kept", *fixed]

    def get_queryset(self, request):
        return super().get_queryset(request).filter(deleted_at=None)

    def has_change_permission(self, request, obj=None):
        part = entity_parts.get(obj.family) if obj else None
        fixed = obj and (obj.namespace.is_system or (part is not None and part.form is None))
        return super().has_change_permission(request, obj) and not fixed

    def has_delete_permission(self, request, obj=None):
        return super().has_delete_permission(request, obj) and not (obj and obj.namespace.is_system)

    @admin.display(description="as given")
    def configured_settings(self, obj):
        return json.dumps(obj.options, ensure_ascii=False)

    @admin.display(description="effective")
    def effective_settings(self, obj):
        return json.dumps(obj.effective, ensure_ascii=False)

    @admin.display(description="properties")
    def kept(self, obj):
        properties = effective_kept(EntityKind(obj.kind), obj.kept_properties)
        return ", ".join(f"{name} {str(value).lower()}" for name, value in properties.items())

    @admin.display(ordering="path")
    def address(self, obj):
        return str(obj)

    @admin.display(description="kind", ordering="kind")
    def what(self, obj):
        return f"{definition_of(obj.family).title} {obj.kind}"

    @admin.display(ordering="lock_duration")
    def lock(self, obj):
        return human(obj.lock_duration) if _has_receivers(obj) else None  # shown as a dash

    @admin.display(description="deliveries", ordering="max_delivery_count")
    def deliveries(self, obj):
        return obj.max_delivery_count if _has_receivers(obj) else None

    @admin.display(ordering="default_message_time_to_live")
    def time_to_live(self, obj):
        """An empty value means never only in Service Bus; other families have settings of their own."""
        life = obj.default_message_time_to_live
        return human(life) if life is not None or obj.family == Family.SERVICE_BUS else None

    def save_model(self, request, obj, form, change):
        actor = actor_of(request)
        if change:
            self._change(obj, form, actor)
            return
        if other := OTHER_QUEUES.get(form.cleaned_data["new_kind"]):
            other.create_queue(address_of(obj), actor=actor)
            obj.pk = Entity.objects.get(namespace=obj.namespace, path=obj.path, deleted_at=None).pk
            obj.refresh_from_db()
            return
        kind = EntityKind(form.cleaned_data["new_kind"])
        creators: dict[EntityKind, UseCase[..., Any]] = {
            EntityKind.QUEUE: entities.create_queue,
            EntityKind.TOPIC: entities.create_topic,
            EntityKind.SUBSCRIPTION: entities.create_subscription,
        }
        settings = {name: form.cleaned_data[name] for name in SETTINGS_OF[kind] if name in FORM_SETTINGS}
        own = {
            name: value for name, value in settings.items() if value != default_settings(kind)[name]
        }  # unchanged ones take the tier's default
        obj.pk = creators[kind](address_of(obj), actor=actor, **own).id
        obj.refresh_from_db()

    def _change(self, obj, form, actor) -> None:
        if (part := entity_parts.get(obj.family)) and part.change:
            part.change(obj, form, actor)
            return
        changes = {name: form.cleaned_data[name] for name in form.changed_data if name in FORM_SETTINGS}
        entities.update_entity(address_of(obj), actor=actor, **changes)

    def delete_one(self, request, obj):
        if Entity.objects.filter(pk=obj.pk, deleted_at=None).exists():  # may have been deleted with its topic just before
            definition_of(obj.family).delete_entity(address_of(obj), actor=actor_of(request))


def _has_receivers(obj: Entity) -> bool:
    """Whether the Service Bus settings of locks and deliveries apply."""
    return obj.family == Family.SERVICE_BUS and obj.kind != EntityKind.TOPIC
