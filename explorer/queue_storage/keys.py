"""The two keys of a storage account: showing and replacing them.

A key is shown only on request, in an answer that is not stored, and is never written to the audit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict
from django.urls import reverse
from django.views.decorators.cache import never_cache

from broker_core import queue_storage
from broker_core.common.connection_strings import ConnectionString
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, Right
from broker_core.queue_storage import accounts
from broker_core.queue_storage.accounts import KEYS, StorageAccount
from broker_core.queue_storage.connection_strings import connection_strings
from broker_core.queue_storage.forms import PLAIN
from explorer import sandbox_names
from explorer.frames import changes
from explorer.frames.family import KeyLine, KeyPages
from explorer.frames.shell import Act, act, page, show

PLACE = {"section": "administration", "tab": "keys"}


class KeyForm(forms.Form):
    """A key to use instead of one of the two."""

    which = forms.ChoiceField(label="Replace", choices=[(which, f"the {which} key") for which in KEYS])
    key = forms.CharField(
        label="New key", max_length=200, help_text="Base64 of 64 bytes, as Azure's keys are; 32 bytes at least.",
        widget=forms.TextInput(PLAIN),
    )  # fmt: skip

    def clean_key(self) -> str | None:
        try:
            return accounts.checked_key("key", self.cleaned_data["key"])
        except InvalidArgument as exc:
            raise forms.ValidationError(f"{exc.problem[0].upper()}{exc.problem[1:]}.") from exc


class AccountKeys(KeyPages):
    """The keys of storage accounts, without those of sandboxes."""

    nouns = "Account keys"
    new_text = "New account"
    new_url_name = "namespace_new"
    new_query = "family=queue_storage"
    none = ("No storage accounts", "Each storage account has two keys. Create an account.")

    def lines(self, actor: Actor) -> list[KeyLine]:
        actor.require(Right.MANAGE, "keys")
        sandboxes = sandbox_names.hidden_sandboxes(None, actor, own=False)
        return [
            KeyLine(account.name, f"all queues of {account.name}", "all", reverse("explorer:account_keys", args=[account.name]))
            for account in queue_storage.list_accounts(actor=actor)
            if account.name.lower() not in sandboxes
        ]


@never_cache
@page
def account(request: HttpRequest, namespace: str) -> HttpResponse:
    """GET shows the account without its keys. POST `do`: show, regenerate-primary, regenerate-secondary, replace."""
    request.actor.require(Right.MANAGE, "keys")
    stored = accounts.get_keys(namespace, actor=request.actor)
    return _show(request, stored) if request.method != "POST" else changes.make(request, _CHANGES, stored)


def _reveal(request: HttpRequest, stored: StorageAccount, data: QueryDict) -> HttpResponse:
    act(request, "show keys", None, lambda: None, target=stored.name)
    shown = [
        (which, key, f"{which.capitalize()} key", _strings(stored.name, key))
        for which, key in zip(KEYS, stored.keys, strict=True)
    ]
    return _show(request, stored, shown=shown)


def _strings(account: str, key: str) -> list[ConnectionString]:
    """Those that work now."""
    return [string for string in connection_strings(account, key) if not string.why_not]


def _regenerate(which: str) -> Callable[[HttpRequest, StorageAccount, QueryDict], HttpResponse]:
    def change(request: HttpRequest, stored: StorageAccount, data: QueryDict) -> HttpResponse:
        return _changed(
            request, stored, f"regenerate {which} key",
            lambda: accounts.regenerate_key(stored.name, which=which, actor=request.actor),
            f"{stored.name} has a new {which} key. The old one is refused, and so are signatures made with it.",
        )  # fmt: skip

    return change


def _replace(request: HttpRequest, stored: StorageAccount, data: QueryDict) -> HttpResponse:
    form = KeyForm(data)
    if not form.is_valid():
        return _show(request, stored, form=form)
    which, key = form.cleaned_data["which"], form.cleaned_data["key"]
    return _changed(
        request, stored, f"replace {which} key", lambda: accounts.set_keys(stored.name, **{which: key}, actor=request.actor),
        f"{stored.name} has the given key as its {which} key. The old one is refused, and so are signatures made with it.",
    )  # fmt: skip


def _changed(request: HttpRequest, stored: StorageAccount, action: str, change: Callable[[], Any], text: str) -> HttpResponse:
    done = act(request, action, None, change, target=stored.name, says=lambda _: text)
    return _show(request, stored, done=done) if done.error else HttpResponseRedirect(request.path)


_CHANGES = {"show": _reveal, "replace": _replace} | {f"regenerate-{which}": _regenerate(which) for which in KEYS}


def _show(request: HttpRequest, stored: StorageAccount, *, done: Act = Act(), form: KeyForm | None = None, **context: Any):
    form = form or KeyForm()
    context |= {**PLACE, "deeper": stored.name, "account": stored.name, "form": form, "error": done.error, "which": KEYS}
    status = done.status if done.error else 400 if form.errors else 200
    return show(request, "queue_storage/account_keys", context, fragment="queue_storage/account_keys", status=status)
