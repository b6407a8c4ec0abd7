"""Forms of the admin. Whether a value is accepted is decided by the pure rules; here it is read and shown."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from django import forms

from broker_core import namespaces
from broker_core.common.errors import EntityExists, InvalidArgument, InvalidFilter
from broker_core.common.family import definition_of, installed
from broker_core.common.types import EntityAddress, EntityKind, Family
from broker_core.form_fields import DurationField
from broker_core.models import Entity, Namespace, Rule, SharedAccessPolicy
from broker_core.queue_storage.forms import QueueOptionsForm, as_lines
from broker_core.queue_storage.rules import names as storage_names
from broker_core.queue_storage.rules import options as storage_options
from broker_core.service_bus.forms import DEFAULTS, EntitySettingsForm
from broker_core.service_bus.rules import entity_settings
from broker_core.service_bus.rules.filters import rule_from_json

# Queues of the other families, which begin with their own defaults.
FAMILY_OF_KIND = {"storage queue": Family.QUEUE_STORAGE, "RabbitMQ queue": Family.RABBITMQ}


class EntityForm(EntitySettingsForm, forms.ModelForm):
    """A queue, topic or subscription with its settings; a new one's kind, too."""

    new_kind = forms.ChoiceField(
        label="Kind", choices=[(k, k) for k in (*EntityKind, *FAMILY_OF_KIND)], initial=EntityKind.QUEUE,
        help_text="Cannot be changed later. The settings below do not apply to the last two kinds; edit theirs after creation.",
    )  # fmt: skip

    class Meta:
        model = Entity
        fields = ["namespace", "path", *entity_settings.ALL_SETTINGS]
        help_texts = {"path": "For a subscription: topic/Subscriptions/name."}

    def __init__(self, *args, instance: Entity | None = None, **kwargs):
        super().__init__(*args, instance=instance, kind=EntityKind(instance.kind) if instance else None, **kwargs)
        if instance:
            self.fields.pop("new_kind", None)
        if "namespace" in self.fields:
            self.fields["namespace"].queryset = Namespace.objects.filter(is_system=False, deleted_at=None)

    def clean(self):
        cleaned = super().clean()
        new_kind, namespace = cleaned.get("new_kind") or self.instance.kind, cleaned.get("namespace")
        if namespace and namespace.family != FAMILY_OF_KIND.get(new_kind, Family.SERVICE_BUS):
            self.add_error("namespace", f"is a {definition_of(namespace.family).container_noun}, which has no {new_kind}")
        if new_kind in FAMILY_OF_KIND:
            self._clean_other(new_kind, cleaned)
            return cleaned
        kind = EntityKind(new_kind)
        for name in self.changed_data:
            if name in entity_settings.ALL_SETTINGS and name in cleaned:
                self._check(name, lambda n=name: self._checked(n, cleaned[n], kind))
        if "path" in self.changed_data and "path" in cleaned:
            self._check("path", lambda: self._check_path(cleaned.get("namespace"), cleaned["path"], kind))
        return cleaned

    def _clean_other(self, kind: str, cleaned: dict) -> None:
        """A queue of another family: it has a name alone."""
        for name in entity_settings.ALL_SETTINGS:
            if name in self.changed_data and cleaned.get(name) not in (None, "", DEFAULTS[name]):
                self.add_error(name, f"A {kind} does not have this setting; leave it unchanged.")
        if "path" in cleaned and kind == "storage queue":
            self._check("path", lambda: storage_names.check_queue_name(cleaned["path"]))
        if "path" in cleaned and cleaned.get("namespace"):
            self._check("path", lambda: self._check_is_new(cleaned["namespace"], cleaned["path"]))

    def _checked(self, name: str, value: Any, kind: EntityKind) -> Any:
        if name in entity_settings.SETTINGS_OF[kind]:
            return entity_settings.check_setting(name, value, namespaces.limits(), kind)
        if value in (None, "", DEFAULTS[name]):
            return value
        raise InvalidArgument(name, f"A {kind} does not have this setting; leave it unchanged.")

    def _check_path(self, namespace: Namespace | None, path: str, kind: EntityKind) -> str:
        """Here, in words, rather than as a violated constraint: an error at the field keeps Django from looking."""
        address = EntityAddress(namespace.name if namespace else "", path)
        if kind != EntityKind.SUBSCRIPTION:
            entity_settings.check_path(path)
        elif address.topic is None:
            raise InvalidArgument("path", f"'{path}' is not a subscription; use the form topic/Subscriptions/name")
        else:
            entity_settings.check_subscription_name(address.name)
        return self._check_is_new(namespace, path) if namespace else path

    def _check_is_new(self, namespace: Namespace, path: str) -> str:
        same = "path" if namespace.family == Family.RABBITMQ else "path__iexact"
        if Entity.objects.filter(namespace=namespace, deleted_at=None, **{same: path}).exists():
            raise InvalidArgument("path", str(EntityExists(str(EntityAddress(namespace.name, path)))))
        return path

    def _check(self, name, check):
        try:
            self.cleaned_data[name] = check()
        except InvalidArgument as exc:
            self.add_error(name, exc.problem)


