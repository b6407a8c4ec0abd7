"""Manual consumers: connections of users to virtual hosts, with which a browser can hold messages as a client does.

A user has at most one for each virtual host. It lives in this process and holds messages until the user settles them, closes
it, signs out, loses the right to receive, or does not use it for IDLE_MINUTES. If the process dies, its messages are requeued
as those of any client. One thread maintains all manual consumers: it closes those that are idle or no longer allowed, and fetches
deliveries for their consumers. Each has a lock, so that only one thread at a time uses its connection.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.db import Error, connections

from broker_core import rabbitmq
from broker_core.common.errors import BrokerError, InvalidArgument, NotAllowed
from broker_core.common.types import Actor, Right
from broker_core.rabbitmq.connections.channels import Channel
from broker_core.rabbitmq.connections.connections import MOST_NAME, Connection
from broker_core.rabbitmq.connections.consumers import Consumer
from broker_core.rabbitmq.connections.state import Unacked
from broker_core.rabbitmq.messages import browsing
from broker_core.rabbitmq.messages.browsing import ConnectionRow
from broker_core.rabbitmq.messages.delivering import Delivery
from broker_core.rabbitmq.rules.errors import AmqpError, ConnectionLost
from broker_core.store.connections import close_all_of_this_thread
from explorer.people.roles import actors_now

log = logging.getLogger(__name__)
IDLE_MINUTES = 30  # real time since the user's last action
MOST_HELD = 200
MOST_CONSUMERS = 8
MOST_PREFETCH = 50
MAINTENANCE_SECONDS = 0.4
NOT_ALLOWED = "you no longer have permission to receive messages."
CONSUMER_TAG = "manual"


class NotHeld(BrokerError):
    """The delivery is not held: already settled or requeued. Raised before the broker is asked, so the channel stays open."""

    def __init__(self, tag: int):
        super().__init__(f"You no longer hold delivery {tag}: it was already settled or requeued.")


class Closed(BrokerError):
    """There is no connection: it was closed, or its process has ended."""

    def __init__(self) -> None:
        super().__init__("Your connection is closed. Its messages were requeued and marked as redelivered.")


class HeldElsewhere(NotAllowed):
    """The user's connection belongs to another process of the site; only that process can use it."""

    def __init__(self, row: ConnectionRow):
        super().__init__(
            f"Your connection '{row.name}' belongs to another process ({row.process}), which alone can settle "
            "what it holds. Close it first; what it holds goes back then."
        )


@dataclass(eq=False, slots=True)
class ManualChannel:
    """A channel: one for the gets from a queue, or one per consumer."""

    amqp_channel: Channel
    queue: str
    prefetch: int = 0
    exclusive: bool = False
    is_for_consumer: bool = False

    @property
    def number(self) -> int:
        return self.amqp_channel.number

    @property
    def consumer(self) -> Consumer | None:
        return next(iter(self.amqp_channel.consumers.values()), None)

    @property
    def unacked(self) -> list[tuple[int, Unacked]]:
        return list(self.amqp_channel.unacked.items())

    @property
    def is_finished(self) -> bool:
        """Whether it was a consumer's channel and has neither the consumer nor deliveries any more."""
        return self.is_for_consumer and self.consumer is None and not self.amqp_channel.unacked


