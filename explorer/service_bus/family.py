"""The pages of Service Bus, for what all families share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from broker_core import service_bus
from broker_core.common.types import Actor, EntityAddress, EntityKind, EntityStatus, Family
from broker_core.reads import EntityRow, MessageRow
from broker_core.service_bus import entities
from explorer.frames import timeline
from explorer.frames.family import FamilyPages, LimitPages, LockPages, NewEntity, PageTexts
from explorer.frames.values import Badge

from . import entity, presenters, receiver, send, settings, urls
from .board import ServiceBusBoard
from .editing import ServiceBusEdits
from .keys import SharedAccess
from .message import ServiceBusMessagePage
from .namespaces import ServiceBusNamespaces
from .operations import ServiceBusOperations

_PARTS = (
    "overview_new",
    "overview_empty",
    "message_links",
    "message_held",
    "message_extra",
    "settings_fold",
    "entity_warnings",
    "namespace_facts",
)


class ServiceBusLocks(LockPages):
    """How operators release locks on messages and sessions."""

    word = "lock"
    effect = (
        "The lock ends now: the message is available again, and the delivery counts as failed. Its receiver gets a lost lock "
        "when it settles."
    )
    session_effect = (
        "The session and the messages received through it are available again now, and each of these deliveries counts as "
        "failed. Its receiver gets a lost session lock."
    )

    def release(self, address: EntityAddress, numbers: Sequence[int], reason: str, actor: Actor) -> Sequence[int]:
        return service_bus.release_locks(address, numbers, reason=reason, actor=actor)

    def release_session(self, address: EntityAddress, session_id: str, reason: str, actor: Actor) -> bool:
        return service_bus.release_session(address, session_id, reason=reason, actor=actor)


class ServiceBusLimits(LimitPages):
    """The lock duration and the maximum delivery count."""

    lock = "lock duration"
    deliveries = "maximum delivery count"
    idle = "auto-delete on idle"

    def delivery_limit(self, entity: Any) -> int | None:
        return entity.max_delivery_count

    def propose(self, entity: Any, lock: timedelta | None, deliveries: int | None, time_to_live: timedelta | None) -> str:
        return settings.propose(entity, lock, deliveries, time_to_live)


class ServiceBusPages(FamilyPages):
    """The pages of Service Bus."""

    family = Family.SERVICE_BUS
    urls = urls.urlpatterns
    views = {
        "entity": entity.entity,
        "entity_settings": settings.change,
        "entity_delete": settings.delete,
        "send": send.send,
        "receiver": receiver.receiver,
    }
    parts = {name: f"explorer/service_bus/_{name}.html" for name in _PARTS}
    message = ServiceBusMessagePage()
    locks = ServiceBusLocks()
    edits = ServiceBusEdits()
    operations = ServiceBusOperations()
    limits = ServiceBusLimits()
    board = ServiceBusBoard()
    counts = presenters.ServiceBusCounts()
    ends = presenters.ENDS
    events = timeline.COMMON
    texts = PageTexts(
        body="Body",
        application_properties="Application properties",
        leaves="completed, expired, forwarded, purged or cancelled",
        copier="topic",
    )
    figures = presenters.FIGURES
    new_entities = tuple(NewEntity(str(kind), str(kind), "entity_new", (str(kind),)) for kind in EntityKind)
    namespaces = ServiceBusNamespaces()
    keys = SharedAccess()
    dead_tab = "?tab=dead-letter"
    demo = "explorer.service_bus.demo"
    lessons = "explorer.service_bus.lessons"
    snippets = "explorer.service_bus.snippets"

    def badge(self, row: MessageRow) -> Badge:
        return presenters.badge(row)

    def set_status(self, address: EntityAddress, status: EntityStatus, *, actor: Actor) -> Any:
        return entities.set_status(address, status, actor=actor)

    def settings_words(self, entity: EntityRow, columns: Mapping[str, Any]) -> Mapping[str, str]:
        return settings.in_words(entity, columns)

    def setting_words(self, kind: str, name: str, value: Any) -> tuple[str, str]:
        return settings.setting_words(kind, name, value)

    def term(self, term: Any) -> str:
        return term.service_bus