class StorageQueueForm(QueueOptionsForm, forms.ModelForm):
    """The metadata and options of a storage queue that is there."""

    class Meta:
        model = Entity
        fields = ["history_level"]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        stored = storage_options.from_json(self.instance.options or {})
        self.initial |= {field.name: getattr(stored, field.name) for field in fields(stored)}
        self.initial["metadata"] = as_lines(stored.metadata)

    def clean(self):
        cleaned = super().clean()
        if not self.errors:
            try:
                storage_options.changed(self.instance.path, storage_options.from_json(self.instance.options), self.changes())
            except InvalidArgument as exc:
                self.add_error(exc.name if exc.name in self.fields else None, exc.problem)
        return cleaned

    def changes(self) -> dict[str, Any]:
        """Those of QueueOptions that are given otherwise."""
        options = self.options()
        return {name: options[name] for name in self.changed_data if name != "history_level"}


class NamespaceForm(forms.ModelForm):
    """A namespace, and for an existing one what to do with its clock (docs/design.md D6)."""

    new_family = forms.ChoiceField(
        label="Family",
        required=False,
        choices=lambda: [(f.family, f"{f.title}: a {f.container_noun}") for f in installed()],
        initial=Family.SERVICE_BUS,
        help_text="The broker family of its entities. Cannot be changed later.",
    )
    AS_IT_IS, PAUSE, RUN = "", "pause", "run"

    step = DurationField(
        label="Step",
        required=False,
        too_short="a clock only moves forward",
        help_text="Move the clock forward, for example by 90 s, 5 min or 2 days. It never goes back.",
    )
    clock = forms.ChoiceField(
        label="Clock",
        required=False,
        choices=[(AS_IT_IS, "leave unchanged"), (PAUSE, "pause"), (RUN, "run at the rate below")],
    )
    rate = forms.FloatField(label="Rate", required=False, initial=1.0, help_text="Clock seconds per real second.")

    class Meta:
        model = Namespace
        fields = ["name", "description", "tier"]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            del self.fields["new_family"]

    def clean_new_family(self):
        return Family(self.cleaned_data["new_family"] or Family.SERVICE_BUS)

    def clean_name(self):
        name = self.cleaned_data["name"]
        if Namespace.objects.filter(name__iexact=name).exists():
            raise forms.ValidationError(str(EntityExists(name, "namespace")))
        return name

    def clean(self):
        cleaned = super().clean()
        if "name" in cleaned and "new_family" in cleaned:
            try:
                definition_of(cleaned["new_family"]).check_namespace_name(cleaned["name"])
            except InvalidArgument as exc:
                self.add_error("name", exc.problem)
        return cleaned


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
