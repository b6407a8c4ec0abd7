"""Rules and shared-access policies in Django's admin."""

from __future__ import annotations

import json

from django import forms
from django.contrib import admin

from broker_core.admin.shared import UseCaseAdmin, actor_of, address_of
from broker_core.common.errors import InvalidArgument, InvalidFilter
from broker_core.common.types import EntityAddress, EntityKind, Family, Right
from broker_core.models import Entity, Namespace, Rule, SharedAccessPolicy

from . import entities, shared_access
from .rules import entity_settings
from .rules.filters import rule_from_json


class RuleForm(forms.ModelForm):
    """A rule of a subscription, as it is stored: `cleaned_data["rule"]` is the rule."""

    class Meta:
        model = Rule
        fields = ["subscription", "name", "filter", "action"]
        help_texts = {
            "filter": '{"type": "sql", "expression": "total > 100"}, {"type": "correlation", "subject": "vip"}, '
            '{"type": "true"} or {"type": "false"}. Parameters and properties: {"least": ["int", "100"]}.',
            "action": '{"expression": "SET priority = 1"}, or empty.',
        }

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if "subscription" in self.fields:
            subscriptions = Entity.objects.filter(deleted_at=None, kind=EntityKind.SUBSCRIPTION)
            self.fields["subscription"].queryset = subscriptions.select_related("namespace")

    def clean(self):
        cleaned = super().clean()
        if not self.errors:
            stored = {"name": cleaned.get("name", self.instance.name), "filter": cleaned["filter"], "action": cleaned["action"]}
            try:
                cleaned["rule"] = rule_from_json(stored)
            except InvalidArgument as exc:
                self.add_error(self._field_of(exc), exc.problem)
        return cleaned

    def _field_of(self, refusal: InvalidArgument) -> str | None:
        if refusal.name == "rule name" and "name" in self.fields:
            return "name"
        return refusal.name if isinstance(refusal, InvalidFilter) else "filter"


class PolicyForm(forms.ModelForm):
    """A policy's scope, name and rights; its keys are made by the broker."""

    class Meta:
        model = SharedAccessPolicy
        fields = ["namespace", "entity", "name", "send", "listen", "manage"]
        help_texts = {
            "entity": "Empty: the policy applies to the whole namespace.",
            "manage": "Includes the other two.",
        }

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if "namespace" in self.fields:
            self.fields["namespace"].queryset = Namespace.objects.filter(family=Family.SERVICE_BUS, deleted_at=None)
        if "entity" in self.fields:
            shared = Entity.objects.filter(deleted_at=None, family=Family.SERVICE_BUS).exclude(
                kind=EntityKind.SUBSCRIPTION
            )  # theirs are their topic's
            self.fields["entity"].queryset = shared.select_related("namespace")

    def clean_name(self):
        try:
            return entity_settings.check_policy_name(self.cleaned_data["name"])
        except InvalidArgument as exc:
            raise forms.ValidationError(exc.problem) from exc

    def clean(self):
        cleaned = super().clean()
        entity, namespace = cleaned.get("entity"), cleaned.get("namespace")
        if entity and namespace and entity.namespace_id != namespace.pk:
            self.add_error("entity", f"is in the namespace {entity.namespace}, not in {namespace}")
        if not (cleaned.get("send") or cleaned.get("listen") or cleaned.get("manage")):
            self.add_error("send", "a policy needs at least one right")
        return cleaned


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
        save(address_of(obj.subscription), form.cleaned_data["rule"], actor=actor_of(request))
        obj.pk = Rule.objects.get(subscription=obj.subscription, name__iexact=obj.name).pk

    def delete_one(self, request, obj):
        entities.delete_rule(address_of(obj.subscription), obj.name, actor=actor_of(request))


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


def _scope(policy: SharedAccessPolicy) -> str | EntityAddress:
    return address_of(policy.entity) if policy.entity else policy.namespace.name
