"""The form that moves messages of a queue."""

from __future__ import annotations

import json

from django import forms

from broker_core.rabbitmq import Back, DeadLetterOrigin, ToExchange, ToQueue
from broker_core.rabbitmq.messages.moving import Target

BACK, FIRST, QUEUE, EXCHANGE = "back", "first", "queue", "exchange"
MOVE_TARGETS = {
    BACK: "Back to the queue where each message died last, from its x-death header",
    FIRST: "Back to the queue where each message died first, if different",
    QUEUE: "To one queue",
    EXCHANGE: "To an exchange, as if published again",
}
MAX_NUMBER = 2**63 - 1
_PLAIN = {"autocomplete": "off", "spellcheck": "false"}


class MoveForm(forms.Form):
    """to: a key of MOVE_TARGETS. group: the only group to move, as written by `group_text`. up_to: the highest number that the
    preview counted. confirmed: the target that was previewed, as written by `in_words`."""

    to = forms.ChoiceField(choices=list(MOVE_TARGETS.items()), widget=forms.RadioSelect, label="Destination")
    queue = forms.CharField(
        required=False, max_length=255, strip=False, label="Queue", widget=forms.TextInput(attrs=_PLAIN | {"list": "queues"})
    )
    exchange = forms.CharField(
        required=False,
        max_length=255,
        strip=False,
        label="Exchange",
        widget=forms.TextInput(attrs=_PLAIN | {"list": "exchanges"}),
    )
    routing_key = forms.CharField(
        required=False, max_length=255, strip=False, label="Routing key", widget=forms.TextInput(attrs=_PLAIN),
        help_text="Empty: each message keeps its own.",
    )  # fmt: skip
    group = forms.CharField(required=False, max_length=4000, strip=False, widget=forms.HiddenInput)
    up_to = forms.IntegerField(required=False, min_value=0, max_value=MAX_NUMBER, widget=forms.HiddenInput)
    confirmed = forms.CharField(required=False, max_length=600)

    def clean_group(self) -> DeadLetterOrigin | None:
        text = self.cleaned_data["group"]
        return read_group(text) if text else None

    def target(self) -> Target | None:
        """The target; None: not given yet. Only after is_valid."""
        values = self.cleaned_data
        match values["to"]:
            case "queue":
                return ToQueue(values["queue"]) if values["queue"] else None
            case "exchange":
                return ToExchange(values["exchange"], values["routing_key"] or None) if values["exchange"] else None
        return Back(first=values["to"] == FIRST)


def group_text(of: DeadLetterOrigin) -> str:
    """A group as a form or query value."""
    return json.dumps([of.queue, of.reason, *(["first"] if of.first else [])])


def read_group(text: str) -> DeadLetterOrigin:
    """The group of a `group_text`. Raises ValidationError."""
    try:
        match json.loads(text):
            case [None, None, *which] if which in ([], ["first"]):
                return DeadLetterOrigin(None, None, bool(which))
            case [str(queue), str(reason), *which] if which in ([], ["first"]):
                return DeadLetterOrigin(queue, reason, bool(which))
    except (ValueError, RecursionError):  # RecursionError: nested too deeply
        pass
    raise forms.ValidationError('must be a queue and a reason, such as ["orders", "rejected"], or [null, null].')


def in_words(target: Target, count: int = 2) -> str:
    """A target in words, for the page and the audit. count: number of the messages."""
    match target:
        case ToQueue(name):
            return f"to the queue {name}"
        case ToExchange(exchange, key):
            return f"to the exchange {exchange}" + ("" if key is None else f", key {key!r}")
        case Back(first):
            return f"back to where {'it' if count == 1 else 'they'} died {'first' if first else 'last'}"
