"""The head of a storage queue's page. Pure."""

from __future__ import annotations

from broker_core.common.durations import human
from broker_core.common.types import HistoryLevel
from broker_core.queue_storage import StorageQueue
from broker_core.queue_storage.rules.limits import DEFAULT_GRACE
from broker_core.reads import EntityRow
from explorer.charts.sparklines import Spark
from explorer.frames.filtering import group_url
from explorer.frames.head import OPERATOR, Glance, Head, Link, Tag, link, menu, operate_url, page_url, pause_parts
from explorer.frames.shell import May


def head(entity: EntityRow, may: May, stored: StorageQueue, spark: Spark | None, tags: list[Tag]) -> Head:
    address = entity.address
    at_work = [link("Clear queue…", "trash", operate_url(address, "purge", "all"), may.operate, OPERATOR, is_danger=True)]
    if entity.waits_for_operator:
        at_work.insert(0, Link("Groups and repair", "dead", group_url(address)))
    return Head(
        icon="queue",
        name=address.path,
        kind="storage queue",
        actions=[
            link("Put", "send", page_url("send", address), may.send, OPERATOR, key="s"),
            link("Get", "hand", page_url("receiver", address, "main"), may.receive, OPERATOR, key="r"),
        ],
        menu=menu(entity, may, at_work),
        tags=tags,
        glance=at_a_glance(stored),
        spark=spark,
        **pause_parts(entity, may),
    )


def at_a_glance(stored: StorageQueue) -> list[Glance]:
    """The most important settings of the queue."""
    limit, strict = stored.max_dequeue_count, stored.strict_visibility
    fate = f"then moved to {stored.poison.path}" if stored.poison else "then left invisible" if limit else "no poison queue"
    grace, level = stored.expiry_grace, stored.history_level
    return [
        Glance("max_dequeue_count", "Max dequeues", f"{limit:,}" if limit else "unlimited", fate, limit is None),
        Glance("expiry_grace", "Expired messages", f"shown for {human(grace)}", "hidden from clients at once",
               grace == DEFAULT_GRACE),
        Glance("strict_visibility", "Update after expiry", "rejected" if strict else "allowed", "on this queue", not strict),
        Glance("history_level", "History", level.name.lower(), "on this queue", level is HistoryLevel.FULL),
    ]  # fmt: skip
