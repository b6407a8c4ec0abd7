"""What a person's own connection holds of a queue, as the page shows it, and what the person does with it.

The connection is in one process of the site (explorer.rabbitmq.manual_consumers). Another one that is asked shows what the
database knows of it. The session remembers that there was one, so that its end is told also by a process that never had it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AbstractBaseUser
from django.contrib.auth.signals import user_logged_out
from django.http import HttpRequest

from broker_core import rabbitmq
from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import Right
from broker_core.rabbitmq.messages import browsing
from broker_core.rabbitmq.messages.browsing import ConnectionRow, HeldInQueue
from broker_core.rabbitmq.messages.delivering import Delivery
from broker_core.reads import EntityRow
from explorer.rabbitmq.forms.topology import ConsumeForm
from explorer.roles import actor_for
from explorer.shared.presenters import plural
from explorer.shared.shell import Act, act

from . import manual_consumers
from .manual_consumers import ManualChannel, ManualConsumer

REMEMBERED = "hands"  # in the session: virtual host -> connection
GONE = "its process has stopped, or it was closed elsewhere."
_SAID = {
    "ack": "Acknowledged {}.",
    "nack": "Nacked {} with requeue: returned to the queue, marked as redelivered.",
    "reject": "Rejected {}: dead-lettered, or dropped if there is no dead-letter exchange.",
}


@dataclass(frozen=True, slots=True)
class HeldDelivery:
    """A delivery in the hand. up_to: how many deliveries of its channel there are up to it, with it."""

    tag: int
    up_to: int
    shown: Any


@dataclass(frozen=True, slots=True)
class ChannelView:
    """A channel of the hand. consumer: its tag; empty for one of gets, or whose consumer was cancelled."""

    number: int
    queue: str
    consumer: str
    prefetch: int
    exclusive: bool
    waits_its_turn: bool
    held: Sequence[HeldDelivery]


@dataclass(frozen=True, slots=True)
class HandView:
    """A person's connection in this process. others: queues other than this page's, with how many of each it holds."""

    id: int
    name: str
    channels: Sequence[ChannelView]
    others: Sequence[tuple[str, int]]

    @property
    def consumes(self) -> bool:
        return any(one.consumer for one in self.channels)

    @property
    def count(self) -> int:
        return sum(len(one.held) for one in self.channels)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A person's connection in another process, as the database knows it. held: what it holds of this page's queue."""

    row: ConnectionRow
    held: HeldInQueue | None


def context_of(request: HttpRequest, queue: EntityRow, present: Callable[[Delivery], Any]) -> dict[str, Any]:
    """What the page tells of the person's connection: the one here, the one elsewhere, or that there was one. present: makes of a
    delivery what the page shows."""
    vhost = queue.address.namespace
    hand, told = manual_consumers.of(_user_id(request), vhost), _told(request, vhost)
    there = _there(request, queue) if hand is None and Right.LISTEN in request.actor.rights else None
    if hand is None and there is None and not told and _forget(request, vhost):
        told = [f"Your connection was closed: {GONE} {_back()}"]
    return {
        "hand": _view(hand, queue.address.path, present) if hand else None,
        "elsewhere": there,
        "told": told,
        "hand_name": manual_consumers.name_for(request.actor),
        "idle_minutes": manual_consumers.IDLE_MINUTES,
    }


def is_open(request: HttpRequest, vhost: str) -> bool:
    """Whether the person has a connection in this process."""
    return manual_consumers.of(_user_id(request), vhost) is not None


def _told(request: HttpRequest, vhost: str) -> list[str]:
    """What happened to the hand that is, or was, in this process."""
    if hand := manual_consumers.of(_user_id(request), vhost):
        return list(hand.notes)
    if why := manual_consumers.ended_because(_user_id(request), vhost):
        _forget(request, vhost)
        return [f"Your connection was closed: {why} {_back()}"]
    return []


def _back() -> str:
    return "Its messages were requeued and marked as redelivered."


def _there(request: HttpRequest, queue: EntityRow) -> Elsewhere | None:
    vhost = queue.address.namespace
    row = manual_consumers.elsewhere(_user_id(request), vhost, actor=request.actor)
    if row is None:
        return None
    held = browsing.held(vhost, [queue.id], actor=request.actor)
    return Elsewhere(row, next((one for one in held if one.connection_id == row.id), None))


def _view(hand: ManualConsumer, queue: str, present: Callable[[Delivery], Any]) -> HandView:
    others = [(name, count) for name, count in sorted(hand.held_by_queue().items()) if name != queue]
    channels = [_channel(one, present) for one in hand.channels(queue) if one.held or one.consumer]
    return HandView(hand.connection.id, hand.connection.name, channels, others)


def _channel(one: ManualChannel, present: Callable[[Delivery], Any]) -> ChannelView:
    held = [HeldDelivery(tag, at, present(unacked.delivery)) for at, (tag, unacked) in enumerate(one.held, start=1)]
    consumer = one.consumer
    return ChannelView(
        one.number, one.queue, consumer.tag if consumer else "", one.prefetch, one.exclusive,
        consumer is not None and not consumer.may_take, held,
    )  # fmt: skip


def hold(request: HttpRequest, queue: EntityRow, count: int) -> Act:
    """Get messages and keep them in the person's hand."""
    return act(
        request, "hold", queue.address, lambda: _opened(request, queue).hold(queue.address.path, count),
        target=f"up to {count}", says=lambda got: _got(len(got)),
    )  # fmt: skip


