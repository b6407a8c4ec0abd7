"""What a person writes to create, change or delete a queue, topic or subscription."""

from __future__ import annotations

from collections.abc import Sequence

from django import forms
from django.forms import BoundField

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import EntityAddress, EntityKind, ExpiryMode, HistoryLevel
from broker_core.namespaces import limits
from broker_core.service_bus.rules.entity_settings import (
    ALL_SETTINGS,
    FIXED,
    FORWARDS,
    SETTINGS_OF,
    STATUSES,
    in_words,
)
from explorer.shared.forms.fields import DurationField

_EXPIRY = {
    ExpiryMode.EAGER: "eager: soon after expiry",
    ExpiryMode.ON_ACTIVITY: "on activity: only while a receiver is active, as in Azure",
}
_HISTORY = {
    HistoryLevel.OFF: "off",
    HistoryLevel.LIFECYCLE: "lifecycle: without receives and renewals",
    HistoryLevel.FULL: "full",
}
HISTORY_LEVELS = [(int(level), text) for level, text in _HISTORY.items()]
_GROUPS = (
    ("Locks and expiry", (
        "lock_duration", "max_delivery_count", "default_message_time_to_live", "expiry_mode",
        "dead_lettering_on_message_expiration", "dead_lettering_on_filter_evaluation_exceptions", "drops_locks_on_change",
    )),
    ("Sessions and duplicates", (
        "requires_session", "expires_whole_sessions", "requires_duplicate_detection", "duplicate_detection_history_time_window",
    )),
    ("Forwarding", ("forward_to", "forward_dead_lettered_messages_to")),
    ("General", (
        "status", "history_level", "auto_delete_on_idle", "max_size_in_megabytes", "max_message_size_in_kilobytes",
        "user_metadata", "hidden",
    )),
)  # fmt: skip
_RANGED = ("lock_duration", "max_delivery_count", "default_message_time_to_live", "auto_delete_on_idle",
           "duplicate_detection_history_time_window", "max_size_in_megabytes", "max_message_size_in_kilobytes")  # fmt: skip
_NAME = forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})


