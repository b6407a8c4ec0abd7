"""Forms of the admin. They read and show values; the pure rules validate them."""

from __future__ import annotations

from typing import Any

from django import forms

from broker_core import namespaces
from broker_core.common.errors import BrokerError, EntityExists, InvalidArgument
from broker_core.common.family import FamilyDefinition, definition_of, installed
from broker_core.common.types import EntityAddress, EntityKind, Family
from broker_core.form_fields import DurationField
from broker_core.models import Entity, Namespace
from broker_core.service_bus.configured_limits import limits
from broker_core.service_bus.forms import DEFAULTS, FORM_SETTINGS, EntitySettingsForm
from broker_core.service_bus.rules import entity_settings

# Queues of the other families, which are created with their family's defaults.
OTHER_QUEUES = {definition.queue_noun: definition for definition in installed() if definition.family is not Family.SERVICE_BUS}


class EntityForm(EntitySettingsForm, forms.ModelForm):
    """A queue, topic or subscription with its settings, and with a field for the kind of a new one."""

    new_kind = forms.ChoiceField(
        label="Kind", choices=[(k, k) for k in (*EntityKind, *OTHER_QUEUES)], initial=EntityKind.QUEUE,
        help_text="Cannot be changed later. The settings below do not apply to the last two kinds; edit theirs after creation.",
    )  # fmt: skip

    class Meta:
        model = Entity
        fields = ["namespace", "path", *FORM_SETTINGS]
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
        other = OTHER_QUEUES.get(new_kind)
        if namespace and namespace.family != (other.family if other else Family.SERVICE_BUS):
            self.add_error("namespace", f"is a {definition_of(namespace.family).container_noun}, which has no {new_kind}")
        if other:
            self._clean_other(other, cleaned)
            return cleaned
        kind = EntityKind(new_kind)
        for name in self.changed_data:
            if name in FORM_SETTINGS and name in cleaned:
                self._check(name, lambda n=name: self._checked(n, cleaned[n], kind))
        if "path" in self.changed_data and "path" in cleaned:
            self._check("path", lambda: self._check_path(cleaned.get("namespace"), cleaned["path"], kind))
        return cleaned

    def _clean_other(self, family: FamilyDefinition, cleaned: dict) -> None:
        """Validate a queue of another family, which is created from its name only."""
        for name in FORM_SETTINGS:
            if name in self.changed_data and cleaned.get(name) not in (None, "", DEFAULTS[name]):
                self.add_error(name, f"A {family.queue_noun} does not have this setting; leave it unchanged.")
        if "path" in cleaned:
            self._check("path", lambda: family.check_queue_name(cleaned["path"]))
        if "path" in cleaned and cleaned.get("namespace"):
            self._check("path", lambda: self._check_is_new(cleaned["namespace"], cleaned["path"]))

    def _checked(self, name: str, value: Any, kind: EntityKind) -> Any:
        if name in entity_settings.SETTINGS_OF[kind]:
            return entity_settings.check_setting(name, value, limits(), kind)
        if value in (None, "", DEFAULTS[name]):
            return value
        raise InvalidArgument(name, f"A {kind} does not have this setting; leave it unchanged.")

    def _check_path(self, namespace: Namespace | None, path: str, kind: EntityKind) -> str:
        """Validate the path here for a readable error. Django skips its own check of the constraint if the field has an error."""
        address = EntityAddress(namespace.name if namespace else "", path)
        if kind != EntityKind.SUBSCRIPTION:
            entity_settings.check_path(path)
        elif address.topic is None:
            raise InvalidArgument("path", f"'{path}' is not a subscription; use the form topic/Subscriptions/name")
        else:
            entity_settings.check_subscription_name(address.name)
        return self._check_is_new(namespace, path) if namespace else path

    def _check_is_new(self, namespace: Namespace, path: str) -> str:
        lookup = "path" if definition_of(namespace.family).paths_have_case else "path__iexact"
        if Entity.objects.filter(namespace=namespace, deleted_at=None, **{lookup: path}).exists():
            raise InvalidArgument("path", str(EntityExists(str(EntityAddress(namespace.name, path)))))
        return path

    def _check(self, name, check):
        try:
            self.cleaned_data[name] = check()
        except BrokerError as exc:
            self.add_error(name, exc.problem if isinstance(exc, InvalidArgument) else str(exc))


class NamespaceForm(forms.ModelForm):
    """A namespace; for an existing one also with actions on its clock (docs/design.md D6)."""

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
        fields = ["name", "description", "tier", "behaviour", "max_size_in_megabytes", "archive_days"]
        labels = {"archive_days": "Days of archived history", "max_size_in_megabytes": "Maximum size in megabytes"}
        help_texts = {
            "behaviour": "Documented: as the service's pages say, where the default is kinder. Only for Service Bus namespaces.",
            "max_size_in_megabytes": "Of the messages of all its entities; when it is reached, sends are refused. Leave empty "
            "for no limit.",
            "archive_days": "Archived messages, deliveries and events are deleted after so many days; counts by hour are kept. "
            "Leave empty to keep them indefinitely.",
        }

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            del self.fields["new_family"]

    def clean_max_size_in_megabytes(self):
        size = self.cleaned_data["max_size_in_megabytes"]
        if size == 0:
            raise forms.ValidationError("Enter a number of megabytes from 1, or leave it empty.")
        return size

    def clean_archive_days(self):
        days = self.cleaned_data["archive_days"]
        if days is not None and not 1 <= days <= namespaces.MOST_ARCHIVE_DAYS:
            raise forms.ValidationError(f"Enter a number of days from 1 to {namespaces.MOST_ARCHIVE_DAYS:,}, or leave it empty.")
        return days

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
