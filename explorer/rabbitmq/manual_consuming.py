"""Shows and settles the messages that a user's own connection holds of a queue.

The connection lives in one process of the site (explorer.rabbitmq.manual_consumers). Other processes show what the database
knows about it. The session remembers the connection, so that any process can say that it was closed.
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
from broker_core.rabbitmq.messages.browsing import ConnectionRow, UnackedInQueue
from broker_core.rabbitmq.messages.delivering import Delivery
from broker_core.reads import EntityRow
from broker_core.store import connections
from explorer.frames.presenters import plural
from explorer.frames.shell import Act, act
from explorer.people.roles import actor_for
from explorer.rabbitmq.forms.topology import ConsumeForm

from . import manual_consumers
from .manual_consumers import ManualChannel, ManualConsumer

SESSION_KEY = "manual_consumers"  # in the session: virtual host -> connection
_REQUEUED = "Its messages were requeued and marked as redelivered."
PROCESS_STOPPED = "its process has stopped, or it was closed elsewhere."
_RESULTS = {
    "ack": "Acknowledged {}.",
    "nack": "Nacked {} with requeue: returned to the queue, marked as redelivered.",
    "reject": "Rejected {}: dead-lettered, or dropped if there is no dead-letter exchange.",
}


@dataclass(frozen=True, slots=True)
class HeldDelivery:
    """A held delivery. up_to: the number of deliveries of its channel up to and including it."""

    tag: int
    up_to: int
    delivery: Any


@dataclass(frozen=True, slots=True)
class ChannelView:
    """A channel. consumer: its tag; empty: the channel is for gets, or its consumer was cancelled."""

    number: int
    queue: str
    consumer: str
    prefetch: int
    exclusive: bool
    is_standby: bool
    deliveries: Sequence[HeldDelivery]


@dataclass(frozen=True, slots=True)
class ManualConsumerView:
    """A user's connection in this process. others: the other queues that it holds messages of, with their numbers."""

    id: int
    name: str
    channels: Sequence[ChannelView]
    others: Sequence[tuple[str, int]]

    @property
    def consumes(self) -> bool:
        return any(channel.consumer for channel in self.channels)

    @property
    def count(self) -> int:
        return sum(len(channel.deliveries) for channel in self.channels)


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A user's connection in another process, from the database. unacked: its messages of this page's queue."""

    row: ConnectionRow
    unacked: UnackedInQueue | None


def context_of(request: HttpRequest, queue: EntityRow, present: Callable[[Delivery], Any]) -> dict[str, Any]:
    """The template context for the user's connection, in this process or another. present: converts a delivery for display."""
    vhost = queue.address.namespace
    manual, notices = manual_consumers.find(_user_id(request), vhost), _notices(request, vhost)
    other = _find_elsewhere(request, queue) if manual is None and Right.LISTEN in request.actor.rights else None
    if manual is None and other is None and not notices and _forget(request, vhost):
        notices = [f"Your connection was closed: {PROCESS_STOPPED} {_REQUEUED}"]
    return {
        "consumer": _view(manual, queue.address.path, present) if manual else None,
        "elsewhere": other,
        "notices": notices,
        "connection_name": manual_consumers.name_for(request.actor),
        "idle_minutes": manual_consumers.IDLE_MINUTES,
    }


def is_open(request: HttpRequest, vhost: str) -> bool:
    """Whether the user has a connection in this process."""
    return manual_consumers.find(_user_id(request), vhost) is not None


def _notices(request: HttpRequest, vhost: str) -> list[str]:
    """Notices about the connection that is, or was, in this process."""
    if manual := manual_consumers.find(_user_id(request), vhost):
        return list(manual.notes)
    if why := manual_consumers.closed_because(_user_id(request), vhost):
        _forget(request, vhost)
        return [f"Your connection was closed: {why} {_REQUEUED}"]
    return []


def _find_elsewhere(request: HttpRequest, queue: EntityRow) -> Elsewhere | None:
    vhost = queue.address.namespace
    row = manual_consumers.find_elsewhere(_user_id(request), vhost, actor=request.actor)
    if row is None:
        return None
    counts = browsing.unacked_by_queue(vhost, [queue.id], actor=request.actor)
    return Elsewhere(row, next((count for count in counts if count.connection_id == row.id), None))


def _view(manual: ManualConsumer, queue: str, present: Callable[[Delivery], Any]) -> ManualConsumerView:
    others = [(name, count) for name, count in sorted(manual.unacked_by_queue().items()) if name != queue]
    channels = [_channel(channel, present) for channel in manual.channels(queue) if channel.unacked or channel.consumer]
    return ManualConsumerView(manual.connection.id, manual.connection.name, channels, others)


def _channel(channel: ManualChannel, present: Callable[[Delivery], Any]) -> ChannelView:
    deliveries = [HeldDelivery(tag, at, present(unacked.delivery)) for at, (tag, unacked) in enumerate(channel.unacked, start=1)]
    consumer = channel.consumer
    return ChannelView(
        channel.number, channel.queue, consumer.tag if consumer else "", channel.prefetch, channel.exclusive,
        consumer is not None and not consumer.may_take, deliveries,
    )  # fmt: skip


def hold(request: HttpRequest, queue: EntityRow, count: int) -> Act:
    """Get messages and hold them unacknowledged."""
    return act(
        request, "hold", queue.address, lambda: _open(request, queue).hold(queue.address.path, count),
        target=f"up to {count}", says=lambda deliveries: _held_text(len(deliveries)),
    )  # fmt: skip


