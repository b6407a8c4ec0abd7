"""The forms of operations: where to move messages, how to repair them, and how fast."""

from __future__ import annotations

import json
from typing import Any

from django import forms

from broker_core.operations import Kind
from broker_core.operations.records import FASTEST, PACE_PROBLEM, SLOWEST

from .patching import parsed_json

PACE_ERRORS = dict.fromkeys(("invalid", "min_value", "max_value"), f"{PACE_PROBLEM}.")
_PLAIN = {"autocomplete": "off", "spellcheck": "false"}


class StartForm(forms.Form):
    """What a list's page asks for. numbers: only these; else all that match `filter`, none with a higher number than up_to.
    next: the page to return to. all: act on the filter, whatever is selected. confirmed: it was asked before."""

    kind = forms.ChoiceField(choices=[(str(kind), str(kind)) for kind in Kind if kind not in (Kind.IMPORT, Kind.DELETE)])
    tab = forms.CharField(required=False, max_length=40)
    filter = forms.CharField(required=False, max_length=2_000, strip=False)
    up_to = forms.IntegerField(required=False, min_value=0, max_value=2**63 - 1)
    next = forms.CharField(required=False, max_length=2_000)
    all = forms.BooleanField(required=False)
    confirmed = forms.BooleanField(required=False)


class ListQuery(forms.Form):
    """all: also the operations of sandboxes. before: the last one of the previous page."""

    all = forms.BooleanField(required=False)
    before = forms.IntegerField(required=False, min_value=1, max_value=2**62)


class PaceForm(forms.Form):
    """How fast an operation runs."""

    pace = forms.FloatField(
        required=False,
        min_value=SLOWEST,
        max_value=FASTEST,
        label="Messages per second",
        help_text="Empty: as fast as possible.",
        error_messages=PACE_ERRORS,
        widget=forms.NumberInput(attrs={"autocomplete": "off", "step": "any"}),
    )

    def options(self) -> dict[str, Any]:
        """The options of the operation. Only after is_valid."""
        return {}


class MoveForm(PaceForm):
    """Where messages are moved to: another entity of the namespace."""

    to = forms.CharField(max_length=260, label="Queue or topic", widget=forms.TextInput(attrs=_PLAIN | {"list": "targets"}))
    field_order = ("to", "pace")

    def options(self) -> dict[str, Any]:
        return {"to": self.cleaned_data["to"]}


class RepairForm(PaceForm):
    """How bodies are repaired before the messages are resubmitted."""

    merge_patch = forms.CharField(
        label="JSON merge patch",
        widget=forms.Textarea(attrs=_PLAIN | {"rows": 5, "class": "mono"}),
        help_text='Members are set; those that are null are removed: {"currency": "EUR", "draft": null}',
    )
    field_order = ("merge_patch", "pace")

    def clean_merge_patch(self) -> dict[str, Any]:
        try:
            patch = parsed_json(self.cleaned_data["merge_patch"])
        except json.JSONDecodeError as problem:
            raise forms.ValidationError(f"This is not JSON: {problem}.") from None
        except (ValueError, RecursionError) as problem:
            raise forms.ValidationError(f"This cannot be used: {problem}.") from None
        if not isinstance(patch, dict) or not patch:
            raise forms.ValidationError('Enter a JSON object with at least one member, such as {"currency": "EUR"}.')
        return patch

    def options(self) -> dict[str, Any]:
        return {"merge_patch": self.cleaned_data["merge_patch"]}


FORMS = {Kind.MOVE: MoveForm, Kind.REPAIR: RepairForm}
