"""Forms that declare exchanges and queues, bind, publish and get messages.

Most values are validated by the broker, with RabbitMQ's error texts. An invalid number is therefore passed on as text.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.forms import BoundField

from broker_core.common.durations import parse_human_or_iso
from broker_core.common.errors import InvalidArgument
from explorer.frames.forms.placeholders import fill_field
from explorer.rabbitmq.manual_consumers import MOST_PREFETCH

from .keys import EXCHANGE_TYPES, QUEUE_ARGUMENTS, Key, Unit
from .table import TableRows

MAX_GOT = 32
MAX_COPIES = 1000
_PLAIN = {"autocomplete": "off", "spellcheck": "false"}
_NAME = forms.TextInput(attrs=_PLAIN)


class ValueField(forms.CharField):
    """A setting's value: a number, milliseconds also as a duration ("30 s"), a choice or a text; empty: not given.

    An invalid number stays a text, which the broker refuses.
    """

    def __init__(self, key: Key, **kwargs):
        self.key = key
        widget = forms.TextInput(attrs=_PLAIN)
        if key.unit in (Unit.CHOICE, Unit.FLAG):
            choices = ("true", "false") if key.unit is Unit.FLAG else key.choices
            widget = forms.Select(choices=[("", "not set"), *((choice, choice) for choice in choices)])
        elif key.unit is Unit.MILLISECONDS:
            widget = forms.TextInput(attrs=_PLAIN | {"placeholder": "30 s, 5 min or 60000"})
        if "exchange" in key.name:
            widget.attrs["list"] = "exchanges"
        super().__init__(
            required=False, strip=False, label=key.label, help_text=key.help, widget=widget, max_length=1024, **kwargs
        )

    def clean(self, value) -> Any:
        text = super().clean(value)
        if text == "":
            return None
        match self.key.unit:
            case Unit.MILLISECONDS:
                return _milliseconds(text)
            case Unit.COUNT | Unit.BYTES:
                return _whole(text)
            case Unit.FLAG:
                return {"true": True, "false": False}.get(text, text)
        return "" if text == EMPTY else text


EMPTY = '""'  # how the default exchange is written, since an empty field means: not given


def _whole(text: str) -> int | str:
    try:
        return int(text.replace(",", "").strip())
    except ValueError:
        return text


def _milliseconds(text: str) -> int | str:
    number = _whole(text)
    return number if isinstance(number, int) else _duration(text)


def _duration(text: str) -> int | str:
    """A duration in milliseconds; an invalid text is returned as it is, for the broker to refuse."""
    try:
        duration = parse_human_or_iso(text)
    except InvalidArgument:
        return text
    return text if duration is None else round(duration / timedelta(milliseconds=1))


class ArgumentsMixin(forms.Form):
    """Rows for arguments that have no field of their own."""

    keys: Sequence[Key] = ()

    def set_up_arguments(self, initial: Sequence = (), least: int = 1) -> None:
        data = self.data if self.is_bound else None
        self.others = TableRows("argument", "argument", data, initial, least=least)

    def clean_arguments(self) -> dict[str, Any]:
        """The arguments from fields and rows. One given in both is an error."""
        named = {key.argument: self.cleaned_data.get(key.name) for key in self.keys}
        from_fields = {name: value for name, value in named.items() if value is not None}
        others = self.others.values()
        for name in from_fields.keys() & others.keys():
            self.others.errors.append(f"{name} is given twice: above and under other arguments.")
        if self.others.errors:
            self.add_error(None, "Some arguments are invalid; see below.")
        return from_fields | others


class ExchangeForm(ArgumentsMixin, forms.Form):
    name = forms.CharField(max_length=255, strip=False, label="Name", widget=_NAME, help_text="Must not start with amq.")
    type = forms.ChoiceField(
        choices=[(name, f"{name}: {meaning}") for name, meaning in EXCHANGE_TYPES.items()],
        widget=forms.RadioSelect, label="Type", initial="direct",
    )  # fmt: skip
    durable = forms.BooleanField(required=False, initial=True, label="Durable: survives a restart")
    auto_delete = forms.BooleanField(required=False, label="Auto-delete: deleted with its last binding")
    internal = forms.BooleanField(required=False, label="Internal: receives messages only from other exchanges")
    alternate_exchange = forms.CharField(
        required=False, max_length=255, label="Alternate exchange", widget=forms.TextInput(attrs=_PLAIN | {"list": "exchanges"}),
        help_text="Receives messages that match no binding. It need not exist yet.",
    )  # fmt: skip

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.set_up_arguments()

    def clean(self):
        cleaned = super().clean()
        cleaned["arguments"] = self.clean_arguments()
        if cleaned.get("alternate_exchange"):
            cleaned["arguments"].setdefault("alternate-exchange", cleaned["alternate_exchange"])
        return cleaned


class QueueForm(ArgumentsMixin, forms.Form):
    """A queue to declare. Exclusive ones belong to a connection, so a page cannot declare them."""

    keys = QUEUE_ARGUMENTS

    name = forms.CharField(
        required=False, max_length=255, strip=False, label="Name", widget=_NAME,
        help_text="Empty: the broker generates a name, amq.gen- followed by 22 characters.",
    )  # fmt: skip
    type = forms.ChoiceField(
        choices=[
            ("classic", "classic: requeued messages return to their place"),
            ("quorum", "quorum: counts deliveries, with a default limit of 20"),
        ],
        widget=forms.RadioSelect, initial="classic", label="Type",
    )  # fmt: skip
    durable = forms.BooleanField(required=False, initial=True, label="Durable: survives a restart")
    auto_delete = forms.BooleanField(required=False, label="Auto-delete: deleted with its last consumer")

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for key in self.keys:
            self.fields[key.name] = ValueField(key)
        self.set_up_arguments()

    def groups(self) -> list[tuple[str, list[BoundField]]]:
        """The arguments in the groups of the page: titles with their fields."""
        names = [
            ("Expiry", ("message_ttl", "expires", "dead_letter_exchange", "dead_letter_routing_key")),
            ("Limits", ("max_length", "max_length_bytes", "overflow", "max_priority")),
            ("Delivery", ("single_active_consumer", "delivery_limit", "dead_letter_strategy", "consumer_timeout", "queue_mode")),
        ]
        return [(title, [self[name] for name in group]) for title, group in names]

    def clean(self):
        cleaned = super().clean()
        cleaned["arguments"] = self.clean_arguments()
        return cleaned


class WhereForm(forms.Form):
    """The virtual host of a new object."""

    namespace = forms.ChoiceField(label="Virtual host")

    def __init__(self, *args, hosts: Sequence[str], **kwargs):
        super().__init__(*args, **kwargs)
        self.fields["namespace"].choices = [(host, host) for host in hosts]


class BindingForm(ArgumentsMixin, forms.Form):
    """A binding from an exchange or to a queue. other: its other end. to: "queue" or "exchange"."""

    to = forms.ChoiceField(
        choices=[("queue", "to a queue"), ("exchange", "to an exchange")],
        initial="queue", label="To", widget=forms.RadioSelect,
    )  # fmt: skip
    other = forms.CharField(max_length=255, strip=False, label="Name", widget=_NAME)
    routing_key = forms.CharField(required=False, max_length=255, strip=False, label="Routing key", widget=_NAME)

    def __init__(self, *args, other_label: str = "Name", others: str = "", fixed_to: str = "", **kwargs):
        super().__init__(*args, **kwargs)
        self.fields["other"].label = other_label
        if others:
            self.fields["other"].widget = forms.TextInput(attrs=_PLAIN | {"list": others})
        if fixed_to:
            del self.fields["to"]
        self.set_up_arguments()

    def clean(self):
        cleaned = super().clean()
        cleaned["arguments"] = self.clean_arguments()
        return cleaned


class UnbindForm(forms.Form):
    """The binding to remove, as identified by a row of the table."""

    binding = forms.CharField(max_length=4000, strip=False)


class PublishForm(forms.Form):
    """A message and its routing key. `properties()` and `payload()` only after is_valid."""

    routing_key = forms.CharField(required=False, max_length=255, strip=False, label="Routing key", widget=_NAME)
    body = forms.CharField(
        required=False, strip=False, label="Payload",
        widget=forms.Textarea(attrs={"rows": 6, "class": "mono", "spellcheck": "false"}),
    )  # fmt: skip
    encoding = forms.ChoiceField(
        choices=[("text", "text: UTF-8, as typed"), ("base64", "base64: decoded to bytes")], label="Payload encoding"
    )  # fmt: skip
    copies = forms.IntegerField(min_value=1, max_value=MAX_COPIES, initial=1, label="Copies")
    fill = fill_field()
    expiration = forms.CharField(
        required=False, max_length=40, strip=False, label="Expiration",
        widget=forms.TextInput(attrs=_PLAIN | {"placeholder": "30 s, 5 min or 60000"}),
        help_text="Sent in milliseconds.",
    )  # fmt: skip
    delivery_mode = forms.TypedChoiceField(
        choices=[("2", "2: persistent"), ("1", "1: transient")], coerce=int, initial="2", label="Delivery mode"
    )  # fmt: skip
    priority = forms.IntegerField(required=False, min_value=0, max_value=255, label="Priority")
    message_id = forms.CharField(required=False, max_length=255, label="Message ID")
    correlation_id = forms.CharField(required=False, max_length=255, label="Correlation ID")
    reply_to = forms.CharField(required=False, max_length=255, label="Reply to")
    content_type = forms.CharField(required=False, max_length=255, label="Content type")
    content_encoding = forms.CharField(required=False, max_length=255, label="Content encoding")
    type = forms.CharField(required=False, max_length=255, label="Type")
    app_id = forms.CharField(required=False, max_length=255, label="App id")
    user_id = forms.CharField(required=False, max_length=255, label="User id")
    timestamp = forms.DateTimeField(
        required=False, label="Timestamp (UTC)", widget=forms.DateTimeInput(attrs={"type": "datetime-local"})
    )

    MORE = (
        "message_id",
        "correlation_id",
        "reply_to",
        "content_type",
        "content_encoding",
        "type",
        "app_id",
        "user_id",
        "timestamp",
    )

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        data = self.data if self.is_bound else None
        self.headers = TableRows("header", "header", data, self.initial.get("headers", []), least=2)

    def more(self) -> list[BoundField]:
        """The fields of rarely used properties."""
        return [self[name] for name in self.MORE]

    @property
    def has_more(self) -> bool:
        """Whether any of them is given or has errors, so that they are shown expanded."""
        return any(field.value() or field.errors for field in self.more() if field.name != "content_type")

    def clean(self):
        cleaned = super().clean()
        if cleaned.get("encoding") == "base64":
            try:
                base64.b64decode(cleaned.get("body", ""), validate=True)
            except (binascii.Error, ValueError):
                self.add_error("body", "Not valid base64. Choose text, or encode the payload first.")
        cleaned["headers"] = self.headers.values()
        if self.headers.errors:
            self.add_error(None, "Some headers are invalid; see below.")
        return cleaned

    def clean_expiration(self) -> str:
        """Convert a duration to milliseconds; an invalid text is returned as it is, for the broker to refuse."""
        text = self.cleaned_data["expiration"]
        return text if not text or text.isdigit() else str(_duration(text))

    def payload(self, fill: Callable[[str], str] = str) -> bytes:
        """The body of a copy. fill: fills its placeholders, if the body is a text."""
        text = self.cleaned_data["body"] if self.cleaned_data["encoding"] == "base64" else fill(self.cleaned_data["body"])
        return base64.b64decode(text) if self.cleaned_data["encoding"] == "base64" else text.replace("\r\n", "\n").encode()

    def properties(self) -> dict[str, Any]:
        """The given basic properties by name; headers as plain values."""
        values = self.cleaned_data
        names = ("expiration", "delivery_mode", "priority", *self.MORE)
        properties = {name: values[name] for name in names if values.get(name) not in (None, "")}
        at = properties.get("timestamp")
        if isinstance(at, datetime):
            properties["timestamp"] = (at if at.tzinfo else at.replace(tzinfo=UTC)).replace(microsecond=0)
        return properties | ({"headers": values["headers"]} if values["headers"] else {})


HOLD = "hold"
ACK_MODES = {
    "requeue": "Nack with requeue: returned to the queue, marked as redelivered; on a quorum queue counted as a failed delivery",
    "ack": "Automatic ack: removed from the queue",
    "reject-requeue": "Reject with requeue: returned to the queue; on a quorum queue counted as a failed delivery",
    "reject": "Reject without requeue: dead-lettered or dropped",
    HOLD: "Hold: unacknowledged on your own connection until you ack, nack or reject it",
}


class GetForm(forms.Form):
    count = forms.IntegerField(min_value=1, max_value=MAX_GOT, initial=1, label="Count")
    mode = forms.ChoiceField(
        choices=list(ACK_MODES.items()), widget=forms.RadioSelect, initial="requeue", label="Acknowledgement"
    )


class ConsumeForm(forms.Form):
    prefetch = forms.IntegerField(
        min_value=1, max_value=MOST_PREFETCH, initial=2, label="Prefetch", help_text="Maximum unacknowledged messages."
    )
    exclusive = forms.BooleanField(required=False, label="Exclusive: no other consumers allowed")


class OptionsForm(forms.Form):
    """Settings of message expiry that RabbitMQ does not have."""

    exact_expiry = forms.BooleanField(
        required=False, label="Remove each message as soon as it expires (otherwise at the head of the queue, as in RabbitMQ)"
    )
    retroactive_ttl = forms.BooleanField(required=False, label="Apply a new TTL to waiting messages (as RabbitMQ's guide says)")


class DeleteForm(forms.Form):
    """Conditions of a deletion, as in the protocol."""

    if_unused = forms.BooleanField(required=False, label="Only if unused")
    if_empty = forms.BooleanField(required=False, label="Only if empty")


class VhostForm(forms.Form):
    name = forms.CharField(max_length=255, strip=False, label="Name", widget=_NAME)
    description = forms.CharField(required=False, max_length=250, label="Description")


class ListQuery(forms.Form):
    """The query of a list. sort: a column, with a minus for descending order."""

    sort = forms.CharField(required=False, max_length=20)
    page = forms.IntegerField(required=False, min_value=1, max_value=100_000)

    def __init__(self, *args, sorts: Sequence[str], **kwargs):
        super().__init__(*args, **kwargs)
        self.sorts = sorts

    def clean_sort(self) -> str:
        sort = self.cleaned_data["sort"]
        if sort and sort.removeprefix("-") not in self.sorts:
            raise forms.ValidationError(f"must be one of {', '.join(self.sorts)}; prefix it with - for descending order.")
        return sort


ORDERS = [("", "queue order"), ("newest", "newest first")]
QUEUE_TABS = ("messages", "ready", "unacked", "expired", "consumers", "bindings", "settings", "history")


class QueueQuery(forms.Form):
    """A queue's list. cursor: from the previous page. tab: empty for all messages."""

    tab = forms.ChoiceField(required=False, choices=[(tab, tab) for tab in QUEUE_TABS])
    cursor = forms.CharField(required=False, max_length=200)
    order = forms.ChoiceField(required=False, choices=ORDERS)