class ManualConsumer:
    """A user's connection. Thread-safe.

    why: the reason why it was closed, as a sentence. notes: what happened to its channels since the user's last action.
    """

    def __init__(self, connection: Connection):
        self.connection = connection
        self.lock = threading.RLock()
        self.why = ""
        self.notes: list[str] = []
        self._channels: list[ManualChannel] = []
        self._used_at = time.monotonic()

    @property
    def is_open(self) -> bool:
        return not self.connection.is_lost

    @property
    def why_closed(self) -> str:
        if self.why:
            return self.why
        with suppress(BrokerError):
            self.connection.require_open()
        return _sentence(self.connection.closed)

    @property
    def has_consumers(self) -> bool:
        return any(channel.consumer for channel in self._channels)

    @property
    def held_count(self) -> int:
        return sum(len(channel.unacked) for channel in self._channels)

    def channels(self, queue: str | None = None) -> list[ManualChannel]:
        """The open channels, or those for a queue."""
        with self.lock:
            return [channel for channel in self._channels if channel.amqp_channel.is_open and queue in (None, channel.queue)]

    def unacked_by_queue(self) -> dict[str, int]:
        """The number of deliveries held, for each queue with deliveries or a consumer."""
        counts: dict[str, int] = {}
        for channel in self.channels():
            if channel.unacked or channel.consumer:
                counts[channel.queue] = counts.get(channel.queue, 0) + len(channel.unacked)
        return counts

    def hold(self, queue: str, count: int) -> list[Delivery]:
        """Get up to `count` messages and keep them unacknowledged. Raises AmqpError, InvalidArgument."""
        with self.lock:
            self._use()
            if self.held_count + count > MOST_HELD:
                raise InvalidArgument(
                    "count", f"you hold {self.held_count} messages; at most {MOST_HELD} are allowed. Settle some first"
                )
            channel = self._channel_for_gets(queue).amqp_channel
            deliveries: list[Delivery] = []
            while len(deliveries) < count and (delivery := channel.get(queue)) is not None:
                deliveries.append(delivery.delivery)
            return deliveries

    def consume(self, queue: str, prefetch: int, *, exclusive: bool = False) -> ManualChannel:
        """Start a consumer on a channel of its own, and fetch its first deliveries. Raises AmqpError, InvalidArgument."""
        with self.lock:
            self._use()
            if not 1 <= prefetch <= MOST_PREFETCH:
                raise InvalidArgument("prefetch", f"{prefetch} must be a number from 1 to {MOST_PREFETCH}")
            if sum(open_channel.consumer is not None for open_channel in self._channels) >= MOST_CONSUMERS:
                raise InvalidArgument("consume", f"you have {MOST_CONSUMERS} consumers, the maximum. Cancel one first")
            amqp_channel = self.connection.channel()
            channel = ManualChannel(amqp_channel, queue, prefetch, exclusive, is_for_consumer=True)
            self._channels.append(channel)
            try:
                amqp_channel.qos(prefetch)
                amqp_channel.consume(queue, tag=f"{CONSUMER_TAG} {amqp_channel.number}", exclusive=exclusive)
                self._fetch(channel)
            finally:
                self._remove_finished()
            return channel

    def settle(self, number: int, tag: int, how: str, *, multiple: bool = False) -> int:
        """Ack, nack (requeue) or reject (dead-letter or drop) a delivery; with `multiple`, all of its channel up to it.

        Returns how many were settled. Raises NotHeld; AmqpError if the channel or connection is closed.
        """
        with self.lock:
            self._use()
            channel = self._channel(number)
            if tag not in channel.amqp_channel.unacked:
                raise NotHeld(tag)
            count = sum(other <= tag for other in channel.amqp_channel.unacked) if multiple else 1
            match how:
                case "ack":
                    channel.amqp_channel.ack(tag, multiple=multiple)
                case "nack":
                    channel.amqp_channel.nack(tag, multiple=multiple, requeue=True)
                case "reject":
                    channel.amqp_channel.nack(tag, multiple=multiple, requeue=False)
                case _:
                    raise InvalidArgument("action", f"{how!r} must be ack, nack or reject")
            with suppress(BrokerError):  # it is settled; further deliveries are fetched at the next maintenance
                self._fetch(channel)
            self._remove_finished()
            return count

    def cancel(self, number: int) -> None:
        """Cancel the consumer of a channel. Its deliveries stay held (RMQ-124)."""
        with self.lock:
            self._use()
            channel = self._channel(number)
            if (consumer := channel.consumer) is not None:
                channel.amqp_channel.cancel(consumer.tag)
            self._remove_finished()

    def close(self, why: str = "it was closed.") -> None:
        """Close the connection: its messages are requeued and marked as redelivered."""
        with self.lock:
            if self.is_open:
                self.why = why
                self.connection.close()

    def maintain(self, actor: Actor | None) -> None:
        """Close the connection if it is idle or no longer allowed; fetch deliveries; note closed channels.

        actor: the user with the current rights; None: the user no longer exists.
        """
        with self.lock:
            if actor is None or Right.LISTEN not in actor.rights:
                self.close(NOT_ALLOWED)
                return
            self.connection.actor = actor
            if time.monotonic() - self._used_at > IDLE_MINUTES * 60:
                self.close(f"it was not used for {IDLE_MINUTES} minutes.")
            for channel in list(self._channels):
                if self.is_open:
                    _call_and_log(self._maintain_channel, channel)
            self._remove_finished()

    def _maintain_channel(self, channel: ManualChannel) -> None:
        had_consumer = channel.consumer is not None
        try:
            self._fetch(channel)
        except AmqpError as refusal:
            self.notes.append(
                f"Channel {channel.number} was closed, and its messages were requeued to {channel.queue}: {refusal}"
            )
            return
        if had_consumer and channel.consumer is None:
            self.notes.append(f"The consumer of {channel.queue} was cancelled: the queue was deleted.")

    def _use(self) -> None:
        self.connection.require_open()
        self._used_at = time.monotonic()
        self.notes.clear()

    def _channel(self, number: int) -> ManualChannel:
        channel = next(
            (candidate for candidate in self._channels if candidate.number == number and candidate.amqp_channel.is_open), None
        )
        if channel is None:
            raise InvalidArgument("channel", f"your connection no longer has a channel {number}; its messages were requeued")
        return channel

    def _channel_for_gets(self, queue: str) -> ManualChannel:
        """The channel for gets from a queue. Each queue has its own, since an error closes the channel."""
        for channel in self._channels:
            if channel.queue == queue and not channel.is_for_consumer and channel.amqp_channel.is_open:
                return channel
        self._channels.append(ManualChannel(self.connection.channel(), queue))
        return self._channels[-1]

    def _fetch(self, channel: ManualChannel) -> None:
        """Fetch deliveries up to the prefetch. One that was unacknowledged for too long closes the channel here (RMQ-126)."""
        if channel.amqp_channel.is_open:
            channel.amqp_channel.deliveries(MOST_PREFETCH)

    def _remove_finished(self) -> None:
        for channel in list(self._channels):
            if channel.is_finished and self.is_open:
                channel.amqp_channel.close()
            if not channel.amqp_channel.is_open:
                self._channels.remove(channel)


