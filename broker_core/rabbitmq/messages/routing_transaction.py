"""One transaction that routes messages by a topology, shared by publishing, dead-lettering and expiry, and the receivers to
wake afterwards."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

from broker_core.common.errors import ServerBusy
from broker_core.common.types import EntityAddress
from broker_core.rabbitmq.rules import errors
from broker_core.rabbitmq.topology import compiled
from broker_core.rabbitmq.topology.compiled import QueueInfo, Topology
from broker_core.runtime.waiting import wake
from broker_core.store.driver import Atomically, Steps
from broker_core.store.failures import TRANSIENT
from broker_core.store.statements import call

TRIES = 8
TRIES_WITHOUT_LOCK = 3  # attempts before the topology is locked against changes


class Stale(Exception):
    """The topology has changed since the messages were routed. Nothing was stored."""


@dataclass(slots=True)
class RoutingTransaction:
    """The state of one transaction. stored_in: ids of queues that got messages; waiting: of those that other processes wait for.
    promises: reserved consumer credit,
    released when the transaction has ended and its deliveries are buffered. without_credit: ids of consumers that had none for
    its messages."""

    topology: Topology
    actor: str
    stored_in: set[int] = field(default_factory=set)
    waiting: set[int] = field(default_factory=set)
    promises: ExitStack = field(default_factory=ExitStack)
    without_credit: frozenset[int] = frozenset()

    @property
    def vhost(self) -> str:
        return self.topology.vhost

    def queue(self, name: str) -> QueueInfo | None:
        return self.topology.queues.get(name)


def transact(vhost: str, actor: str, steps: Callable[[RoutingTransaction], Steps]) -> Steps:
    """Run steps in one transaction and wake receivers afterwards; retry if the topology changed or on a deadlock.

    Returns what the steps return.
    """
    stale = 0
    for tries_left in reversed(range(TRIES)):
        try:
            with ExitStack() as promises:
                answer, transaction = yield Atomically(
                    _attempt(vhost, actor, steps, promises, locked=stale >= TRIES_WITHOUT_LOCK)
                )
        except Stale:
            stale += 1
            compiled.mark_outdated(vhost)
        except ServerBusy as busy:
            if not tries_left or not isinstance(busy.__cause__, TRANSIENT):
                raise
        else:
            yield from wake(transaction.stored_in, transaction.waiting)
            return answer
    raise ServerBusy(f"'{vhost}' had deadlocks with concurrent operations {TRIES} times. Nothing was changed; retry.")


def _attempt(vhost: str, actor: str, steps: Callable[[RoutingTransaction], Steps], promises: ExitStack, *, locked: bool) -> Steps:
    """One attempt. locked: the topology is locked against changes until the transaction ends, so it cannot be stale."""
    if locked:
        yield call("share_vhost", vhost=vhost)
    transaction = RoutingTransaction(
        (yield from compiled.current(vhost) if locked else compiled.cached(vhost)), actor, promises=promises
    )
    answer = yield from steps(transaction)
    return answer, transaction


def require_current(known: Topology) -> Steps[None]:
    """Raise Stale if the topology has changed. For operations that store nothing, whose statements would not detect it."""
    (row,) = yield call("rabbit_is_topology_current", namespace_id=known.namespace_id, topology_version=known.version)
    if not row.is_current:
        raise Stale


def find_queue(address: EntityAddress, *, owner_id: int | None = None) -> Steps:
    """The queue at an address, if this connection may use it. Raises AmqpError (404), or (405) for another connection's
    exclusive queue.

    A cached queue may have been deleted since: its statements then find nothing, and the caller retries.
    """
    queue = (yield from compiled.cached(address.namespace)).queues.get(address.path)
    if queue is None or queue.owner_id not in (None, owner_id):
        queue = (yield from compiled.current(address.namespace)).queues.get(address.path)
    if queue is None:
        raise errors.not_found_queue(address.namespace, address.path)
    if queue.owner_id is not None and queue.owner_id != owner_id:
        raise errors.locked_queue(address.namespace, address.path)
    return queue


def on_queue(address: EntityAddress, attempt: Callable[[QueueInfo], Steps], *, owner_id: int | None = None) -> Steps:
    """Run an operation on a queue. If it returns None, the queue was deleted, and it is tried once more. Raises AmqpError
    (404, 405)."""
    for _ in range(2):
        queue = yield from find_queue(address, owner_id=owner_id)
        answer = yield from attempt(queue)
        if answer is not None:
            return answer
        compiled.mark_outdated(address.namespace)
    raise errors.not_found_queue(address.namespace, address.path)
