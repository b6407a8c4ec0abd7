"""The pages of Queue Storage, for what all families share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from broker_core import queue_storage
from broker_core.common.types import Actor, EntityAddress, EntityStatus, Family
from broker_core.queue_storage.rules.options import from_json
from broker_core.reads import Counted, EntityRow, MessageRow
from explorer.frames.family import FamilyPages, LimitPages, LockPages, NewEntity, PageTexts
from explorer.frames.values import Badge

from . import presenters, putting, queue, receiver, settings, urls
from .accounts import StorageAccounts
from .board import StorageBoard
from .counts import FIGURES, StorageCounts
from .editing import StorageEdits
from .keys import AccountKeys
from .message import StorageMessagePage
from .operations import StorageOperations

_PARTS = ("overview_new", "overview_empty", "namespace_facts", "message_links", "message_held", "settings_fold")


class StorageLocks(LockPages):
    """How operators release leases."""

    word = "lease"
    effect = "The message is visible now, and the dequeue count stays. The pop receipt of its receiver no longer works."

    def release(self, address: EntityAddress, numbers: Sequence[int], reason: str, actor: Actor) -> Sequence[int]:
        return queue_storage.release(address, numbers, reason=reason, actor=actor)


class StorageLimits(LimitPages):
    """The visibility timeout and the maximum dequeue count."""

    lock = "visibility timeout"
    deliveries = "maximum dequeue count"
    by_visibility = True

    def delivery_limit(self, entity: Any) -> int | None:
        return from_json(entity.options).max_dequeue_count

    def propose(self, entity: Any, lock: timedelta | None, deliveries: int | None, time_to_live: timedelta | None) -> str:
        return settings.propose(entity, lock, deliveries, time_to_live)


class StoragePages(FamilyPages):
    """The pages of Queue Storage."""

    family = Family.QUEUE_STORAGE
    urls = urls.urlpatterns
    views = {
        "entity": queue.queue,
        "entity_settings": settings.change,
        "entity_delete": settings.delete,
        "send": putting.put,
        "receiver": receiver.receiver,
    }
    parts = {name: f"explorer/queue_storage/_{name}.html" for name in _PARTS}
    message = StorageMessagePage()
    locks = StorageLocks()
    edits = StorageEdits()
    operations = StorageOperations()
    limits = StorageLimits()
    board = StorageBoard()
    counts = StorageCounts()
    ends = presenters.ENDS
    events = presenters.EVENTS
    texts = PageTexts(
        body="Text",
        application_properties="",
        leaves="deleted, expired, cleared or moved",
        collected="poison message",
        collected_why="received too often without being deleted",
        lock_lost="their lease ended",
    )
    figures = FIGURES
    keys = AccountKeys()
    new_entities = (NewEntity("storage queue", "queue", "storage_queue_new"),)
    namespaces = StorageAccounts()
    demo = "explorer.queue_storage.demo"
    lessons = "explorer.queue_storage.lessons"
    snippets = "explorer.queue_storage.snippets"

    def badge(self, row: MessageRow) -> Badge:
        return presenters.badge(row)

    def set_status(self, address: EntityAddress, status: EntityStatus, *, actor: Actor) -> Any:
        return queue_storage.set_status(address, status, actor=actor)

    def settings_words(self, entity: EntityRow, columns: Mapping[str, Any]) -> Mapping[str, str]:
        return settings.in_words(entity, columns)

    def setting_words(self, kind: str, name: str, value: Any) -> tuple[str, str]:
        return settings.setting_words(kind, name, value)

    def term(self, term: Any) -> str:
        return term.queue_storage

    def needs_a_person(self, entity: Counted) -> bool:
        return entity.waits_for_operator
