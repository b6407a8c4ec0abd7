"""The forms that create a namespace or a storage account, and that change one."""

from __future__ import annotations

from django import forms

from broker_core.common.types import Behaviour, Tier
from broker_core.form_fields import SpanField
from broker_core.namespaces import MOST_MEGABYTES
from broker_core.runtime.keeping import LONGEST, SHORTEST
from explorer.frames.family import installed


def _families() -> list[tuple[str, str]]:
    """The families whose namespaces are created on the shared page."""
    return [
        (str(family_pages.family), f"{family_pages.title}: a {family_pages.container_noun}")
        for family_pages in installed()
        if family_pages.namespaces
    ]


class NamespaceForm(forms.Form):
    family = forms.ChoiceField(choices=_families, label="Family", widget=forms.RadioSelect)
    name = forms.CharField(
        max_length=260, label="Name", help_text="For a storage account: 3 to 24 lower-case letters and digits.",
        widget=forms.TextInput({"autocomplete": "off", "spellcheck": "false"}),
    )  # fmt: skip
    description = forms.CharField(required=False, label="Description", widget=forms.TextInput({"autocomplete": "off"}))
    tier = forms.ChoiceField(
        choices=[(str(tier), str(tier)) for tier in Tier], initial=str(Tier.STANDARD), label="Tier",
        help_text="For a Service Bus namespace: determines features and size limits of its entities.",
    )  # fmt: skip
    behaviour = forms.ChoiceField(
        choices=[(str(behaviour), str(behaviour)) for behaviour in Behaviour], initial=str(Behaviour.CONVENIENT),
        label="Behaviour", required=False,
        help_text="For a Service Bus namespace: documented follows the product pages where the default is kinder.",
    )  # fmt: skip


class NamespaceSettingsForm(forms.Form):
    """The settings of a namespace, storage account or virtual host that do not depend on its family."""

    max_size_in_megabytes = forms.IntegerField(
        required=False, min_value=1, max_value=MOST_MEGABYTES, label="Maximum size in megabytes",
        help_text="Of the messages of all its entities, dead letters included. When it is reached, sends are refused. Leave "
        "empty for no limit.",
    )  # fmt: skip
    keep_messages_for = SpanField(
        required=False, label="Keep ended messages for",
        help_text="Body and properties of completed, expired and deleted messages stay readable so long, by those who may see "
        "bodies: 1 h, up to 7 days. They take about their size on the disk. Leave empty to keep none.",
    )  # fmt: skip

    def clean_keep_messages_for(self):
        period = self.cleaned_data["keep_messages_for"]
        if period and not SHORTEST <= period <= LONGEST:
            raise forms.ValidationError("Enter a duration from 1 min to 7 days, or leave it empty.")
        return period
