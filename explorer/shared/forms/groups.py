"""The selection of a group of dead letters or poison messages."""

from __future__ import annotations

import json

from django import forms

Key = tuple[str | None, str | None]


class ResubmitForm(forms.Form):
    """group: the only group to resubmit, as written by `group_text`; none: all. up_to: the highest number that was counted."""

    group = forms.CharField(required=False, max_length=5000, strip=False, widget=forms.HiddenInput)
    up_to = forms.IntegerField(required=False, min_value=0, max_value=2**63 - 1, widget=forms.HiddenInput)

    def clean_group(self) -> Key | None:
        given = self.cleaned_data["group"]
        return read_group(given) if given else None


def group_text(origin: str | None, reason: str | None) -> str:
    """A group as a form or query value."""
    return json.dumps([origin, reason])


def read_group(text: str) -> Key:
    """The origin and reason of a `group_text`. Raises ValidationError."""
    try:
        match json.loads(text):
            case [str() | None as origin, str() | None as reason]:
                return origin, reason
    except (ValueError, RecursionError):  # RecursionError: nested too deeply
        pass
    raise forms.ValidationError('must be an origin and a reason, such as [null, "Refused"].')
