"""Forms of the admin. Whether a value is accepted is decided by the pure rules; here it is read and shown."""

from __future__ import annotations

from datetime import timedelta

from django import forms
from django.contrib.admin.widgets import AdminTextareaWidget, AdminTextInputWidget

from broker_core import entities
from broker_core.models import Entity, Namespace, SharedAccessPolicy
from broker_core.semantics import entity_settings
from broker_core.semantics.durations import format_iso, human, parse_human_or_iso
from broker_core.semantics.errors import EntityExists, InvalidArgument
from broker_core.semantics.limits import Range
from broker_core.semantics.types import EntityAddress, QueueSettings

DEFAULTS = QueueSettings()


class DurationField(forms.CharField):
    """A duration as people or the wire write it. With `never`, that word stands for None."""

    widget = AdminTextInputWidget

    def __init__(self, *, never: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.never = never

    def clean(self, value):
        text = super().clean(value)
        if not text:
            return None
        try:
            found = parse_human_or_iso(text)
        except InvalidArgument as exc:
            raise forms.ValidationError(exc.problem) from exc
        if found is None and not self.never:
            raise forms.ValidationError("must be a duration, not never")
        return found

    def prepare_value(self, value):
        if isinstance(value, str) or (value is None and not self.never):
            return value
        shown = human(value)
        return shown if parse_human_or_iso(shown) == value else format_iso(value)

    def has_changed(self, initial, data):
        return self.prepare_value(initial) != data


class EntityForm(forms.ModelForm):
    """A queue and its settings (SB 1.3)."""

    lock_duration = DurationField(initial=DEFAULTS.lock_duration)
    default_message_time_to_live = DurationField(never=True)
    auto_delete_on_idle = DurationField(never=True)

    class Meta:
        model = Entity
        fields = ["namespace", "path", *entity_settings.SETTINGS]
        widgets = {"user_metadata": AdminTextareaWidget(attrs={"rows": 3})}

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if "namespace" in self.fields:
            self.fields["namespace"].queryset = Namespace.objects.filter(is_system=False)
        for name in entity_settings.SETTINGS:
            if name in self.fields:
                self._explain(name)

    def clean(self):
        cleaned = super().clean()
        for name in self.changed_data:
            if name in entity_settings.SETTINGS and name in cleaned:
                self._check(name, lambda n=name: entity_settings.check_setting(n, cleaned[n], entities.limits()))
        if "path" in self.changed_data and "path" in cleaned:
            self._check("path", lambda: self._check_path(cleaned.get("namespace"), cleaned["path"]))
        return cleaned

    def _check_path(self, namespace: Namespace | None, path: str) -> str:
        """Here, in words, rather than as a violated constraint: an error at the field keeps Django from looking (SB 1.1)."""
        entity_settings.check_path(path)
        if namespace and Entity.objects.filter(namespace=namespace, path__iexact=path, deleted_at=None).exists():
            raise InvalidArgument("path", str(EntityExists(str(EntityAddress(namespace.name, path)))))
        return path

    def _check(self, name, check):
        try:
            self.cleaned_data[name] = check()
        except InvalidArgument as exc:
            self.add_error(name, exc.problem)

    def _explain(self, name: str) -> None:
        field = self.fields[name]
        field.label = entity_settings.SERVICE_NAMES[name]
        allowed = getattr(entities.limits(), name, None)
        default = getattr(DEFAULTS, name)
        if isinstance(allowed, Range):
            shown = human(default) if name in entity_settings.DURATIONS else f"{default:,}"
            field.help_text = f"{entity_settings.in_words(allowed)}. Default: {shown}."
        elif name == "user_metadata":
            field.help_text = f"At most {allowed:,} characters; the broker does not look at it."
        else:
            field.help_text = _HELP.get(name, "")


_HELP = {
    "dead_lettering_on_message_expiration": "Expired messages go to the dead-letter queue; otherwise they are dropped.",
    "status": "What is refused while it is disabled: sending, receiving or both. Messages are kept.",
    "expiry_mode": "eager: soon after the instant. on_activity: while somebody receives. at_head: only in front of the queue.",
    "history_level": "full: every event. lifecycle: without receives and renewals. off: none, so there is no timeline.",
    "hidden": "Left out of the overview unless asked for.",
}


class NamespaceForm(forms.ModelForm):
    """A namespace, and for an existing one what to do with its clock (design D6)."""

    AS_IT_IS, PAUSE, RUN = "", "pause", "run"

    step = DurationField(
        label="Step",
        required=False,
        help_text="Move the clock forward by this much, such as 90 s, 5 min or 2 days. It never goes back.",
    )
    clock = forms.ChoiceField(
        label="Clock",
        required=False,
        choices=[(AS_IT_IS, "leave as it is"), (PAUSE, "pause it"), (RUN, "let it run at the rate below")],
    )
    rate = forms.FloatField(label="Rate", required=False, initial=1.0, help_text="Seconds of the clock in a real second.")

    class Meta:
        model = Namespace
        fields = ["name", "description"]

    def clean_name(self):
        try:
            name = entity_settings.check_namespace_name(self.cleaned_data["name"])
        except InvalidArgument as exc:
            raise forms.ValidationError(exc.problem) from exc
        if Namespace.objects.filter(name__iexact=name).exists():
            raise forms.ValidationError(str(EntityExists(name)))
        return name

    def clean_step(self):
        step = self.cleaned_data["step"]
        if step is not None and step < timedelta(0):
            raise forms.ValidationError("a clock goes forward only")
        return step


class PolicyForm(forms.ModelForm):
    """A policy's scope, name and rights; its keys are made by the broker."""

    class Meta:
        model = SharedAccessPolicy
        fields = ["namespace", "entity", "name", "send", "listen", "manage"]
        labels = {"entity": "Queue"}
        help_texts = {
            "entity": "Empty: the policy holds in the whole namespace.",
            "manage": "Implies the other two.",
        }

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if "entity" in self.fields:
            self.fields["entity"].queryset = Entity.objects.filter(deleted_at=None).select_related("namespace")

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
