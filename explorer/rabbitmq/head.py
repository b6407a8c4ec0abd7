"""The heads of the pages of queues and exchanges. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.http import urlencode

from broker_core.rabbitmq.messages.browsing import QueueHead
from broker_core.rabbitmq.topology.catalog import StoredExchange, StoredQueue
from broker_core.reads import EntityRow
from explorer.charts.sparklines import Spark
from explorer.frames.head import ADMINISTRATOR, OPERATOR, Glance, Head, Link, Tag, link, menu, operate_url, page_url, pause_parts
from explorer.frames.presenters import plural
from explorer.frames.shell import May

from . import presenters
from .shared import DEFAULT_EXCHANGE, exchange_slug
from .shared import link as url_of

MOST_SHOWN = 6  # settings


def queue_head(
    entity: EntityRow, may: May, queue: StoredQueue, top: QueueHead, effective: Sequence[Any], spark: Spark | None
) -> Head:
    vhost, name = queue.address.namespace, queue.name
    publish = f"{url_of('publish', vhost, DEFAULT_EXCHANGE)}?{urlencode({'routing_key': name})}"
    at_work = [
        link("Move messages…", "forward", url_of("move", vhost, name), may.operate, OPERATOR),
        link("Purge…", "trash", operate_url(queue.address, "purge", "messages"), may.operate, OPERATOR, is_danger=True),
    ]
    settings = Link("Settings", "gear", f"{page_url('entity', queue.address)}?tab=settings", key=",")
    return Head(
        icon="queue",
        name=name,
        kind=f"RabbitMQ {queue.type} queue",
        actions=[
            link("Publish", "send", publish, may.send, OPERATOR, key="s"),
            link("Get", "hand", url_of("get", vhost, name), may.receive, OPERATOR, key="r"),
        ],
        menu=menu(entity, may, at_work, settings=settings),
        tags=_dead_letters(top),
        features=_features(queue.options, queue.effective, vhost, top.owner),
        glance=[_glance(setting) for setting in effective[:MOST_SHOWN]],
        spark=spark,
        receivers="consumers",
        **pause_parts(entity, may),
    )


def exchange_head(exchange: StoredExchange, vhost: str, may: May, *, meaning: str, is_system: bool, effective: Any) -> Head:
    slug = exchange_slug(exchange.name)
    word = "Publish" if may.send else "Test routing"
    why_not = "Internal: receives messages only from exchanges that are bound to it" if exchange.internal else ""
    delete = link("Delete…", "trash", url_of("exchange_delete", vhost, slug), may.manage, ADMINISTRATOR, is_danger=True)
    if is_system:
        delete = Link("Delete…", "trash", "", "Predeclared exchanges cannot be deleted")
    features = [Tag(tag.name.lower(), tag.title) for tag in presenters.exchange_features(exchange)]
    values = effective.values if effective else {}
    return Head(
        icon="topic",
        name=exchange.name or "The default exchange",
        kind=f"RabbitMQ {exchange.type} exchange",
        actions=[Link(word, "send", url_of("publish", vhost, slug), why_not, "s")],
        menu=[delete],
        features=[*features, *_policies(values, vhost)],
        line=meaning,
    )


def _features(options: Mapping[str, Any], effective: Mapping[str, Any], vhost: str, owner: str | None) -> list[Tag]:
    flags = [Tag(tag.name.lower(), tag.title) for tag in presenters.queue_features(options, {})]
    if owner:
        flags.append(Tag(f"of connection {owner}", "Exclusive to this connection", url_of("connections", vhost)))
    return [*flags, *_policies(effective, vhost)]


def _policies(effective: Mapping[str, Any], vhost: str) -> list[Tag]:
    kinds = ("policy", "operator policy")
    named = [(kind, effective.get(kind.replace(" ", "_"))) for kind in kinds]
    return [Tag(f"{kind} {name}", "Settings by name pattern", url_of("policies", vhost)) for kind, name in named if name]


def _dead_letters(top: QueueHead) -> list[Tag]:
    """Whether the queue holds messages that died elsewhere."""
    if not top.died:
        return []
    count = f"{'at least ' if top.capped else ''}{plural(top.died, 'dead letter')}"
    return [
        Tag(count, "Dead-lettered from other queues; their deaths are listed beside each", "?tab=messages", "dead", warns=True)
    ]


def _glance(setting: Any) -> Glance:
    winner = next(candidate for candidate in setting.candidates if candidate.wins)
    others = len(setting.candidates) - 1
    overrides = f" (overrides {others})" if others else ""
    return Glance(setting.key, setting.label, setting.value, f"from {winner.kind} {winner.policy}".rstrip() + overrides)
