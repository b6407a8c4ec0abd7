"""The confirmation of an action that cannot be undone."""

from __future__ import annotations

from django import forms


class TypedNameForm(forms.Form):
    """Confirms an action: the user types the entity's name."""

    name = forms.CharField(
        label="Type the name to confirm", widget=forms.TextInput(attrs={"autocomplete": "off", "spellcheck": "false"})
    )

    def __init__(self, *args, expected: str, **kwargs):
        super().__init__(*args, **kwargs)
        self.expected = expected

    def clean_name(self) -> str:
        if self.cleaned_data["name"] != self.expected:
            raise forms.ValidationError(f"Enter exactly {self.expected}.")
        return self.expected
