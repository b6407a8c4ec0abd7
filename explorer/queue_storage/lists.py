"""The lists of a storage queue: its messages by the reason why they are invisible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from django.http import HttpRequest

from broker_core import queue_storage, reads
from broker_core.common.types import Actor, EntityAddress, HoldKind
from broker_core.queue_storage.rules.names import origin_of
from broker_core.reads import EXPIRED, Capped, EntityRow, Tab
from explorer.frames import figures
from explorer.frames.filtering import filter_of, list_context
from explorer.frames.forms.queries import HISTORY, ORDERS, RECEIVERS, StorageQuery
from explorer.frames.history import history
from explorer.frames.lists import TabView, folded
from explorer.frames.receivers import MOST_HELD, receivers_of
from explorer.operations.presenters import offers

from . import counts


@dataclass(frozen=True, slots=True)
class List:
    """A list. holds: see reads.MessageFilter; None: all messages. count: None if unknown.

    empty_title, empty_text: shown if the list is empty.
    """

    slug: str
    word: str
    hue: str
    holds: tuple[int, ...] | None
    count: Callable[[EntityRow], int | Capped | None]
    empty_title: str
    empty_text: str


def _visible(entity: EntityRow) -> int | None:
    """The number of visible messages; None if the expired ones were not counted to the end."""
    return None if entity.expired_pending.capped else figures.at_hand(entity)


LISTS = (
    List("all", "in the queue", "list", None, lambda e: e.counts.active, "No messages",
         "Messages stay here until they are deleted or expire."),
    List("visible", "visible", "active", (0,), _visible, "No visible messages",
         "A get returns visible messages. The other tabs list invisible messages by reason."),
    List("delayed", "delayed", "scheduled", (int(HoldKind.PUT), int(HoldKind.UPDATE_BEFORE_GET)), counts.delayed,
         "No delayed messages", "Messages put with a visibility timeout are listed here until it ends."),
    List("leased", "leased", "locked", (int(HoldKind.GET), int(HoldKind.UPDATE)), counts.leased, "No leased messages",
         "A get hides a message for its visibility timeout; until then it is listed here."),
    List("expired", "expired", "expired", (EXPIRED,), lambda e: e.expired_pending, "No expired messages",
         "Clients no longer see expired messages. They are listed here until they are removed."),
)  # fmt: skip
_BY_SLUG = {message_list.slug: message_list for message_list in LISTS}
SLUGS = (*_BY_SLUG, RECEIVERS, HISTORY)
FIRST = LISTS[0].slug


def tab_views(entity: EntityRow, selected: str) -> list[TabView]:
    """The tabs with their counts; the history is the last one."""
    views = [
        TabView(message_list.slug, message_list.word, message_list.hue, message_list.count(entity), message_list.slug == selected)
        for message_list in LISTS
    ]
    others = ((RECEIVERS, "receivers", "hand"), (HISTORY, "history", "gone"))
    return folded([*views, *(TabView(slug, word, hue, None, selected == slug, True) for slug, word, hue in others)])


def tabs(entity: EntityRow) -> dict:
    """The tabs beside something else than a list."""
    return {"tabs": tab_views(entity, "")}


def holds_of(slug: str) -> tuple[int, ...] | None:
    """What the messages of a list have in common, see reads.MessageFilter. slug: empty for the first list."""
    return _BY_SLUG[slug or FIRST].holds


def origin_address(address: EntityAddress, actor: Actor) -> EntityAddress | None:
    """The queue whose poison queue this is, by this queue's name or by the other's settings; None: none."""
    by_name = origin_of(address.path)
    if by_name:
        return EntityAddress(address.namespace, by_name)
    queues = queue_storage.list_queues(address.namespace, actor=actor)
    return next((other.address for other in queues if other.poison == address), None)


def context(request: HttpRequest, entity: EntityRow, form: StorageQuery) -> dict:
    """Template context of the message lists."""
    values = form.cleaned_data
    tab, cursor = values["tab"] or FIRST, values["cursor"] or None
    common = {"tabs": tab_views(entity, tab), "tab": tab, "form": form, "list": _BY_SLUG.get(tab)}
    if tab == HISTORY:
        return common | history(request, entity, values["cursor"])
    if tab == RECEIVERS:
        leased = reads.MessageFilter(holds=_BY_SLUG["leased"].holds)
        messages = reads.list_messages(entity.address, Tab.ACTIVE, filter=leased, limit=MOST_HELD, actor=request.actor)
        return common | {"receivers": receivers_of(entity, messages.rows, request.actor)}
    narrowed = filter_of(request, entity.clock.now).selecting(_BY_SLUG[tab].holds)
    order = values["order"]
    listing = list_context(
        request, entity, entity.address, Tab.ACTIVE, narrowed, order=order, orders=ORDERS, newest_first=order != "oldest",
        cursor=cursor,
    )  # fmt: skip
    return common | listing | ({} if narrowed.problem else offers(entity, tab, narrowed.text, actor=request.actor))
