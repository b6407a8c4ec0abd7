"""The form for the settings of a queue, topic or subscription, used by the admin and the explorer."""

from __future__ import annotations

from django import forms

from broker_core.common.types import EntityKind, EntityStatus, ExpiryMode
from broker_core.form_fields import DurationField, HistoryField
from broker_core.service_bus.rules.entity_settings import ALL_SETTINGS, FIXED, SETTINGS_OF, STATUSES, default_settings, in_words

from .configured_limits import limits

DEFAULTS = {name: value for kind in EntityKind for name, value in default_settings(kind).items()}
_EXPIRY = {
    ExpiryMode.EAGER: "eager: soon after expiry",
    ExpiryMode.ON_ACTIVITY: "on activity: only while a receiver is active, as in Azure",
}
_BY_BEHAVIOUR = ("", "as the namespace behaves")
_RANGED = ("lock_duration", "max_delivery_count", "default_message_time_to_live", "auto_delete_on_idle",
           "duplicate_detection_history_time_window", "max_size_in_megabytes", "max_message_size_in_kilobytes")  # fmt: skip
_NAME = forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})


class EntitySettingsForm(forms.Form):
    """The settings of one kind of entity that have an effect.

    kind: None: the form has the settings of all kinds, and the kind is chosen in it.
    existing: the entity exists; settings that are fixed at creation are shown read-only.
    """

    lock_duration = DurationField(label="Lock duration")
    max_delivery_count = forms.IntegerField(
        label="Max delivery count", help_text="Failed deliveries before a message is dead-lettered."
    )
    default_message_time_to_live = DurationField(never=True, label="Default message time-to-live")
    auto_delete_on_idle = DurationField(
        never=True, label="Auto-delete on idle", help_text="Deletes the {} after this time without use."
    )
    dead_lettering_on_message_expiration = forms.BooleanField(
        required=False, label="Dead-letter expired messages (otherwise they are dropped)"
    )
    dead_lettering_on_filter_evaluation_exceptions = forms.BooleanField(
        required=False, label="Dead-letter messages whose rules cannot be evaluated (otherwise not copied)"
    )
    requires_session = forms.BooleanField(
        required=False,
        label="Requires sessions",
        help_text="The messages of a session are delivered in order to one receiver at a time.",
    )
    expires_whole_sessions = forms.BooleanField(
        required=False, label="One expired message expires its whole session (otherwise each message expires separately)"
    )
    requires_duplicate_detection = forms.BooleanField(
        required=False, label="Duplicate detection", help_text="Messages whose id was seen within the window are dropped."
    )
    duplicate_detection_history_time_window = DurationField(label="Duplicate detection window")
    forward_to = forms.CharField(
        required=False,
        empty_value=None,
        label="Forward to",
        widget=_NAME,
        help_text="A queue or topic in this namespace that receives all messages.",
    )
    forward_dead_lettered_messages_to = forms.CharField(
        required=False,
        empty_value=None,
        label="Forward dead letters to",
        widget=_NAME,
        help_text="A queue or topic in this namespace that receives the dead letters.",
    )
    max_size_in_megabytes = forms.IntegerField(label="Max size in megabytes")
    max_message_size_in_kilobytes = forms.IntegerField(label="Max message size in kilobytes")
    status = forms.ChoiceField(label="Status")
    expiry_mode = forms.TypedChoiceField(
        choices=[_BY_BEHAVIOUR, *((m.value, text) for m, text in _EXPIRY.items())],
        required=False,
        coerce=ExpiryMode,
        empty_value=None,
        label="Expiry mode",
        help_text="When expired messages are removed. They are never delivered.",
    )
    drops_locks_on_change = forms.TypedChoiceField(
        choices=[_BY_BEHAVIOUR, ("False", "are kept"), ("True", "are released, as Azure may do")],
        required=False,
        coerce=lambda text: text == "True",
        empty_value=None,
        label="Locks, when settings change",
    )
    peek_shows_default_expiry = forms.TypedChoiceField(
        choices=[
            _BY_BEHAVIOUR,
            ("True", "of every message that expires"),
            ("False", "only of a message with a time-to-live of its own"),
        ],
        required=False,
        coerce=lambda text: text == "True",
        empty_value=None,
        label="Expiry that a peek returns",
    )
    history_level = HistoryField()
    user_metadata = forms.CharField(
        required=False, empty_value=None, label="User metadata", widget=forms.Textarea(attrs={"rows": 2})
    )
    hidden = forms.BooleanField(required=False, label="Hide in the overview")

    def __init__(self, *args, kind: EntityKind | None = None, existing: bool = False, **kwargs):
        super().__init__(*args, **kwargs)
        self.kind = kind
        names = ALL_SETTINGS if kind is None else SETTINGS_OF[kind]
        for name in [n for n in FORM_SETTINGS if n in self.fields and n not in names]:
            del self.fields[name]
        allowed = limits()
        for name in [n for n in names if n in self.fields]:
            field = self.fields[name]
            field.initial = DEFAULTS[name]
            field.help_text = field.help_text.format(kind or "entity")
            if name in _RANGED:
                field.help_text = f"{field.help_text} Allowed: {in_words(getattr(allowed, name))}.".strip()
            if name == "status":
                field.choices = [(s.value, s.value) for s in (EntityStatus if kind is None else STATUSES[kind])]
            if existing and name in FIXED:
                field.disabled = True
                field.help_text = f"Cannot be changed after the {kind} is created."


FORM_SETTINGS = tuple(name for name in ALL_SETTINGS if name in EntitySettingsForm.base_fields)
