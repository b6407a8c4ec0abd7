"""Pausing: an operator stops or resumes sending to an entity, or receiving from it."""

from __future__ import annotations

from django import forms
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST

from broker_core import namespaces
from broker_core.common.types import EntityStatus
from explorer.frames.family import pages_of
from explorer.frames.presenters import STATUS_WORDS
from explorer.frames.settings_page import to_entity
from explorer.frames.shell import act, address_of, cleaned, notify_error, page


class PauseForm(forms.Form):
    status = forms.TypedChoiceField(choices=[(status, status) for status in EntityStatus], coerce=EntityStatus)


@page
@require_POST
def pause(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """Set the status of an entity, and return to its page."""
    address = address_of(namespace, path)
    status = cleaned(PauseForm(request.POST))["status"]
    set_status = pages_of(namespaces.get_namespace(namespace, actor=request.actor).family).set_status
    done = act(
        request, "pause" if status != EntityStatus.ACTIVE else "resume", address,
        lambda: set_status(address, status, actor=request.actor),
        target=str(status), says=lambda _: result_text(address.name, status),
    )  # fmt: skip
    if done.error:
        notify_error(request, done.error)
    return to_entity(address)


def result_text(name: str, status: EntityStatus) -> str:
    """The result in words."""
    if status is EntityStatus.ACTIVE:
        return f"Resumed {name}: it sends and receives."
    return f"{name}: {STATUS_WORDS[status][0].lower()}{STATUS_WORDS[status][1:]}. Nothing is lost; resume it at any time."
