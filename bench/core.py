"""The hot path against plain statements and against PGMQ on the same server: 1 KB of JSON, full history, by default two
connections."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial
from uuid import uuid4

from broker_core import namespaces, reads, service_bus, sweeps
from broker_core.common.types import EntityAddress, Family, HistoryLevel
from broker_core.service_bus import entities
from broker_core.store import connections

from . import measuring, pgmq, singles
from .measuring import (
    DELETE_BARE,
    INSERT_BARE,
    INSERT_COLUMNS,
    RECEIVE,
    a_queue,
    bare,
    compare,
    empty,
    fill,
    fill_bare,
    fork,
    rate,
    receive_and_complete,
    receive_completing,
    send,
    send_and_receive,
    timed,
    worked,
)

EXPIRY = "bench-expiry"


def run(report) -> None:
    """All rows about single queues."""
    measuring.make_bare_tables()
    report.line("rows against PGMQ", pgmq.version() or "not measured", "" if pgmq.version() else pgmq.MISSING)
    _first_minute(report)
    _prepared_on_an_empty_queue(report)
    _sends(report)
    _receives(report)
    singles.run(report)
    for dead_letters in (True, False):
        _expiry(report, dead_letters)


# The comparisons


def _first_minute(report) -> None:
    """The rate of a process that has just connected to an empty database, against its rate 20 s later."""
    queue = a_queue()
    began = time.monotonic()
    first = rate(lambda: send_and_receive(queue), connections_=2)
    while time.monotonic() - began < 20:
        later = rate(lambda: send_and_receive(queue), connections_=2)
    report.row("fresh queue: its first seconds, in times of its rate 20 s later", first / later, "times", 0.8)


def _prepared_on_an_empty_queue(report) -> None:
    """Receivers that polled an empty queue until their plans were generic, then 50,000 messages, against fresh connections."""
    ratios = []
    for _ in range(3):
        rates = []
        for polls in (200, 0):
            queue = a_queue()
            rates.append(_drain_rate(queue, 50_000, polls=polls))
        ratios.append(rates[0] / rates[1])
    report.row("receivers prepared on an empty queue, then 50,000 messages", statistics.median(ratios), "times", 0.8)


def _sends(report) -> None:
    queue, off = a_queue(), a_queue(history_level=HistoryLevel.OFF)
    plain, columns = bare(INSERT_BARE), bare(INSERT_COLUMNS)
    compare(report, "send, batches of 100, against a bare insert of id and body", partial(send, queue), plain, 0.5)
    compare(report, "send, batches of 100, against a bare insert of the same columns", partial(send, queue), columns, 0.65)
    compare(report, "send, batches of 100, history off", partial(send, off), plain, 0.6)
    if pgmq.version():
        pgmq_send = partial(pgmq.send, pgmq.a_queue())
        for words, n, target in (("two connections to one queue", 2, 1.2), ("one connection", 1, 1.4)):
            name = f"send, batches of 100, {words}, against PGMQ's send_batch"
            compare(report, name, partial(send, queue), pgmq_send, target, n=n)
        compare(report, "the same, two connections, a queue each", *_to_own_queues(), 1.2)
    empty()


def _to_own_queues() -> tuple[Callable[[], int], Callable[[], int]]:
    """Sends to a queue of the process, which is created in the first call; that one is not counted."""
    ours = cache(lambda _process: a_queue())
    pgmq_queue = cache(lambda _process: pgmq.a_queue())
    return lambda: send(ours(os.getpid())), lambda: pgmq.send(pgmq_queue(os.getpid()))


def _receives(report) -> None:
    def delete() -> int:
        return len(connections.current().execute(DELETE_BARE, binary=True).fetchall())

    for words, level, target in (("", HistoryLevel.FULL, 0.28), (", history off", HistoryLevel.OFF, 0.33)):
        name = f"receive 32 + complete{words}, against DELETE ... RETURNING of 32"
        _drained(report, name, target, receive_and_complete, a_queue(history_level=level), delete, fill_bare)
    if pgmq.version():
        name = "receive 32 + complete, against PGMQ's read + delete"
        _drained(report, name, 1.0, receive_and_complete, a_queue(), *_of_pgmq())
        name = "receive 32 that completes the last 32, against the same"
        _drained(report, name, 1.1, receive_completing, a_queue(), *_of_pgmq())


def _of_pgmq() -> tuple[Callable[[], int], Callable[[int], None]]:
    queue = pgmq.a_queue()
    return partial(pgmq.read_and_delete, queue), partial(pgmq.fill, queue)


def _drained(
    report,
    name: str,
    target: float,
    ours: Callable[[EntityAddress], int],
    queue: EntityAddress,
    rival: Callable[[], int],
    fill_rival: Callable[[int], None],
) -> None:
    """A row with the ratio of two kinds of work by two connections that drain a backlog, which is filled up before each turn."""
    turns = []
    for _ in range(measuring.scale.turns):
        fill(queue, 60_000)
        fill_rival(120_000)
        turns.append((rate(lambda: ours(queue), connections_=2), rate(rival, connections_=2)))
    own_rate, other = (statistics.median(side) for side in zip(*turns, strict=True))
    report.row(name, statistics.median(a / b for a, b in turns), "times", target)
    report.line("", f"{own_rate:,.0f}/s", f"against {other:,.0f}/s")
    empty()


def _expiry(report, dead_letters: bool) -> None:
    """Expiring many messages, to the dead-letter queue or dropped, while a receiver works on another queue."""
    namespaces.ensure_namespace(EXPIRY, Family.SERVICE_BUS)
    queue = EntityAddress(EXPIRY, f"q-{uuid4().hex[:8]}")
    entities.create_queue(queue, dead_lettering_on_message_expiration=dead_letters, max_size_in_megabytes=81_920)
    namespaces.pause_clock(EXPIRY)
    total = measuring.scale.expiring
    fill(queue, total, life=timedelta(seconds=60))
    plain = rate(bare(INSERT_BARE), connections_=2)
    other = a_queue()
    fill(other, 150_000)
    alone = rate(lambda: receive_and_complete(other), connections_=1)
    namespaces.step_clock(EXPIRY, timedelta(seconds=61))
    sweeper = fork.Process(target=lambda: sweeps.expire_messages(seconds_at_most=measuring.scale.seconds * 3))
    sweeper.start()
    time.sleep(0.5)
    beside = rate(lambda: receive_and_complete(other), connections_=1)
    sweeper.join()
    how = "to the dead-letter queue" if dead_letters else "dropped"
    name = f"a receiver beside a sweep ({how}), in times of its rate alone"
    report.row(name, beside / alone, "times", 0.8 if dead_letters else 0.7)
    before = total - reads.counts(queue).active
    took, done = timed(_expire_the_rest)
    report.row(f"expiring {total:,}, {how}, against a bare insert", done / took / plain, "times", 0.45 if dead_letters else 0.4)
    report.line("", f"{done / took:,.0f}/s", f"{before:,} of them beside the receiver")
    entities.delete_queue(queue)
    empty()


def _expire_the_rest() -> int:
    done = 0
    while sweep := sweeps.expire_messages(seconds_at_most=60, pause=lambda _: None)["expired"]:
        done += sweep
    return done


def _drain_rate(queue: EntityAddress, count: int, *, polls: int) -> float:
    """Messages per second of a process that polled an empty queue before `count` messages arrived."""
    ready, go, out = fork.Event(), fork.Event(), fork.Queue()

    def work():
        for _ in range(polls):
            service_bus.receive(queue, RECEIVE)
        ready.set()
        go.wait()
        out.put(worked(lambda: receive_and_complete(queue), measuring.scale.seconds))

    process = fork.Process(target=work)
    process.start()
    ready.wait()
    fill(queue, count)
    go.set()
    drain_rate = out.get()
    process.join()
    return drain_rate
