"""The page of a storage queue: message lists with the reason and end of each invisibility; bulk actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse

from broker_core import queue_storage, reads
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import EntityAddress, EventKind, Family
from broker_core.queue_storage.reading import queue_facts
from broker_core.reads import EntityRow
from explorer.charts.sparklines import SPARK_MINUTES, spark
from explorer.frames import timeline
from explorer.frames.deploys import recent_deploys
from explorer.frames.filtering import status_of
from explorer.frames.forms.queries import HISTORY, RECEIVERS, StorageQuery
from explorer.frames.head import HEAD, Tag, page_url
from explorer.frames.presenters import plural
from explorer.frames.shell import about, address_of, cleaned, draws, show
from explorer.live.page import HISTORY_SECONDS, live
from explorer.pages import entity_page

from . import lists
from .head import head

LISTS = "explorer/queue_storage/_messages.html"


@dataclass(frozen=True, slots=True)
class Sibling:
    """The poison queue, or the queue of which this is the poison queue. entity None: not created yet."""

    address: EntityAddress
    entity: EntityRow | None


@live
def queue(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """The queue: its settings and one of its lists."""
    address = address_of(namespace, path)
    form = StorageQuery(request.GET, tabs=lists.SLUGS)
    cleaned(form)
    entity = reads.entity(address, actor=request.actor)
    context = {
        **about(request, entity),
        "origin": origin(entity, request),
        "facts": queue_facts(entity.address.path, entity.options),
        **entity_page.body(
            request, entity, LISTS, lambda as_board: lists.tabs(entity) if as_board else lists.context(request, entity, form)
        ),
    }
    if context["origin"]:
        numbers = [row.sequence_number for row in context["page"].rows] if "page" in context else []
        context["came_from"] = queue_storage.came_from(address, numbers, actor=request.actor)
    if draws(request, HEAD):
        context |= _head(request, entity, context)
    seconds = HISTORY_SECONDS if context["tab"] in (HISTORY, RECEIVERS) else 0.0
    word = timeline.leaving(Family.QUEUE_STORAGE, EventKind.SENT)
    parts = entity_page.live_parts(request, [entity], context, list_seconds=seconds, word=word)
    return show(request, "entity", context, fragment="queue_storage/_messages", status=status_of(context), live=parts)


def _head(request: HttpRequest, entity: EntityRow, context: Mapping[str, Any]) -> dict[str, Any]:
    address, actor = entity.address, request.actor
    stored = queue_storage.get_queue(address, actor=actor)
    poison = sibling(stored.poison, request) if stored.poison else None
    points, deploys = reads.traffic(address, SPARK_MINUTES, actor=actor), recent_deploys(address.namespace)
    traffic = spark(points, words=("put", "deleted"), deploys=deploys)
    return {
        "stored": stored,
        "poison": poison,
        "count": queue_storage.approximate_count(address, actor=actor),
        "head": head(entity, context["may"], stored, traffic, tags(entity, poison, context["origin"])),
    }


def origin(entity: EntityRow, request: HttpRequest) -> Sibling | None:
    """The queue whose poison queue this is; None: none."""
    address = lists.origin_address(entity.address, request.actor)
    return sibling(address, request) if address else None


def sibling(address: EntityAddress, request: HttpRequest) -> Sibling:
    try:
        return Sibling(address, reads.entity(address, actor=request.actor))
    except EntityNotFound:
        return Sibling(address, None)


def tags(entity: EntityRow, poison: Sibling | None, origin: Sibling | None) -> list[Tag]:
    """Where poison messages go, or where these came from."""
    if origin:
        url = page_url("entity", origin.address) if origin.entity else ""
        count = plural(entity.counts.active, "dead letter")
        return [Tag(f"{count} of {origin.address.path}", "The poison queue of that queue; requeued messages return there", url,
                    "dead", warns=bool(entity.counts.active))]  # fmt: skip
    if not poison:
        return []
    waiting = poison.entity.counts.active if poison.entity else 0
    title = "Messages with too many dequeues are moved there" + ("" if poison.entity else "; it is created on first use")
    url = page_url("entity", poison.address) if poison.entity else ""
    return [Tag(f"{waiting:,} in {poison.address.path}", title, url, "dead" if waiting else "forward", warns=bool(waiting))]


def requeued(moved: dict[int, int], requested: Sequence[int]) -> str:
    text = "No messages were requeued."
    if len(moved) == 1:
        [(old, new)] = moved.items()
        text = f"Requeued message {old} as message {new} of the queue it came from."
    elif moved:
        text = f"Requeued {len(moved):,} messages to the queue they came from."
    return text + skipped_text([n for n in requested if n not in moved], "leased, expired, or no longer in the queue")


def named(numbers: Sequence[int]) -> str:
    """ "message 3", "5 messages"."""
    return f"message {numbers[0]}" if len(numbers) == 1 else f"{len(numbers):,} messages"


def skipped_text(numbers: Sequence[int], because: str) -> str:
    return f" Skipped: {', '.join(map(str, numbers))} ({because})." if numbers else ""
