"""Registers the Service Bus family's pages."""

from __future__ import annotations

from functools import partial
from operator import attrgetter

from django.urls import reverse

from broker_core import service_bus
from broker_core.common.types import EntityKind, Family
from broker_core.service_bus import entities
from explorer.frames import timeline
from explorer.frames.family import FamilyPages, LimitPages, LockPages, MessagePage, NamespacePages, NewEntity, PageTexts
from explorer.frames.presenters import property_name

from . import board, entity, message, message_facts, namespaces, presenters, receiver, send, settings, settling, urls
from .amqp_values import read_sections
from .operations import OPERATIONS

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

SERVICE_BUS = FamilyPages(
    family=Family.SERVICE_BUS,
    views={
        "entity": entity.entity,
        "entity_settings": settings.change,
        "entity_delete": settings.delete,
        "send": send.send,
        "receiver": receiver.receiver,
    },
    parts={name: f"explorer/service_bus/_{name}.html" for name in _PARTS},
    message=MessagePage(
        actions=message.actions,
        carry_out=message.carry_out,
        explain=message.explain,
        is_held_by=settling.is_held_by,
        property_name=property_name,
        state_line=message_facts.state_line,
        facts=message_facts.facts,
        beside=message.beside,
        read_sections=read_sections,
    ),
    locks=LockPages(
        word="lock",
        release=lambda address, numbers, reason, actor: service_bus.release_locks(address, numbers, reason=reason, actor=actor),
        effect="The lock ends now: the message is available again, and the delivery counts as failed. Its receiver gets a lost "
        "lock when it settles.",
        release_session=lambda address, name, reason, actor: service_bus.release_session(
            address, name, reason=reason, actor=actor
        ),
        session_effect="The session and the messages received through it are available again now, and each of these deliveries "
        "counts as failed. Its receiver gets a lost session lock.",
    ),
    badge=presenters.badge,
    ends=presenters.ENDS,
    events=timeline.COMMON,
    texts=PageTexts(
        body="Body",
        application_properties="Application properties",
        leaves="completed, expired, forwarded, purged or cancelled",
        copier="topic",
    ),
    figures=presenters.FIGURES,
    counts=presenters.COUNTS,
    new_entities=tuple(
        NewEntity(str(kind), str(kind), partial(reverse, "explorer:entity_new", args=(str(kind),))) for kind in EntityKind
    ),
    set_status=entities.set_status,
    settings_words=settings.in_words,
    setting_words=settings.setting_words,
    urls=urls.urlpatterns,
    operations=OPERATIONS,
    limits=LimitPages(
        lock="lock duration",
        deliveries="maximum delivery count",
        idle="auto-delete on idle",
        in_force=lambda entity: entity.max_delivery_count,
        propose=settings.propose,
    ),
    board=board.BOARD,
    namespaces=NamespacePages(namespaces.create, namespaces.delete),
    dead_tab="?tab=dead-letter",
    demo="explorer.service_bus.demo",
    term=attrgetter("service_bus"),
    lessons="explorer.service_bus.lessons",
)
