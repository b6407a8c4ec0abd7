"""Create a shared access signature, of a storage account or of one queue.

It is shown once, in an answer that is not stored, and is written nowhere.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache

from broker_core import queue_storage
from broker_core.common.types import EntityAddress, Right
from broker_core.form_fields import DurationField
from broker_core.queue_storage import accounts
from broker_core.queue_storage.accounts import KEYS, StorageAccount
from broker_core.queue_storage.connection_strings import service_url
from broker_core.queue_storage.forms import PLAIN
from broker_core.queue_storage.rules import sas
from broker_core.queue_storage.rules.sas import AccessPolicy, Sas
from explorer.frames.shell import act, address_of, page, show_form

from .keys import PLACE
from .policy_forms import InstantField

LONGEST = timedelta(days=3650)
_NO_PORT = "Queue Storage has no port here: QUEUE_STORAGE_PORT is 0. Clients cannot connect."
_NO_TLS = "Queue Storage has no port with TLS here: set TLS_CERTIFICATE and TLS_KEY. Clients cannot connect with HTTPS."
TYPES = (("s", "service: list queues, properties"), ("c", "queues"), ("o", "messages"))


def _letters(letters: str) -> forms.MultipleChoiceField:
    return forms.MultipleChoiceField(
        label="Permissions", choices=[(letter, sas.LETTERS[letter]) for letter in letters], required=False,
        widget=forms.CheckboxSelectMultiple(),
    )  # fmt: skip


class SignatureForm(forms.Form):
    """What a signature permits, when and for which clients, and the key that signs it."""

    start = InstantField(label="Valid from", help_text="A time or date in UTC. Empty: now.")
    valid_for = DurationField(
        required=False, label="Valid for", initial=timedelta(hours=8), help_text="From then on: 90 s, 8 h, 7 days, PT1H."
    )
    addresses = forms.CharField(
        required=False, max_length=100, label="Client addresses", help_text="One address, or a range. Empty: any.",
        widget=forms.TextInput({**PLAIN, "placeholder": "10.0.0.1-10.0.0.9"}),
    )  # fmt: skip
    https_only = forms.BooleanField(required=False, label="HTTPS only")
    key = forms.ChoiceField(
        label="Signed with", choices=[(which, f"the {which} key") for which in KEYS],
        help_text="Replacing this key revokes the signature.",
    )  # fmt: skip

    def clean_valid_for(self) -> timedelta | None:
        period = self.cleaned_data["valid_for"]
        if period and period > LONGEST:
            raise forms.ValidationError("Must be at most 10 years.")
        return period

    def clean_start(self) -> str:
        text = self.cleaned_data["start"]
        if (start := sas.read_instant(text)) and start > datetime.now(UTC) + LONGEST:
            raise forms.ValidationError("Must be within the next 10 years.")
        return text

    def clean_addresses(self) -> str:
        text = "".join(self.cleaned_data["addresses"].split())
        if text and sas.read_addresses(text) is None:
            raise forms.ValidationError("Enter one address such as 10.0.0.1, or a range such as 10.0.0.1-10.0.0.9.")
        return text

    def clean(self) -> dict[str, Any]:
        values = super().clean() or {}
        start, period = sas.read_instant(values.get("start", "")), values.get("valid_for")
        if start and period and start + period <= datetime.now(UTC):
            self.add_error("valid_for", "The signature would have expired already.")
        return values

    def sas(self, now: datetime) -> Sas:
        """The signature to be made; call it only after is_valid()."""
        values = self.cleaned_data
        begin, period = sas.read_instant(values["start"]) or now, values["valid_for"]
        return Sas(
            permission=_in_order(values["permission"], sas.LETTERS) or None,
            start=values["start"] or None,
            expiry=period and f"{begin + period:%Y-%m-%dT%H:%M:%SZ}",
            addresses=values["addresses"],
            protocols="https" if values["https_only"] else "",
            **self.own(values),
        )

    def own(self, values: dict[str, Any]) -> dict[str, Any]:
        """The fields of Sas that only this kind of signature has."""
        raise NotImplementedError


class AccountSignatureForm(SignatureForm):
    """A signature for all queues of an account."""

    permission = _letters("".join(sas.LETTERS))
    types = forms.MultipleChoiceField(
        label="Resource types", choices=TYPES, initial=["s", "c", "o"], required=False,
        widget=forms.CheckboxSelectMultiple(),
    )  # fmt: skip

    def clean(self) -> dict[str, Any]:
        values = super().clean()
        for name, problem in (
            ("permission", "Select at least one permission."), ("types", "Select at least one resource type."),
            ("valid_for", "Enter a duration."),
        ):  # fmt: skip
            if name not in self.errors and not values.get(name):
                self.add_error(name, problem)
        return values

    def own(self, values: dict[str, Any]) -> dict[str, Any]:
        return {"services": "q", "types": _in_order(values["types"], dict(TYPES))}


class QueueSignatureForm(SignatureForm):
    """A signature for the messages of one queue. What its access policy says, the signature must leave out (QS-096)."""

    policy_id = forms.ChoiceField(
        label="Access policy", required=False,
        help_text="Leave the fields that it sets empty. Changing or removing it changes or revokes the signature.",
    )  # fmt: skip
    permission = _letters(sas.QUEUE_LETTERS)

    def __init__(self, *args: Any, policies: Sequence[AccessPolicy], **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._policies = {policy.id: policy for policy in policies}
        choices = [(policy.id, str(policy)) for policy in policies]
        self.fields["policy_id"].choices = [("", "none"), *choices]
        self.fields["valid_for"].help_text += " Leave empty if the access policy has an expiry."

    def clean(self) -> dict[str, Any]:
        values = super().clean()
        policy = self._policies.get(values.get("policy_id") or "", AccessPolicy(""))
        for name, stored, missing in (
            ("permission", policy.permission, "Select at least one permission."), ("start", policy.start, ""),
            ("valid_for", policy.expiry, "Enter a duration."),
        ):  # fmt: skip
            given = name in self.errors or values.get(name)
            if stored and values.get(name):
                self.add_error(name, f"The access policy {policy.id} already says this; leave it empty.")
            elif missing and not (stored or given):
                self.add_error(name, missing)
        return values

    def own(self, values: dict[str, Any]) -> dict[str, Any]:
        return {"policy_id": values["policy_id"] or None}


@never_cache
@page
def of_account(request: HttpRequest, namespace: str) -> HttpResponse:
    """For all queues of the account."""
    request.actor.require(Right.MANAGE, "keys")
    stored = accounts.get_keys(namespace, actor=request.actor)
    form = AccountSignatureForm(request.POST if request.method == "POST" else None)
    return _answer(request, stored, form, None, reverse("explorer:account_keys", args=[stored.name]))


@never_cache
@page
def of_queue(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """For the messages of one queue."""
    request.actor.require(Right.MANAGE, "keys")
    stored = accounts.get_keys(namespace, actor=request.actor)
    queue = queue_storage.get_queue(address_of(namespace, path), actor=request.actor)
    form = QueueSignatureForm(request.POST if request.method == "POST" else None, policies=queue.access_policies)
    cancel_url = reverse("explorer:entity_settings", args=(queue.address.namespace, queue.address.path))
    return _answer(request, stored, form, queue.address, cancel_url)


def _answer(
    request: HttpRequest, stored: StorageAccount, form: SignatureForm, queue: EntityAddress | None, cancel_url: str
) -> HttpResponse:
    name = queue.path if queue else None
    context: dict[str, Any] = {
        **PLACE,
        "deeper": "New signature",
        "account": stored.name,
        "queue": name,
        "cancel_url": cancel_url,
    }
    if form.is_valid():
        which = form.cleaned_data["key"]
        made = sas.signed(form.sas(datetime.now(UTC)), stored.keys[KEYS.index(which)], account=stored.name, queue=name)
        act(
            request, "create shared access signature", queue, lambda: made, target="" if queue else stored.name,
            says=lambda _: f"Created a signature: {_words(made)}, signed with the {which} key.",
        )  # fmt: skip
        context |= _shown(stored.name, name, made)
    return show_form(request, "queue_storage/signature_new", form, **context)


def _in_order(chosen: Container[str], letters: Iterable[str]) -> str:
    """The letters that are chosen, in the order that clients use."""
    return "".join(letter for letter in letters if letter in chosen)


def _words(made: Sas) -> str:
    policy = made.policy_id and f"with the access policy {made.policy_id}"
    permissions = sas.letters_in_words(made.permission or "")
    times = made.start and f"from {made.start}", made.expiry and f"until {made.expiry}"
    clients = made.addresses and f"for clients at {made.addresses}", made.protocols and "over HTTPS only"
    return ", ".join(filter(None, (permissions, policy, *times, *clients)))


def _shown(account: str, queue: str | None, made: Sas) -> dict[str, Any]:
    """The signature in the forms that clients take. Without a port, there is no URL."""
    token, https_only = sas.as_query(made), bool(made.protocols)
    address = service_url(account, https_only=https_only)
    results = [("token", "SAS token", token)]
    if not address:
        return {"results": results, "why_no_url": _NO_TLS if https_only else _NO_PORT}
    results.append(("url", "Queue URL" if queue else "Service URL", f"{address}/{queue or ''}?{token}"))
    results.append(("string", "Connection string", f"QueueEndpoint={address};SharedAccessSignature={token}"))
    return {"results": results}
