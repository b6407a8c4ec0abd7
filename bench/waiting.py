"""Receivers that wait on an empty queue: the latency of a message from another process, and the cost of waiting."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from statistics import median, quantiles

from broker_core import service_bus
from broker_core.common.types import EntityAddress, Message
from broker_core.store import connections, driver

from . import measuring
from .measuring import a_queue, fork

SAMPLES, FIRST = 100, 5  # the first samples, in which both sides connect and plan, are not counted
P95_MS = 50
WATCHED_SECONDS = 6


def run(report) -> None:
    measuring.make_bare_tables()
    delays = _delays(a_queue(), 20 if measuring.scale is measuring.SMALL else SAMPLES)
    report.row("a waiting receiver, from before the send's commit to the receipt, p50", median(delays), "ms")
    report.row("the same, p95", quantiles(delays, n=20)[-1], "ms", P95_MS, at_most=True)
    looks = _statements_while_waiting(a_queue())
    report.row(
        "looks a second of a receiver that waits and finds nothing", looks["receive"] / WATCHED_SECONDS, "/s", 1.01, at_most=True
    )
    report.line("its statements of any kind", f"{sum(looks.values()) / WATCHED_SECONDS:.1f}/s", ", ".join(sorted(looks)))
    report.line("statements of a process in which nobody waits", f"{sum(_idle().values()) / WATCHED_SECONDS:.1f}/s")


def _delays(queue: EntityAddress, samples: int) -> list[float]:
    """Milliseconds from the call of a send, including its commit, to the return of a waiting receive in another process."""
    sender = fork.Process(target=_send_now_and_then, args=(queue, samples))
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


def _statements_while_waiting(queue: EntityAddress) -> Counter:
    """The statements of a waiting receiver that gets no message, by name, after its first second."""
    waiting = threading.Thread(
        target=lambda: (service_bus.receive(queue, max_wait_seconds=WATCHED_SECONDS + 3), connections.close_all_of_this_thread())
    )
    waiting.start()
    time.sleep(1.5)
    counted = _idle()
    waiting.join()
    return counted


def _idle() -> Counter:
    """The statements that this process runs in WATCHED_SECONDS, by name."""
    counted: Counter = Counter()
    plain = driver._execute

    def counting(statement, connection):
        counted[statement.name] += 1
        return plain(statement, connection)

    driver._execute = counting
    try:
        time.sleep(WATCHED_SECONDS)
    finally:
        driver._execute = plain
    return counted