class EntitySettingsForm(forms.Form):
    """All settings of one kind of entity. `settings()` gives them as the use cases take them.

    targets: names to forward to that its fields offer at first; names_at: the address that offers those with what is typed.
    existing: it is there already: what is fixed at creation is shown, and cannot be changed.
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
        label="Forward to",
        widget=_NAME,
        help_text="A queue or topic in this namespace that receives all messages.",
    )
    forward_dead_lettered_messages_to = forms.CharField(
        required=False,
        label="Forward dead letters to",
        widget=_NAME,
        help_text="A queue or topic in this namespace that receives the dead letters.",
    )
    max_size_in_megabytes = forms.IntegerField(label="Max size in megabytes")
    max_message_size_in_kilobytes = forms.IntegerField(label="Max message size in kilobytes")
    status = forms.ChoiceField(label="Status")
    expiry_mode = forms.ChoiceField(
        choices=[(m.value, text) for m, text in _EXPIRY.items()],
        label="Expiry mode",
        help_text="When expired messages are removed. They are never delivered.",
    )
    drops_locks_on_change = forms.BooleanField(
        required=False, label="Changing settings releases all locks, as Azure may do (otherwise locks are kept)"
    )
    history_level = forms.TypedChoiceField(choices=HISTORY_LEVELS, coerce=lambda v: HistoryLevel(int(v)), label="History")
    user_metadata = forms.CharField(required=False, label="User metadata", widget=forms.Textarea(attrs={"rows": 2}))
    hidden = forms.BooleanField(required=False, label="Hide in the overview")

    def __init__(self, *args, kind: EntityKind, names_at: str, targets: Sequence[str] = (), existing: bool = False, **kwargs):
        super().__init__(*args, **kwargs)
        self.kind, self.targets = kind, targets
        self._names = SETTINGS_OF[kind]
        for name in [n for n in self.fields if n in ALL_SETTINGS and n not in self._names]:
            del self.fields[name]
        self.fields["status"].choices = [(s.value, s.value) for s in STATUSES[kind]]
        allowed = limits()
        for name, field in self.fields.items():
            field.help_text = field.help_text.format(kind)
            if name in _RANGED:
                field.help_text = f"{field.help_text} Allowed: {in_words(getattr(allowed, name))}.".strip()
            if existing and name in FIXED:
                field.disabled = True
                field.help_text = f"Cannot be changed after the {kind} is created."
        for name in FORWARDS:
            if name in self.fields:
                _complete(self.fields[name], "forward-targets", names_at)

    def groups(self) -> list[tuple[str, list[BoundField]]]:
        """The settings as the page shows them: titles, each with its fields."""
        found = [(title.format(self.kind), [self[name] for name in names if name in self.fields]) for title, names in _GROUPS]
        return [group for group in found if group[1]]

    def settings(self) -> dict:
        """Only after is_valid; without what is no setting."""
        given = {name: self.cleaned_data[name] for name in self._names}
        texts = ("user_metadata", "forward_to", "forward_dead_lettered_messages_to")
        return given | {name: given[name] or None for name in texts if name in given}


class NewEntityForm(EntitySettingsForm):
    """A new queue or topic: its namespace and name, too."""

    namespace = forms.ChoiceField(label="Namespace")
    path = forms.CharField(
        max_length=260, label="Name", help_text="Letters, digits and . - _ ~; use / to group names.", widget=_NAME
    )

    field_order = ("namespace", "path")

    def __init__(self, *args, namespaces: Sequence[str], **kwargs):
        super().__init__(*args, **kwargs)
        self.fields["namespace"].choices = [(name, name) for name in namespaces]


class NewSubscriptionForm(EntitySettingsForm):
    """A new subscription: its topic, its name and its first rule, too.

    topics: as "namespace/path". topics_at: there are more; these are offered at first, then what that address finds is.
    """

    topic = forms.ChoiceField(label="Topic")
    name = forms.CharField(max_length=50, label="Name", help_text="Up to 50 letters, digits and . - _.", widget=_NAME)
    filter = forms.CharField(
        required=False, strip=True, label="SQL filter of the first rule",
        widget=forms.TextInput(attrs=_NAME.attrs | {"class": "mono", "placeholder": "region = 'eu'"}),
        help_text="Empty: matches every message. Rules can be added and changed later.",
    )  # fmt: skip

    field_order = ("topic", "name", "filter")

    def __init__(self, *args, topics: Sequence[str], topics_at: str | None = None, **kwargs):
        super().__init__(*args, kind=EntityKind.SUBSCRIPTION, **kwargs)
        self.topics = topics
        if topics_at is None:
            self.fields["topic"].choices = [(name, name) for name in topics]
        else:
            self.fields["topic"] = forms.CharField(label="Topic", widget=_NAME, help_text="Format: namespace/topic.")
            _complete(self.fields["topic"], "topics", topics_at)

    def clean_topic(self) -> str:
        try:
            EntityAddress.parse(self.cleaned_data["topic"])
        except InvalidArgument as exc:
            raise forms.ValidationError("Enter a namespace, a slash and the name of a topic.") from exc
        return self.cleaned_data["topic"]


class TypedNameForm(forms.Form):
    """Agreement to something that cannot be undone: the entity's name, typed."""

    name = forms.CharField(label="Type the name to confirm", widget=_NAME)

    def __init__(self, *args, expected: str, **kwargs):
        super().__init__(*args, **kwargs)
        self.expected = expected

    def clean_name(self) -> str:
        if self.cleaned_data["name"] != self.expected:
            raise forms.ValidationError(f"Enter exactly {self.expected}.")
        return self.expected


def _complete(field: forms.Field, options: str, names_at: str) -> None:
    """What is typed is completed from a <datalist>, which is asked for anew as one types; without a script it stays as it was."""
    field.widget.attrs |= {
        "list": options,
        "hx-get": names_at,
        "hx-include": "#id_namespace, #id_topic",
        "hx-trigger": "input changed delay:200ms",
        "hx-target": f"#{options}",
        "hx-sync": "this:replace",
    }
