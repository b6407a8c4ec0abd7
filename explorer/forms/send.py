"""What a person writes to send a message."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django import forms

from broker_core.semantics.durations import parse_human_or_iso
from broker_core.semantics.errors import InvalidArgument
from broker_core.semantics.types import Message
from broker_core.semantics.values import TYPES, Typed, encode_properties

from .fields import DurationField, MomentField

MAX_COPIES = 1000
PROPERTY_ROWS = 3
TEXT_FIELDS = ("message_id", "session_id", "correlation_id", "subject", "content_type", "to", "reply_to")
CONTENT_TYPES = ("application/json", "text/plain", "application/xml", "application/octet-stream")


class SendForm(forms.Form):
    """A message and how often. `messages(now)` gives what to send, by the namespace's clock."""

    body = forms.CharField(
        required=False,
        strip=False,
        label="Body",
        widget=forms.Textarea(attrs={"rows": 8, "class": "mono", "spellcheck": "false"}),
    )
    body_file = forms.FileField(
        required=False, allow_empty_file=True, label="or a file", help_text="Its bytes are the body, unchanged."
    )
    content_type = forms.CharField(
        required=False, max_length=200, label="Content type", widget=forms.TextInput(attrs={"list": "content-types"})
    )
    message_id = forms.CharField(
        required=False, max_length=128, label="Message id", help_text="Copies after the first get -2, -3 ... appended."
    )
    subject = forms.CharField(required=False, max_length=500, label="Subject")
    time_to_live = DurationField(required=False, label="Time-to-live", help_text="30 s, 5 min, PT5M. Empty: as the queue says.")
    scheduled = MomentField(
        required=False, label="Schedule", help_text="in 5 min, or 2030-01-31 12:00 (UTC). Empty: at once."
    )  # fmt: skip
    copies = forms.IntegerField(
        min_value=1, max_value=MAX_COPIES, initial=1, label="Copies", help_text="Sent together: all or none."
    )
    session_id = forms.CharField(required=False, max_length=128, label="Session id")
    correlation_id = forms.CharField(required=False, max_length=500, label="Correlation id")
    to = forms.CharField(required=False, max_length=500, label="To")
    reply_to = forms.CharField(required=False, max_length=500, label="Reply to")

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.property_errors: list[str] = []

    def property_rows(self) -> list[tuple[str, str, str]]:
        """(name, type, text) as typed, and empty rows to type into."""
        typed = self._typed_properties() if self.is_bound else list(self.initial.get("properties", []))
        return typed + [("", "string", "")] * max(1, PROPERTY_ROWS - len(typed))

    def clean(self):
        cleaned = super().clean()
        if cleaned.get("body") and cleaned.get("body_file"):
            self.add_error("body_file", "Choose either a text or a file, not both.")
        cleaned["properties"] = self._properties()
        return cleaned

    def messages(self, now: datetime) -> list[Message]:
        """Only after is_valid. now: the namespace's clock, from which a delay counts."""
        values = self.cleaned_data
        upload = values["body_file"]
        body = upload.read() if upload else _with_unix_newlines(values["body"]).encode()
        common = {name: values[name] or None for name in TEXT_FIELDS if name != "message_id"}
        scheduled = values["scheduled"]
        at = now + scheduled if isinstance(scheduled, timedelta) else scheduled
        return [
            Message(
                body=body, message_id=_copy_id(values["message_id"], i), time_to_live=values["time_to_live"],
                scheduled_enqueue_at=at, properties=values["properties"], **common,
            )
            for i in range(values["copies"])
        ]  # fmt: skip

    def _typed_properties(self) -> list[tuple[str, str, str]]:
        columns = (self.data.getlist(f"property_{part}") for part in ("name", "type", "value"))
        return [row for row in zip(*columns, strict=False) if row[0].strip() or row[2].strip()]

    def _properties(self) -> dict[str, Typed]:
        found = {}
        for name, kind, text in self._typed_properties():
            try:
                found[name.strip()] = typed_value(name.strip(), kind, text)
            except InvalidArgument as exc:
                self.property_errors.append(str(exc))
        if self.property_errors:
            self.add_error(None, "Some application properties cannot be sent; see below.")
        return found


def typed_value(name: str, kind: str, text: str) -> Typed:
    """What a person typed for an application property, as the AMQP type chosen. Raises InvalidArgument naming it."""
    if kind not in TYPES:
        raise InvalidArgument(name or "application property", f"the type {kind!r} is none of {', '.join(TYPES)}")
    readers = {
        "null": lambda t: None, "boolean": _boolean, "timestamp": _timestamp, "binary": _binary, "uuid": UUID,
        "timespan": lambda t: parse_human_or_iso(t, name), "float": float, "double": float,
    }  # fmt: skip
    is_integer = "int" in kind or kind in ("long", "ulong", "short", "ushort", "byte", "ubyte")
    try:
        value = Typed(kind, int(text) if is_integer else readers.get(kind, str)(text))
    except (ValueError, binascii.Error) as exc:
        raise InvalidArgument(f"application property {name!r}", f"{text!r} is no {kind}") from exc
    encode_properties({name: value})
    return value


def _boolean(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError(text)
    return text.strip().lower() == "true"


def _timestamp(text: str) -> datetime:
    at = datetime.fromisoformat(text.strip())
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _binary(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _copy_id(message_id: str, index: int) -> str | None:
    return (f"{message_id}-{index + 1}" if index else message_id) or None


def _with_unix_newlines(text: str) -> str:
    return text.replace("\r\n", "\n")
