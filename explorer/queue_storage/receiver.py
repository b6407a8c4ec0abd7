"""Gets messages manually, with their pop receipts, as a client does. A receipt stays valid after the lease (QS-051)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect

from broker_core import queue_storage, reads
from broker_core.common.durations import human
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.queue_storage.rules.display_state import DisplayState
from broker_core.queue_storage.rules.messages import number_of
from broker_core.reads import MessageRow, Tab
from broker_core.reads.conditions import Pattern, Text
from explorer.bodies.display import LOOKED_AT, preview_of
from explorer.frames import figures
from explorer.frames.presenters import plural
from explorer.frames.shell import Act, about, act, address_of, show, wants_fragment
from explorer.live.page import live, of_receiver

from .forms import GetForm, ReceiptForm

_SEARCH_LIMITS: dict[str, Any] = {"max_scanned": 20_000, "max_seconds": 0.3}  # limits of the search for the user's messages


@dataclass(frozen=True, slots=True)
class HeldReceipt:
    """A message that the user got last: the receipt is valid until another get or update (QS-051)."""

    row: MessageRow
    preview: str | None

    @property
    def is_leased(self) -> bool:
        return self.row.display_state is not DisplayState.VISIBLE


@live
def receiver(request: HttpRequest, namespace: str, path: str, subqueue: str) -> HttpResponse:
    if subqueue != "main":
        raise Http404("A storage queue has no sub-queues")
    address = address_of(namespace, path)
    if request.method != "POST":
        request.actor.require(Right.LISTEN, address)
        return _show(request, address)
    form = GetForm()
    if request.POST.get("action") == "get":
        form = GetForm(request.POST)
        if not form.is_valid():
            return _show(request, address, form, status=400)
        done = _get(request, address, form.cleaned_data)
    else:
        done = by_receipt(request, address)
    if wants_fragment(request) or done.error:
        return _show(request, address, form, done, done.status)
    return HttpResponseRedirect(request.path)


def _show(
    request: HttpRequest, address: EntityAddress, form: GetForm | None = None, done: Act = Act(), status: int = 200
) -> HttpResponse:
    entity = reads.entity(address, actor=request.actor)
    context = {
        **about(request, entity),
        "available": figures.at_hand(entity),
        "held_receipts": held_receipts(entity.address, request.actor),
        "form": form or GetForm(),
        "posted": request.POST if done.error and request.POST.get("action") in _ACTS else {},
        "error": done.error,
        "holder": request.actor.holder_label,
    }
    live_parts = of_receiver("explorer/queue_storage/_receiver.html", entity)
    return show(request, "queue_storage/receiver", context, fragment="queue_storage/_receiver", status=status, live=live_parts)


def held_receipts(address: EntityAddress, actor: Actor) -> list[HeldReceipt]:
    """The actor's messages that have not expired, by number, found by the holder label: a reload shows them again."""
    own_filter = reads.MessageFilter((Text("held-by", Pattern((actor.holder_label,)), exact=True),))
    page = reads.list_messages(
        address, Tab.ACTIVE, filter=own_filter, limit=LOOKED_AT, newest_first=False, actor=actor, **_SEARCH_LIMITS
    )
    return [
        HeldReceipt(row, preview_of(address, row, actor)) for row in page.rows if row.display_state is not DisplayState.EXPIRED
    ]


def _get(request: HttpRequest, address: EntityAddress, values: dict) -> Act:
    count, timeout = values["numofmessages"], values["visibilitytimeout"]
    return act(
        request, "get", address, lambda: queue_storage.get(address, count, visibility_timeout=timeout, actor=request.actor),
        target=f"up to {count}, for {human(timeout)}", says=_result_text,
    )  # fmt: skip


def _result_text(messages: list[queue_storage.GotMessage]) -> str:
    if not messages:
        return "No messages are visible."
    return f"Got {plural(len(messages), 'message')}, each with its own pop receipt."


def by_receipt(request: HttpRequest, address: EntityAddress) -> Act:
    """Update or delete a message by its id and pop receipt, as a client does. An invalid receipt is refused and audited."""
    action = request.POST.get("action", "")
    if action not in _ACTS:
        return Act(error=InvalidArgument("action", f"{action!r} must be one of get, {', '.join(_ACTS)}"))
    form = ReceiptForm(request.POST)
    if not form.is_valid():
        return Act(error=InvalidArgument("form", form.problem()))
    values = form.cleaned_data
    number = number_of(values["message_id"])
    call, says = _ACTS[action]
    return act(
        request, action, address, lambda: call(address, values, request.actor),
        target=f"message {number or values['message_id']}",
        says=lambda done: says(done, number),
    )  # fmt: skip


def _update(address: EntityAddress, values: dict, actor: Actor) -> queue_storage.Updated:
    return queue_storage.update(
        address, values["message_id"], values["receipt"], visibility_timeout=values["visibilitytimeout"],
        text=values["text"] if values["replace"] else None, actor=actor,
    )  # fmt: skip


def _delete(address: EntityAddress, values: dict, actor: Actor) -> None:
    queue_storage.delete(address, values["message_id"], values["receipt"], actor=actor)


_ACTS = {
    "update": (
        _update,
        lambda done, number: f"Updated message {number}. Its new pop receipt is {done.pop_receipt}; the old one no longer works.",
    ),
    "delete": (_delete, lambda done, number: f"Deleted message {number}."),
}
