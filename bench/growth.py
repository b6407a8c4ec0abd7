"""Rates with growing backlogs and after many messages through one queue, and the disk space of both."""

from __future__ import annotations

import statistics
import time

from broker_core import reads, service_bus, sweeps
from broker_core.common.types import EntityAddress
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections

from . import measuring
from .measuring import BATCH, BODY, a_queue, empty, fill, fork, in_processes, rate, send, send_and_receive, timed, worked

WORKS = (("send 100", send), ("send 32, receive 32, complete", send_and_receive))
SMALL_BODY = BODY[:100]  # for backlogs: ten million messages of 1 KB would take 30 GB
WAITING = 100_000  # messages whose disk space is measured
LIVE = 40_000  # messages that stay in the queue with the traffic
LEAST = 0.8
DISK_WAITING, DISK_THROUGH = 2.9, 3.0


def run(report) -> None:
    measuring.make_bare_tables()
    _backlogs(report)
    _through(report)
    _waiting_on_disk(report)


def _backlogs(report) -> None:
    """Rates at each backlog, alternating with the smallest."""
    sizes = measuring.scale.waiting
    queues = {size: a_queue() for size in sizes}
    for size, queue in queues.items():
        took, _ = timed(lambda queue=queue, size=size: fill(queue, size, body=SMALL_BODY))
        report.line(f"backlog of {size:,}", f"{took:.1f} s", "to make")
    for name, work in WORKS:
        rates: dict[int, list[float]] = {size: [] for size in sizes}
        for _ in range(measuring.scale.turns):
            for size, queue in queues.items():
                rates[size].append(rate(lambda queue=queue, work=work: work(queue), connections_=2))
        _report(report, name, rates)
    for size, queue in queues.items():
        counting = statistics.median(timed(lambda queue=queue: reads.counts(queue))[0] for _ in range(15))
        peeking = statistics.median(timed(lambda queue=queue: service_bus.peek(queue, max_count=100))[0] for _ in range(15))
        report.line(
            f"at a backlog of {size:,}", f"{counting * 1e3:.1f} ms", f"to count it; {peeking * 1e3:.1f} ms to peek at 100"
        )
    empty()


def _report(report, name: str, rates: dict[int, list[float]]) -> None:
    least = min(rates)
    for size, size_rates in rates.items():
        report.line(f"{name}, at a backlog of {size:,}", f"{statistics.median(size_rates):,.0f}/s")
        if size == least:
            continue
        ratio = statistics.median(large / small for large, small in zip(size_rates, rates[least], strict=True))
        target = LEAST if size >= min(1_000_000, max(rates)) else None
        report.row(f"the same, in times of a backlog of {least:,}", ratio, "times", target)


def _through(report) -> None:
    """Many messages through one queue with a live backlog: rates afterwards, against a fresh queue's, and the table's size."""
    queue, fresh = a_queue(), a_queue()
    fill(queue, LIVE)
    fill(fresh, LIVE)
    began, done = time.monotonic(), 0
    while done < measuring.scale.through:
        done += round(sum(in_processes([lambda: _pass(queue, 10.0)] * 2)))
        sweeps.roll_up_counts()
    passed_at = done / (time.monotonic() - began)
    size = _bytes("vitrine_message")
    for name, work in WORKS:
        pairs = [
            tuple(rate(lambda q=q, work=work: work(q), connections_=2) for q in (queue, fresh))
            for _ in range(measuring.scale.turns)
        ]
        ratio = statistics.median(used / new for used, new in pairs)
        report.row(f"{name}: after {done:,} went through, in times of a fresh queue", ratio, "times", LEAST)
    payload = (2 * LIVE + 10 * passed_at) * len(BODY)
    name = f"disk after {done:,} went through, in times of (live + 10 s of traffic)"
    report.row(name, size / payload, "times", DISK_THROUGH, at_most=True)
    report.line("", f"{size / 2**20:,.0f} MB", f"{2 * LIVE:,} live, {passed_at:,.0f}/s went through")
    empty()


def _pass(queue: EntityAddress, seconds: float) -> float:
    """The number of messages sent and completed in this time."""
    seconds = min(seconds, 3 * measuring.scale.seconds)
    return worked(lambda: _send_and_receive_100(queue), seconds) * seconds


def _send_and_receive_100(queue: EntityAddress) -> int:
    send(queue)
    return len(service_bus.complete(queue, [m.lock_token for m in service_bus.receive(queue, BATCH)]).settled)


def _waiting_on_disk(report) -> None:
    """Disk space of 1 KB messages after sending, relative to their bodies; that of the events separately."""
    queue = a_queue()
    count = min(WAITING, measuring.scale.waiting[-1])
    for _ in range(0, count, BATCH):
        service_bus.send(queue, [Message(BODY)] * BATCH)
    payload = count * len(BODY)
    report.row(
        "disk of 1 KB messages that wait, in times of their bodies",
        _bytes("vitrine_message") / payload,
        "times",
        DISK_WAITING,
        at_most=True,
    )
    report.line("their events besides", f"{_bytes('vitrine_message_event') / count:,.0f} bytes", "each, indexes included")
    locked = fork.Process(target=lambda: _lock_all(queue, count))
    locked.start()
    locked.join()
    report.line("after all were locked once", f"{_bytes('vitrine_message') / payload:.2f} times")
    empty()


def _lock_all(queue: EntityAddress, count: int) -> None:
    for _ in range(0, count, 500):
        service_bus.receive(queue, 500)


def _bytes(table: str) -> int:
    """The size of a table with its partitions, indexes and large values."""
    query = """
        SELECT sum(pg_total_relation_size(id))::bigint
          FROM (SELECT %(t)s::regclass UNION SELECT relid FROM pg_partition_tree(%(t)s)) AS t(id)
    """
    [[size]] = connections.current().execute(query, {"t": table}).fetchall()
    return size
