"""Hands: connections to virtual hosts that belong to people, so that a browser can hold messages as a client does.

A person has at most one for each virtual host. It lives in this process, and holds messages until the person settles them, closes
it, signs out, loses the right to receive, or leaves it unused; should the process die, its messages go back as those of any
client do. A thread looks after all hands: it closes what is not used or not allowed any more, and then fetches what consumers
have room for. A hand's own lock sees to it that only one thread uses its connection at a time.
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
from broker_core.rabbitmq.connections.processes import ConnectionLost
from broker_core.rabbitmq.connections.state import Unacked
from broker_core.rabbitmq.messages import browsing
from broker_core.rabbitmq.messages.browsing import ConnectionRow
from broker_core.rabbitmq.messages.delivering import Delivery
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.store.connections import close_all_of_this_thread
from explorer.roles import actors_now

log = logging.getLogger(__name__)
IDLE_MINUTES = 30  # real time, since the person last did something with it
MOST_HELD = 200
MOST_CONSUMERS = 8
MOST_PREFETCH = 50
LOOK_SECONDS = 0.4
NOT_ALLOWED = "you no longer have permission to receive messages."
CONSUMER_TAG = "manual"


class NotInHand(BrokerError):
    """A delivery that the hand does not hold: settled before, or given back meanwhile. Told here, it does not end the channel."""

    def __init__(self, tag: int):
        super().__init__(f"You no longer hold delivery {tag}: it was already settled or requeued.")


class Ended(BrokerError):
    """There is no hand: it was closed, or its process is gone."""

    def __init__(self) -> None:
        super().__init__("Your connection is closed. Its messages were requeued and marked as redelivered.")


class HeldElsewhere(NotAllowed):
    """Another process of the site has this person's connection, and only that one can use it."""

    def __init__(self, row: ConnectionRow):
        super().__init__(
            f"Your connection '{row.name}' belongs to another process ({row.process}, epoch {row.epoch}), which alone can settle "
            "what it holds. Close it first; what it holds goes back then."
        )


@dataclass(eq=False, slots=True)
class ManualChannel:
    """A channel of a hand: one for the gets of a queue, or one for each consumer."""

    channel: Channel
    queue: str
    prefetch: int = 0
    exclusive: bool = False
    began_as_consumer: bool = False

    @property
    def number(self) -> int:
        return self.channel.number

    @property
    def consumer(self) -> Consumer | None:
        return next(iter(self.channel.consumers.values()), None)

    @property
    def held(self) -> list[tuple[int, Unacked]]:
        return list(self.channel.unacked.items())

    @property
    def is_done(self) -> bool:
        """A consumer's channel without its consumer and without deliveries: nothing can come of it."""
        return self.began_as_consumer and self.consumer is None and not self.channel.unacked


