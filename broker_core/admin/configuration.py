"""Admin of what is configured: namespaces with their clocks, entities, rules, shared-access shared_access."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from django.contrib import admin
from django.db.models import Count, Q

from broker_core import namespaces, queue_storage, rabbitmq
from broker_core.common.durations import human
from broker_core.common.family import definition_of
from broker_core.common.types import Actor, EntityAddress, EntityKind, Family, Right
from broker_core.models import Entity, Namespace, Rule, SharedAccessPolicy
from broker_core.service_bus import entities, shared_access
from broker_core.service_bus.rules.entity_settings import (
    ALL_SETTINGS,
    DURATIONS,
    FIXED,
    SETTINGS_OF,
    default_settings,
)
from broker_core.store.use_cases import UseCase

from .forms import FAMILY_OF_KIND, EntityForm, NamespaceForm, PolicyForm, RuleForm, StorageQueueForm
from .shared import UseCaseAdmin, actor_of


@admin.register(Namespace)
class NamespaceAdmin(UseCaseAdmin):
    form = NamespaceForm
    list_display = ["name", "family", "description", "tier", "entity_count", "clock_shows", "is_system"]
    list_filter = ["family", "tier"]
    search_fields = ["name", "description"]
    actions = ["pause", "run", "step_a_minute", "step_an_hour", "step_a_day"]

    def get_fieldsets(self, request, obj=None):
        if obj is None:
            return [(None, {"fields": ["new_family", "name", "description", "tier"]})]
        tier = ["tier"] if obj.family == Family.SERVICE_BUS else []
        shown = (None, {"fields": ["name", "family", "description", *tier, "is_system", "created_at", "clock_shows"]})
        return [shown] if obj.is_system else [shown, ("Clock", {"fields": ["step", "clock", "rate"]})]

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
            obj.pk = _create_namespace(form.cleaned_data["new_family"], obj, actor).id
            obj.refresh_from_db()
            return
        changes = {name: form.cleaned_data[name] for name in ("description", "tier") if name in form.changed_data}
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
        delete: dict[Family, UseCase[..., Any]] = {
            Family.SERVICE_BUS: namespaces.delete_namespace,
            Family.QUEUE_STORAGE: queue_storage.delete_account,
            Family.RABBITMQ: rabbitmq.delete_vhost,
        }
        delete[Family(obj.family)](obj.name, actor=actor_of(request))

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
    """Queues, topics and subscriptions. What kind a new one is, is chosen in the form; then it has the settings of its kind.

    A RabbitMQ queue is fixed once it is declared: policies change what is in force for it.
    """

    durations = DURATIONS
    form = EntityForm
    list_display = ["address", "what", "status", "lock", "deliveries", "time_to_live"]  # as many as fit beside the filters
    list_filter = ["family", "namespace", "kind", "requires_session", "status", "expiry_mode", "history_level", "hidden"]
    search_fields = ["path", "user_metadata"]
    list_select_related = ["namespace"]
    ordering = ["namespace__name", "path"]

    def get_form(self, request, obj=None, change=False, **kwargs):
        if obj and obj.family == Family.QUEUE_STORAGE:
            kwargs["form"] = StorageQueueForm
        return super().get_form(request, obj, change, **kwargs)

    def get_fieldsets(self, request, obj=None):
        if obj and obj.family != Family.SERVICE_BUS:
            return _fieldsets_of_others(obj)
        own = ("expiry_mode", "expires_whole_sessions", "drops_locks_on_change", "history_level", "hidden")
        settings = SETTINGS_OF[EntityKind(obj.kind)] if obj else ALL_SETTINGS
        ours, service = [n for n in own if n in settings], [n for n in settings if n not in own]
        about = ["namespace", "path", "family", "kind", "created_at", "updated_at"] if obj else ["new_kind", "namespace", "path"]
        return [
            (None, {"fields": about}),
            ("Service Bus settings", {"fields": service}),
            ("Vitrine's own settings", {"fields": ours}),
        ]

    def get_readonly_fields(self, request, obj=None):
        if obj is None:
            return []
        if obj.family != Family.SERVICE_BUS:
            return ["namespace", "path", "family", "created_at", "updated_at", "given", "in_force"]
        fixed = [name for name in FIXED if name in SETTINGS_OF[EntityKind(obj.kind)]]
        return ["namespace", "path", "family", "kind", "created_at", "updated_at", *fixed]

    def get_queryset(self, request):
        return super().get_queryset(request).filter(deleted_at=None)

    def has_change_permission(self, request, obj=None):
        fixed = obj and (obj.namespace.is_system or obj.family == Family.RABBITMQ)
        return super().has_change_permission(request, obj) and not fixed

    def has_delete_permission(self, request, obj=None):
        return super().has_delete_permission(request, obj) and not (obj and obj.namespace.is_system)

    @admin.display(description="as given")
    def given(self, obj):
        return json.dumps(obj.options, ensure_ascii=False)

    @admin.display(description="effective")
    def in_force(self, obj):
        return json.dumps(obj.effective, ensure_ascii=False)

    @admin.display(ordering="path")
    def address(self, obj):
        return str(obj)

    @admin.display(description="kind", ordering="kind")
    def what(self, obj):
        return f"{definition_of(obj.family).title} {obj.kind}"

    @admin.display(ordering="lock_duration")
    def lock(self, obj):
        return human(obj.lock_duration) if _is_received_from(obj) else None  # Django's dash

    @admin.display(description="deliveries", ordering="max_delivery_count")
    def deliveries(self, obj):
        return obj.max_delivery_count if _is_received_from(obj) else None

    @admin.display(ordering="default_message_time_to_live")
    def time_to_live(self, obj):
        """Only for Service Bus does nothing mean never: other families have settings of their own for it, or none."""
        life = obj.default_message_time_to_live
        return human(life) if life is not None or obj.family == Family.SERVICE_BUS else None

    def save_model(self, request, obj, form, change):
        actor = actor_of(request)
        if change:
            self._change(obj, form, actor)
            return
        if form.cleaned_data["new_kind"] in FAMILY_OF_KIND:
            family = FAMILY_OF_KIND[form.cleaned_data["new_kind"]]
            declare = queue_storage.create_queue if family is Family.QUEUE_STORAGE else rabbitmq.declare_queue
            declare(_address(obj), actor=actor)
            obj.pk = Entity.objects.get(namespace=obj.namespace, path=obj.path, deleted_at=None).pk
            obj.refresh_from_db()
            return
        kind = EntityKind(form.cleaned_data["new_kind"])
        creators: dict[EntityKind, UseCase[..., Any]] = {
            EntityKind.QUEUE: entities.create_queue,
            EntityKind.TOPIC: entities.create_topic,
            EntityKind.SUBSCRIPTION: entities.create_subscription,
        }
        given = {name: form.cleaned_data[name] for name in SETTINGS_OF[kind]}
        own = {name: value for name, value in given.items() if value != default_settings(kind)[name]}  # else the tier's default
        obj.pk = creators[kind](_address(obj), actor=actor, **own).id
        obj.refresh_from_db()

    def _change(self, obj, form, actor) -> None:
        if obj.family == Family.QUEUE_STORAGE:
            level = {"history_level": form.cleaned_data["history_level"]} if "history_level" in form.changed_data else {}
            if changes := form.changes() | level:
                queue_storage.update_queue(_address(obj), actor=actor, **changes)
            return
        changes = {name: form.cleaned_data[name] for name in form.changed_data if name in ALL_SETTINGS}
        entities.update_entity(_address(obj), actor=actor, **changes)

    def delete_one(self, request, obj):
        if obj.family != Family.SERVICE_BUS:
            delete = queue_storage.delete_queue if obj.family == Family.QUEUE_STORAGE else rabbitmq.delete_queue
            delete(_address(obj), actor=actor_of(request))
            return
        if Entity.objects.filter(pk=obj.pk, deleted_at=None).exists():  # a topic that was deleted before took it along
            entities.delete_entity(_address(obj), actor=actor_of(request))


def _is_received_from(obj: Entity) -> bool:
    """Whether Service Bus' settings of locks, deliveries and expiry mean something for it."""
    return obj.family == Family.SERVICE_BUS and obj.kind != EntityKind.TOPIC


