"""Analyses in Django's admin: the action on queues and namespaces that analyses their history, and the list of runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.html import format_html

from broker_core.admin import EntityAdmin, NamespaceAdmin, ReadOnlyAdmin, actor_of
from broker_core.common.types import Right
from broker_core.models import Entity, Namespace
from explorer import audit
from explorer.models import AnalysisRun

from .forms import analysable
from .pages.asking import Asked, asked_of
from .pages.landing import first_reports
from .subject import Subject

MOST_NAMESPACES = 10  # each is a run


@admin.action(description="Analyse history")
def analyse_entities(modeladmin: Any, request: HttpRequest, queryset: QuerySet[Entity]) -> HttpResponse | None:
    """Analyse a queue or subscription and open its page; several: the namespaces that they are in."""
    chosen = list(analysable(queryset))
    if not chosen:
        text = "Nothing to analyse: topics keep no messages (select their subscriptions); Vitrine's own queues have no history."
        modeladmin.message_user(request, text, messages.WARNING)
        return None
    if len(chosen) == 1:
        return _analysed(modeladmin, request, [Subject(chosen, chosen[0].namespace, is_whole=False)])
    return _analysed(modeladmin, request, _wholes({entity.namespace_id: entity.namespace for entity in chosen}.values()))


@admin.action(description="Analyse history")
def analyse_namespaces(modeladmin: Any, request: HttpRequest, queryset: QuerySet[Namespace]) -> HttpResponse | None:
    """Analyse all queues of the namespaces, and open the page of the first one."""
    subjects = _wholes(queryset.filter(is_system=False).order_by("name"))
    if not any(subject.entities for subject in subjects):
        modeladmin.message_user(request, "Nothing to analyse: the selected namespaces have no queues.", messages.WARNING)
        return None
    return _analysed(modeladmin, request, [subject for subject in subjects if subject.entities])


def _wholes(namespaces: Iterable[Namespace]) -> list[Subject]:
    return [
        Subject(list(analysable(Entity.objects.filter(namespace=namespace))), namespace, is_whole=True)
        for namespace in namespaces
    ]


def _analysed(modeladmin: Any, request: HttpRequest, subjects: list[Subject]) -> HttpResponse | None:
    """Answer the questions of each, and open the page of the first. Raises NotAuthorized without Right.BROWSE."""
    actor = actor_of(request)
    actor.require(Right.BROWSE, "the analyses")
    if len(subjects) > MOST_NAMESPACES:
        modeladmin.message_user(request, f"Select at most {MOST_NAMESPACES} namespaces at a time.", messages.WARNING)
        return None
    for subject in subjects:
        reports = first_reports(of_entity=not subject.is_whole, actor=actor)
        form, scope = asked_of(reports, subject.query)
        if scope is not None:
            Asked(reports, form, scope).refreshed(actor)
        audit.done(actor, "start analysis", target=subject.name)
    if len(subjects) > 1:
        names = ", ".join(subject.namespace.name for subject in subjects[1:])
        modeladmin.message_user(request, f"Also being analysed: {names}.")
    return HttpResponseRedirect(f"{reverse('explorer:analyses')}?{subjects[0].url_query}")


EntityAdmin.actions = [*(EntityAdmin.actions or ()), analyse_entities]
NamespaceAdmin.actions = [*(NamespaceAdmin.actions or ()), analyse_namespaces]


@admin.register(AnalysisRun)
class AnalysisRunAdmin(ReadOnlyAdmin):
    list_display = ["page", "state", "kind", "namespace", "subject", "requested_by", "requested_at"]
    list_filter = ["state", "kind", "requested_at"]
    search_fields = ["requested_by", "namespace", "subject"]
    search_help_text = "Requester, namespace or queue"
    sortable_by: list[str] = []
    ordering = ["-requested_at"]

    def get_queryset(self, request):
        return super().get_queryset(request).defer("log_tail")

    @admin.display(description="run")
    def page(self, run: AnalysisRun) -> str:
        return format_html('<a href="{}">Analysis {}</a>', reverse("explorer:analysis_run", args=[run.pk]), run.pk)
