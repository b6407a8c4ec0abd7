"""RabbitMQ consumers: a prefetch of one with an acknowledgement each, channels that wait, and bursts of acknowledgements."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from broker_core import rabbitmq
from broker_core.common.types import EntityAddress
from broker_core.rabbitmq import Publication
from broker_core.rabbitmq.connections import connections
from broker_core.store import aio, driver

from . import measuring
from .families import VHOST, prepare, rabbit_queue
from .measuring import BODY, empty

MESSAGES_PER_SECOND, IDLE_CHANNELS, STATEMENTS_PER_SECOND, STATEMENTS_FOR_A_BURST = 300, 100, 10, 3
BURST = 100  # acknowledgements that a client sends without waiting for each
WATCHED_SECONDS = 6.0


def run(report) -> None:
    measuring.make_bare_tables()
    prepare()
    asyncio.run(_run(report))
    empty()


async def _run(report) -> None:
    rate, statements = await _prefetch_of_one(rabbit_queue())
    report.row("a prefetch of one, each delivery acknowledged", rate, "messages/s", MESSAGES_PER_SECOND)
    report.line("statements for each message", f"{statements:.1f}")
    statement_counts = await _while_idle([rabbit_queue() for _ in range(IDLE_CHANNELS)])
    name = f"statements of {IDLE_CHANNELS} channels that wait, each for a queue of its own"
    report.row(name, sum(statement_counts.values()) / WATCHED_SECONDS, "/s", STATEMENTS_PER_SECOND, at_most=True)
    statement_counts = await _while_idle([rabbit_queue()] * IDLE_CHANNELS)
    name = "the same, all for one queue"
    report.row(name, sum(statement_counts.values()) / WATCHED_SECONDS, "/s", STATEMENTS_PER_SECOND, at_most=True)
    statements, singly, together = await _bursts(rabbit_queue())
    report.row(f"statements for {BURST} acknowledgements at once", statements, "", STATEMENTS_FOR_A_BURST, at_most=True)
    remark = f"{together * 1e6:.0f} us with `multiple`"
    report.line("the processor time of its client for each message", f"{singly * 1e6:.0f} us", remark)
    await aio.close()


async def _consuming(queue: EntityAddress, prefetch: int = 0) -> Any:
    """A channel of a connection of its own that consumes from a queue."""
    channel = (await rabbitmq.connect.aio(VHOST, "bench")).channel()
    await channel.qos.aio(prefetch)
    await channel.consume.aio(queue.path)
    return channel


async def _prefetch_of_one(queue: EntityAddress) -> tuple[float, float]:
    """Messages a second, and statements for each, of a consumer that acknowledges each message while it waits for the next."""
    await _publish(queue, 2_000)
    channel = await _consuming(queue, prefetch=1)
    done, acknowledging = 0, set()
    ends_at = (began := time.monotonic()) + measuring.scale.seconds * 2
    with counted() as statements:
        while time.monotonic() < ends_at:
            for delivery in await channel.deliveries.aio(10, max_wait_seconds=5):
                acknowledging.add(task := asyncio.create_task(channel.ack.aio(delivery.delivery_tag)))
                task.add_done_callback(acknowledging.discard)
                done += 1
    rate = done / (time.monotonic() - began)
    await asyncio.gather(*acknowledging)
    await connections.close.aio(channel.connection)
    return rate, sum(statements.values()) / done


async def _while_idle(queues: list[EntityAddress]) -> Counter:
    """The statements of WATCHED_SECONDS in which a channel for each of these queues waits, by name."""
    channels = [await _consuming(queue) for queue in queues]
    waiting = [asyncio.create_task(channel.deliveries.aio(1, max_wait_seconds=WATCHED_SECONDS + 4)) for channel in channels]
    await asyncio.sleep(2)
    with counted() as statements:
        await asyncio.sleep(WATCHED_SECONDS)
    await asyncio.gather(*waiting)
    for channel in channels:
        await connections.close.aio(channel.connection)
    return statements


async def _bursts(queue: EntityAddress) -> tuple[float, float, float]:
    """The statements of acknowledging a burst one by one; the processor time for each message of that, and with `multiple`."""
    channel, bursts = await _consuming(queue), 10

    async def cost(acknowledge: Callable[[list[int]], Any]) -> float:
        spent = 0.0
        for _ in range(bursts):
            await _publish(queue, BURST)
            tags = [delivery.delivery_tag for delivery in await channel.deliveries.aio(BURST)]
            began = time.process_time()
            await acknowledge(tags)
            spent += time.process_time() - began
        return spent / (bursts * BURST)

    async def each(tags: list[int]) -> None:
        await asyncio.gather(*(channel.ack.aio(tag) for tag in tags))

    async def at_once(tags: list[int]) -> None:
        await channel.ack.aio(tags[-1], multiple=True)

    with counted() as statements:
        singly = await cost(each)
    together = await cost(at_once)
    await connections.close.aio(channel.connection)
    return statements["rabbit_acknowledge"] / bursts, singly, together


async def _publish(queue: EntityAddress, count: int) -> None:
    for at in range(0, count, 500):
        await rabbitmq.publish.aio(VHOST, [Publication(BODY, routing_key=queue.path)] * min(500, count - at))


@contextmanager
def counted() -> Iterator[Counter]:
    """The statements that this process runs inside the block, by name."""
    counts: Counter = Counter()
    plain, plain_aio = driver._execute, aio._execute_on

    def execute(statement, *rest):
        counts[statement.name] += 1
        return plain(statement, *rest)

    def execute_on(statement, *rest):
        counts[statement.name] += 1
        return plain_aio(statement, *rest)

    driver._execute, aio._execute_on = execute, execute_on
    try:
        yield counts
    finally:
        driver._execute, aio._execute_on = plain, plain_aio