def _fieldsets_of_others(obj: Entity) -> list:
    about = (None, {"fields": ["namespace", "path", "family", "created_at", "updated_at"]})
    if obj.family == Family.QUEUE_STORAGE:
        own = ["metadata", "max_dequeue_count", "poison_queue", "expiry_grace", "strict_visibility", "history_level"]
        return [about, ("Storage queue", {"fields": own})]
    return [about, ("RabbitMQ queue", {"fields": ["given", "in_force"]})]


def _create_namespace(family: Family, obj: Namespace, actor: Actor) -> Any:
    match family:
        case Family.QUEUE_STORAGE:
            return queue_storage.create_account(obj.name, obj.description, actor=actor)
        case Family.RABBITMQ:
            return rabbitmq.create_vhost(obj.name, obj.description, actor=actor)
    return namespaces.create_namespace(obj.name, obj.description, tier=obj.tier, actor=actor)


@admin.register(Rule)
class RuleAdmin(UseCaseAdmin):
    form = RuleForm
    list_display = ["name", "subscription", "takes", "does"]
    list_filter = ["subscription__namespace"]
    search_fields = ["name", "subscription__path"]
    list_select_related = ["subscription__namespace"]
    ordering = ["subscription__namespace__name", "subscription__path", "name"]

    def get_fields(self, request, obj=None):
        return ["subscription", "name", "filter", "action", *(["created_at"] if obj else [])]

    def get_readonly_fields(self, request, obj=None):
        return ["subscription", "name", "created_at"] if obj else []

    def get_queryset(self, request):
        return super().get_queryset(request).filter(subscription__deleted_at=None)

    @admin.display(description="takes")
    def takes(self, obj):
        return obj.filter.get("expression") or json.dumps(obj.filter, ensure_ascii=False)

    @admin.display(description="then")
    def does(self, obj):
        return obj.action["expression"] if obj.action else ""

    def save_model(self, request, obj, form, change):
        save = entities.update_rule if change else entities.create_rule
        save(_address(obj.subscription), form.cleaned_data["rule"], actor=actor_of(request))
        obj.pk = Rule.objects.get(subscription=obj.subscription, name__iexact=obj.name).pk

    def delete_one(self, request, obj):
        entities.delete_rule(_address(obj.subscription), obj.name, actor=actor_of(request))


