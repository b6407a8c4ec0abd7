"""Deliveries that other processes made to connections of this one: messages with a TTL of zero (RMQ-922, see
messages.remote_delivery).

They are already stored as held by the connection. One thread passes them to its consumers with credit, and the rest to consumers
that have not been tried.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

from broker_core.common.errors import BrokerError
from broker_core.common.types import EntityAddress
from broker_core.rabbitmq.messages import delivering, local_consumers
from broker_core.rabbitmq.messages.arrivals import settle_zero_ttl
from broker_core.rabbitmq.messages.delivery import Delivery, as_delivery
from broker_core.rabbitmq.messages.local_consumers import Consumer
from broker_core.rabbitmq.messages.remote_delivery import DeliveryNotice
from broker_core.rabbitmq.messages.routing_transaction import RoutingTransaction, transact
from broker_core.rabbitmq.topology import compiled
from broker_core.store import connections as database
from broker_core.store.driver import Steps, run
from broker_core.store.statements import call

_log = logging.getLogger(__name__)
_worker: ThreadPoolExecutor | None = None


def take_soon(connection: Any, where: database.Database, notice: DeliveryNotice) -> None:
    """Pass these messages to the connection's consumers. Returns at once, so that the caller is not blocked."""
    global _worker
    _worker = _worker or ThreadPoolExecutor(1, thread_name_prefix="vitrine-incoming-deliveries")
    _worker.submit(_take_now, connection, where, notice)


def _take_now(connection: Any, where: database.Database, notice: DeliveryNotice) -> None:
    with database.using(where):
        try:
            run(take(connection, notice))
        except BrokerError as exc:  # they are requeued with the connection, or when overdue
            _log.warning("Deliveries from another process to connection '%s' failed: %s", connection.name, exc)
        except Exception:
            _log.exception("Deliveries from another process to connection '%s' failed", connection.name)


def take(connection: Any, notice: DeliveryNotice) -> Steps[None]:
    """Pass messages that the connection holds to the consumers they were delivered to, as far as these have credit; the others
    are delivered to other consumers, or expire."""
    rows = yield call(
        "rabbit_incoming_deliveries", entity_id=notice.entity_id, owner_id=connection.id, numbers=list(notice.numbers)
    )
    if not rows:
        return
    address = EntityAddress(connection.vhost, rows[0].path)
    queue = (yield from compiled.current(connection.vhost)).queues[address.path]
    back: list[Delivery] = []
    consumers = {consumer.id: consumer for consumer in local_consumers.eligible_consumers(notice.entity_id)}
    for consumer_id, group in groupby(sorted(rows, key=attrgetter("consumer_id")), key=attrgetter("consumer_id")):
        deliveries = [as_delivery(row, address, queue) for row in group]
        consumer = consumers.get(consumer_id)
        back += deliveries if consumer is None else (yield from _give(consumer, deliveries))
    if back:
        without_credit = notice.without_credit | {row.consumer_id for row in rows}
        yield from transact(connection.vhost, str(connection.actor), partial(_pass_on, address, back, without_credit))


def _give(consumer: Consumer, deliveries: Sequence[Delivery]) -> Steps[Sequence[Delivery]]:
    """Buffer deliveries for a consumer as far as it has credit. Returns the others."""
    with local_consumers.reserve([consumer], len(deliveries)) as plan:
        acknowledged = (yield from delivering.acknowledged(plan, deliveries)) if plan else []
        return deliveries[len(plan) :] if consumer.buffer(acknowledged) or consumer.no_ack else deliveries


def _pass_on(
    address: EntityAddress, back: Sequence[Delivery], without_credit: frozenset[int], transaction: RoutingTransaction
) -> Steps[None]:
    """Requeue messages that found no credit, and deliver them to other consumers or expire them, in one transaction."""
    if (queue := transaction.queue(address.path)) is not None:
        transaction.without_credit = without_credit
        numbers = yield from delivering.requeue_undelivered(
            transaction, queue, [delivery.token for delivery in back if delivery.token]
        )
        yield from settle_zero_ttl(transaction, {address.path: numbers})


def _forget_worker() -> None:
    global _worker
    _worker = None  # its thread exists only in the parent process


os.register_at_fork(after_in_child=_forget_worker)
