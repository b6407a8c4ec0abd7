"""Analyses in Django's admin: the action on queues that starts one, and the list of runs."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html

from broker_core.admin import EntityAdmin, ReadOnlyAdmin, actor_of
from explorer import audit
from explorer.models import AnalysisRun

from .forms import AnalysisForm, analysable
from .presenters import MOST_NAMED
from .running import java, submission


@admin.action(description="Analyse history of selected queues")
def analyse_history(modeladmin: EntityAdmin, request: HttpRequest, queryset) -> HttpResponse:
    """Ask for the range, then start a run and go to its page. Raises NotAuthorized without Right.OPERATE (shown as a message)."""
    chosen = analysable(queryset)
    selected = list(chosen.values_list("pk", flat=True))
    left_out = [str(entity) for entity in queryset.select_related("namespace").exclude(pk__in=selected)]
    data = None
    if "start_analysis" in request.POST:
        data = request.POST.copy()
        data.setlist("queues", selected)
    form = AnalysisForm(data, initial={"queues": selected})
    if form.is_valid():
        run = submission.start(form.cleaned_data, actor=actor_of(request))
        audit.done(actor_of(request), "start analysis", target=", ".join(str(queue) for queue in form.cleaned_data["queues"]))
        return redirect("explorer:analysis_run", run.pk)
    context = {
        **modeladmin.admin_site.each_context(request),
        "title": "Analyse history",
        "opts": modeladmin.opts,
        "form": form,
        "queues": chosen,
        "left_out": left_out[:MOST_NAMED],
        "more_left_out": max(0, len(left_out) - MOST_NAMED),
        "checkbox_name": ACTION_CHECKBOX_NAME,
        "no_java": java.problem(),
    }
    return TemplateResponse(request, "explorer/admin/analyse_history.html", context, status=400 if data else 200)


EntityAdmin.actions = [*(EntityAdmin.actions or ()), analyse_history]


@admin.register(AnalysisRun)
class AnalysisRunAdmin(ReadOnlyAdmin):
    list_display = ["page", "state", "queue_names", "start_at", "end_at", "requested_by", "requested_at", "messages"]
    list_filter = ["state", "bucket", "requested_at"]
    search_fields = ["requested_by", "queues"]
    search_help_text = "Requester or queue"
    sortable_by: list[str] = []
    ordering = ["-requested_at"]

    def get_queryset(self, request):
        return super().get_queryset(request).defer("log_tail")

    @admin.display(description="run")
    def page(self, run: AnalysisRun) -> str:
        return format_html('<a href="{}">Analysis {}</a>', reverse("explorer:analysis_run", args=[run.pk]), run.pk)

    @admin.display(description="queues")
    def queue_names(self, run: AnalysisRun) -> str:
        return ", ".join(f"{queue['namespace']}/{queue['path']}" for queue in run.queues)
