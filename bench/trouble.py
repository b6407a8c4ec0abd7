"""Operational problems: a message locked at the head, expired messages without a sweep, a snapshot that stays open.

For each, its cost and what an operator can see of it.
"""

from __future__ import annotations

import time
from datetime import timedelta
from uuid import uuid4

import psycopg

from broker_core import namespaces, reads, service_bus, sweeps
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections

from . import measuring
from .measuring import BODY, a_queue, empty, fill, rate, receive_and_complete, send_and_receive, timed

NAMESPACE = "bench-trouble"
RECEIVING = 10.0  # seconds of receives among expired messages
SPAN = 10  # seconds between two figures while a snapshot is open


def run(report) -> None:
    measuring.make_bare_tables()
    _held_at_the_head(report)
    _expired_at_the_head(report)
    _open_snapshot(report)


def _a_queue_on_a_manual_clock(**settings) -> EntityAddress:
    namespaces.ensure_namespace(NAMESPACE, Family.SERVICE_BUS)
    namespaces.pause_clock(NAMESPACE)
    queue = EntityAddress(NAMESPACE, f"q-{uuid4().hex[:8]}")
    entities.create_queue(queue, max_size_in_megabytes=81_920, **settings)
    return queue


def _held_at_the_head(report) -> None:
    """One message is renewed for an hour of the namespace's clock, while all others pass it."""
    queue = _a_queue_on_a_manual_clock(lock_duration=timedelta(minutes=5))
    service_bus.send(queue, [Message(b"held")])
    (message,) = service_bus.receive(queue)
    before = rate(lambda: send_and_receive(queue), connections_=1)
    passed = 0
    for _ in range(15):
        namespaces.step_clock(NAMESPACE, timedelta(minutes=4))
        service_bus.renew(queue, message.lock_token)
        began = time.monotonic()
        while time.monotonic() - began < measuring.scale.seconds / 2:
            passed += send_and_receive(queue)
    beside = rate(lambda: send_and_receive(queue), connections_=1)
    seen = reads.entity(queue)
    report.row(
        f"a message held at the head for an hour, {passed:,} passed by: rate, in times of before", beside / before, "times"
    )
    report.line(
        "what the operator sees: the age of the oldest message", f"{seen.oldest_active_age}", f"{seen.counts.locked} locked"
    )
    service_bus.complete(queue, [message.lock_token])
    after = rate(lambda: send_and_receive(queue), connections_=1)
    report.row("the same once it is settled", after / before, "times")
    entities.delete_queue(queue)
    empty()


def _expired_at_the_head(report) -> None:
    """Expired messages before fresh ones, without a sweep: receives have to remove them."""
    queue = _a_queue_on_a_manual_clock()
    expired = measuring.scale.expired_at_head
    fill(queue, expired, life=timedelta(seconds=60))
    namespaces.step_clock(NAMESPACE, timedelta(seconds=61))
    fill(queue, 5_000)
    seen = reads.entity(queue)
    report.line(f"{expired:,} expired at the head: what the operator sees", str(seen.expired_pending), "expired, pending")
    first, _ = timed(lambda: receive_and_complete(queue))
    while_ = rate(lambda: receive_and_complete(queue), connections_=1)
    report.line("the first receive of a fresh one", f"{first * 1e3:,.0f} ms")
    left = _left_after(queue, RECEIVING)
    report.line(
        "receives go on meanwhile", f"{while_:,.0f}/s", f"they took away {expired - left:,} within {RECEIVING:.0f} s more"
    )
    swept, _ = timed(lambda: sweeps.expire_messages(seconds_at_most=60, pause=lambda _: None))
    report.line("a sweep takes away the rest", f"{swept:.1f} s")
    after = _rate_of_fresh(queue)
    report.row("rate beside the expired ones, in times of the rate once they are gone", while_ / after, "times")
    entities.delete_queue(queue)
    empty()


def _left_after(queue: EntityAddress, seconds: float) -> int:
    """The number of expired messages left after receiving for this time, while fresh ones are sent."""
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        send_and_receive(queue)
    query = "SELECT count(*) FROM vitrine_message WHERE entity_id = %s AND subqueue = 0 AND expires_at IS NOT NULL"
    return connections.current().execute(query, [reads.entity(queue).id]).fetchone()[0]


def _rate_of_fresh(queue: EntityAddress) -> float:
    fill(queue, 20_000)
    return rate(lambda: receive_and_complete(queue), connections_=1)


def _open_snapshot(report) -> None:
    """A transaction is left open: rates of single sends and receives over time."""
    queue = a_queue()
    before = rate(lambda: _one(queue), connections_=1)
    seconds = measuring.scale.snapshot_seconds
    spans, noticed = [], None
    with psycopg.connect(**_plain_parameters()) as careless:
        careless.execute("SET idle_in_transaction_session_timeout = 0")
        careless.commit()
        careless.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        careless.execute("SELECT count(*) FROM vitrine_namespace")
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            spans.append(rate(lambda: _one(queue), connections_=1, seconds=min(SPAN, seconds / 3)))
            health = reads.health()
            if noticed is None and health.oldest_snapshot_age:
                noticed = time.monotonic() - began
        seen = f"{health.oldest_snapshot_age}, {health.oldest_snapshot_by}"
        careless.rollback()
    after = rate(lambda: _one(queue), connections_=1)
    report.row(
        f"a snapshot held open for {seconds:.0f} s: single sends and receives at its end, in times of before",
        spans[-1] / before,
        "times",
    )
    report.line("", f"{before:,.0f}/s", "then " + ", ".join(f"{span:,.0f}" for span in spans) + f"; {after:,.0f} once it ended")
    report.line(
        "what the operator sees on the health page", f"{noticed:.0f} s" if noticed else "nothing", f"after it began: {seen}"
    )
    empty()


def _plain_parameters() -> dict:
    parameters = {
        name: value for name, value in connections.Database().parameters().items() if name not in ("autocommit", "options")
    }
    return parameters | {"application_name": "careless-report"}


def _one(queue: EntityAddress) -> int:
    service_bus.send(queue, [Message(BODY)])
    (message,) = service_bus.receive(queue)
    return len(service_bus.complete(queue, [message.lock_token]).settled)
