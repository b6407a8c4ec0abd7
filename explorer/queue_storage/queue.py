"""The page of a storage queue: message lists with the reason and end of each invisibility; bulk actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from django.http import HttpRequest, HttpResponse

from broker_core import queue_storage, reads
from broker_core.common.errors import EntityNotFound, InvalidArgument
from broker_core.common.types import EntityAddress, EventKind, Family
from broker_core.queue_storage.reading import queue_facts
from broker_core.reads import EntityRow
from explorer.live.page import FILTERED_SECONDS, HEAD_SECONDS, HISTORY_SECONDS, Live, live, refresh_seconds
from explorer.shared import split, timeline
from explorer.shared.actions import selected_numbers
from explorer.shared.forms.queries import HISTORY, RECEIVERS, StorageQuery
from explorer.shared.glance import TRAFFIC_MINUTES, spark
from explorer.shared.head import HEAD, Tag, page_url
from explorer.shared.presenters import numbered, plural
from explorer.shared.shell import Act, about, act, address_of, cleaned, draws, show, shown_or_acted_on

from . import lists
from .head import head

LISTS = "explorer/queue_storage/_messages.html"
HIDDEN_LISTS = ("all", "delayed", "leased")  # lists with messages that can be released


@dataclass(frozen=True, slots=True)
class Sibling:
    """The poison queue, or the queue of which this is the poison queue. entity None: not created yet."""

    address: EntityAddress
    entity: EntityRow | None


@live
def queue(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
    """GET shows the queue; POST acts on the selected messages and returns the updated list."""
    address = address_of(namespace, path)
    form = StorageQuery(request.GET, tabs=lists.SLUGS)
    cleaned(form)
    shown = partial(_show, request, address, form)
    return shown_or_acted_on(request, shown, partial(_act_on_selected, request, address))


def _show(request: HttpRequest, address: EntityAddress, form: StorageQuery, done: Act = Act()) -> HttpResponse:
    entity = reads.entity(address, actor=request.actor)
    context = {
        **about(request, entity),
        "lists": LISTS,
        "error": done.error,
        "origin": origin(entity, request),
        "facts": queue_facts(entity.address.path, entity.options),
        **lists.context(entity, form, request.actor),
        **split.context(request, entity.address),
    }
    if context["origin"]:
        numbers = [row.sequence_number for row in context["page"].rows] if "page" in context else []
        context["came_from"] = queue_storage.came_from(address, numbers, actor=request.actor)
    context["releasable"] = context["tab"] in HIDDEN_LISTS
    if draws(request, HEAD):
        stored = queue_storage.get_queue(address, actor=request.actor)
        context |= {
            "stored": stored,
            "poison": sibling(stored.poison, request) if stored.poison else None,
            "count": queue_storage.approximate_count(address, actor=request.actor),
        }
        traffic = spark(reads.traffic(address, TRAFFIC_MINUTES, actor=request.actor), words=("put", "deleted"))
        context["head"] = head(entity, context["may"], stored, traffic, tags(context))
    slow = FILTERED_SECONDS if form.narrows else HISTORY_SECONDS if context["tab"] in (HISTORY, RECEIVERS) else 0.0
    shown = Live(
        {HEAD: HEAD_SECONDS, LISTS: slow, **split.fragments(request)},
        entities=[entity],
        refresh_seconds=refresh_seconds([entity]),
        personal=bool(request.GET.get("m")),
        word=timeline.leaving(Family.QUEUE_STORAGE, EventKind.SENT),
    )
    return show(request, "entity", context, fragment="queue_storage/_messages", status=done.status, live=shown)


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


def _act_on_selected(request: HttpRequest, address: EntityAddress) -> Act:
    action, actor = request.POST.get("action", ""), request.actor
    try:
        numbers = selected_numbers(request.POST.getlist("numbers"))
    except InvalidArgument as exc:
        return Act(error=exc)
    calls: dict[str, tuple[Callable, Callable]] = {
        "release": (queue_storage.release, lambda done: released(done, numbers)),
        "requeue": (queue_storage.requeue_poison, lambda done: requeued(done, numbers)),
    }
    if action not in calls:
        return Act(error=InvalidArgument("action", f"{action!r} must be one of {', '.join(calls)}"))
    call, says = calls[action]
    target = numbered(numbers)
    return act(request, action, address, lambda: call(address, numbers, actor=actor), target=target, says=says)


def released(done: Sequence[int], asked: Sequence[int]) -> str:
    """The result in words, with the messages that were skipped."""
    said = "No messages were released."
    if done:
        receipts = "receipt no longer works" if len(done) == 1 else "receipts no longer work"
        said = f"Released {named(done)}: visible now. The old pop {receipts}."
    return said + left([n for n in asked if n not in done], "already visible, expired, or no longer in the queue")


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
