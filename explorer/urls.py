"""Addresses of the explorer. The page comes first and the entity's path last: a path may hold slashes, so nothing follows it
but a number."""

from django.urls import include, path

from explorer.shared.by_family import by_family

from . import addresses  # noqa: F401 - registers how names are written in addresses
from .analysis import pages
from .demo import pages as demonstration
from .queue_storage import clearing, putting
from .queue_storage import queue as storage_queue
from .queue_storage import receiver as storage_receiver
from .queue_storage import settings as storage_settings
from .rabbitmq import queue as rabbitmq_queue
from .rabbitmq import queues as rabbitmq_queues
from .service_bus import entity, purge, receiver, release_locks, rules, send, settings
from .shared import (
    audit_log,
    clocks,
    glossary,
    message,
    names,
    namespaces,
    overview,
    preferences,
    resubmit_all,
    search,
    sweeps,
)

app_name = "explorer"

ENTITY = "<namespace:namespace>/<entity:path>"

urlpatterns = [
    path("", overview.overview, name="overview"),
    path("namespaces/<namespace:namespace>/", overview.overview, name="namespace"),
    path("clocks/<namespace:namespace>/", clocks.clock, name="clock"),
    path("names/<slug:of>/", names.names, name="names"),
    path("find/", search.search, name="search"),
    path("sweeps/", sweeps.sweeps, name="sweeps"),
    path("audit/", audit_log.audit_log, name="audit"),
    path("words/", glossary.glossary, name="help"),
    path("demonstration/", demonstration.demonstration, name="demonstration"),
    path("preferences/", preferences.preferences, name="preferences"),
    path("new-namespace/", namespaces.create, name="namespace_new"),
    path("delete-namespace/<namespace:namespace>/", namespaces.delete, name="namespace_delete"),
    path("new-storage-queue/", storage_settings.create, name="storage_queue_new"),
    path("new/<slug:kind>/", settings.create, name="entity_new"),
    path(
        f"entities/{ENTITY}",
        by_family(service_bus=entity.entity, queue_storage=storage_queue.queue, rabbitmq=rabbitmq_queue.queue),
        name="entity",
    ),
    path(
        f"settings/{ENTITY}",
        by_family(service_bus=settings.change, queue_storage=storage_settings.change),
        name="entity_settings",
    ),
    path(
        f"delete/{ENTITY}",
        by_family(service_bus=settings.delete, queue_storage=storage_settings.delete, rabbitmq=rabbitmq_queues.delete),
        name="entity_delete",
    ),
    path(f"send/{ENTITY}", by_family(service_bus=send.send, queue_storage=putting.put), name="send"),
    path(
        f"receive/<slug:subqueue>/{ENTITY}",
        by_family(service_bus=receiver.receiver, queue_storage=storage_receiver.receiver),
        name="receiver",
    ),
    path(f"clear/{ENTITY}", by_family(queue_storage=clearing.clear), name="clear"),
    path(f"new-rule/{ENTITY}", by_family(service_bus=rules.new_rule), name="rule_new"),
    path(f"rules/<str:rule>/{ENTITY}", by_family(service_bus=rules.rule), name="rule"),
    path(f"delete-rule/<str:rule>/{ENTITY}", by_family(service_bus=rules.delete_rule), name="rule_delete"),
    path(f"try/{ENTITY}", by_family(service_bus=rules.try_rules), name="try_rules"),
    path(f"drop-locks/{ENTITY}", by_family(service_bus=release_locks.drop_locks), name="drop_locks"),
    path(
        f"bring-back/{ENTITY}",
        by_family(service_bus=resubmit_all.dead_letters, queue_storage=resubmit_all.poison),
        name="bring_back",
    ),
    path(f"purge/<slug:tab>/{ENTITY}", by_family(service_bus=purge.purge), name="purge"),
    path(f"bodies/{ENTITY}/<int:sequence_number>", message.body, name="body"),
    path(f"messages/{ENTITY}/<int:sequence_number>", message.message, name="message"),
    path("rabbitmq/", include("explorer.rabbitmq.urls")),
    path("analyses/", pages.analysis_runs, name="analysis_runs"),
    path("analyses/new/", pages.analysis_new, name="analysis_new"),
    path("analyses/<int:run_id>/", pages.analysis_run, name="analysis_run"),
    path("analyses/<int:run_id>/cancel/", pages.analysis_cancel, name="analysis_cancel"),
    path("analyses/<int:run_id>/numbers.csv", pages.analysis_csv, name="analysis_csv"),
]