def _got(count: int) -> str:
    if not count:
        return "No messages are ready."
    return f"Got {plural(count, 'message')}, unacknowledged until you settle {'it' if count == 1 else 'them'}."


def consume(request: HttpRequest, queue: EntityRow, form: ConsumeForm) -> Act:
    if not form.is_valid():
        return Act(error=InvalidArgument("prefetch", f"must be a number from 1 to {manual_consumers.MOST_PREFETCH}"))
    prefetch, exclusive = form.cleaned_data["prefetch"], form.cleaned_data["exclusive"]
    return act(
        request, "consume", queue.address,
        lambda: _opened(request, queue).consume(queue.address.path, prefetch, exclusive=exclusive),
        target=f"prefetch {prefetch}{', exclusive' if exclusive else ''}",
        says=lambda made: f"Consuming on channel {made.number} with a prefetch of {prefetch}.",
    )  # fmt: skip


def carry_out(request: HttpRequest, queue: EntityRow, action: str) -> Act:
    """An act on what the hand has: `ack`, `nack`, `reject`, each also with `-all`, `cancel`, `close`, `close-elsewhere`."""
    vhost, name = queue.address.namespace, manual_consumers.name_for(request.actor)
    channel = _number(request, "channel")

    def carried_out(what: str, call: Callable[[], Any], target: str, said: str) -> Act:
        return act(request, what, queue.address, call, target=target, says=lambda _: said)

    match action:
        case "close":
            said = "Closed your connection. Its messages were requeued."
            return carried_out("close connection", lambda: _close(request, vhost), name, said)
        case "close-elsewhere":
            said = "Closed your connection in the other process. Its messages were requeued."
            return carried_out("close connection", lambda: _close_elsewhere(request, vhost), name, said)
        case "cancel":
            said = "Cancelled the consumer. You still hold the messages it received."
            call = lambda: _opened_before(request, vhost).cancel(channel)  # noqa: E731
            return carried_out("cancel consumer", call, f"channel {channel}", said)
    return _settle(request, queue, action, channel)


def _settle(request: HttpRequest, queue: EntityRow, action: str, channel: int) -> Act:
    how, _, every = action.partition("-")
    if how not in _SAID or every not in ("", "all"):
        return Act(error=InvalidArgument("action", f"{action!r} is unknown"))
    tag = _number(request, "tag")
    return act(
        request, how, queue.address,
        lambda: _opened_before(request, queue.address.namespace).settle(channel, tag, how, multiple=bool(every)),
        target=f"{'all up to ' if every else ''}delivery {tag} of channel {channel}",
        says=lambda count: _SAID[how].format(plural(count, 'message'), "it is" if count == 1 else "they are"),
    )  # fmt: skip


def _opened(request: HttpRequest, queue: EntityRow) -> ManualConsumer:
    vhost = queue.address.namespace
    hand = manual_consumers.opened(_user_id(request), vhost, actor=request.actor)
    request.session[REMEMBERED] = request.session.get(REMEMBERED, {}) | {vhost: hand.connection.id}
    return hand


def _opened_before(request: HttpRequest, vhost: str) -> ManualConsumer:
    request.actor.require(Right.LISTEN, vhost)
    hand = manual_consumers.of(_user_id(request), vhost)
    if hand is None:
        if (other := manual_consumers.elsewhere(_user_id(request), vhost, actor=request.actor)) is not None:
            raise manual_consumers.HeldElsewhere(other)
        raise manual_consumers.Ended()
    hand.connection.actor = request.actor  # the rights it has now
    return hand


def _close(request: HttpRequest, vhost: str) -> None:
    request.actor.require(Right.LISTEN, vhost)
    _forget(request, vhost)
    manual_consumers.close(_user_id(request), vhost)


def _close_elsewhere(request: HttpRequest, vhost: str) -> None:
    row = manual_consumers.elsewhere(_user_id(request), vhost, actor=request.actor)
    if row is not None:
        rabbitmq.force_close(row.id, f"Closed in Vitrine by {request.actor.name}", actor=request.actor)
    _forget(request, vhost)


def _forget(request: HttpRequest, vhost: str) -> bool:
    """Forget that there was a hand; whether there was one."""
    remembered = dict(request.session.get(REMEMBERED, {}))
    there_was = remembered.pop(vhost, None) is not None
    if there_was:
        request.session[REMEMBERED] = remembered
    return there_was


def _number(request: HttpRequest, name: str) -> int:
    text = request.POST.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _user_id(request: HttpRequest) -> int:
    return request.user.pk


def _let_go(request: HttpRequest | None, user: AbstractBaseUser | None, **_: Any) -> None:
    """Signing out ends a person's connections, those too that this session opened in another process."""
    if user is None:
        return
    manual_consumers.close_all_of(user.pk)
    session = getattr(request, "session", None)
    if session is None:
        return
    actor = actor_for(user)
    for vhost in session.get(REMEMBERED, {}):
        try:
            if (row := manual_consumers.elsewhere(user.pk, vhost, actor=actor)) is not None:
                rabbitmq.force_close(row.id, f"{actor.name} has signed out", actor=actor)
        except BrokerError:  # the way out is open in any case; unused, it is closed by its process
            continue


user_logged_out.connect(_let_go, dispatch_uid="explorer.rabbitmq.manual_consumers.let_go")