def _sentence(ended: Exception | None) -> str:
    """Why a connection was closed, without protocol codes."""
    match ended:
        case ConnectionLost():
            text = ended.why
        case AmqpError():
            text = ended.problem
        case _:
            text = str(ended or "it was closed")
    return f"{text.rstrip('.')}."


_consumers: dict[tuple[int, str], ManualConsumer] = {}  # by user and virtual host
_opening_lock = threading.Lock()
_maintainer_lock = threading.Lock()
_maintainer: threading.Thread | None = None


def name_for(actor: Actor) -> str:
    return f"browser session of {actor.name}"[:MOST_NAME]


def find(user_id: int, vhost: str) -> ManualConsumer | None:
    """A user's open connection in this process, or None."""
    manual = _consumers.get((user_id, vhost))
    return manual if manual is not None and manual.is_open else None


def open_for(user_id: int, vhost: str, *, actor: Actor) -> ManualConsumer:
    """A user's connection, opened if there is none. Raises NotAuthorized, HeldElsewhere, AmqpError."""
    actor.require(Right.LISTEN, vhost)
    with _opening_lock:
        manual = find(user_id, vhost)
        if manual is None:
            if (other := find_elsewhere(user_id, vhost, actor=actor)) is not None:
                raise HeldElsewhere(other)
            manual = _consumers[user_id, vhost] = ManualConsumer(rabbitmq.connect(vhost, name_for(actor), actor=actor))
        manual.connection.actor = actor  # with the current rights
    _ensure_maintainer()
    return manual


def find_elsewhere(user_id: int, vhost: str, *, actor: Actor) -> ConnectionRow | None:
    """The user's connection in another process, or None. Connections of dead processes are closed first."""
    row = _find_elsewhere(user_id, vhost, actor)
    if row is not None:
        rabbitmq.recover_dead()
        row = _find_elsewhere(user_id, vhost, actor)
    return row


def _find_elsewhere(user_id: int, vhost: str, actor: Actor) -> ConnectionRow | None:
    manual = find(user_id, vhost)
    own = manual.connection.id if manual else 0
    rows = browsing.connections(vhost, actor=actor)
    return next((row for row in rows if row.name == name_for(actor) and row.id != own), None)


def closed_because(user_id: int, vhost: str) -> str:
    """Why the connection in this process was closed, returned once; empty: there was none, or it is open."""
    manual = _consumers.get((user_id, vhost))
    if manual is None or manual.is_open:
        return ""
    _consumers.pop((user_id, vhost), None)
    return manual.why_closed


def close(user_id: int, vhost: str) -> None:
    """Close a user's connection, on the user's request."""
    if (manual := _consumers.get((user_id, vhost))) is not None:
        manual.close()
        _consumers.pop((user_id, vhost), None)


def close_all_of(user_id: int) -> None:
    """Close all connections of a user who has signed out."""
    for held_by, vhost in list(_consumers):
        if held_by == user_id:
            with suppress(BrokerError):  # what cannot be closed now is closed later, as that of a dead process
                close(held_by, vhost)


def maintain_all() -> None:
    """Maintain each open connection once. The failure of one does not affect the others.

    Raises django.db.Error if the users' rights cannot be read: then nothing is delivered.
    """
    consumers = {place: manual for place, manual in list(_consumers.items()) if manual.is_open}
    actors = actors_now(consumers) if consumers else {}
    for place, manual in consumers.items():
        _call_and_log(manual.maintain, actors.get(place))


def _call_and_log(call: Callable[..., None], *args: Any) -> None:
    try:
        call(*args)
    except AmqpError:
        pass  # its connection was closed; the page says why
    except BrokerError as refusal:
        if not refusal.retryable:
            log.warning("Maintaining a manual connection failed: %s", refusal)
    except Exception:
        log.exception("Maintaining a manual connection failed")


def _ensure_maintainer() -> None:
    """Ensure that the maintenance thread runs. It ends when no connection is open."""
    global _maintainer
    with _maintainer_lock:
        if _maintainer is None or not _maintainer.is_alive():
            _maintainer = threading.Thread(target=_maintain_until_closed, name="vitrine-manual-consumers", daemon=True)
            _maintainer.start()


def _maintain_until_closed() -> None:
    global _maintainer
    while True:
        time.sleep(MAINTENANCE_SECONDS)
        try:
            maintain_all()
        except Error:
            connections.close_all()  # the next round opens a new one
        if not any(manual.is_open and manual.has_consumers for manual in list(_consumers.values())):
            _close_database_connections()
        with _maintainer_lock:
            if not any(manual.is_open for manual in list(_consumers.values())):
                _maintainer = None
                break
    _close_database_connections()


def _close_database_connections() -> None:
    """Close this thread's database connections."""
    close_all_of_this_thread()
    connections.close_all()
