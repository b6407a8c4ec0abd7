"""Receives messages manually: locks them as a client does, shows and settles them. All actions are audited."""

from __future__ import annotations

from dataclasses import dataclass

from django.forms import Form
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.views.decorators.http import require_http_methods

from broker_core import reads, service_bus
from broker_core.common.errors import InvalidArgument, NotAllowed
from broker_core.common.types import Actor, EntityAddress, Right, SubQueue
from broker_core.reads import MessageRow, Tab
from broker_core.service_bus.rules.values import StoredMessage
from explorer.bodies.display import LOOKED_AT, preview, preview_of
from explorer.frames.presenters import SUBQUEUES, numbered, plural
from explorer.frames.shell import Act, act, address_of, page, show, wants_fragment
from explorer.live.page import live, of_receiver
from explorer.service_bus.forms.receiver import AcceptForm, ReceiveDeferredForm, ReceiveForm, SettleForm

from . import sessions, settling
from .amqp_values import read_sections

_LISTS = {SubQueue.MAIN: (Tab.LOCKED, Tab.DEFERRED), SubQueue.DEAD_LETTER: (Tab.DEAD_LETTER,)}


@dataclass(frozen=True, slots=True)
class LockedByUser:
    """A message that the user holds. preview: the beginning of its body; None without the right to see it."""

    row: MessageRow
    preview: str | None


@live
@page
@require_http_methods(["GET", "POST"])
def receiver(request: HttpRequest, subqueue: str, namespace: str, path: str) -> HttpResponse:
    if subqueue not in SUBQUEUES or SUBQUEUES[subqueue] not in _LISTS:
        raise Http404(f"{subqueue} is not a queue to receive from")
    address = address_of(namespace, path, subqueue)
    if request.method != "POST":
        request.actor.require(Right.LISTEN, address)
        return _show(request, address)
    forms: dict[str, Form] = {"receive": ReceiveForm(), "deferred": ReceiveDeferredForm()}
    done, deleted = _act(request, address, forms)
    bad_input = any(form.is_bound and not form.is_valid() for form in forms.values())
    if wants_fragment(request) or done.error or bad_input or deleted:
        return _show(request, address, forms, done, deleted, status=400 if bad_input else done.status)
    return HttpResponseRedirect(request.path)


def _show(
    request: HttpRequest,
    address: EntityAddress,
    forms: dict | None = None,
    done: Act = Act(),
    deleted: list[StoredMessage] | None = None,
    status: int = 200,
) -> HttpResponse:
    entity = reads.entity(address, actor=request.actor)
    if not entity.holds_messages:
        raise NotAllowed(f"'{entity.address}' is a topic; receive its messages from its subscriptions.")
    place = EntityAddress(entity.address.namespace, entity.address.path, address.subqueue)
    by_session = entity.requires_session and address.subqueue == SubQueue.MAIN
    context = {
        "section": "entities",
        "entity": entity,
        "address": place,
        "clock": entity.clock,
        "in_dead_letters": address.subqueue == SubQueue.DEAD_LETTER,
        "available": available(entity, address.subqueue),
        "held_messages": held_messages(place, request.actor),
        "by_session": by_session,
        "sessions": sessions.held_sessions(place, request.actor) if by_session else [],
        "accept_form": AcceptForm(initial={"session_id": request.GET.get("session", "")}),
        "receive_form": (forms or {}).get("receive") or ReceiveForm(),
        "deferred_form": (forms or {}).get("deferred") or ReceiveDeferredForm(),
        "deleted_messages": [(message, _preview(message)) for message in deleted or ()],
        "error": done.error,
        "holder": request.actor.holder_label,
    }
    live = of_receiver("explorer/service_bus/_receiver.html", entity)
    return show(request, "service_bus/receiver", context, status=status, live=live)


def _preview(message: StoredMessage) -> str:
    return preview(reads.Body(message.body, 0, len(message.body), message.body_kind, message.content_type), read_sections)


def held_messages(address: EntityAddress, actor: Actor) -> list[LockedByUser]:
    """The messages that the actor holds a lock on, by number, found by the lock's label: a reload shows them again."""
    pages = [
        reads.list_messages(address, tab, limit=LOOKED_AT, newest_first=False, actor=actor) for tab in _LISTS[address.subqueue]
    ]
    rows = {row.sequence_number: row for page in pages for row in page.rows if settling.is_held_by(row, actor)}
    return [LockedByUser(row, preview_of(address, row, actor, read_sections)) for _, row in sorted(rows.items())]


def available(entity: reads.EntityRow, subqueue: SubQueue) -> int:
    counts = entity.counts
    if subqueue == SubQueue.DEAD_LETTER:
        return counts.dead_letter - counts.dead_letter_locked
    return max(0, counts.active - counts.locked - entity.expired_pending.value)


def _act(request: HttpRequest, address: EntityAddress, forms: dict) -> tuple[Act, list[StoredMessage] | None]:
    """Carry out the posted action. The second value: messages that were received and deleted, which only this page shows."""
    action, actor = request.POST.get("action", ""), request.actor
    if action == "receive":
        form = forms["receive"] = ReceiveForm(request.POST)
        if not form.is_valid():
            return Act(), None
        if form.cleaned_data["mode"] == "receive-and-delete":
            done = _receive(request, address, service_bus.receive_and_delete, "receive and delete", form.cleaned_data["count"])
            return done, done.result
        return _receive(request, address, service_bus.receive, "receive", form.cleaned_data["count"]), None
    if action == "receive-deferred":
        form = forms["deferred"] = ReceiveDeferredForm(request.POST)
        if not form.is_valid():
            return Act(), None
        numbers = form.cleaned_data["numbers"]
        call = lambda: service_bus.receive_deferred(address, numbers, actor=actor)  # noqa: E731
        target = numbered(numbers)
        return act(request, "receive deferred", address, call, target=target, says=_received), None
    if action in sessions.ACTIONS:
        return sessions.carry_out(request, address, action)
    if action in settling.SETTLEMENTS:
        return settling.settle(request, address, action, SettleForm(request.POST)), None
    return Act(error=InvalidArgument("action", f"{action!r} is unknown")), None


def _receive(request: HttpRequest, address: EntityAddress, use_case, name: str, count: int) -> Act:
    return act(
        request, name, address, lambda: use_case(address, count, actor=request.actor), target=f"up to {count}", says=_received
    )


def _received(messages: list[StoredMessage]) -> str:
    if not messages:
        return "No messages are available."
    return f"Received {plural(len(messages), 'message')}."
