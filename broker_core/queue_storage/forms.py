"""The form for a storage queue's metadata and options, used by the admin and the explorer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import HistoryLevel
from broker_core.form_fields import HistoryField, SpanField
from broker_core.queue_storage.rules import names
from broker_core.queue_storage.rules.limits import DEFAULT_GRACE

PLAIN = {"autocomplete": "off", "spellcheck": "false"}


class QueueOptionsForm(forms.Form):
    """Metadata and options of a queue; `options()` returns them as keyword arguments of the use cases."""

    metadata = forms.CharField(
        required=False, label="Metadata", help_text="One name=value per line. Names are stored in lower case.",
        widget=forms.Textarea({"rows": 3, "class": "mono", "spellcheck": "false", "placeholder": "team=billing"}),
    )  # fmt: skip
    max_dequeue_count = forms.IntegerField(
        required=False, label="Max dequeue count",
        help_text="Dequeues before a message is moved to the poison queue. Empty: unlimited, as in Azure.",
    )  # fmt: skip
    poison_queue = forms.CharField(
        required=False, label="Poison queue", widget=forms.TextInput(PLAIN),
        help_text="In the same account. Empty: the queue's name followed by -poison, created when needed.",
    )  # fmt: skip
    expiry_grace = SpanField(
        required=False, label="Show expired messages for", initial=DEFAULT_GRACE,
        help_text="How long the explorer shows them. Clients never see expired messages.",
    )  # fmt: skip
    strict_visibility = forms.BooleanField(
        required=False, label="Reject updates that hide a message until after it expires (otherwise it expires unseen)"
    )
    history_level = HistoryField(initial=int(HistoryLevel.FULL))

    def clean_metadata(self) -> dict[str, str]:
        metadata: dict[str, str] = {}
        for number, line in enumerate(self.cleaned_data["metadata"].splitlines(), 1):
            name, equals, value = (part.strip() for part in line.partition("="))
            if not line.strip():
                continue
            if not name or not equals:
                raise forms.ValidationError(f"Line {number} must be name=value.")
            if name.lower() in metadata:
                raise forms.ValidationError(f"Line {number} repeats the name {name.lower()}.")
            metadata[name.lower()] = value
        return metadata

    def clean_poison_queue(self) -> str:
        """Check the name here: the broker's error would not say which of the two names is wrong."""
        name = self.cleaned_data["poison_queue"].strip()
        try:
            return names.check_queue_name(name) if name else ""
        except InvalidArgument as exc:
            raise forms.ValidationError(f"{exc.problem}.") from exc

    def options(self) -> dict:
        """The options; call it only after is_valid()."""
        cleaned = self.cleaned_data
        known = ("metadata", "max_dequeue_count", "expiry_grace", "strict_visibility", "history_level")
        return {name: cleaned[name] for name in known} | {"poison_queue": cleaned["poison_queue"] or None}


def as_lines(metadata: Mapping[str, Any]) -> str:
    """Metadata as initial text of the form field."""
    return "\n".join(f"{name}={value}" for name, value in metadata.items())
