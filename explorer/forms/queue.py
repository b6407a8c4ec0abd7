"""What a person writes to create, change or delete a queue."""

from __future__ import annotations

from django import forms

from broker_core.entities import limits
from broker_core.semantics.entity_settings import in_words
from broker_core.semantics.types import EntityStatus, ExpiryMode, HistoryLevel, QueueSettings

from .fields import DurationField

_EXPIRY = {
    ExpiryMode.EAGER: "eager: soon after the instant",
    ExpiryMode.ON_ACTIVITY: "on activity: only while somebody receives, as Azure does",
    ExpiryMode.AT_HEAD: "at head: only at the head of the queue, as RabbitMQ does",
}
_HISTORY = {
    HistoryLevel.OFF: "off",
    HistoryLevel.LIFECYCLE: "lifecycle: without receives and renewals",
    HistoryLevel.FULL: "full",
}


class QueueSettingsForm(forms.Form):
    """All settings of a queue. `settings()` gives them as the use cases take them."""

    lock_duration = DurationField(label="Lock duration")
    max_delivery_count = forms.IntegerField(label="Max delivery count", help_text="Failed deliveries before it is dead-lettered.")
    default_message_time_to_live = DurationField(never=True, label="Default message time-to-live")
    auto_delete_on_idle = DurationField(
        never=True, label="Auto-delete on idle", help_text="The queue itself, when nobody uses it."
    )
    dead_lettering_on_message_expiration = forms.BooleanField(
        required=False, label="Dead-letter expired messages (else they are dropped)"
    )
    max_size_in_megabytes = forms.IntegerField(label="Max size in megabytes")
    max_message_size_in_kilobytes = forms.IntegerField(label="Max message size in kilobytes")
    status = forms.ChoiceField(choices=[(s.value, s.value) for s in EntityStatus], label="Status")
    expiry_mode = forms.ChoiceField(
        choices=[(m.value, text) for m, text in _EXPIRY.items()],
        label="Expiry mode",
        help_text="When expired messages are taken away; they are never delivered.",
    )
    history_level = forms.TypedChoiceField(
        choices=[(int(level), text) for level, text in _HISTORY.items()], coerce=lambda v: HistoryLevel(int(v)), label="History"
    )
    user_metadata = forms.CharField(required=False, label="User metadata", widget=forms.Textarea(attrs={"rows": 2}))
    hidden = forms.BooleanField(required=False, label="Hide it in the overview")

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        allowed = limits()
        for name in ("lock_duration", "max_delivery_count", "default_message_time_to_live", "auto_delete_on_idle",
                     "max_size_in_megabytes", "max_message_size_in_kilobytes"):  # fmt: skip
            field = self.fields[name]
            field.help_text = f"{field.help_text} Allowed: {in_words(getattr(allowed, name))}.".strip()

    def settings(self) -> dict:
        """Only after is_valid; without what is no setting."""
        given = {name: value for name, value in self.cleaned_data.items() if name in QueueSettings.__slots__}
        return given | {"user_metadata": given["user_metadata"] or None}


class NewQueueForm(QueueSettingsForm):
    namespace = forms.ChoiceField(label="Namespace")
    path = forms.CharField(
        max_length=260, label="Name", help_text="Letters, digits and . - _ ~; a / groups names.",
        widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"}),
    )  # fmt: skip

    field_order = ("namespace", "path")

    def __init__(self, *args, namespaces: list[str], **kwargs):
        super().__init__(*args, **kwargs)
        self.fields["namespace"].choices = [(name, name) for name in namespaces]


class TypedNameForm(forms.Form):
    """Agreement to something that cannot be undone: the queue's name, typed."""

    name = forms.CharField(
        label="Type the queue's name to confirm", widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})
    )

    def __init__(self, *args, expected: str, **kwargs):
        super().__init__(*args, **kwargs)
        self.expected = expected

    def clean_name(self) -> str:
        if self.cleaned_data["name"] != self.expected:
            raise forms.ValidationError(f"This must be exactly {self.expected}.")
        return self.expected
