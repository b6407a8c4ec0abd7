"""A topic with many subscriptions, with simple SQL filters and with correlation filters, on one connection.

Stored copies per second, against a bare insert of as many rows of id and body, with the bodies sent by the client.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from uuid import uuid4

import psycopg

from broker_core import service_bus
from broker_core.common.types import EntityAddress
from broker_core.service_bus import entities
from broker_core.service_bus.rules.filters.correlation import CorrelationFilter
from broker_core.service_bus.rules.filters.rules import Filter, Rule
from broker_core.service_bus.rules.filters.sql import compile_filter
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections

from . import measuring
from .measuring import BODY, INSERT_BARE, against, bare, empty, rate, timed

TURNS = 3
TARGETS = {1: 0.25, 10: 0.6, 100: 0.75}
MOST_ROWS = 100_000  # per bare insert: its parameters are built in memory
BODIES_OF_A_TURN = 64 * 1024 * 1024  # bytes
INSERT_MULTIPLIED = "INSERT INTO bench_bare (body) SELECT b FROM unnest(%(bodies)b::bytea[]) AS b, generate_series(1, %(times)s)"


def run(report) -> None:
    measuring.make_bare_tables()
    for count in measuring.scale.subscriptions:
        topic = _topic([compile_filter("colour = 'red' AND number > 10")] * count)
        for batch, target in TARGETS.items():
            _batches(report, topic, count, batch, target)
        if count == measuring.scale.subscriptions[0]:
            for kilobytes in (4, 64):
                _larger(report, topic, count, kilobytes)
        entities.delete_topic(topic)
    _correlations(report)


def _topic(filters: list[Filter]) -> EntityAddress:
    """A topic with a subscription for each filter."""
    topic = EntityAddress(measuring.NAMESPACE, f"t-{uuid4().hex[:8]}")
    entities.create_topic(topic, max_size_in_megabytes=1_048_576)
    for number, each in enumerate(filters):
        entities.create_subscription(topic.subscription(f"s{number}"), rule=Rule("r", each))
    return topic


def _publish(topic: EntityAddress, copies: int, batch: int, body: bytes = BODY) -> Callable[[], int]:
    messages = [Message(body, properties={"colour": "red", "number": 20}, subject="s0")] * batch

    def publish() -> int:
        service_bus.send(topic, messages)
        return copies * batch

    return publish


def _batches(report, topic: EntityAddress, count: int, batch: int, target: float) -> None:
    publish = _publish(topic, count, batch)
    copies = count * batch
    plain = bare(INSERT_BARE, [BODY] * min(copies, MOST_ROWS))
    rates = [[rate(work, connections_=1) for work in (publish, plain, _multiplied_by_server(batch, count))] for _ in range(TURNS)]
    ours, plain_rate, multiplied = (statistics.median(side) for side in zip(*rates, strict=True))
    ratio = statistics.median(own / other for own, other, _ in rates)
    name = f"topic to {count:,} subscriptions, batches of {batch}"
    report.row(f"{name}: copies, against a bare insert of as many rows", ratio, "times", target)
    report.line(
        "", f"{ours:,.0f}/s", f"against {plain_rate:,.0f}/s; {ours / multiplied:.2f} times one whose rows the server multiplies"
    )
    empty()


def _multiplied_by_server(batch: int, times: int) -> Callable[[], int]:
    def insert() -> int:
        psycopg.Cursor(connections.current()).execute(INSERT_MULTIPLIED, {"bodies": [BODY] * batch, "times": times})
        return batch * times

    return insert


def _larger(report, topic: EntityAddress, count: int, kilobytes: int) -> None:
    """Larger bodies, and the disk space of the copies, each of which has its own body."""
    body = os.urandom(kilobytes * 1024)
    batch = max(1, min(10, BODIES_OF_A_TURN // (count * len(body))))
    ratio, rates = against(_publish(topic, count, batch, body), bare(INSERT_BARE, [body] * count * batch), connections_=1)
    report.row(f"topic to {count:,} subscriptions, batches of {batch} x {kilobytes} KB", ratio, "times")
    report.line("", f"{rates[0]:,.0f}/s", f"against {rates[1]:,.0f}/s")
    empty()
    copies, written = 0, _written()
    for _ in range(3):
        copies += _publish(topic, count, batch, body)()
    [[size]] = connections.current().execute("SELECT pg_total_relation_size('vitrine_message')").fetchall()
    report.line(
        "",
        f"{size / copies / len(body):.2f} x body",
        f"on disk a copy; {(_written() - written) / copies / len(body):.2f} x in WAL",
    )
    empty()


def _written() -> int:
    [[written]] = connections.current().execute("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint").fetchall()
    return written


def _correlations(report) -> None:
    """A message that matches one of many correlation filters, against a topic with one filter: times of a send."""
    count = measuring.scale.correlations
    many = _topic([CorrelationFilter(subject=f"s{i}") for i in range(count)])
    single = _topic([CorrelationFilter(subject="s0")])
    for batch in (1, 10):
        sends = [_publish(topic, 1, batch) for topic in (many, single)]
        times: tuple[list, list] = ([], [])
        for _ in range(40 * measuring.scale.turns):
            for taken, send in zip(times, sends, strict=True):
                taken.append(timed(send)[0])
        of_many, of_one = (statistics.median(taken[10:]) for taken in times)
        name = f"{count:,} correlation filters, 1 match, batches of {batch}: time of a send, in times of one filter's"
        report.row(name, of_many / of_one, "times", 2, at_most=True)
        report.line("", f"{of_many * 1e3:.2f} ms", f"against {of_one * 1e3:.2f} ms")
    for topic in (many, single):
        entities.delete_topic(topic)
    empty()
