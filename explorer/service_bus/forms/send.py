"""The form that sends a message."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from django import forms

from broker_core.form_fields import DurationField
from broker_core.service_bus.rules.values import Message
from explorer.frames.forms.fields import MomentField, with_unix_newlines
from explorer.frames.forms.placeholders import fill_field, filler

from .properties import PropertyRows

MAX_COPIES = 1000
TEXT_FIELDS = (
    "message_id", "session_id", "correlation_id", "subject", "content_type", "to", "reply_to", "reply_to_session_id",
    "partition_key",
)  # fmt: skip
CONTENT_TYPES = ("application/json", "text/plain", "application/xml", "application/octet-stream")


class SendForm(forms.Form):
    """A message and the number of its copies. `messages(now)` returns the messages to send."""

    body = forms.CharField(
        required=False,
        strip=False,
        label="Body",
        widget=forms.Textarea(attrs={"rows": 8, "class": "mono", "spellcheck": "false"}),
    )
    body_file = forms.FileField(
        required=False, allow_empty_file=True, label="or a file", help_text="The bytes of the file become the body, unchanged."
    )
    content_type = forms.CharField(
        required=False, max_length=200, label="Content type", widget=forms.TextInput(attrs={"list": "content-types"})
    )
    message_id = forms.CharField(
        required=False, max_length=128, label="Message ID", help_text="-2, -3 and so on are appended for further copies."
    )
    subject = forms.CharField(required=False, max_length=500, label="Subject")
    time_to_live = DurationField(required=False, label="Time-to-live", help_text="30 s, 5 min, PT5M. Empty: the queue's default.")
    scheduled = MomentField(
        required=False, label="Schedule", help_text="in 5 min, or 2030-01-31 12:00 (UTC). Empty: send at once."
    )  # fmt: skip
    copies = forms.IntegerField(
        min_value=1, max_value=MAX_COPIES, initial=1, label="Copies", help_text="Sent together: all or none."
    )
    fill = fill_field()
    session_id = forms.CharField(required=False, max_length=128, label="Session ID")
    correlation_id = forms.CharField(required=False, max_length=500, label="Correlation ID")
    to = forms.CharField(required=False, max_length=500, label="To")
    reply_to = forms.CharField(required=False, max_length=500, label="Reply to")
    reply_to_session_id = forms.CharField(required=False, max_length=128, label="Reply to session ID")
    partition_key = forms.CharField(
        required=False, max_length=128, label="Partition key", help_text="With a session ID it must be the same."
    )

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        data = self.data if self.is_bound else None
        self.properties = PropertyRows("property", "application property", data, self.initial.get("properties", []))

    def clean(self):
        cleaned = super().clean()
        if cleaned.get("body") and cleaned.get("body_file"):
            self.add_error("body_file", "Enter a text or choose a file, not both.")
        cleaned["properties"] = self.properties.values()
        if self.properties.errors:
            self.add_error(None, "Some application properties are invalid; see below.")
        return cleaned

    def messages(self, now: datetime) -> list[Message]:
        """The messages. Only after is_valid. now: the namespace's clock, which a delay is added to."""
        values = self.cleaned_data
        upload = values["body_file"]
        text = with_unix_newlines(values["body"])
        whole = upload.read() if upload else None
        scheduled = values["scheduled"]
        at = now + scheduled if isinstance(scheduled, timedelta) else scheduled
        messages = []
        for number in range(1, values["copies"] + 1):
            fill = filler(number, now, fills=values["fill"])
            texts: dict[str, Any] = {name: fill(values[name]) or None for name in TEXT_FIELDS}
            if texts["message_id"] == values["message_id"]:
                texts["message_id"] = _copy_id(values["message_id"], number)
            messages.append(
                Message(
                    body=fill(text).encode() if whole is None else whole, time_to_live=values["time_to_live"],
                    scheduled_enqueue_at=at, properties=_filled(values["properties"], fill), **texts,
                )
            )  # fmt: skip
        return messages


def _filled(properties: dict[str, Any], fill: Callable[[str], str]) -> dict[str, Any]:
    return {name: fill(value) if type(value) is str else value for name, value in properties.items()}


def _copy_id(message_id: str, number: int) -> str | None:
    return (f"{message_id}-{number}" if message_id and number > 1 else message_id) or None
