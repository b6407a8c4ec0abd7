"""Remote delivery: messages with a TTL of zero are delivered to consumers of other processes (RMQ-922).

The exact credit of those consumers is known only in their process. The database knows an upper bound: their prefetch less the
unacknowledged messages that it has recorded for them. Their process is notified on commit. A consumer that has no credit after
all passes the messages on to the next one (see connections.incoming_deliveries); they expire when none is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from broker_core.rabbitmq.topology.compiled import QueueInfo
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from . import local_consumers
from .routing_transaction import RoutingTransaction

MOST_NUMBERS = 200  # sequence numbers, and consumers without credit, per notification, which PostgreSQL limits to 8,000 bytes


@dataclass(eq=False, slots=True)
class RemoteChannel:
    credit: int


@dataclass(eq=False, slots=True)
class RemoteConsumer:
    """A consumer of another process. credit: at least what it can take. served: less loaded consumers have lower ones."""

    id: int
    owner_id: int
    holder: str
    channel: RemoteChannel
    priority: int
    no_ack: bool
    credit: int
    served: int


def deliver_remotely(transaction: RoutingTransaction, queue: QueueInfo, numbers: Sequence[int]) -> Steps[Sequence[int]]:
    """Deliver messages that this transaction has stored to consumers of other processes. Returns the undelivered numbers."""
    if not numbers or len(transaction.without_credit) > MOST_NUMBERS:
        return numbers
    plan = yield from _plan((yield from _remote_consumers(transaction, queue)), len(numbers))
    if not plan:
        return numbers
    rows = yield call("rabbit_deliver_by_number", entity_id=queue.id, numbers=list(numbers[: len(plan)]), **holder_columns(plan))
    delivered: dict[int, list[int]] = {}
    for consumer, row in zip(plan, rows, strict=True):
        delivered.setdefault(consumer.owner_id, []).append(row.sequence_number)
    for owner_id, owned in delivered.items():
        for at in range(0, len(owned), MOST_NUMBERS):
            notice = DeliveryNotice(queue.id, tuple(owned[at : at + MOST_NUMBERS]), transaction.without_credit)
            yield call("notify_connection", connection_id=owner_id, notice=str(notice))
    return numbers[len(plan) :]


@dataclass(frozen=True, slots=True)
class DeliveryNotice:
    """Tells a process that a connection of it holds these messages. without_credit: consumers that had none for them."""

    entity_id: int
    numbers: tuple[int, ...]
    without_credit: frozenset[int]

    def __str__(self) -> str:
        return " ".join(["delivered", str(self.entity_id), _joined(self.numbers), _joined(self.without_credit)])

    @classmethod
    def parsed(cls, rest: str) -> DeliveryNotice:
        """rest: the text without its first word."""
        entity_id, numbers, without_credit = rest.split(" ")
        return cls(int(entity_id), tuple(_split(numbers)), frozenset(_split(without_credit)))


def _joined(numbers: Any) -> str:
    return ",".join(map(str, numbers))


def _split(text: str) -> list[int]:
    return [int(number) for number in text.split(",") if number]


def _remote_consumers(transaction: RoutingTransaction, queue: QueueInfo) -> Steps[list[RemoteConsumer]]:
    known = {consumer.id for consumer in local_consumers.registry.of(queue.id)} | transaction.without_credit
    single_active = bool(queue.effective.get("single_active_consumer"))
    rows = yield call("remote_consumers", entity_id=queue.id, single_active=single_active, excluded=list(known))
    channels: dict[tuple[int, int], RemoteChannel] = {}
    order = count()
    return [
        RemoteConsumer(
            row.id,
            row.connection_id,
            row.holder,
            channels.setdefault((row.connection_id, row.channel), RemoteChannel(_or_unlimited(row.channel_credit))),
            row.priority,
            row.no_ack,
            local_consumers.UNLIMITED if row.no_ack else _or_unlimited(row.credit),
            next(order),
        )
        for row in rows
    ]


def _or_unlimited(credit: int | None) -> int:
    return local_consumers.UNLIMITED if credit is None else credit


def _plan(consumers: Sequence[RemoteConsumer], count: int) -> Steps[list[RemoteConsumer]]:
    """The consumer of each message; their connections do not end before this transaction does."""
    while plan := local_consumers.in_turns(consumers, count):
        ending = yield from ending_owners(plan)
        if not ending:
            break
        consumers = [consumer for consumer in consumers if consumer.owner_id not in ending]
    return plan


def ending_owners(plan: Sequence[Any]) -> Steps[set[int]]:
    """The connections of these consumers that are ending. The others do not end before this transaction does."""
    ending = set()
    for owner_id in dict.fromkeys(consumer.owner_id for consumer in plan):
        if not (yield call("hold_connection_unless_ending", connection_id=owner_id)):
            ending.add(owner_id)
    return ending


def holder_columns(plan: Sequence[Any]) -> dict[str, list]:
    """The consumer of each message, in delivery order, as statement parameters."""
    return {
        "owner_ids": [consumer.owner_id for consumer in plan],
        "holders": [consumer.holder for consumer in plan],
        "consumer_ids": [consumer.id for consumer in plan],
    }
