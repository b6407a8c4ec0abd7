"""Deliveries that other processes made to connections of this one: messages with a TTL of zero (RMQ-922, see
messages.remote_delivery).

They are already stored as held by the connection. One thread passes them to its consumers with credit and requeues the rest.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from broker_core.common.errors import BrokerError
from broker_core.common.types import EntityAddress
from broker_core.rabbitmq.messages import delivering, local_consumers
from broker_core.rabbitmq.messages.delivery import as_delivery
from broker_core.rabbitmq.topology import compiled
from broker_core.runtime.waiting import wake
from broker_core.store import connections as database
from broker_core.store.driver import Steps, run
from broker_core.store.statements import call

_log = logging.getLogger(__name__)
_worker: ThreadPoolExecutor | None = None


def take_soon(connection: Any, where: database.Database, entity_id: int, numbers: Sequence[int]) -> None:
    """Pass these messages to the connection's consumers. Returns at once, so that the caller is not blocked."""
    global _worker
    _worker = _worker or ThreadPoolExecutor(1, thread_name_prefix="vitrine-incoming-deliveries")
    _worker.submit(_take_now, connection, where, entity_id, numbers)


def _take_now(connection: Any, where: database.Database, entity_id: int, numbers: Sequence[int]) -> None:
    with database.using(where):
        try:
            run(take(connection, entity_id, numbers))
        except BrokerError as exc:  # they are requeued with the connection, or when overdue
            _log.warning("Deliveries from another process to connection '%s' failed: %s", connection.name, exc)


def take(connection: Any, entity_id: int, numbers: Sequence[int]) -> Steps[None]:
    """Pass messages that the connection holds to its consumers as far as they have credit; the others are requeued and expire."""
    rows = yield call("rabbit_incoming_deliveries", entity_id=entity_id, owner_id=connection.id, numbers=list(numbers))
    if not rows:
        return
    address = EntityAddress(connection.vhost, rows[0].path)
    queue = (yield from compiled.current(connection.vhost)).queues[address.path]
    deliveries = [as_delivery(row, address, queue) for row in rows]
    own = [consumer for consumer in local_consumers.eligible_consumers(entity_id) if consumer.channel.connection is connection]
    back = []
    with local_consumers.reserve(own, len(deliveries)) as plan:
        shares = {
            consumer: [delivery for delivery, taker in zip(deliveries, plan, strict=False) if taker is consumer]
            for consumer in dict.fromkeys(plan)
        }
        # Consumers without acknowledgements get a message at most once: it is removed before they have it.
        no_ack = [one.token for consumer, given in shares.items() if consumer.no_ack for one in given if one.token]
        yield from delivering.acknowledge.steps(address, no_ack, actor=connection.actor)
        back += deliveries[len(plan) :]
        for consumer, given in shares.items():
            passed = [replace(one, token=None) for one in given] if consumer.no_ack else given
            if not consumer.buffer(passed) and not consumer.no_ack:
                back += given
    yield from delivering.requeue.steps(address, [one.token for one in back if one.token], counts=False, actor=connection.actor)
    yield from wake([entity_id])


def _forget_worker() -> None:
    global _worker
    _worker = None  # its thread exists only in the parent process


os.register_at_fork(after_in_child=_forget_worker)
