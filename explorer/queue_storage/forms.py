"""What a person writes about storage accounts, queues and their messages. Whether it is accepted is the broker's to say."""

from __future__ import annotations

from datetime import timedelta

from django import forms

from broker_core.common.durations import human
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import HistoryLevel
from broker_core.queue_storage.rules import names
from broker_core.queue_storage.rules.limits import (
    DEFAULT_GRACE,
    DEFAULT_LEASE,
    DEFAULT_LIFE,
    LONGEST_VISIBILITY_TIMEOUT,
    MOST_MESSAGES,
    SHORTEST_LEASE,
)
from explorer.service_bus.forms.entity import HISTORY_LEVELS
from explorer.service_bus.forms.send import with_unix_newlines
from explorer.shared.forms.fields import DurationField

_PLAIN = {"autocomplete": "off", "spellcheck": "false"}
_TEXT = forms.Textarea({"rows": 6, "class": "mono", "spellcheck": "false"})
MAX_COPIES = 1000


class SpanField(DurationField):
    """A duration that may be 0; empty is 0 as well."""

    def clean(self, value) -> timedelta | None:
        text = (value or "").strip()
        return timedelta(0) if text in ("", "0") else super().clean(text)


def _at_most_a_week(timeout: timedelta) -> timedelta:
    """Refused in the words that people write it with; the service's own words count seconds."""
    if timeout > LONGEST_VISIBILITY_TIMEOUT:
        raise forms.ValidationError(f"{human(timeout)} is too long; the maximum is {human(LONGEST_VISIBILITY_TIMEOUT)}.")
    return timeout


def _a_lease(timeout: timedelta) -> timedelta:
    if timeout < SHORTEST_LEASE:
        raise forms.ValidationError(f"{human(timeout)} is too short; the minimum is {human(SHORTEST_LEASE)}.")
    return _at_most_a_week(timeout)


class QueueOptionsForm(forms.Form):
    """Metadata and options of a queue. `options()` gives them as the use cases take them."""

    metadata = forms.CharField(
        required=False, label="Metadata", help_text="One name=value per line. Names are stored in lower case.",
        widget=forms.Textarea({"rows": 3, "class": "mono", "spellcheck": "false", "placeholder": "team=billing"}),
    )  # fmt: skip
    max_dequeue_count = forms.IntegerField(
        required=False, label="Max dequeue count",
        help_text="Dequeues before a message is moved to the poison queue. Empty: unlimited, as in Azure.",
    )  # fmt: skip
    poison_queue = forms.CharField(
        required=False, label="Poison queue", widget=forms.TextInput(_PLAIN),
        help_text="In the same account. Empty: the queue's name followed by -poison, created when needed.",
    )  # fmt: skip
    expiry_grace = SpanField(
        required=False, label="Show expired messages for", initial=DEFAULT_GRACE,
        help_text="How long the explorer shows them. Clients never see expired messages.",
    )  # fmt: skip
    strict_visibility = forms.BooleanField(
        required=False, label="Reject updates that hide a message until after it expires (otherwise it expires unseen)"
    )
    history_level = forms.TypedChoiceField(
        choices=HISTORY_LEVELS, coerce=lambda value: HistoryLevel(int(value)), initial=int(HistoryLevel.FULL), label="History"
    )

    def clean_metadata(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for number, line in enumerate(self.cleaned_data["metadata"].splitlines(), 1):
            name, equals, value = (part.strip() for part in line.partition("="))
            if not line.strip():
                continue
            if not name or not equals:
                raise forms.ValidationError(f"Line {number} must be name=value.")
            if name.lower() in found:
                raise forms.ValidationError(f"Line {number} repeats the name {name.lower()}.")
            found[name.lower()] = value
        return found

    def clean_poison_queue(self) -> str:
        """Checked here, because the broker's refusal of a name does not say which of two names it means."""
        name = self.cleaned_data["poison_queue"].strip()
        try:
            return names.check_queue_name(name) if name else ""
        except InvalidArgument as exc:
            raise forms.ValidationError(f"{exc.problem}.") from exc

    def options(self) -> dict:
        """Only after is_valid."""
        given = self.cleaned_data
        known = ("metadata", "max_dequeue_count", "expiry_grace", "strict_visibility", "history_level")
        return {name: given[name] for name in known} | {"poison_queue": given["poison_queue"] or None}


class NewQueueForm(QueueOptionsForm):
    """A new queue: its account and name, too."""

    account = forms.ChoiceField(label="Storage account")
    queue = forms.CharField(
        max_length=63,
        label="Name",
        help_text="3 to 63 lower-case letters, digits and single dashes.",
        widget=forms.TextInput(_PLAIN),
    )

    field_order = ("account", "queue")

    def __init__(self, *args, accounts: list[str], **kwargs):
        super().__init__(*args, **kwargs)
        self.fields["account"].choices = [(name, name) for name in accounts]


class PutForm(forms.Form):
    """A message and how often."""

    text = forms.CharField(required=False, strip=False, label="Text", widget=_TEXT)
    visibilitytimeout = SpanField(
        required=False, label="Visibility timeout", initial="0",
        help_text="Time before the message becomes visible: 30 s, 5 min, PT5M, up to 7 days. 0: visible at once.",
    )  # fmt: skip
    messagettl = DurationField(never=True, label="Time-to-live", initial=DEFAULT_LIFE, help_text="7 days, 90 s, PT1H, or never.")
    copies = forms.IntegerField(
        min_value=1, max_value=MAX_COPIES, initial=1, label="Copies", help_text="Put together: all or none."
    )

    def clean_text(self) -> str:
        return with_unix_newlines(self.cleaned_data["text"])

    def clean_visibilitytimeout(self) -> timedelta:
        return _at_most_a_week(self.cleaned_data["visibilitytimeout"])

    def clean(self) -> dict:
        given = super().clean()
        life, delay = given.get("messagettl"), given.get("visibilitytimeout")
        if life and delay and delay >= life:
            self.add_error("visibilitytimeout", f"Must be shorter than the time-to-live of {human(life)}.")
        return given


class GetForm(forms.Form):
    numofmessages = forms.IntegerField(min_value=1, max_value=MOST_MESSAGES, initial=1, label="Count")
    visibilitytimeout = DurationField(
        label="Visibility timeout",
        initial=DEFAULT_LEASE,
        help_text="How long the messages are hidden from other clients: 1 s to 7 days.",
    )

    def clean_visibilitytimeout(self) -> timedelta:
        return _a_lease(self.cleaned_data["visibilitytimeout"])


class ReceiptForm(forms.Form):
    """What is done to a message by id and receipt. Fields without a place of their own: problems are told in one sentence."""

    message_id = forms.CharField(max_length=200, strip=False)
    receipt = forms.CharField(max_length=200, required=False, strip=True)
    visibilitytimeout = SpanField(required=False)
    text = forms.CharField(required=False, strip=False)
    replace = forms.BooleanField(required=False)

    def clean_visibilitytimeout(self) -> timedelta:
        return _at_most_a_week(self.cleaned_data["visibilitytimeout"])

    def problem(self) -> str:
        return "; ".join(f"{name}: {' '.join(errors)}" for name, errors in self.errors.items())