class ManualConsumer:
    """An open connection of a person. Its methods may be called from any thread.

    why: what ended it, in a sentence. notes: what happened to its channels since the person's last act.
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
    def why_ended(self) -> str:
        if self.why:
            return self.why
        with suppress(BrokerError):
            self.connection.require_open()
        return _sentence(self.connection.closed)

    @property
    def has_consumers(self) -> bool:
        return any(one.consumer for one in self._channels)

    @property
    def held_count(self) -> int:
        return sum(len(one.held) for one in self._channels)

    def channels(self, queue: str | None = None) -> list[ManualChannel]:
        """Its channels, or those for a queue, that hold something or may yet get something."""
        with self.lock:
            return [one for one in self._channels if one.channel.is_open and queue in (None, one.queue)]

    def held_by_queue(self) -> dict[str, int]:
        """How many deliveries of each queue it holds, or consumes from."""
        counts: dict[str, int] = {}
        for one in self.channels():
            if one.held or one.consumer:
                counts[one.queue] = counts.get(one.queue, 0) + len(one.held)
        return counts

    def hold(self, queue: str, count: int) -> list[Delivery]:
        """Get up to so many messages, and keep them unacknowledged. Raises AmqpError, InvalidArgument."""
        with self.lock:
            self._use()
            if self.held_count + count > MOST_HELD:
                raise InvalidArgument(
                    "count", f"you hold {self.held_count} messages; at most {MOST_HELD} are allowed. Settle some first"
                )
            channel = self._getting(queue).channel
            got: list[Delivery] = []
            while len(got) < count and (delivery := channel.get(queue)) is not None:
                got.append(delivery.delivery)
            return got

    def consume(self, queue: str, prefetch: int, *, exclusive: bool = False) -> ManualChannel:
        """Begin to consume on a channel of its own; what it has room for comes at once. Raises AmqpError, InvalidArgument."""
        with self.lock:
            self._use()
            if not 1 <= prefetch <= MOST_PREFETCH:
                raise InvalidArgument("prefetch", f"{prefetch} must be a number from 1 to {MOST_PREFETCH}")
            if sum(one.consumer is not None for one in self._channels) >= MOST_CONSUMERS:
                raise InvalidArgument("consume", f"you have {MOST_CONSUMERS} consumers, the maximum. Cancel one first")
            channel = self.connection.channel()
            made = ManualChannel(channel, queue, prefetch, exclusive, began_as_consumer=True)
            self._channels.append(made)
            try:
                channel.qos(prefetch)
                channel.consume(queue, tag=f"{CONSUMER_TAG} {channel.number}", exclusive=exclusive)
                self._fetch(made)
            finally:
                self._tidy()
            return made

    def settle(self, number: int, tag: int, how: str, *, multiple: bool = False) -> int:
        """Ack, nack (back to its place) or reject (dead-lettered, or dropped) a delivery, or all of its channel up to it.

        Returns how many were settled. Raises NotInHand; AmqpError where the channel or connection has ended.
        """
        with self.lock:
            self._use()
            one = self._numbered(number)
            if tag not in one.channel.unacked:
                raise NotInHand(tag)
            count = sum(held <= tag for held in one.channel.unacked) if multiple else 1
            match how:
                case "ack":
                    one.channel.ack(tag, multiple=multiple)
                case "nack":
                    one.channel.nack(tag, multiple=multiple, requeue=True)
                case "reject":
                    one.channel.nack(tag, multiple=multiple, requeue=False)
                case _:
                    raise InvalidArgument("action", f"{how!r} must be ack, nack or reject")
            with suppress(BrokerError):  # it is settled; what does not come now comes at the next look
                self._fetch(one)
            self._tidy()
            return count

    def cancel(self, number: int) -> None:
        """End the consumer of a channel; what it was delivered stays in the hand (RMQ-124)."""
        with self.lock:
            self._use()
            one = self._numbered(number)
            if (consumer := one.consumer) is not None:
                one.channel.cancel(consumer.tag)
            self._tidy()

    def close(self, why: str = "it was closed.") -> None:
        """Close it: what it holds goes back, redelivered."""
        with self.lock:
            if self.is_open:
                self.why = why
                self.connection.close()

    def look(self, actor: Actor | None) -> None:
        """What is due without the person: a close when it is not used or not allowed, deliveries for consumers, an end that was
        told. actor: the person with the rights of now; None: there is none any more."""
        with self.lock:
            if actor is None or Right.LISTEN not in actor.rights:
                self.close(NOT_ALLOWED)
                return
            self.connection.actor = actor
            if time.monotonic() - self._used_at > IDLE_MINUTES * 60:
                self.close(f"it was not used for {IDLE_MINUTES} minutes.")
            for one in list(self._channels):
                if self.is_open:
                    _safely(self._look_at, one)
            self._tidy()

    def _look_at(self, one: ManualChannel) -> None:
        had_consumer = one.consumer is not None
        try:
            self._fetch(one)
        except AmqpError as refusal:
            self.notes.append(f"Channel {one.number} was closed, and its messages were requeued to {one.queue}: {refusal}")
            return
        if had_consumer and one.consumer is None:
            self.notes.append(f"The consumer of {one.queue} was cancelled: the queue was deleted.")

    def _use(self) -> None:
        self.connection.require_open()
        self._used_at = time.monotonic()
        self.notes.clear()

    def _numbered(self, number: int) -> ManualChannel:
        found = next((one for one in self._channels if one.number == number and one.channel.is_open), None)
        if found is None:
            raise InvalidArgument("channel", f"your connection no longer has a channel {number}; its messages were requeued")
        return found

    def _getting(self, queue: str) -> ManualChannel:
        """The channel for gets from a queue: a refusal of one queue ends no other's."""
        for one in self._channels:
            if one.queue == queue and not one.began_as_consumer and one.channel.is_open:
                return one
        self._channels.append(ManualChannel(self.connection.channel(), queue))
        return self._channels[-1]

    def _fetch(self, one: ManualChannel) -> None:
        """Deliveries for its consumer as far as it has room. One that is held for too long ends the channel here (RMQ-126)."""
        if one.channel.is_open:
            one.channel.deliveries(MOST_PREFETCH)

    def _tidy(self) -> None:
        for one in list(self._channels):
            if one.is_done and self.is_open:
                one.channel.close()
            if not one.channel.is_open:
                self._channels.remove(one)


