"""Addresses of the explorer. The page comes first and the entity's path last: a path may hold slashes, so nothing follows it
but a number."""

from django.urls import path

from explorer import addresses  # noqa: F401 - registers how names are written in addresses
from explorer.pages import (
    analysis,
    audit_log,
    demonstration,
    drop_locks,
    entity,
    entity_settings,
    glossary,
    message,
    overview,
    preferences,
    purge,
    receiver,
    rules,
    search,
    send,
    sweeps,
)

app_name = "explorer"

ENTITY = "<namespace:namespace>/<entity:path>"

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("namespaces/<namespace:namespace>/", overview.overview, name="namespace"),
    path("find/", search.search, name="search"),
    path("sweeps/", sweeps.sweeps, name="sweeps"),
    path("audit/", audit_log.audit_log, name="audit"),
    path("words/", glossary.glossary, name="help"),
    path("demonstration/", demonstration.demonstration, name="demonstration"),
    path("preferences/", preferences.preferences, name="preferences"),
    path("new/<slug:kind>/", entity_settings.create, name="entity_new"),
    path(f"settings/{ENTITY}", entity_settings.change, name="entity_settings"),
    path(f"delete/{ENTITY}", entity_settings.delete, name="entity_delete"),
    path(f"entities/{ENTITY}", entity.entity, name="entity"),
    path(f"new-rule/{ENTITY}", rules.new_rule, name="rule_new"),
    path(f"rules/<str:rule>/{ENTITY}", rules.rule, name="rule"),
    path(f"delete-rule/<str:rule>/{ENTITY}", rules.delete_rule, name="rule_delete"),
    path(f"try/{ENTITY}", rules.try_rules, name="try_rules"),
    path(f"drop-locks/{ENTITY}", drop_locks.drop_locks, name="drop_locks"),
    path(f"purge/<slug:tab>/{ENTITY}", purge.purge, name="purge"),
    path(f"send/{ENTITY}", send.send, name="send"),
    path(f"receive/<slug:subqueue>/{ENTITY}", receiver.receiver, name="receiver"),
    path(f"bodies/{ENTITY}/<int:sequence_number>", message.body, name="body"),
    path(f"messages/{ENTITY}/<int:sequence_number>", message.message, name="message"),
    path("analyses/", analysis.analysis_runs, name="analysis_runs"),
    path("analyses/new/", analysis.analysis_new, name="analysis_new"),
    path("analyses/<int:run_id>/", analysis.analysis_run, name="analysis_run"),
    path("analyses/<int:run_id>/cancel/", analysis.analysis_cancel, name="analysis_cancel"),
    path("analyses/<int:run_id>/numbers.csv", analysis.analysis_csv, name="analysis_csv"),
]
