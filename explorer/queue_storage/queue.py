"""The page of a storage queue: message lists with the reason and end of each invisibility; bulk actions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse

from broker_core import queue_storage, reads
from broker_core.common.errors import EntityNotFound
from broker_core.common.types import EntityAddress, EventKind, Family
from broker_core.queue_storage.reading import queue_facts
from broker_core.reads import EntityRow
from explorer import board, time_bar
from explorer.frames import split, timeline
from explorer.frames.filtering import status_of
from explorer.frames.forms.queries import HISTORY, RECEIVERS, StorageQuery
from explorer.frames.glance import TRAFFIC_MINUTES, spark
from explorer.frames.head import HEAD, Tag, page_url
from explorer.frames.presenters import plural
from explorer.frames.shell import about, address_of, cleaned, draws, show
from explorer.live.page import FILTERED_SECONDS, HEAD_SECONDS, HISTORY_SECONDS, Live, live, refresh_seconds

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
    as_board = board.is_asked(request, entity)
    context = {
        **about(request, entity),
        "lists": LISTS,
        "origin": origin(entity, request),
        "facts": queue_facts(entity.address.path, entity.options),
        **(board.context(request, entity) | lists.tabs(entity) if as_board else lists.context(request, entity, form)),
        **split.context(request, entity.address),
        **time_bar.context(request, entity),
    }
    if context["origin"]:
        numbers = [row.sequence_number for row in context["page"].rows] if "page" in context else []
        context["came_from"] = queue_storage.came_from(address, numbers, actor=request.actor)
    if draws(request, HEAD):
        stored = queue_storage.get_queue(address, actor=request.actor)
        context |= {
            "stored": stored,
            "poison": sibling(stored.poison, request) if stored.poison else None,
            "count": queue_storage.approximate_count(address, actor=request.actor),
        }
        traffic = spark(reads.traffic(address, TRAFFIC_MINUTES, actor=request.actor), words=("put", "deleted"))
        context["head"] = head(entity, context["may"], stored, traffic, tags(context))
    slow = FILTERED_SECONDS if context.get("filtered") else HISTORY_SECONDS if context["tab"] in (HISTORY, RECEIVERS) else 0.0
    shown = Live(
        {
            HEAD: HEAD_SECONDS,
            **(board.fragments(entity) if as_board else {LISTS: slow}),
            **split.fragments(request),
            **time_bar.fragments(),
        },
        entities=[entity],
        refresh_seconds=refresh_seconds([entity]),
        personal=bool(request.GET.get("m")),
        word=timeline.leaving(Family.QUEUE_STORAGE, EventKind.SENT),
    )
    status = status_of(context)
    return show(request, "entity", context, fragment="queue_storage/_messages", status=status, live=shown)


def origin(entity: EntityRow, request: HttpRequest) -> Sibling | None:
    """The queue whose poison queue this is; None: none."""
    found = lists.origin_address(entity.address, request.actor)
    return sibling(found, request) if found else None


def sibling(address: EntityAddress, request: HttpRequest) -> Sibling:
    try:
        return Sibling(address, reads.entity(address, actor=request.actor))
    except EntityNotFound:
        return Sibling(address, None)


def tags(context: dict) -> list[Tag]:
    """Where poison messages go, or where these came from."""
    poison, found = context["poison"], context["origin"]
    if found:
        url = page_url("entity", found.address) if found.entity else ""
        count = plural(context["entity"].counts.active, "dead letter")
        return [Tag(f"{count} of {found.address.path}", "The poison queue of that queue; requeued messages return there", url,
                    "dead", warns=bool(context["entity"].counts.active))]  # fmt: skip
    if not poison:
        return []
    waiting = poison.entity.counts.active if poison.entity else 0
    title = "Messages with too many dequeues are moved there" + ("" if poison.entity else "; it is created on first use")
    url = page_url("entity", poison.address) if poison.entity else ""
    return [Tag(f"{waiting:,} in {poison.address.path}", title, url, "dead" if waiting else "forward", warns=bool(waiting))]


def requeued(moved: dict[int, int], asked: Sequence[int]) -> str:
    said = "No messages were requeued."
    if len(moved) == 1:
        [(old, new)] = moved.items()
        said = f"Requeued message {old} as message {new} of the queue it came from."
    elif moved:
        said = f"Requeued {len(moved):,} messages to the queue they came from."
    return said + left([n for n in asked if n not in moved], "leased, expired, or no longer in the queue")


def named(numbers: Sequence[int]) -> str:
    """ "message 3", "5 messages"."""
    return f"message {numbers[0]}" if len(numbers) == 1 else f"{len(numbers):,} messages"


def left(numbers: Sequence[int], because: str) -> str:
    return f" Skipped: {', '.join(map(str, numbers))} ({because})." if numbers else ""
