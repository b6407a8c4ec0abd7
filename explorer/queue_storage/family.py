"""Registers the Queue Storage family's pages."""

from __future__ import annotations

from functools import partial
from operator import attrgetter

from django.urls import reverse

from broker_core import queue_storage
from broker_core.common.types import Family
from broker_core.queue_storage.rules.options import from_json
from explorer.frames.family import FamilyPages, LimitPages, LockPages, MessagePage, NamespacePages, NewEntity, PageTexts
from explorer.frames.presenters import property_name

from . import accounts, board, counts, message, message_facts, presenters, putting, queue, receiver, settings, urls
from .operations import OPERATIONS

_PARTS = ("overview_new", "overview_empty", "message_links", "message_held", "settings_fold")

QUEUE_STORAGE = FamilyPages(
    family=Family.QUEUE_STORAGE,
    views={
        "entity": queue.queue,
        "entity_settings": settings.change,
        "entity_delete": settings.delete,
        "send": putting.put,
        "receiver": receiver.receiver,
    },
    parts={name: f"explorer/queue_storage/_{name}.html" for name in _PARTS},
    message=MessagePage(
        actions=message.actions,
        carry_out=message.carry_out,
        explain=message.explain,
        is_held_by=message.is_held_by,
        property_name=property_name,
        state_line=message_facts.state_line,
        facts=message_facts.facts,
        beside=message.beside,
    ),
    locks=LockPages(
        word="lease",
        release=lambda address, numbers, reason, actor: queue_storage.release(address, numbers, reason=reason, actor=actor),
        effect="The message is visible now, and the dequeue count stays. The pop receipt of its receiver no longer works.",
    ),
    badge=presenters.badge,
    ends=presenters.ENDS,
    events=presenters.EVENTS,
    texts=PageTexts(
        body="Text",
        application_properties="",
        leaves="deleted, expired, cleared or moved",
        collected="poison message",
        collected_why="received too often without being deleted",
        lock_lost="their lease ended",
    ),
    figures=counts.FIGURES,
    counts=counts.COUNTS,
    new_entities=(NewEntity("storage queue", "queue", partial(reverse, "explorer:storage_queue_new")),),
    set_status=queue_storage.set_status,
    settings_words=settings.in_words,
    setting_words=settings.setting_words,
    urls=urls.urlpatterns,
    operations=OPERATIONS,
    limits=LimitPages(
        lock="visibility timeout",
        deliveries="maximum dequeue count",
        in_force=lambda entity: from_json(entity.options).max_dequeue_count,
        propose=settings.propose,
        by_visibility=True,
    ),
    board=board.BOARD,
    namespaces=NamespacePages(accounts.create, accounts.delete, accounts.contents),
    needs_a_person=lambda entity: entity.waits_for_operator,
    demo="explorer.queue_storage.demo",
    term=attrgetter("queue_storage"),
    lessons="explorer.queue_storage.lessons",
)
