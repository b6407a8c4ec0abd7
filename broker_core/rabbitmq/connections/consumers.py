"""Consumers of queues: the registry in the database, in order of registration.

It spans processes: exclusive consumers, single active consumers and the deletion of auto-delete queues depend on it. The
credit of a consumer is known only in its process (see messages.local_consumers).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from broker_core.common.types import EntityAddress
from broker_core.rabbitmq.messages.local_consumers import Consumer
from broker_core.rabbitmq.rules import errors, table
from broker_core.rabbitmq.rules.arguments import QUORUM, consumer_priority
from broker_core.rabbitmq.topology import queue_expiry
from broker_core.rabbitmq.topology.queue_removal import remove_queues
from broker_core.rabbitmq.topology.vhosts import LockedVhost, lock_vhost
from broker_core.runtime.entity_cache import forget
from broker_core.runtime.waiting import wake
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from .state import ChannelState

SMALLEST, LARGEST = -(2**31), 2**31 - 1  # range of priorities


def register(
    channel: ChannelState,
    address: EntityAddress,
    entity_id: int,
    *,
    tag: str,
    no_ack: bool,
    exclusive: bool,
    priority: int | None,
    arguments: Mapping[str, Any],
) -> Steps[Consumer]:
    """Start a consumer in the caller's transaction. Raises AmqpError."""
    if priority is not None:
        arguments = {**arguments, "x-priority": priority}
    stored = table.encode(arguments, "argument")
    level = min(max(consumer_priority(address.namespace, address.path, arguments), SMALLEST), LARGEST)
    yield from lock_vhost(address.namespace)
    rows = yield call("lock_queue_to_consume", entity_id=entity_id)
    if not rows:
        raise errors.not_found_queue(address.namespace, address.path)
    is_quorum = rows[0].options.get("type") == QUORUM
    exclusive = exclusive and not is_quorum  # quorum queues ignore the flag (RMQ-386)
    _check_may_consume(channel, address, rows[0], exclusive, is_quorum)
    if not (yield call("hold_connection", connection_id=channel.connection.id)):
        raise channel.connection.lost("its process was declared dead")
    added = yield call(
        "add_consumer",
        queue_id=entity_id,
        connection_id=channel.connection.id,
        channel=channel.number,
        tag=tag,
        no_ack=no_ack,
        exclusive=exclusive,
        priority=level,
        prefetch=channel.prefetch,
        channel_prefetch=channel.prefetch_of_all,
        arguments=json.dumps(stored),
    )
    if not added:
        raise errors.exclusive_use(address.namespace, address.path)
    may_take = added[0].is_first or not rows[0].effective.get("single_active_consumer")
    return Consumer(added[0].id, channel, address, entity_id, tag, no_ack, level, channel.prefetch, may_take)


def unregister(consumer: Consumer) -> Steps[None]:
    """End a consumer in the caller's transaction; an auto-delete queue is deleted with its last consumer."""
    host = yield from lock_vhost(consumer.address.namespace)
    yield call("lock_queues_of_consumers", entity_ids=[consumer.entity_id])
    yield call("remove_consumer", consumer_id=consumer.id)
    yield from after_consumers_ended(host, [consumer.entity_id])


def remove_consumers(connection_id: int, channel: int | None, host: LockedVhost) -> Steps[None]:
    """End the consumers of a connection, or of one of its channels, in a transaction that holds the virtual host."""
    queues = [row.queue_id for row in (yield call("queues_consumed", connection_id=connection_id, channel=channel))]
    if queues:
        yield call("lock_queues_of_consumers", entity_ids=queues)
        yield call("delete_consumers_of", connection_id=connection_id, channel=channel)
        yield from after_consumers_ended(host, queues)


def after_consumers_ended(host: LockedVhost, entity_ids: Sequence[int]) -> Steps[None]:
    """Process queues that have lost consumers: delete auto-delete queues, restart the expiry of others, wake the next consumer
    (RMQ-043, RMQ-050, RMQ-148)."""
    left = yield call("queues_without_consumers", entity_ids=list(entity_ids))
    gone = [row for row in left if row.is_auto_delete]
    yield from delete_queues(host, gone)
    yield from queue_expiry.restart([row.id for row in left if not row.is_auto_delete])
    yield from wake(sorted(set(entity_ids) - {row.id for row in gone}))


def delete_queues(host: LockedVhost, rows: Sequence[Any]) -> Steps[None]:
    """Delete these queues (id, path) with their contents."""
    if rows:
        yield from remove_queues(host.id, [row.id for row in rows])
        for row in rows:
            forget(EntityAddress(host.name, row.path))


def open_queue(address: EntityAddress, connection_id: int) -> Steps:
    """The queue a connection is about to use, which counts as use (RMQ-041). Raises AmqpError: 404, 405."""
    queue = yield from queue_expiry.use(address)
    if queue is None:
        raise errors.not_found_queue(address.namespace, address.path)
    if queue.owner_id not in (None, connection_id):
        raise errors.locked_queue(address.namespace, address.path)
    return queue


def _check_may_consume(channel: ChannelState, address: EntityAddress, queue: Any, exclusive: bool, is_quorum: bool) -> None:
    if exclusive and queue.effective.get("single_active_consumer"):
        raise errors.exclusive_use(address.namespace, address.path)
    if channel.prefetch_of_all and is_quorum:
        raise errors.not_implemented(f"{errors.queue(address.namespace, address.path)} does not support global qos")
