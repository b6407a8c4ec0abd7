"""The hot path against plain statements on the same server: 1 KB random bodies, full history, by default two connections."""

from __future__ import annotations

import os
import statistics
import time
from datetime import timedelta
from uuid import uuid4

import psycopg

from broker_core import namespaces, reads, service_bus, sweeps
from broker_core.common.types import EntityAddress, Message
from broker_core.service_bus import entities
from broker_core.store import connections

from . import measuring
from .measuring import (
    BATCH,
    BODY,
    DELETE_BARE,
    INSERT_BARE,
    INSERT_COLUMNS,
    RECEIVE,
    a_queue,
    against,
    bare,
    empty,
    fill,
    fill_bare,
    fork,
    rate,
    receive_and_complete,
    send,
    send_and_receive,
    timed,
    worked,
)

EXPIRY = "bench-expiry"


def run(report) -> None:
    """All rows about single queues."""
    measuring.make_bare_tables()
    _first_minute(report)
    _prepared_on_an_empty_queue(report)
    _sends(report)
    _receives(report)
    _one_at_a_time(report)
    _in_flight(report)
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
    queue = a_queue()
    plain, columns = bare(INSERT_BARE), bare(INSERT_COLUMNS)
    ours = lambda: send(queue)  # noqa: E731
    ratio, rates = against(ours, plain)
    report.row("send, batches of 100, against a bare insert of id and body", ratio, "times", 0.5)
    report.line("", f"{rates[0]:,.0f}/s", f"against {rates[1]:,.0f}/s")
    own: dict[int, EntityAddress] = {}  # by process; created in the call that is not counted
    ratio, rates = against(lambda: send(own.get(os.getpid()) or own.setdefault(os.getpid(), a_queue())), plain)
    report.row("the same, to a queue for each connection", ratio, "times")
    report.line("", f"{rates[0]:,.0f}/s", f"against {rates[1]:,.0f}/s")
    ratio, _ = against(ours, columns)
    report.row("send, batches of 100, against a bare insert of the same columns", ratio, "times", 0.65)
    off = a_queue(history_level=0)
    ratio, _ = against(lambda: send(off), plain)
    report.row("send, batches of 100, history off", ratio, "times", 0.6)
    empty()


def _receives(report) -> None:
    def delete():
        return len(connections.current().execute(DELETE_BARE, binary=True).fetchall())

    for name, level, target in (("receive 32 + complete", 2, 0.28), ("receive 32 + complete, history off", 0, 0.33)):
        queue = a_queue(history_level=level)
        ratios, rates = [], []
        for _ in range(measuring.scale.turns):
            fill(queue, 60_000)
            fill_bare(120_000)
            ours = rate(lambda queue=queue: receive_and_complete(queue), connections_=2)
            ratios.append(ours / rate(delete, connections_=2))
            rates.append(ours)
        report.row(f"{name}, against DELETE ... RETURNING of 32", statistics.median(ratios), "times", target)
        report.line("", f"{statistics.median(rates):,.0f}/s")
        empty()


def _one_at_a_time(report) -> None:
    queue = a_queue()
    connection = connections.current()
    one = psycopg.Cursor(connection)
    times: dict[str, list[float]] = {"bare": [], "send": [], "receive": [], "complete": []}
    for _ in range(1500):
        times["bare"].append(timed(lambda: one.execute(INSERT_BARE, {"bodies": [BODY]}))[0])
        times["send"].append(timed(lambda: service_bus.send(queue, [Message(BODY)]))[0])
        seconds, (held,) = timed(lambda: service_bus.receive(queue))
        times["receive"].append(seconds)
        times["complete"].append(timed(lambda held=held: service_bus.complete(queue, held.lock_token))[0])
    plain = statistics.median(times["bare"])
    report.line("a bare single-row insert", f"{plain * 1e6:,.0f} us")
    for name, most in (("send", 2), ("receive", 3), ("complete", 2)):
        report.row(
            f"one message at a time, one connection: {name}", statistics.median(times[name]) / plain, "times", most, at_most=True
        )
    empty()


def _in_flight(report) -> None:
    """A receive from a queue of which many messages are locked, against one from a queue without locked messages, in turns."""
    held, plain, calls = measuring.scale.in_flight, 2_000, 1_500
    queues = {"in flight": a_queue(lock_duration=timedelta(minutes=5)), "none": a_queue(lock_duration=timedelta(minutes=5))}
    fill(queues["in flight"], held + plain)
    fill(queues["none"], plain)
    for _ in range(held // BATCH):
        service_bus.receive(queues["in flight"], BATCH)
    times: dict[str, list[float]] = {name: [] for name in queues}
    for _ in range(calls):
        for name, queue in queues.items():
            seconds, (message,) = timed(lambda queue=queue: service_bus.receive(queue))
            times[name].append(seconds)
            if name == "none":
                service_bus.complete(queue, message.lock_token)
    ratio = statistics.mean(times["in flight"]) / statistics.mean(times["none"])
    report.row(f"receive with {held:,} messages in flight, against none", ratio, "times", 2, at_most=True)
    empty()


def _expiry(report, dead_letters: bool) -> None:
    """Expiring many messages, to the dead-letter queue or dropped, while a receiver works on another queue."""
    namespaces.ensure_namespace(EXPIRY)
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
    report.row(f"a receiver on another queue beside a sweep ({how}), in times of its rate alone", beside / alone, "times", 0.7)
    before = total - reads.counts(queue).active
    took, done = timed(_expire_the_rest)
    report.row(f"expiring {total:,}, {how}, against a bare insert", done / took / plain, "times", 0.25 if dead_letters else 0.4)
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
    found = out.get()
    process.join()
    return found
