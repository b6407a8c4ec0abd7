"""URLs of the explorer. The page comes first and the entity's path last: paths contain slashes, so only a number can follow."""

from django.urls import path
from django.views.generic import RedirectView

from . import addresses
from .administration import keys as access_keys
from .administration import overview as administration
from .administration import people, policies, storage, task, tasks
from .analysis.pages import archived_properties, deploys, landing, questions, runs
from .analysis.reports import listing
from .dead_letters import group, inbox
from .demo import pages as demonstration
from .frames import columns
from .frames.by_family import by_family
from .frames.family import installed
from .lessons import pages as lessons
from .lessons import scenario_pages as scenarios
from .map import pages as live_map
from .operations import pages as operating
from .operations import transfer
from .pages import (
    actor,
    audit_log,
    code,
    compare,
    configuration,
    connect,
    connections,
    deleted,
    editing,
    entity_page,
    glossary,
    insights,
    locks,
    message,
    message_templates,
    namespaces,
    now,
    overview,
    pausing,
    protection,
    revisions,
    saved_filters,
    search,
    suggestions,
    tail,
)
from .people import preferences
from .time_bar import clocks
from .time_travel.pages import or_past

app_name = "explorer"

ENTITY = addresses.ENTITY

_entity = entity_page.at_canonical_address(columns.remembering(deleted.or_record(or_past(by_family("entity")))))

