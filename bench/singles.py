"""Messages sent, received and completed singly: by one connection, by eight, and by 32 threads or tasks of one process."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import psycopg

from broker_core import service_bus
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections

from . import measuring
from .measuring import BATCH, BODY, INSERT_BARE, a_queue, bare, compare, empty, fill, in_processes, timed

MOST = {"send": 1.7, "receive": 1.6, "complete": 1.3}
CALLERS = 32


def run(report) -> None:
    _one_at_a_time(report)
    _asyncio_against_synchronous(report)
    _in_flight(report)
    _eight_connections(report)
    _many_callers(report, "threads", _by_threads, 6)
    _many_callers(report, "asyncio tasks", _by_tasks, 6)
    empty()


def _one_at_a_time(report) -> None:
    queue = a_queue()
    cursor = psycopg.Cursor(connections.current())
    times: dict[str, list[float]] = {"bare": [], "send": [], "receive": [], "complete": []}
    for _ in range(1500):
        times["bare"].append(timed(lambda: cursor.execute(INSERT_BARE, {"bodies": [BODY]}))[0])
        times["send"].append(timed(lambda: service_bus.send(queue, [Message(BODY)]))[0])
        seconds, (message,) = timed(lambda: service_bus.receive(queue))
        times["receive"].append(seconds)
        times["complete"].append(timed(lambda message=message: service_bus.complete(queue, message.lock_token))[0])
    plain = statistics.median(times["bare"])
    report.line("a bare single-row insert", f"{plain * 1e6:,.0f} us")
    for name, most in MOST.items():
        ratio = statistics.median(times[name]) / plain
        report.row(f"one message at a time, one connection: {name}", ratio, "times", most, at_most=True)


def _asyncio_against_synchronous(report) -> None:
    """Single calls of one task, against those of one thread, in turns."""
    ours, other = a_queue(), a_queue()
    wall: dict[str, list[float]] = {"asyncio": [], "synchronous": []}
    processor: dict[str, list[float]] = {"asyncio": [], "synchronous": []}

    async def by_a_task() -> None:
        await service_bus.send.aio(ours, [Message(BODY)])
        (message,) = await service_bus.receive.aio(ours)
        await service_bus.complete.aio(ours, message.lock_token)

    def by_a_thread() -> None:
        service_bus.send(other, [Message(BODY)])
        (message,) = service_bus.receive(other)
        service_bus.complete(other, message.lock_token)

    async def in_turns() -> None:
        for _ in range(1_000):
            began, worked = time.perf_counter(), time.process_time()
            await by_a_task()
            between, worked_between = time.perf_counter(), time.process_time()
            by_a_thread()
            wall["asyncio"].append(between - began)
            wall["synchronous"].append(time.perf_counter() - between)
            processor["asyncio"].append(worked_between - worked)
            processor["synchronous"].append(time.process_time() - worked_between)

    asyncio.run(in_turns())
    for name, times in (("time", wall), ("processor time of the client", processor)):
        ratio = statistics.median(times["asyncio"]) / statistics.median(times["synchronous"])
        report.row(f"send, receive and complete with asyncio, against the same in a thread: {name}", ratio, "times", 1.3,
                   at_most=True)  # fmt: skip


def _in_flight(report) -> None:
    """A receive from a queue of which many messages are locked, against one from a queue without locked messages, in turns."""
    in_flight, plain, calls = measuring.scale.in_flight, 2_000, 1_500
    queues = {"in flight": a_queue(lock_duration=timedelta(minutes=5)), "none": a_queue(lock_duration=timedelta(minutes=5))}
    fill(queues["in flight"], in_flight + plain)
    fill(queues["none"], plain)
    for _ in range(in_flight // BATCH):
        service_bus.receive(queues["in flight"], BATCH)
    times: dict[str, list[float]] = {name: [] for name in queues}
    for _ in range(calls):
        for name, queue in queues.items():
            seconds, (message,) = timed(lambda queue=queue: service_bus.receive(queue))
            times[name].append(seconds)
            if name == "none":
                service_bus.complete(queue, message.lock_token)
    ratio = statistics.mean(times["in flight"]) / statistics.mean(times["none"])
    report.row(f"receive with {in_flight:,} messages in flight, against none", ratio, "times", 2, at_most=True)
    empty()


def _eight_connections(report) -> None:
    queue, name = a_queue(), "eight connections that send singly to one queue, against eight bare inserts"
    compare(report, name, lambda: len(service_bus.send(queue, [Message(BODY)])), bare(INSERT_BARE, [BODY]), 0.35, n=8)


def _many_callers(report, what: str, rate_of: Callable[[EntityAddress, bool], float], target: float) -> None:
    """Sends of callers with one name are gathered; those of callers with different names are not."""
    queue = a_queue()
    turns = [
        tuple(in_processes([lambda same_actor=same_actor: rate_of(queue, same_actor)])[0] for same_actor in (True, False))
        for _ in range(measuring.scale.turns)
    ]
    gathered, alone = (statistics.median(side) for side in zip(*turns, strict=True))
    ratio = statistics.median(a / b for a, b in turns)
    report.row(f"{CALLERS} {what} of a process send singly, in times of their rate one by one", ratio, "times", target)
    report.line("", f"{gathered:,.0f}/s", f"against {alone:,.0f}/s")


def _actors(same_actor: bool) -> list[Actor]:
    return [Actor("process", "bench" if same_actor else uuid4().hex, Right.ALL) for _ in range(CALLERS)]


def _by_threads(queue: EntityAddress, same_actor: bool) -> float:
    """Messages per second after a second to connect and plan."""
    sent, ends = itertools.count(), time.monotonic() + 1 + measuring.scale.seconds

    def work(actor: Actor) -> None:
        while time.monotonic() < ends:
            service_bus.send(queue, [Message(BODY)], actor=actor)
            next(sent)

    threads = [threading.Thread(target=work, args=(actor,)) for actor in _actors(same_actor)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    began, before = time.monotonic(), next(sent)
    time.sleep(max(0.0, ends - began))
    done, took = next(sent) - before - 1, time.monotonic() - began
    for thread in threads:
        thread.join()
    return done / took


def _by_tasks(queue: EntityAddress, same_actor: bool) -> float:
    async def work(actor: Actor, ends: float, sent: itertools.count) -> None:
        while time.monotonic() < ends:
            await service_bus.send.aio(queue, [Message(BODY)], actor=actor)
            next(sent)

    async def all_of_them() -> float:
        sent, ends = itertools.count(), time.monotonic() + 1 + measuring.scale.seconds
        tasks = [asyncio.ensure_future(work(actor, ends, sent)) for actor in _actors(same_actor)]
        await asyncio.sleep(1)
        began, before = time.monotonic(), next(sent)
        await asyncio.sleep(max(0.0, ends - began))
        done, took = next(sent) - before - 1, time.monotonic() - began
        await asyncio.gather(*tasks)
        return done / took

    return asyncio.run(all_of_them())
