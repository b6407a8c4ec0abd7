"""Where the three families differ: one story told to each of them, and three outcomes.

A story is told through a Side: what every family can do, in the words of none.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest

from broker_core import namespaces, queue_storage, rabbitmq, reads, sweeps
from broker_core import service_bus as broker
from broker_core.common.errors import BrokerError
from broker_core.common.types import EntityAddress
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message

pytestmark = pytest.mark.django_db(transaction=True)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
LIFE = timedelta(seconds=10)


@dataclass
class Side:
    """A queue of one family, and a receiver that keeps what it was given under the text of the message."""

    address: EntityAddress

    def __post_init__(self):
        self.held = {}

    def wait(self, by: timedelta) -> None:
        namespaces.step_clock(self.address.namespace, by)

    @property
    def count(self) -> int:
        """Messages that its own clients are told of."""
        return reads.counts(self.address).active

    def sweep(self) -> None:
        sweeps.expire_messages(pause=lambda _: None)
        sweeps.end_locks()


class ServiceBus(Side):
    def put(self, text: str, life: timedelta | None = None) -> None:
        broker.send(self.address, [Message(text.encode(), time_to_live=life)])

    def take(self) -> str | None:
        for message in broker.receive(self.address):
            self.held[message.body.decode()] = message.lock_token
            return message.body.decode()
        return None

    def finish(self, text: str) -> None:
        broker.complete(self.address, [self.held[text]]).require_all()

    def release_unclaimed(self, text: str) -> None:
        broker.abandon(self.address, [self.held[text]]).require_all()


class QueueStorage(Side):
    def put(self, text: str, life: timedelta | None = None) -> None:
        queue_storage.put(self.address, text, time_to_live=life)

    def take(self) -> str | None:
        for message in queue_storage.get(self.address):
            self.held[message.text] = message.message_id, message.pop_receipt
            return message.text
        return None

    def finish(self, text: str) -> None:
        queue_storage.delete(self.address, *self.held[text])

    def release_unclaimed(self, text: str) -> None:
        queue_storage.update(self.address, *self.held[text], visibility_timeout=timedelta(0))

    @property
    def count(self) -> int:
        return queue_storage.approximate_count(self.address)


class RabbitMQ(Side):
    def __post_init__(self):
        super().__post_init__()
        self.channel = rabbitmq.connect(self.address.namespace, name="story").channel()

    def put(self, text: str, life: timedelta | None = None) -> None:
        expiration = None if life is None else str(round(life / timedelta(milliseconds=1)))
        properties = rabbitmq.Properties(expiration=expiration)
        rabbitmq.publish(
            self.address.namespace,
            [rabbitmq.Publication(text.encode(), routing_key=self.address.path, properties=properties)],
        )

    def take(self) -> str | None:
        delivery = self.channel.get(self.address.path)
        if delivery is None:
            return None
        self.held[delivery.body.decode()] = delivery.delivery_tag
        return delivery.body.decode()

    def finish(self, text: str) -> None:
        self.channel.ack(self.held[text])

    def release_unclaimed(self, text: str) -> None:
        self.channel.nack(self.held[text], requeue=True)

    @property
    def count(self) -> int:
        counts = reads.counts(self.address)
        return counts.active - counts.locked


@pytest.fixture
def sides(namespace, account, vhost):
    """A fresh queue of each family; all clocks stand still."""
    bus, storage, rabbit = EntityAddress(namespace, "story"), EntityAddress(account, "story"), EntityAddress(vhost, "story")
    entities.create_queue(bus)
    queue_storage.create_queue(storage)
    rabbitmq.declare_queue(rabbit)
    return ServiceBus(bus), QueueStorage(storage), RabbitMQ(rabbit)


def refused(call, *args) -> str | None:
    """The name of the refusal; None where there is none."""
    try:
        call(*args)
    except BrokerError as exc:
        return type(exc).__name__
    return None


# The stories. Each answers with what its family makes of it.


def held_for_an_hour_then_taken_again(side):
    side.put("a")
    side.take()
    side.wait(HOUR)
    return side.take()


def settled_after_the_time_was_over(side):
    side.put("a")
    side.take()
    side.wait(HOUR)
    return refused(side.finish, "a")


def settled_after_it_was_given_to_another(side):
    side.put("a")
    side.take()
    first = dict(side.held)
    side.wait(HOUR)
    if side.take() is None:
        return "nobody else gets it"
    side.held = first
    return refused(side.finish, "a")


def settled_after_its_life_ended_while_held(side):
    side.put("a", LIFE)
    side.take()
    side.wait(LIFE)
    return refused(side.finish, "a")


def given_back_before_others(side):
    for text in "abc":
        side.put(text)
        side.wait(SECOND)
    side.take()
    side.wait(SECOND)
    side.release_unclaimed("a")
    return [side.take(), side.take(), side.take()]


def given_back_after_its_life_ended(side):
    side.put("a", LIFE)
    side.take()
    side.wait(LIFE)
    refused(side.release_unclaimed, "a")
    return side.take()


def expired_behind_one_that_lives(side):
    side.put("lives")
    side.put("expires", LIFE)
    side.wait(LIFE)
    side.sweep()
    counted = side.count
    return counted, side.take(), side.take()


def put_with_no_life_at_all(side):
    try:
        side.put("a", timedelta(0))
    except BrokerError:
        return "refused"
    return side.take() or "gone at once"


def taken_ten_times_and_never_settled(side):
    side.put("a")
    for _ in range(10):
        if side.take() is None:
            return "not given again"
        side.wait(HOUR)
        side.sweep()
    return "given again" if side.take() else "taken away"


def made_again_under_the_same_name(side):
    address = side.address
    match side:
        case ServiceBus():
            return refused(entities.create_queue, address)
        case QueueStorage():
            return refused(queue_storage.create_queue, address)
    return refused(rabbitmq.declare_queue, address)


def looked_for_in_another_casing(side):
    other = EntityAddress(side.address.namespace, side.address.path.upper())
    return refused(reads.counts, other)


LOST, MISMATCH, GONE = "LockLost", "PopReceiptMismatch", "MessageNotFound"
STORIES = [
    # a lock ends by its time; a lease as well; what a connection holds does not
    (held_for_an_hour_then_taken_again, "a", "a", None),
    # the lock's time decides; the receipt decides; the connection decides (SB-070, QS-063, RMQ-019)
    (settled_after_the_time_was_over, LOST, None, None),
    (settled_after_it_was_given_to_another, LOST, MISMATCH, "nobody else gets it"),
    # a lock protects from expiry; a lease does not; a delivery does (SB-038, QS-024, RMQ-019)
    (settled_after_its_life_ended_while_held, None, GONE, None),
    # back at its place; behind those visible before it; back at its place (SB-063, QS-071, RMQ-116)
    (given_back_before_others, ["a", "b", "c"], ["b", "c", "a"], ["a", "b", "c"]),
    (given_back_after_its_life_ended, None, None, None),
    # taken away at its instant; no longer counted; counted until it is at the head (SB-032, QS-901, RMQ-013)
    (expired_behind_one_that_lives, (1, "lives", None), (1, "lives", None), (2, "lives", None)),
    # none of its own; an error; it expires where nobody takes it at once (SB-039, QS-005, RMQ-016)
    (put_with_no_life_at_all, "a", "refused", "gone at once"),
    # dead-lettered after MaxDeliveryCount; never; nobody took it back (SB-091, QS-027, RMQ-121)
    (taken_ten_times_and_never_settled, "taken away", "given again", "not given again"),
    # a conflict; the same metadata is the same queue; an equivalent declaration is no change (QS-085)
    (made_again_under_the_same_name, "EntityExists", None, None),
    (looked_for_in_another_casing, None, None, "EntityNotFound"),
]


@pytest.mark.parametrize(("story", "service_bus", "storage", "rabbit"), STORIES, ids=lambda x: getattr(x, "__name__", ""))
def test_the_families_differ_in_the_same_scenario(sides, story, service_bus, storage, rabbit):
    assert [story(side) for side in sides] == [service_bus, storage, rabbit]
