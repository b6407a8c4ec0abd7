"""The web shop's past: three days of generated history with an incident, a deploy before it, and a setting that was changed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.history import archive, properties
from broker_core.models import Entity, EntityCounter
from broker_core.service_bus import entities
from explorer.analysis import generation
from explorer.analysis.jobs.load import Incident, Load
from explorer.charts import changes

MESSAGES, DAYS = 60_000, 3.0  # so that the last day can be compared with what is usual
INCIDENT = Incident(begins=29_400, seconds=4200, absence=3900)  # within the last day; consumers are back shortly before its end
DEPLOY, DEPLOYED_BEFORE = "orders 2.4.0", timedelta(minutes=4)  # before the incident
CHANGED, EARLIER_LOCK, CHANGED_BEFORE = "payments", timedelta(seconds=10), timedelta(hours=30)  # before now
OPERATOR = Actor("user", "ada", Right.ALL)
_USUAL = Load(
    pickup=0.005, pickup_sigma=0.5, work_sigma=0.6, own_time_to_live=None, fails=0.03, hot_fails=2.0, consumers=2,
    reasons=("PaymentRejected", "UnknownCustomer"), bursts=0.0, outages=0.0, incident=INCIDENT,
)  # fmt: skip
LOADS = {
    "orders": replace(_USUAL, work=0.35, poison=0.003, rejected=0.003, sender="key:web-shop"),
    "payments": replace(
        _USUAL, work=1.2, poison=0.01, rejected=0.01,
        earlier_lock=(CHANGED_BEFORE.total_seconds(), EARLIER_LOCK.total_seconds()), sender="process:orders-1",
    ),
    "notifications": replace(
        _USUAL, work=0.08, poison=0.001, rejected=0.001, absences=(7200.0, 45.0), consumers=1,
        sender="process:orders-1", receivers=("key:mobile-app",),
    ),
}  # fmt: skip


def generate(namespace: str, *, messages: int = MESSAGES, days: float = DAYS) -> generation.Generated | None:
    """Generate the past of the queues in LOADS, unless one of them has had messages: numbers must follow time."""
    by_path = {queue.path: queue for queue in Entity.objects.filter(namespace__name=namespace, path__in=LOADS, deleted_at=None)}
    queues = [by_path[path] for path in LOADS]
    if EntityCounter.objects.filter(entity__in=queues, next_number__gt=1).exists():
        return None
    properties.choose([queue.pk for queue in queues], ["region", "channel"], actor=OPERATOR)
    until = datetime.now(UTC).replace(microsecond=0)
    _change_setting(EntityAddress(namespace, CHANGED), by_path[CHANGED], until - timedelta(days=days), until - CHANGED_BEFORE)
    began = until - timedelta(seconds=INCIDENT.begins)
    changes.mark_deploy(DEPLOY, [namespace], actor=OPERATOR, at=began - DEPLOYED_BEFORE)
    loads = [generation.under_settings_of(load, by_path[path]) for path, load in LOADS.items()]
    return generation.record(queues, messages=messages, days=days, until=until, load=loads)


def _change_setting(address: EntityAddress, queue: Entity, begun: datetime, changed: datetime) -> None:
    """Give the queue a past lock duration, and its own again; the revisions of its settings are dated in the generated past."""
    entities.update_queue(address, lock_duration=EARLIER_LOCK, actor=OPERATOR)
    with archive.connected() as connection:
        archive.run(connection, "history_forget_revisions", entity_id=queue.pk)
    entities.update_queue(address, lock_duration=queue.lock_duration, actor=OPERATOR)
    with archive.connected() as connection:
        archive.run(connection, "history_date_revisions", entity_id=queue.pk, ats=[begun, changed])
