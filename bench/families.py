"""Queue Storage and RabbitMQ against Service Bus with the same pattern of work; and situations that must not slow them."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from uuid import uuid4

from broker_core import namespaces, queue_storage, rabbitmq, service_bus
from broker_core.common.types import EntityAddress
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.rabbitmq.topology import compiled
from broker_core.service_bus.rules.values import Message
from broker_core.store.driver import run as run_steps

from . import measuring
from .measuring import BATCH, BODY, RECEIVE, a_queue, against, empty, fill, timed

ACCOUNT, VHOST = "benchaccount", "bench"
TEXT = BODY.hex()[: len(BODY)]


def run(report) -> None:
    measuring.make_bare_tables()
    prepare()
    _queue_storage(report)
    _rabbitmq(report)
    _invisible(report)
    _expired_behind_the_head(report)
    _policy(report)


def prepare() -> None:
    if not any(n.name == ACCOUNT for n in namespaces.list_namespaces()):
        queue_storage.create_account(ACCOUNT)
        rabbitmq.create_vhost(VHOST)


def _storage_queue() -> EntityAddress:
    address = EntityAddress(ACCOUNT, f"q-{uuid4().hex[:8]}")
    queue_storage.create_queue(address)
    return address


def rabbit_queue(**options) -> EntityAddress:
    address = EntityAddress(VHOST, f"q-{uuid4().hex[:8]}")
    rabbitmq.declare_queue(address, **options)
    return address


# The same patterns: send singly, receive 32, settle singly (the only one of Queue Storage); and in batches


def _singly(queue: EntityAddress) -> int:
    for _ in range(RECEIVE):
        service_bus.send(queue, [Message(BODY)])
    messages = service_bus.receive(queue, RECEIVE)
    for message in messages:
        service_bus.complete(queue, message.lock_token)
    return len(messages)


def _put_get_delete(queue: EntityAddress) -> int:
    for _ in range(RECEIVE):
        queue_storage.put(queue, TEXT)
    messages = queue_storage.get(queue, RECEIVE)
    for message in messages:
        queue_storage.delete(queue, message.message_id, message.pop_receipt)
    return len(messages)


def _publish_singly(queue: EntityAddress) -> int:
    for _ in range(RECEIVE):
        rabbitmq.publish(VHOST, [rabbitmq.Publication(BODY, routing_key=queue.path)])
    deliveries = rabbitmq.take(queue, RECEIVE, owner_id=_connection_id(os.getpid()), holder="bench")
    for delivery in deliveries:
        rabbitmq.acknowledge(queue, [delivery.token])
    return len(deliveries)


def _in_batches(queue: EntityAddress) -> int:
    service_bus.send(queue, [Message(BODY)] * BATCH)
    messages = service_bus.receive(queue, BATCH)
    return len(service_bus.complete(queue, [m.lock_token for m in messages]).settled)


def _publish_in_batches(queue: EntityAddress) -> int:
    rabbitmq.publish(VHOST, [rabbitmq.Publication(BODY, routing_key=queue.path)] * BATCH)
    deliveries = rabbitmq.take(queue, BATCH, owner_id=_connection_id(os.getpid()), holder="bench")
    rabbitmq.acknowledge(queue, [d.token for d in deliveries])
    return len(deliveries)


@cache
def _connection_id(pid: int) -> int:
    return rabbitmq.connect(VHOST, name=f"bench {pid}").id


def _beside(report, name: str, work: Callable[[EntityAddress], int], make, other: Callable[[EntityAddress], int]) -> None:
    """Two connections, each with its own queue, against Service Bus with the same pattern."""

    def on_own_queue(do: Callable[[EntityAddress], int], new: Callable[[], EntityAddress]) -> Callable[[], int]:
        own: dict[int, EntityAddress] = {}  # by process; created in the call that is not counted
        return lambda: do(own.get(os.getpid()) or own.setdefault(os.getpid(), new()))

    ratio, rates = against(on_own_queue(work, make), on_own_queue(other, a_queue))
    report.row(f"{name}, against Service Bus in the same shape", ratio, "times", 0.8)
    report.line("", f"{rates[0]:,.0f}/s", f"against {rates[1]:,.0f}/s")


def _queue_storage(report) -> None:
    _beside(report, "put singly, get 32, delete singly", _put_get_delete, _storage_queue, _singly)
    empty()


def _rabbitmq(report) -> None:
    _beside(report, "publish singly, take 32, ack singly", _publish_singly, rabbit_queue, _singly)
    _beside(report, "publish 100, take 100, ack 100", _publish_in_batches, rabbit_queue, _in_batches)
    empty()


# Situations that must not slow them


def _invisible(report) -> None:
    """A get and a delete beside 10,000 invisible messages, half delayed and half leased, against a queue without them."""
    plain, crowded = _storage_queue(), _storage_queue()
    queue_storage.put_all(crowded, [TEXT] * 5_000)
    while queue_storage.get(crowded, 32, visibility_timeout=timedelta(days=1)):
        pass
    queue_storage.put_all(crowded, [TEXT] * 5_000, visibility_timeout=timedelta(days=1))

    def cycle(queue: EntityAddress) -> Callable[[], int]:
        def work() -> int:
            queue_storage.put(queue, TEXT)
            (got,) = queue_storage.get(queue)
            queue_storage.delete(queue, got.message_id, got.pop_receipt)
            return 1

        return work

    ratio, _ = against(cycle(crowded), cycle(plain), connections_=1)
    report.row("put, get, delete beside 10,000 invisible messages, in times of the rate without", ratio, "times", 0.8)
    empty()


def _expired_behind_the_head(report) -> None:
    """A get and requeue of an unexpired head before expired messages, against a queue without them."""
    plain, crowded = rabbit_queue(), rabbit_queue()
    namespaces.pause_clock(VHOST)
    for queue in (plain, crowded):
        rabbitmq.publish(VHOST, [rabbitmq.Publication(BODY, routing_key=queue.path)])
    total = measuring.scale.expiring
    fill(crowded, total, life=timedelta(seconds=60))
    namespaces.step_clock(VHOST, timedelta(seconds=61))
    with rabbitmq.connect(VHOST, name="bench") as connection:

        def cycle(queue: EntityAddress) -> Callable[[], int]:
            def work() -> int:
                delivery = rabbitmq.get(queue, owner_id=connection.id, holder="bench")
                rabbitmq.requeue(queue, [delivery.token])
                return 1

            return work

        ratio, rates = against(cycle(crowded), cycle(plain), connections_=1)
    report.row(f"get and requeue of a head before {total:,} expired ones, in times of the rate without", ratio, "times", 0.9)
    report.line("", f"{rates[0]:,.0f}/s", f"against {rates[1]:,.0f}/s")
    namespaces.resume_clock(VHOST)
    empty()


def _policy(report) -> None:
    """Setting, changing and deleting a policy that applies to 1,000 queues."""
    vhost = f"bench-{uuid4().hex[:8]}"
    rabbitmq.create_vhost(vhost)
    for i in range(1_000):
        rabbitmq.declare_queue(EntityAddress(vhost, f"queue-{i}"))
    times = []
    for ttl in (60_000, 30_000):
        policy = Policy("all", "^queue-", {"message-ttl": ttl, "max-length": 1_000}, apply_to="queues")
        times.append(timed(lambda policy=policy: rabbitmq.set_policy(vhost, policy))[0])
    times.append(timed(lambda: rabbitmq.delete_policy(vhost, "all"))[0])
    report.row("a policy over 1,000 queues: set, changed, deleted; the median", statistics.median(times), "s", 2, at_most=True)
    other = EntityAddress(vhost, "queue-1")
    report.line("and then a declaration there", f"{timed(lambda: rabbitmq.declare_queue(other))[0] * 1e3:.1f} ms")
    _topology(report, vhost)


def _topology(report, vhost: str) -> None:
    """Queues declared and bound, as for a client's replies, beside 1,000 others: the time until a publisher knows them."""
    run_steps(compiled.current(vhost))
    times = []
    for i in range(20):
        rabbitmq.declare_queue(EntityAddress(vhost, f"reply-{i}"))
        rabbitmq.bind_queue(vhost, f"reply-{i}", "amq.direct", str(i))
        times.append(timed(lambda: run_steps(compiled.current(vhost)))[0])
    whole = timed(lambda: (compiled.forget(vhost), run_steps(compiled.cached(vhost))))[0]
    name = "a queue and a binding more, beside 1,000 queues: until a publisher knows"
    report.row(name, statistics.median(times) * 1e3, "ms", 5, at_most=True)
    report.line("where nothing is known yet", f"{whole * 1e3:.1f} ms")
