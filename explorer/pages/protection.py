"""Protection of an entity against deletion."""

from __future__ import annotations

from django import forms
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_POST

from broker_core import namespaces
from explorer.frames.settings_page import to_entity
from explorer.frames.shell import act, address_of, cleaned, notify_error, page


class ProtectionForm(forms.Form):
    protected = forms.ChoiceField(choices=[("yes", "yes"), ("no", "no")])


@page
@require_POST
def protect(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """Protect an entity, or no longer, and return to its page."""
    address = address_of(namespace, path)
    protected = cleaned(ProtectionForm(request.POST))["protected"] == "yes"
    done = act(
        request, "protect" if protected else "remove protection", address,
        lambda: namespaces.set_protected(address, protected, actor=request.actor),
        says=lambda _: f"{address.name} is {'protected from deletion' if protected else 'no longer protected from deletion'}.",
    )  # fmt: skip
    if done.error:
        notify_error(request, done.error)
    return to_entity(address)
