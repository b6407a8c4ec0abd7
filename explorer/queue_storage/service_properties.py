"""The properties of an account's queue service: CORS rules, which have an effect, logging and metrics, which have none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.core import signing
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import urlencode

from broker_core import namespaces
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Right
from broker_core.queue_storage import accounts
from broker_core.queue_storage.rules.service_properties import ServiceProperties, as_json, from_json
from explorer.frames.shell import Act, act, page, show_form

from .service_forms import ServicePropertiesForm
from .settings import SERVICE_LABELS, words

RESTORE = "restore"  # in the address of an Undo button: the parts to bring back, signed


@page
def change(request: HttpRequest, namespace: str) -> HttpResponse:
    """GET shows the form. POST saves the parts that differ, or brings back those that an Undo button names."""
    account = namespaces.get_namespace(namespace, actor=request.actor).name
    request.actor.require(Right.MANAGE, account)
    stored = accounts.get_service_properties(account, actor=request.actor)
    is_post = request.method == "POST"
    if is_post and (token := request.GET.get(RESTORE)):
        form, changes, undo = ServicePropertiesForm(None, stored=stored), _restored(token, account), ""
    else:
        form = ServicePropertiesForm(request.POST if is_post else None, stored=stored)
        if not form.is_valid():
            return show_form(request, "queue_storage/service_properties", form, account=account)
        changes = form.changes()
        undo = _undo_url(request, stored, changes, account) if changes else ""
    done = _save(request, account, stored, changes, undo)
    if done.error:
        return show_form(request, "queue_storage/service_properties", form, done=done, account=account)
    return HttpResponseRedirect(reverse("explorer:namespace", args=[account]))


def _save(request: HttpRequest, account: str, stored: ServiceProperties, changes: Mapping[str, Any], undo: str) -> Act:
    return act(
        request, "change service properties", None,
        lambda: accounts.set_service_properties(account, **changes, actor=request.actor), target=account,
        says=lambda _: _changed(stored, changes), undo=lambda _: undo,
    )  # fmt: skip


def _undo_url(request: HttpRequest, stored: ServiceProperties, changes: Mapping[str, Any], account: str) -> str:
    """Where an Undo button posts to: with the stored values of the parts that are changed."""
    values = as_json(stored)
    token = signing.dumps({name: values[name] for name in changes}, salt=_salt(account), compress=True)
    return f"{request.path}?{urlencode({RESTORE: token})}"


def _restored(token: str, account: str) -> dict[str, Any]:
    """The parts in such an address. Raises InvalidArgument."""
    try:
        values = signing.loads(token, salt=_salt(account))
    except signing.BadSignature as exc:
        raise InvalidArgument(RESTORE, "is not of an Undo button of this page") from exc
    properties = from_json(values)
    return {name: getattr(properties, name) for name in values}


def _salt(account: str) -> str:
    return f"service properties of {account}"


def _changed(before: ServiceProperties, changes: Mapping[str, Any]) -> str:
    parts = [f"{SERVICE_LABELS[name]} from {words(getattr(before, name))} to {words(part)}" for name, part in changes.items()]
    return f"Changed {', '.join(parts)}." if parts else "Nothing was changed."
