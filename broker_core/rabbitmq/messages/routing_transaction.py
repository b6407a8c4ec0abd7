"""What publishing, dead-lettering and expiring share: one transaction that routes by a topology, and whom it wakes afterwards."""

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
TRIES_UNHELD = 3  # while the topology changes, so many times by what it was; then it is held, and changes wait


class Stale(Exception):
    """The topology is not the one that was routed by. Nothing was changed."""


@dataclass(slots=True)
class RoutingTransaction:
    """One transaction's. waiting: ids of queues that somebody waits at for what was stored. promises: to consumers, until it has
    ended and they have what it gave them."""

    topology: Topology
    actor: str
    waiting: set[int] = field(default_factory=set)
    promises: ExitStack = field(default_factory=ExitStack)

    @property
    def vhost(self) -> str:
        return self.topology.vhost

    def queue(self, name: str) -> QueueInfo | None:
        return self.topology.queues.get(name)


def transact(vhost: str, actor: str, steps: Callable[[RoutingTransaction], Steps]) -> Steps:
    """Run steps in one transaction, and wake afterwards; anew if the topology changed, or another transaction was met crosswise.

    Returns what the steps return.
    """
    stale = 0
    for tries_left in reversed(range(TRIES)):
        try:
            with ExitStack() as promises:
                answer, waiting = yield Atomically(_once(vhost, actor, steps, promises, held=stale >= TRIES_UNHELD))
        except Stale:
            stale += 1
            compiled.look_again(vhost)
        except ServerBusy as busy:
            if not tries_left or not isinstance(busy.__cause__, TRANSIENT):
                raise
        else:
            yield from wake(waiting)
            return answer
    raise ServerBusy(f"'{vhost}' had deadlocks with concurrent operations {TRIES} times. Nothing was changed; retry.")


def _once(vhost: str, actor: str, steps: Callable[[RoutingTransaction], Steps], promises: ExitStack, *, held: bool) -> Steps:
    """held: nobody changes the topology before the transaction ends, so it cannot be stale."""
    if held:
        yield call("share_vhost", vhost=vhost)
    work = RoutingTransaction((yield from compiled.current(vhost) if held else compiled.of(vhost)), actor, promises=promises)
    answer = yield from steps(work)
    return answer, work.waiting


def require_current(known: Topology) -> Steps[None]:
    """Raises Stale where the topology is another by now: for who stores nothing, and so is not told."""
    (row,) = yield call("rabbit_topology_is", namespace_id=known.namespace_id, topology_version=known.version)
    if not row.is_current:
        raise Stale


def find_queue(address: EntityAddress, *, owner_id: int | None = None) -> Steps:
    """The queue behind an address, which a connection may use: AmqpError (404), or (405) for another's exclusive queue.

    What is remembered may be of a queue deleted since: then its statements find nothing, and the caller looks again.
    """
    queue = (yield from compiled.of(address.namespace)).queues.get(address.path)
    if queue is None or queue.owner_id not in (None, owner_id):
        queue = (yield from compiled.current(address.namespace)).queues.get(address.path)
    if queue is None:
        raise errors.not_found_queue(address.namespace, address.path)
    if queue.owner_id is not None and queue.owner_id != owner_id:
        raise errors.locked_queue(address.namespace, address.path)
    return queue


def on_queue(address: EntityAddress, attempt: Callable[[QueueInfo], Steps], *, owner_id: int | None = None) -> Steps:
    """Attempt something on a queue; an attempt that returns None found the queue gone, and is made once more. Raises AmqpError
    (404, 405)."""
    for _ in range(2):
        queue = yield from find_queue(address, owner_id=owner_id)
        answer = yield from attempt(queue)
        if answer is not None:
            return answer
        compiled.look_again(address.namespace)
    raise errors.not_found_queue(address.namespace, address.path)
