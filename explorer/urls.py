"""Addresses of the explorer. The page comes first and the queue's path last: a path may hold slashes, so nothing follows it
but a number."""

from django.urls import path

from explorer.pages import (
    analysis,
    audit_log,
    demonstration,
    glossary,
    message,
    overview,
    preferences,
    purge,
    queue,
    queue_settings,
    receiver,
    search,
    send,
    sweeps,
)

app_name = "explorer"

QUEUE = "<str:namespace>/<path:path>"

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("namespaces/<str:namespace>/", overview.overview, name="namespace"),
    path("find/", search.search, name="search"),
    path("sweeps/", sweeps.sweeps, name="sweeps"),
    path("audit/", audit_log.audit_log, name="audit"),
    path("words/", glossary.glossary, name="help"),
    path("demonstration/", demonstration.demonstration, name="demonstration"),
    path("preferences/", preferences.preferences, name="preferences"),
    path("new-queue/", queue_settings.create, name="queue_new"),
    path(f"settings/{QUEUE}", queue_settings.change, name="queue_settings"),
    path(f"delete/{QUEUE}", queue_settings.delete, name="queue_delete"),
    path(f"queues/{QUEUE}", queue.queue, name="queue"),
    path(f"purge/<slug:tab>/{QUEUE}", purge.purge, name="purge"),
    path(f"send/{QUEUE}", send.send, name="send"),
    path(f"receive/<slug:subqueue>/{QUEUE}", receiver.receiver, name="receiver"),
    path(f"bodies/{QUEUE}/<int:sequence_number>", message.body, name="body"),
    path(f"messages/{QUEUE}/<int:sequence_number>", message.message, name="message"),
    path("analyses/", analysis.analysis_runs, name="analysis_runs"),
    path("analyses/new/", analysis.analysis_new, name="analysis_new"),
    path("analyses/<int:run_id>/", analysis.analysis_run, name="analysis_run"),
    path("analyses/<int:run_id>/cancel/", analysis.analysis_cancel, name="analysis_cancel"),
    path("analyses/<int:run_id>/numbers.csv", analysis.analysis_csv, name="analysis_csv"),
]
