"""Forms that create and change queues, topics and subscriptions."""

from __future__ import annotations

from collections.abc import Sequence

from django import forms
from django.forms import BoundField

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import EntityAddress, EntityKind
from broker_core.service_bus import forms as service_bus
from broker_core.service_bus.forms import FORM_SETTINGS
from broker_core.service_bus.rules.entity_settings import FORWARDS
from explorer.service_bus.kept_properties import KeptProperties

_GROUPS = (
    ("Locks and expiry", (
        "lock_duration", "max_delivery_count", "default_message_time_to_live", "expiry_mode",
        "peek_shows_default_expiry", "dead_lettering_on_message_expiration", "dead_lettering_on_filter_evaluation_exceptions",
        "drops_locks_on_change",
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
_NAME = forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})


class EntitySettingsForm(service_bus.EntitySettingsForm):
    """All settings of one kind of entity, in groups. `settings()` returns them as arguments of the use cases.

    targets: initial suggestions of the forwarding fields. names_at: the URL that suggests names for the typed text.
    kept: of an existing entity, the properties without effect, which are shown below the fields.
    """

    kind: EntityKind
    kept: KeptProperties | None = None

    def __init__(self, *args, kind: EntityKind, names_at: str, targets: Sequence[str] = (), **kwargs):
        super().__init__(*args, kind=kind, **kwargs)
        self.targets = targets
        for name in FORWARDS:
            if name in self.fields:
                _complete(self.fields[name], "forward-targets", names_at)

    def groups(self) -> list[tuple[str, list[BoundField]]]:
        """The settings in the groups of the page: titles with their fields."""
        bound_groups = [
            (title.format(self.kind), [self[name] for name in names if name in self.fields]) for title, names in _GROUPS
        ]
        return [group for group in bound_groups if group[1]]

    def settings(self) -> dict:
        """The settings without the other fields. Only after is_valid."""
        return {name: self.cleaned_data[name] for name in FORM_SETTINGS if name in self.fields}


class NewEntityForm(EntitySettingsForm):
    """A new queue or topic: also its namespace and name."""

    namespace = forms.ChoiceField(label="Namespace")
    path = forms.CharField(
        max_length=260, label="Name", help_text="Letters, digits and . - _ ~; use / to group names.", widget=_NAME
    )

    field_order = ("namespace", "path")

    def __init__(self, *args, namespaces: Sequence[str], **kwargs):
        super().__init__(*args, **kwargs)
        self.fields["namespace"].choices = [(name, name) for name in namespaces]


class NewSubscriptionForm(EntitySettingsForm):
    """A new subscription: also its topic, name and first rule.

    topics: "namespace/path" to choose from. topics_at: if there are too many to list, the URL that suggests topics.
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


def _complete(field: forms.Field, options: str, names_at: str) -> None:
    """Complete the field from a <datalist> that is reloaded while the user types. Without a script the list does not change."""
    field.widget.attrs |= {
        "list": options,
        "hx-get": names_at,
        "hx-include": "#id_namespace, #id_topic",
        "hx-trigger": "input changed delay:200ms",
        "hx-target": f"#{options}",
        "hx-sync": "this:replace",
    }
