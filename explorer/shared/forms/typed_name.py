"""What a person writes to confirm an action that cannot be undone."""

from __future__ import annotations

from django import forms


class TypedNameForm(forms.Form):
    """Agreement to something that cannot be undone: the entity's name, typed."""

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