@admin.register(SharedAccessPolicy)
class SharedAccessPolicyAdmin(UseCaseAdmin):
    """Looking needs MANAGE, too: a look shows the keys."""

    right_to_view = Right.MANAGE
    form = PolicyForm
    list_display = ["name", "namespace", "scope", "send", "listen", "manage", "created_at"]
    list_filter = ["namespace", "send", "listen", "manage"]
    search_fields = ["name", "entity__path"]
    list_select_related = ["namespace", "entity__namespace"]
    ordering = ["namespace__name", "entity__path", "name"]
    actions = ["regenerate_primary_key", "regenerate_secondary_key"]

    def get_readonly_fields(self, request, obj=None):
        return ["namespace", "entity", "name", "primary_key", "secondary_key", "created_at"] if obj else []

    def get_fields(self, request, obj=None):
        about, rights = ["namespace", "entity", "name"], ["send", "listen", "manage"]
        return [*about, *rights, "primary_key", "secondary_key", "created_at"] if obj else [*about, *rights]

    @admin.display(description="entity", ordering="entity__path")
    def scope(self, obj):
        return obj.entity.path if obj.entity else "all"

    def save_model(self, request, obj, form, change):
        actor, rights = actor_of(request), {name: form.cleaned_data[name] for name in ("send", "listen", "manage")}
        if change:
            shared_access.update_policy(_scope(obj), obj.name, actor=actor, **rights)
        else:
            obj.pk = shared_access.create_policy(_scope(obj), obj.name, actor=actor, **rights).id
            obj.refresh_from_db()

    def delete_one(self, request, obj):
        shared_access.delete_policy(_scope(obj), obj.name, actor=actor_of(request))

    @admin.action(description="Regenerate the primary key of the selected policies", permissions=["change"])
    def regenerate_primary_key(self, request, queryset):
        self._regenerate(request, queryset, "primary")

    @admin.action(description="Regenerate the secondary key of the selected policies", permissions=["change"])
    def regenerate_secondary_key(self, request, queryset):
        self._regenerate(request, queryset, "secondary")

    def _regenerate(self, request, queryset, which: str) -> None:
        for policy in queryset:
            shared_access.regenerate_key(_scope(policy), policy.name, which=which, actor=actor_of(request))
            self.log_change(request, policy, f"regenerated the {which} key")
        self.message_user(
            request, f"{queryset.count()} policies have a new {which} key; tokens signed with the old key are rejected."
        )


def _address(entity: Entity) -> EntityAddress:
    return EntityAddress(entity.namespace.name, entity.path)


def _scope(policy: SharedAccessPolicy) -> str | EntityAddress:
    return _address(policy.entity) if policy.entity else policy.namespace.name
