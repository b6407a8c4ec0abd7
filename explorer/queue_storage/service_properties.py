"""The properties of an account's queue service: CORS rules, which have an effect, logging and metrics, which have none."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from broker_core import namespaces
from broker_core.common.types import Right
from broker_core.queue_storage import accounts
from broker_core.queue_storage.rules.service_properties import ServiceProperties
from explorer.frames.shell import act, page, show_form

from .service_forms import ServicePropertiesForm
from .settings import SERVICE_LABELS, words


@page
def change(request: HttpRequest, namespace: str) -> HttpResponse:
    """GET shows the form, POST saves the parts that differ."""
    account = namespaces.get_namespace(namespace, actor=request.actor).name
    request.actor.require(Right.MANAGE, account)
    stored = accounts.get_service_properties(account, actor=request.actor)
    form = ServicePropertiesForm(request.POST if request.method == "POST" else None, stored=stored)
    if not form.is_valid():
        return show_form(request, "queue_storage/service_properties", form, account=account)
    changes = form.changes()
    done = act(
        request, "change service properties", None,
        lambda: accounts.set_service_properties(account, **changes, actor=request.actor), target=account,
        says=lambda _: _changed(stored, changes),
    )  # fmt: skip
    if done.error:
        return show_form(request, "queue_storage/service_properties", form, done=done, account=account)
    return HttpResponseRedirect(reverse("explorer:namespace", args=[account]))


def _changed(before: ServiceProperties, changes: dict[str, Any]) -> str:
    parts = [f"{SERVICE_LABELS[name]} from {words(getattr(before, name))} to {words(part)}" for name, part in changes.items()]
    return f"Changed {', '.join(parts)}." if parts else "Nothing was changed."
