"""Registers the RabbitMQ family's pages."""

from __future__ import annotations

from functools import partial
from operator import attrgetter

from django.urls import include, path, reverse

from broker_core import rabbitmq
from broker_core.common.types import Family
from explorer.frames.family import FamilyPages, LimitPages, LockPages, MessagePage, NewEntity, PageTexts

from . import board, message, message_facts, policies, queue, queues, states
from .operations import OPERATIONS

_PARTS = (
    "overview_links", "overview_new", "overview_empty", "message_links", "message_extra", "settings_fold", "entity_warnings",
)  # fmt: skip

RABBITMQ = FamilyPages(
    family=Family.RABBITMQ,
    views={
        "entity": queue.queue,
        "entity_delete": queues.delete,
    },
    parts={name: f"explorer/rabbitmq/_{name}.html" for name in _PARTS},
    message=MessagePage(
        actions=message.actions,
        carry_out=message.carry_out,
        explain=message.explain,
        is_held_by=lambda row, actor: False,
        property_name=str,
        state_line=message_facts.state_line,
        facts=message_facts.facts,
        beside=message.beside,
        property_text=message_facts.property_text,
        anchors=message.anchors,
    ),
    locks=LockPages(
        word="delivery",
        release=lambda address, numbers, reason, actor: rabbitmq.release(address, numbers, reason=reason, actor=actor),
        effect="The message is requeued at its position, as redelivered. The channel keeps its other deliveries; if it still "
        "acknowledges this one, it is closed, as for any unknown delivery tag.",
    ),
    badge=states.badge,
    ends={},
    events=states.EVENTS,
    texts=PageTexts(
        body="Body",
        application_properties="Headers",
        leaves="acknowledged, expired, dropped, purged, moved or dead-lettered",
        no_consumer="no consumer",
        receiver="consumer",
        copier="exchange",
        lock_lost="their channel closed or timed out",
    ),
    figures=states.FIGURES,
    counts=states.COUNTS,
    operations=OPERATIONS,
    limits=LimitPages(
        lock="consumer timeout",
        deliveries="delivery limit",
        idle="expiry of unused queues (x-expires)",
        sending_is_use=False,
        in_force=lambda entity: (entity.effective or {}).get("delivery_limit"),
        propose=policies.propose,
        more_deliveries=1,
        notices_crashes=True,
    ),
    board=board.BOARD,
    new_entities=(NewEntity("RabbitMQ queue", "queue", partial(reverse, "explorer:rabbitmq_queue_new_where")),),
    set_status=rabbitmq.set_status,
    settings_words=queue.settings_words,
    setting_words=queue.setting_words,
    audited_as={
        "queue": "declare queue",
        "exchange": "declare exchange",
        "binding": "bind",
        "policy": "set policy",
        "operator policy": "set operator policy",
    },  # fmt: skip
    urls=[path("rabbitmq/", include("explorer.rabbitmq.urls"))],
    namespace_urls={"namespace_new": "rabbitmq_vhost_new", "namespace_delete": "rabbitmq_vhost_delete"},
    tags=states.tags,
    needs_a_person=lambda entity: entity.waits_for_operator,
    exchange_url=lambda vhost, exchange: reverse("explorer:rabbitmq_exchange", args=(vhost, exchange)),
    send_url=lambda vhost, exchange: reverse("explorer:rabbitmq_publish", args=(vhost, exchange)),
    demo="explorer.rabbitmq.demo",
    term=attrgetter("rabbitmq"),
    lessons="explorer.rabbitmq.lessons",
)