def _held_text(count: int) -> str:
    if not count:
        return "No messages are ready."
    return f"Got {plural(count, 'message')}, unacknowledged until you settle {'it' if count == 1 else 'them'}."


def consume(request: HttpRequest, queue: EntityRow, form: ConsumeForm) -> Act:
    if not form.is_valid():
        return Act(error=InvalidArgument("prefetch", f"must be a number from 1 to {manual_consumers.MOST_PREFETCH}"))
    prefetch, exclusive = form.cleaned_data["prefetch"], form.cleaned_data["exclusive"]
    return act(
        request, "consume", queue.address,
        lambda: _open(request, queue).consume(queue.address.path, prefetch, exclusive=exclusive),
        target=f"prefetch {prefetch}{', exclusive' if exclusive else ''}",
        says=lambda channel: f"Consuming on channel {channel.number} with a prefetch of {prefetch}.",
    )  # fmt: skip


def carry_out(request: HttpRequest, queue: EntityRow, action: str) -> Act:
    """Carry out an action: `ack`, `nack`, `reject`, each also with `-all`; `cancel`, `close`, `close-elsewhere`."""
    vhost, name = queue.address.namespace, manual_consumers.name_for(request.actor)
    channel = _number(request, "channel")

    def carried_out(verb: str, call: Callable[[], Any], target: str, text: str) -> Act:
        return act(request, verb, queue.address, call, target=target, says=lambda _: text)

    match action:
        case "close":
            text = "Closed your connection. Its messages were requeued."
            return carried_out("close connection", lambda: _close(request, vhost), name, text)
        case "close-elsewhere":
            text = "Closed your connection in the other process. Its messages were requeued."
            return carried_out("close connection", lambda: _close_elsewhere(request, vhost), name, text)
        case "cancel":
            text = "Cancelled the consumer. You still hold the messages it received."
            call = lambda: _existing(request, vhost).cancel(channel)  # noqa: E731
            return carried_out("cancel consumer", call, f"channel {channel}", text)
    return _settle(request, queue, action, channel)


def _settle(request: HttpRequest, queue: EntityRow, action: str, channel: int) -> Act:
    how, _, every = action.partition("-")
    if how not in _RESULTS or every not in ("", "all"):
        return Act(error=InvalidArgument("action", f"{action!r} is unknown"))
    tag = _number(request, "tag")
    return act(
        request, how, queue.address,
        lambda: _existing(request, queue.address.namespace).settle(channel, tag, how, multiple=bool(every)),
        target=f"{'all up to ' if every else ''}delivery {tag} of channel {channel}",
        says=lambda count: _RESULTS[how].format(plural(count, 'message'), "it is" if count == 1 else "they are"),
    )  # fmt: skip


def _open(request: HttpRequest, queue: EntityRow) -> ManualConsumer:
    vhost = queue.address.namespace
    manual = manual_consumers.open_for(_user_id(request), vhost, actor=request.actor)
    request.session[SESSION_KEY] = request.session.get(SESSION_KEY, {}) | {vhost: manual.connection.id}
    return manual


def _existing(request: HttpRequest, vhost: str) -> ManualConsumer:
    request.actor.require(Right.LISTEN, vhost)
    manual = manual_consumers.find(_user_id(request), vhost)
    if manual is None:
        if (other := manual_consumers.find_elsewhere(_user_id(request), vhost, actor=request.actor)) is not None:
            raise manual_consumers.HeldElsewhere(other)
        raise manual_consumers.Closed()
    manual.connection.actor = request.actor  # with the current rights
    return manual


def _close(request: HttpRequest, vhost: str) -> None:
    request.actor.require(Right.LISTEN, vhost)
    _forget(request, vhost)
    manual_consumers.close(_user_id(request), vhost)


def _close_elsewhere(request: HttpRequest, vhost: str) -> None:
    row = manual_consumers.find_elsewhere(_user_id(request), vhost, actor=request.actor)
    if row is not None:
        rabbitmq.force_close(row.id, f"Closed in Vitrine by {request.actor.name}", actor=request.actor)
    _forget(request, vhost)


def _forget(request: HttpRequest, vhost: str) -> bool:
    """Remove the connection from the session. Returns whether it was there."""
    remembered = dict(request.session.get(SESSION_KEY, {}))
    was_remembered = remembered.pop(vhost, None) is not None
    if was_remembered:
        request.session[SESSION_KEY] = remembered
    return was_remembered


def _number(request: HttpRequest, name: str) -> int:
    text = request.POST.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _user_id(request: HttpRequest) -> int:
    return request.user.pk


def _close_on_sign_out(request: HttpRequest | None, user: AbstractBaseUser | None, **_: Any) -> None:
    """Close the user's connections on sign-out, including those that this session opened in another process."""
    if user is None:
        return
    manual_consumers.close_all_of(user.pk)
    session = getattr(request, "session", None)
    if session is None:
        return
    for vhost in session.get(SESSION_KEY, {}):
        actor = actor_for(user, vhost)
        try:
            with connections.of(vhost):  # connections are closed by id
                if (row := manual_consumers.find_elsewhere(user.pk, vhost, actor=actor)) is not None:
                    rabbitmq.force_close(row.id, f"{actor.name} has signed out", actor=actor)
        except BrokerError:  # signing out goes on; its process closes the connection when it is idle
            continue


user_logged_out.connect(_close_on_sign_out, dispatch_uid="explorer.rabbitmq.manual_consuming.close_on_sign_out")
