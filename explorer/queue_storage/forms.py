"""Forms of storage queues and their messages. Most values are validated by the broker."""

from __future__ import annotations

from datetime import timedelta

from django import forms

from broker_core.common.durations import human
from broker_core.form_fields import DurationField, SpanField
from broker_core.queue_storage.forms import PLAIN, QueueOptionsForm
from broker_core.queue_storage.rules.limits import (
    DEFAULT_LEASE,
    DEFAULT_LIFE,
    LONGEST_VISIBILITY_TIMEOUT,
    MOST_MESSAGES,
    SHORTEST_LEASE,
)
from explorer.frames.forms.fields import with_unix_newlines
from explorer.frames.forms.placeholders import fill_field

_TEXT = forms.Textarea({"rows": 6, "class": "mono", "spellcheck": "false"})
MAX_COPIES = 1000


def _at_most_a_week(timeout: timedelta) -> timedelta:
    """Validate the maximum here, to show it in the notation of the form; the broker's error counts seconds."""
    if timeout > LONGEST_VISIBILITY_TIMEOUT:
        raise forms.ValidationError(f"{human(timeout)} is too long; the maximum is {human(LONGEST_VISIBILITY_TIMEOUT)}.")
    return timeout


def _valid_lease(timeout: timedelta) -> timedelta:
    if timeout < SHORTEST_LEASE:
        raise forms.ValidationError(f"{human(timeout)} is too short; the minimum is {human(SHORTEST_LEASE)}.")
    return _at_most_a_week(timeout)


class NewQueueForm(QueueOptionsForm):
    """A new queue: also its account and name."""

    account = forms.ChoiceField(label="Storage account")
    queue = forms.CharField(
        max_length=63,
        label="Name",
        help_text="3 to 63 lower-case letters, digits and single dashes.",
        widget=forms.TextInput(PLAIN),
    )

    field_order = ("account", "queue")

    def __init__(self, *args, accounts: list[str], **kwargs):
        super().__init__(*args, **kwargs)
        self.fields["account"].choices = [(name, name) for name in accounts]


class PutForm(forms.Form):
    """A message and the number of its copies."""

    text = forms.CharField(required=False, strip=False, label="Text", widget=_TEXT)
    visibilitytimeout = SpanField(
        required=False, label="Visibility timeout", initial="0",
        help_text="Time before the message becomes visible: 30 s, 5 min, PT5M, up to 7 days. 0: visible at once.",
    )  # fmt: skip
    messagettl = DurationField(never=True, label="Time-to-live", initial=DEFAULT_LIFE, help_text="7 days, 90 s, PT1H, or never.")
    copies = forms.IntegerField(
        min_value=1, max_value=MAX_COPIES, initial=1, label="Copies", help_text="Put together: all or none."
    )
    fill = fill_field()

    def clean_text(self) -> str:
        return with_unix_newlines(self.cleaned_data["text"])

    def clean_visibilitytimeout(self) -> timedelta:
        return _at_most_a_week(self.cleaned_data["visibilitytimeout"])

    def clean(self) -> dict:
        cleaned = super().clean()
        life, delay = cleaned.get("messagettl"), cleaned.get("visibilitytimeout")
        if life and delay and delay >= life:
            self.add_error("visibilitytimeout", f"Must be shorter than the time-to-live of {human(life)}.")
        return cleaned


class GetForm(forms.Form):
    numofmessages = forms.IntegerField(min_value=1, max_value=MOST_MESSAGES, initial=1, label="Count")
    visibilitytimeout = DurationField(
        label="Visibility timeout",
        initial=DEFAULT_LEASE,
        help_text="How long the messages are hidden from other clients: 1 s to 7 days.",
    )

    def clean_visibilitytimeout(self) -> timedelta:
        return _valid_lease(self.cleaned_data["visibilitytimeout"])


class ReceiptForm(forms.Form):
    """Parameters of an update or delete by id and pop receipt. Errors of its hidden fields are shown in one sentence."""

    message_id = forms.CharField(max_length=200, strip=False)
    receipt = forms.CharField(max_length=200, required=False, strip=True)
    visibilitytimeout = SpanField(required=False)
    text = forms.CharField(required=False, strip=False)
    replace = forms.BooleanField(required=False)

    def clean_visibilitytimeout(self) -> timedelta:
        return _at_most_a_week(self.cleaned_data["visibilitytimeout"])

    def problem(self) -> str:
        return "; ".join(f"{name}: {' '.join(errors)}" for name, errors in self.errors.items())
