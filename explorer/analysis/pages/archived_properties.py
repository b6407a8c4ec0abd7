"""The page on which an operator chooses the properties that the archive keeps of a queue's messages."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from broker_core import reads
from broker_core.common.types import Right
from broker_core.history import properties
from explorer.frames import shell
from explorer.operations.presenters import local
from explorer.people.roles import actor_for

from ..forms import ScopeForm


class KeysForm(forms.Form):
    keys = forms.CharField(
        required=False, strip=False, max_length=2000, label="Keys, one a line", widget=forms.Textarea(attrs={"rows": 8}),
    )  # fmt: skip


@shell.page
@require_http_methods(["GET", "POST"])
def analysis_properties(request: HttpRequest) -> HttpResponse:
    """GET shows the keys of a queue, or of all of a namespace. POST sets them."""
    request.actor.require(Right.BROWSE, "the analyses")
    chosen = ScopeForm(request.GET)
    of = chosen.subject if chosen.is_valid() else None
    if of is None or not of.family.texts.application_properties:
        raise Http404("no such queue or namespace, or its messages have no properties")
    request.actor = actor_for(request.user, of.namespace.name)
    chosen_keys = properties.chosen(of.ids)
    known_keys = list(dict.fromkeys(key for keys in chosen_keys.values() for key in keys))
    form = KeysForm(request.POST or None, initial={"keys": "\n".join(known_keys)})
    done = shell.Act()
    report = f"{reverse('explorer:analysis_report', args=('properties',))}?{of.url_query}"
    back = local(request.GET.get("back", "")) or report
    if request.method == "POST" and form.is_valid():
        new_keys = form.cleaned_data["keys"].splitlines()
        done = shell.act(
            request, "choose archived properties", None, lambda: properties.choose(of.ids, new_keys, actor=request.actor),
            target=of.name, says=_says,
        )  # fmt: skip
        if done.error is None:
            return HttpResponseRedirect(back)
    names = reads.property_names(of.namespace.name, of.ids, actor=request.actor)
    context: dict[str, Any] = {
        "section": "insights", "of": of, "back": back, "most": properties.MOST_KEYS,
        "proposed": [name for name in names if name not in known_keys],
        "differ": len({tuple(chosen_keys.get(entity_id, ())) for entity_id in of.ids}) > 1,
    }  # fmt: skip
    return shell.show_form(request, "analysis/properties", form, done=done, **context)


def _says(keys: list[str]) -> str:
    return f"The archive keeps {', '.join(keys)} of messages that leave from now on." if keys else "No properties are archived."
