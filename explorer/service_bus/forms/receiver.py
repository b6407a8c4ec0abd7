"""Forms that receive and settle messages manually."""

from __future__ import annotations

import re

from django import forms

from broker_core.common.errors import InvalidArgument
from explorer.service_bus.forms.properties import typed_value

MAX_AT_ONCE = 32
REASON_LENGTH = 4096


class ReceiveForm(forms.Form):
    count = forms.IntegerField(min_value=1, max_value=MAX_AT_ONCE, initial=1, label="Count")
    mode = forms.ChoiceField(
        choices=[
            ("peek-lock", "peek-lock: locked until you settle it"),
            ("receive-and-delete", "receive-and-delete: removed at once"),
        ],
        initial="peek-lock", label="Mode",
    )  # fmt: skip


class ReceiveDeferredForm(forms.Form):
    """Sequence numbers, separated by commas or spaces. Either all of these messages are received or none (SB-912)."""

    numbers = forms.CharField(
        label="Sequence numbers", widget=forms.TextInput(attrs={"placeholder": "12, 15", "inputmode": "numeric"})
    )

    def clean_numbers(self) -> list[int]:
        parts = [p for p in re.split(r"[,\s]+", self.cleaned_data["numbers"]) if p]
        if not parts or not all(re.fullmatch(r"[0-9]{1,18}", p) for p in parts) or len(parts) > MAX_AT_ONCE:
            raise forms.ValidationError(f"Enter up to {MAX_AT_ONCE} sequence numbers such as 12, 15.")
        return [int(p) for p in parts]


class _ButtonForm(forms.Form):
    """Hidden fields of a button. Their errors are shown together in one sentence."""

    def problem(self) -> str:
        return "; ".join(f"{name}: {' '.join(errors)}" for name, errors in self.errors.items())

    def require(self) -> dict:
        """The cleaned values. Raises InvalidArgument."""
        if not self.is_valid():
            raise InvalidArgument("form", self.problem())
        return self.cleaned_data


class AcceptForm(_ButtonForm):
    session_id = forms.CharField(
        required=False, strip=False, max_length=128, label="Session ID",
        help_text="Empty: the next unlocked session with messages.",
        widget=forms.TextInput(attrs={"autocomplete": "off"}),
    )  # fmt: skip
    count = forms.IntegerField(
        required=False,
        min_value=0,
        max_value=MAX_AT_ONCE,
        initial=1,
        label="Messages to receive",
        help_text="0: accept the session only.",
    )


class SessionForm(_ButtonForm):
    """A session that the user holds, and the parameters of an action on it."""

    session_id = forms.CharField(required=False, strip=False, max_length=128)
    token = forms.UUIDField()
    count = forms.IntegerField(required=False, min_value=1, max_value=MAX_AT_ONCE, initial=1)
    mode = forms.CharField(required=False)
    state = forms.CharField(required=False, strip=False)


class SettleForm(_ButtonForm):
    """Parameters of a settlement: reason and description for dead-lettering, a changed property for abandon and defer."""

    token = forms.UUIDField()
    reason = forms.CharField(required=False, max_length=REASON_LENGTH, label="Reason")
    description = forms.CharField(required=False, max_length=REASON_LENGTH, label="Description")
    property_name = forms.CharField(required=False, max_length=200, label="Property to set")
    property_value = forms.CharField(required=False, label="Value (text)")

    def properties(self) -> dict | None:
        """The application property to change, as text; None: none."""
        name = self.cleaned_data["property_name"].strip()
        return {name: typed_value(name, "string", self.cleaned_data["property_value"])} if name else None