urlpatterns = [
    path("", now.now, name="now"),
    path("entities/", overview.overview, name="entities"),
    path("namespaces/<namespace:namespace>/", overview.overview, name="namespace"),
    path("clocks/<namespace:namespace>/", clocks.clock, name="clock"),
    path("dead-letters/", inbox.inbox, name="dead_letters"),
    path(f"dead-letters/<slug:subqueue>/{ENTITY}", group.group, name="dead_letter_group"),
    path("locks/", locks.locks, name="locks"),
    path("connections/", connections.connections_list, name="connections"),
    path("connections/<slug:connection_id>/", connections.connection, name="connection"),
    path("actors/<slug:kind>/<entity:name>/", actor.actor, name="actor"),
    path("messages/", search.search, name="messages"),
    path("filters/", saved_filters.saved_filters, name="saved_filters"),
    path("filters/save/", saved_filters.save, name="save_filter"),
    path("filters/delete/<int:filter_id>/", saved_filters.delete, name="delete_filter"),
    path("templates/", message_templates.message_templates, name="message_templates"),
    path("templates/rename/<int:template_id>/", message_templates.rename, name="rename_template"),
    path("templates/delete/<int:template_id>/", message_templates.delete, name="delete_template"),
    path("administration/", administration.overview, name="administration"),
    path("administration/people/", people.people, name="people"),
    path("administration/new-person/", people.new_person, name="person_new"),
    path("administration/people/<namespace:name>/", people.person, name="person"),
    path("administration/keys/", access_keys.keys, name="access_keys"),
    path("administration/policies/", policies.policies, name="policies"),
    path("administration/background-tasks/", tasks.tasks, name="background_tasks"),
    path("administration/background-tasks/<int:task_id>/", task.task, name="background_task"),
    path("administration/storage/", storage.storage, name="storage"),
    path("administration/activity/", audit_log.audit_log, name="audit"),
    path("learn/", lessons.learn, name="help"),
    path("learn/glossary/", glossary.glossary, name="glossary"),
    path("learn/keys/", glossary.keys, name="keys"),
    path("learn/follow/<slug:code>/", lessons.follow, name="follow"),
    path("learn/scenarios/", scenarios.bring_in, name="scenario_import"),
    path("learn/scenarios/<int:scenario_id>/start/", scenarios.start, name="scenario_start"),
    path("learn/scenarios/<int:scenario_id>/delete/", scenarios.delete, name="scenario_delete"),
    path("learn/scenarios/<int:scenario_id>/scenario.toml", scenarios.export, name="scenario_export"),
    path("learn/sandboxes/", lessons.start, name="sandbox_start"),
    path("learn/sandboxes/<namespace:namespace>/", lessons.sandbox, name="sandbox"),
    path("learn/sandboxes/<namespace:namespace>/code/", lessons.code, name="sandbox_code"),
    path("learn/sandboxes/<namespace:namespace>/scenario.toml", lessons.export, name="sandbox_export"),
    path("demonstration/", demonstration.demonstration, name="demonstration"),
    path("preferences/", preferences.preferences, name="preferences"),
    path("new-namespace/", namespaces.create, name="namespace_new"),
    path("namespace-settings/<namespace:namespace>/", namespaces.change, name="namespace_settings"),
    path("delete-namespace/<namespace:namespace>/", namespaces.delete, name="namespace_delete"),
    path(f"entities/{ENTITY}", _entity, name="entity"),
    path(f"pause/{ENTITY}", pausing.pause, name="entity_pause"),
    path(f"protect/{ENTITY}", protection.protect, name="entity_protect"),
    path(f"revisions/{ENTITY}", revisions.revisions, name="entity_revisions"),
    path(f"settings/{ENTITY}", by_family("entity_settings"), name="entity_settings"),
    path(f"delete/{ENTITY}", by_family("entity_delete"), name="entity_delete"),
    path("filter-suggestions/", suggestions.general, name="general_suggestions"),
    path("suggestions/<slug:name>/", suggestions.of_vocabulary, name="suggestions"),
    path(f"filter-suggestions/{ENTITY}", suggestions.suggestions, name="filter_suggestions"),
    path(f"send/{ENTITY}", by_family("send"), name="send"),
    path(f"receive/<slug:subqueue>/{ENTITY}", by_family("receiver"), name="receiver"),
    path(f"code/{ENTITY}", code.code, name="code"),
    path("connect/<namespace:namespace>/", connect.connect, name="namespace_connect"),
    path(f"connect/{ENTITY}", connect.connect, name="connect"),
    path(f"compare/{ENTITY}", compare.compare, name="compare"),
    path(f"bodies/{ENTITY}/<int:sequence_number>", message.body, name="body"),
    path(f"messages/{ENTITY}/<int:sequence_number>", message.message, name="message"),
    path(f"edit/{ENTITY}/<int:sequence_number>", editing.edit, name="message_edit"),
    path("tail/", tail.tail, name="tail"),
    path("map/", live_map.live_map, name="map"),
    path("configuration/", configuration.configuration, name="configuration"),
    path("configuration/export/", configuration.export_configuration, name="configuration_export"),
    path("insights/", insights.insights, name="insights"),
    path("operations/", operating.operations, name="operations"),
    path("operations/<int:operation_id>/", operating.operation, name="operation"),
    path("operations/<int:operation_id>/file/", transfer.operation_file, name="operation_file"),
    path("operations/<int:operation_id>/change/", operating.operation_change, name="operation_change"),
    path(f"import-messages/{ENTITY}", transfer.messages_import, name="messages_import"),
    path(f"operate/{ENTITY}", operating.operation_new, name="operation_new"),
    path("analyses/", landing.analyses, name="analyses"),
    path("analyses/runs/<int:run_id>/", runs.analysis_run, name="analysis_run"),
    path("analyses/runs/<int:run_id>/cancel/", runs.analysis_cancel, name="analysis_cancel"),
    path("analyses/messages/", listing.messages_behind, name="analysis_messages"),
    path("analyses/mark-deploy/", deploys.mark_deploy, name="mark_deploy"),
    path("analyses/archived-properties/", archived_properties.analysis_properties, name="analysis_properties"),
    path("analyses/report/<slug:slug>/", questions.report, name="analysis_report"),
    path("analyses/<slug:slug>/", questions.question, name="analysis_question"),
]
for family in installed():
    urlpatterns += family.urls

MOVED = {  # addresses of earlier versions
    "find/": "explorer:messages",
    "sweeps/": "explorer:background_tasks",
    "system/": "explorer:administration",
    "audit/": "explorer:audit",
    "activity/": "explorer:audit",
    "words/": "explorer:glossary",
    "faults/": "explorer:map",
}
urlpatterns += [
    path(old, RedirectView.as_view(pattern_name=new, query_string=True, permanent=True)) for old, new in MOVED.items()
]
