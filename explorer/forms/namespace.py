"""What a person writes to create a namespace or a storage account."""

from __future__ import annotations

from django import forms

from broker_core.semantics.families import SETS, TITLES
from broker_core.semantics.types import Family, Tier

_FAMILIES = [(str(family), f"{TITLES[family]}: a {SETS[family]}") for family in (Family.SERVICE_BUS, Family.QUEUE_STORAGE)]


class NamespaceForm(forms.Form):
    family = forms.ChoiceField(choices=_FAMILIES, label="Family", widget=forms.RadioSelect)
    name = forms.CharField(
        max_length=260, label="Name", help_text="For a storage account: 3 to 24 lower-case letters and digits.",
        widget=forms.TextInput({"autocomplete": "off", "spellcheck": "false"}),
    )  # fmt: skip
    description = forms.CharField(required=False, label="Description", widget=forms.TextInput({"autocomplete": "off"}))
    tier = forms.ChoiceField(
        choices=[(str(tier), str(tier)) for tier in Tier], initial=str(Tier.STANDARD), label="Tier",
        help_text="For a Service Bus namespace: determines features and size limits of its entities.",
    )  # fmt: skip