def _sentence(ended: Exception | None) -> str:
    """Why a connection ended, without the codes of the protocol."""
    match ended:
        case ConnectionLost():
            text = ended.why
        case AmqpError():
            text = ended.problem
        case _:
            text = str(ended or "it was closed")
    return f"{text.rstrip('.')}."


_consumers: dict[tuple[int, str], ManualConsumer] = {}  # by user and virtual host
_opening = threading.Lock()
_looking = threading.Lock()
_looker: threading.Thread | None = None


def name_for(actor: Actor) -> str:
    return f"browser session of {actor.name}"[:MOST_NAME]


def of(user_id: int, vhost: str) -> ManualConsumer | None:
    """The hand that a person has in this process; None: none that is open."""
    found = _consumers.get((user_id, vhost))
    return found if found is not None and found.is_open else None


def opened(user_id: int, vhost: str, *, actor: Actor) -> ManualConsumer:
    """A person's hand, opened now if there is none. Raises NotAuthorized, HeldElsewhere, AmqpError."""
    actor.require(Right.LISTEN, vhost)
    with _opening:
        hand = of(user_id, vhost)
        if hand is None:
            if (other := elsewhere(user_id, vhost, actor=actor)) is not None:
                raise HeldElsewhere(other)
            hand = _consumers[user_id, vhost] = ManualConsumer(rabbitmq.connect(vhost, name_for(actor), actor=actor))
        hand.connection.actor = actor  # the rights it has now
    _keep_looking()
    return hand


def elsewhere(user_id: int, vhost: str, *, actor: Actor) -> ConnectionRow | None:
    """A connection of this person's name that this process has not. Those of dead processes are ended, and not told."""
    found = _elsewhere(user_id, vhost, actor)
    if found is not None:
        rabbitmq.recover_dead()
        found = _elsewhere(user_id, vhost, actor)
    return found


def _elsewhere(user_id: int, vhost: str, actor: Actor) -> ConnectionRow | None:
    hand = of(user_id, vhost)
    own = hand.connection.id if hand else 0
    rows = browsing.connections(vhost, actor=actor)
    return next((row for row in rows if row.name == name_for(actor) and row.id != own), None)


def ended_because(user_id: int, vhost: str) -> str:
    """Why a hand that was here is over, told once; empty: none was, or it is open."""
    hand = _consumers.get((user_id, vhost))
    if hand is None or hand.is_open:
        return ""
    _consumers.pop((user_id, vhost), None)
    return hand.why_ended


def close(user_id: int, vhost: str) -> None:
    """The person closes the connection: nothing is left to be told."""
    if (hand := _consumers.get((user_id, vhost))) is not None:
        hand.close()
        _consumers.pop((user_id, vhost), None)


def close_all_of(user_id: int) -> None:
    """The person has left."""
    for held_by, vhost in list(_consumers):
        if held_by == user_id:
            with suppress(BrokerError):  # what cannot be ended in the database now, is ended as that of the dead
                close(held_by, vhost)


def look_after_all() -> None:
    """Each open hand once; what one refuses is its own.

    Raises django.db.Error where it cannot be known who may receive: then nobody is given anything.
    """
    there = [(user_id, hand) for (user_id, _), hand in list(_consumers.items()) if hand.is_open]
    actors = actors_now({user_id for user_id, _ in there}) if there else {}
    for user_id, hand in there:
        _safely(hand.look, actors.get(user_id))


def _safely(look: Callable[..., None], *args: Any) -> None:
    try:
        look(*args)
    except AmqpError:
        pass  # its connection has ended: the page tells why
    except BrokerError as refusal:
        if not refusal.retryable:
            log.warning("Maintaining a manual connection failed: %s", refusal)
    except Exception:
        log.exception("Maintaining a manual connection failed")


def _keep_looking() -> None:
    """Have a thread look after the hands, as long as there are open ones."""
    global _looker
    with _looking:
        if _looker is None or not _looker.is_alive():
            _looker = threading.Thread(target=_look_on, name="vitrine-hands", daemon=True)
            _looker.start()


def _look_on() -> None:
    global _looker
    while True:
        time.sleep(LOOK_SECONDS)
        try:
            look_after_all()
        except Error:
            connections.close_all()  # the next look has a new one
        if not any(hand.is_open and hand.has_consumers for hand in list(_consumers.values())):
            _close_connections()
        with _looking:
            if not any(hand.is_open for hand in list(_consumers.values())):
                _looker = None
                break
    _close_connections()


def _close_connections() -> None:
    """This thread's, to the database."""
    close_all_of_this_thread()
    connections.close_all()
