"""Changes the behaviour of a namespace. The namespace's page lists what differs (service_bus/_namespace_facts.html)."""

from __future__ import annotations

from django import forms
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_POST

from broker_core import namespaces
from broker_core.common.types import Behaviour
from explorer.frames.shell import act, cleaned, notify_error, page


class BehaviourForm(forms.Form):
    behaviour = forms.ChoiceField(choices=[(str(behaviour), str(behaviour)) for behaviour in Behaviour])


@page
@require_POST
def change(request: HttpRequest, namespace: str) -> HttpResponse:
    """Change the behaviour of a namespace, and return to its page."""
    behaviour = cleaned(BehaviourForm(request.POST))["behaviour"]
    done = act(
        request, "change behaviour", None,
        lambda: namespaces.update_namespace(namespace, behaviour=behaviour, actor=request.actor),
        target=namespace,
        says=lambda changed: f"The entities of {changed.name} now behave as {changed.behaviour}.",
    )  # fmt: skip
    if done.error:
        notify_error(request, done.error)
    return HttpResponseRedirect(reverse("explorer:namespace", args=[namespace]))
