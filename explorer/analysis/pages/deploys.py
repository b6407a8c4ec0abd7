"""The page on which an operator marks a deploy, to compare what was before with what is after."""

from __future__ import annotations

from django import forms
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from broker_core.common.types import Right
from explorer.charts import changes
from explorer.frames import shell

from ..forms import ScopeForm


class DeployForm(forms.Form):
    name = forms.CharField(max_length=changes.LONGEST_NAME, label="Name", help_text='Such as "checkout 1.4.2".')


@shell.page
@require_http_methods(["GET", "POST"])
def mark_deploy(request: HttpRequest) -> HttpResponse:
    """Mark that something was deployed now, which the namespace of the query uses."""
    request.actor.require(Right.BROWSE, "the analyses")
    chosen = ScopeForm(request.GET)
    of = chosen.subject if chosen.is_valid() else None
    if of is None:
        raise Http404("no such queue or namespace")
    form, done = DeployForm(request.POST or None), shell.Act()
    if request.method == "POST" and form.is_valid():
        name = form.cleaned_data["name"]
        done = shell.act(
            request, changes.DEPLOY, None, lambda: changes.check_deploy(name, actor=request.actor),
            target=changes.deploy_target(of.namespace.name, name), says=lambda _: f"Marked the deploy of {name}.",
        )  # fmt: skip
        if done.error is None:
            return HttpResponseRedirect(f"{reverse('explorer:analysis_report', args=('incidents',))}?{of.url_query}")
    return shell.show_form(request, "analysis/mark_deploy", form, done=done, section="insights", of=of)
