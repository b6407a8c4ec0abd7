"""Receivers that wait on empty queues: the latency of a message of the same or another process, and the cost of waiting."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median, quantiles

from broker_core import service_bus
from broker_core.common.types import EntityAddress
from broker_core.runtime import dispatcher
from broker_core.service_bus.rules.values import Message
from broker_core.store import aio, connections

from . import measuring
from .measuring import a_queue, fork

SAMPLES, FIRST = 100, 5  # the first samples, in which both sides connect and plan, are not counted
P95_MS, P95_OWN_MS = 50, 20
WAITING = 1000
STATEMENTS, SHARE = 10, 0.05
WATCHED_SECONDS = 20
SECONDS_TO_REPORT = 12  # an idle connection reports its statistics after at most ten seconds


def run(report) -> None:
    measuring.make_bare_tables()
    samples = 20 if measuring.scale is measuring.SMALL else SAMPLES
    for title, process, limit in (
        ("another process", fork.Process, P95_MS),
        ("a thread of the same process", threading.Thread, P95_OWN_MS),
    ):
        delays = _delays(a_queue(), samples, process)
        report.row(f"a receiver waits, from before a send's commit in {title} to the receipt, p50", median(delays), "ms")
        report.row("the same, p95", quantiles(delays, n=20)[-1], "ms", limit, at_most=True)
    waiting = WAITING // 10 if measuring.scale is measuring.SMALL else WAITING
    for title, queues in (("one queue", [a_queue()]), ("a queue each", [a_queue() for _ in range(waiting)])):
        statements, share = _cost_of_waiting(queues, waiting)
        report.row(f"{waiting} waiting receivers, {title}, statements", statements, "/s", STATEMENTS, at_most=True)
        report.row("the same, share of a core, process and server", share, "", SHARE, at_most=True)


def _delays(queue: EntityAddress, samples: int, kind) -> list[float]:
    """Milliseconds from the call of a send, including its commit, to the return of a waiting receive."""
    sender = kind(target=_send_now_and_then, args=(queue, samples))
    sender.start()
    delays = []
    for _ in range(samples + FIRST):
        (message,) = service_bus.receive_and_delete(queue, max_wait_seconds=30)
        delays.append((time.time_ns() - int(message.body)) / 1e6)
    sender.join()
    return delays[FIRST:]


def _send_now_and_then(queue: EntityAddress, samples: int) -> None:
    service_bus.peek(queue)  # connects and loads the queue
    for _ in range(samples + FIRST):
        time.sleep(random.uniform(0.05, 0.3))
        service_bus.send(queue, [Message(str(time.time_ns()).encode())])
    connections.close_all_of_this_thread()


def _cost_of_waiting(queues: Sequence[EntityAddress], receivers: int) -> tuple[float, float]:
    """Transactions a second, and processor seconds a second of this process and the server's, while receivers wait."""

    async def wait() -> tuple[float, float]:
        calls = [service_bus.receive.aio(queues[i % len(queues)], max_wait_seconds=600) for i in range(receivers)]
        tasks = [asyncio.create_task(call) for call in calls]
        while not _all_wait(receivers):
            await asyncio.sleep(0.5)
        await asyncio.sleep(SECONDS_TO_REPORT)
        began, before = time.monotonic(), await asyncio.to_thread(_spent)
        await asyncio.sleep(WATCHED_SECONDS)
        after, seconds = await asyncio.to_thread(_spent), time.monotonic() - began
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await aio.close()
        return (after[0] - before[0]) / seconds, (after[1] - before[1]) / seconds

    return asyncio.run(wait())


def _all_wait(receivers: int) -> bool:
    """Whether so many calls of this process have looked for messages and wait."""
    dispatchers = list(dispatcher._dispatchers.values())
    return sum(len(each._listeners) for each in dispatchers if not each._is_due and not each._is_running) == receivers


def _spent() -> tuple[int, float]:
    """The transactions of the database, and the processor seconds of this process and of the server's processes, so far."""
    connection = connections.current()
    (row,) = connection.execute("SELECT xact_commit AS n FROM pg_stat_database WHERE datname = current_database()").fetchall()
    pids = [row.pid for row in connection.execute("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")]
    return row.n, time.process_time() + sum(map(_processor_seconds, pids))


def _processor_seconds(pid: int) -> float:
    """0 for a process that has ended, or of a server on another machine."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0
