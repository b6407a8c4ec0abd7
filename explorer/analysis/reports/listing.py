"""The messages, or deliveries, behind a number of an analysis, as a page, and the URLs that lead there."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_GET

from broker_core.common.types import EntityAddress, EventKind, Right
from explorer.analysis import dimensions, wording
from explorer.analysis.forms import ScopeForm
from explorer.frames import shell
from explorer.frames.timeline import words

from . import messages
from .attempts import receiver_name


class MessagesForm(ScopeForm):
    """Which messages to list: those that entered between start and end, and left between left_start and left_end; one of these
    ranges may be missing. key, value: of dimensions. With `deliveries`, of messages.ENDINGS: the deliveries that were received
    between start and end, with `receiver` by this one."""

    start = forms.DateTimeField(required=False)
    end = forms.DateTimeField(required=False)
    left_start = forms.DateTimeField(required=False)
    left_end = forms.DateTimeField(required=False)
    outcome = forms.ChoiceField(required=False, choices=[("", ""), *wording.OUTCOMES.items()])
    cause = forms.CharField(required=False, max_length=4096, strip=False)
    key = forms.CharField(required=False, max_length=200, strip=False)
    value = forms.CharField(required=False, max_length=4096, strip=False)
    origin = forms.IntegerField(required=False, min_value=0, max_value=2**63 - 1)
    destination = forms.IntegerField(required=False, min_value=0, max_value=2**63 - 1)
    order = forms.ChoiceField(required=False, choices=messages.ORDERS.items())
    deliveries = forms.ChoiceField(
        required=False, choices=[("", ""), *((name, words) for name, (words, _) in messages.ENDINGS.items())]
    )
    receiver = forms.CharField(required=False, max_length=4096, strip=False)

    def clean_key(self) -> str:
        key = self.cleaned_data["key"]
        if key and not dimensions.is_key(key):
            raise forms.ValidationError("Messages have no such key.")
        return key

    def clean_order(self) -> str:
        return self.cleaned_data["order"] or "waiting"

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        entered, left = self._range("start", "end"), self._range("left_start", "left_end")
        if not entered and (not left or cleaned.get("deliveries")):
            raise forms.ValidationError("A range is missing.")
        return cleaned

    def _range(self, start: str, end: str) -> tuple[datetime, datetime] | None:
        since, until = self.cleaned_data.get(start), self.cleaned_data.get(end)
        return (since, until) if since and until else None

    def find(self) -> messages.Found:
        """What it asks for."""
        values, ids = self.cleaned_data, self.subject.ids if self.subject else []
        if values["deliveries"]:
            receiver = values["receiver"] if "receiver" in self.data else None
            return messages.find_deliveries(ids, values["start"], values["end"], ending=values["deliveries"], receiver=receiver)
        chosen = {name: values[name] for name in ("outcome", "order", "key", "value", "origin", "destination")}
        chosen["cause"] = values["cause"] if "cause" in self.data else None
        return messages.find(ids, self._range("start", "end"), left=self._range("left_start", "left_end"), **chosen)


def messages_url(of: Mapping[str, Any], start: datetime | None, end: datetime | None, **conditions: Any) -> str:
    """The URL of the messages that entered in a range; None: at any time. of: {"queue": id} or {"namespace": name}. conditions:
    fields of MessagesForm; None is left out."""
    query = {**of, "start": start, "end": end, **conditions}
    texts = {name: value.isoformat() if isinstance(value, datetime) else value for name, value in query.items()}
    return f"{reverse('explorer:analysis_messages')}?{urlencode({k: v for k, v in texts.items() if v is not None})}"


@shell.page
@require_GET
def messages_behind(request: HttpRequest) -> HttpResponse:
    """The messages behind a number: of a queue or namespace and a range, and optionally of an outcome and a cause."""
    request.actor.require(Right.BROWSE, "the analyses")
    chosen = MessagesForm(request.GET)
    if not chosen.is_valid() or chosen.subject is None:
        raise Http404("no such number")
    values, entities, matching = chosen.cleaned_data, chosen.subject.by_id, chosen.find()
    name, family = chosen.subject.namespace.name, chosen.subject.namespace.family
    rows = [(message, of := entities[message.entity_id], EntityAddress(name, of.path)) for message in matching.rows]
    context: dict[str, Any] = {"section": "insights", "matching": matching, "values": values, "subject": chosen.subject}
    if not values["deliveries"]:
        context |= {
            "rows": [(*row, wording.OUTCOMES[row[0].outcome]) for row in rows], "orders": messages.ORDERS,
            "outcome": wording.OUTCOMES.get(values["outcome"], ""), "conditions": _conditions(values),
        }  # fmt: skip
        return shell.show(request, "analysis/messages", context)
    to = f" to {receiver_name(values['receiver'])}" if "receiver" in request.GET else ""
    context |= {
        "ending": f"{to}{messages.ENDINGS[values['deliveries']][0]}", "receiver": chosen.subject.family.texts.receiver,
        "rows": [(*row, words(EventKind(row[0].outcome), family).word) for row in rows],
    }  # fmt: skip
    return shell.show(request, "analysis/deliveries", context)


def _conditions(values: Mapping[str, Any]) -> str:
    """What the messages have in common besides their outcome, as the end of a sentence."""
    conditions = ""
    if values["left_start"]:
        conditions += (
            f" that left the queue from {values['left_start']:%Y-%m-%d %H:%M} to {values['left_end']:%Y-%m-%d %H:%M} UTC"
        )
    if values["key"]:
        conditions += f", with {dimensions.words(values['key'], values['value'])}"
    if values["cause"]:
        conditions += f", with the reason “{values['cause']}”"
    return conditions
