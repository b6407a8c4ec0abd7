"""What it costs to keep the messages that end (docs/design.md D20): a namespace that keeps them against one that does not."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from uuid import uuid4

from broker_core import namespaces, service_bus
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import connections

from . import measuring
from .measuring import BODY, empty, fill, rate, receive_and_complete, send_and_receive, timed

CALLS = {1: 3_000, 32: 600}
NAMESPACES = {"kept": "bench-kept", "not kept": "bench-not-kept"}


def run(report) -> None:
    measuring.make_bare_tables()
    for name in NAMESPACES.values():
        namespaces.ensure_namespace(name, Family.SERVICE_BUS)
    namespaces.update_namespace(NAMESPACES["kept"], keep_messages_for=timedelta(hours=1))
    _empty()
    for count in CALLS:
        _one_connection(report, count)
    _two_connections(report, "send, receive and complete 32", send_and_receive, 0)
    _two_connections(report, "receive and complete 32 of a backlog", receive_and_complete, 60_000)


def _queue(name: str) -> EntityAddress:
    address = EntityAddress(NAMESPACES[name], f"q-{uuid4().hex[:8]}")
    entities.create_queue(address, max_size_in_megabytes=81_920)
    return address


def _one_connection(report, count: int) -> None:
    """Calls in turns, so that other load affects both alike."""
    queues = {name: _queue(name) for name in NAMESPACES}
    times: dict[str, dict[str, list[float]]] = {name: {"all": [], "complete": []} for name in NAMESPACES}
    for _ in range(CALLS[count]):
        for name, queue in queues.items():
            before, messages = timed(partial(_sent_and_received, queue, count))
            completing, _ = timed(lambda queue=queue, messages=messages: service_bus.complete(queue, messages))
            times[name]["all"].append(before + completing)
            times[name]["complete"].append(completing)
    for what, words, target in (("all", "send, receive and complete", 1.03), ("complete", "of these, complete", None)):
        ratio = statistics.median(times["kept"][what]) / statistics.median(times["not kept"][what])
        name = f"messages kept, {count} at a time, one connection: {words}"
        report.row(name, ratio, "times", target, at_most=True)
    _empty()


def _empty() -> None:
    """Remove what is kept, too: where it has taken its space (VITRINE_KEPT_MB), nothing more is kept."""
    empty()
    connections.current().execute("TRUNCATE vitrine_kept_message")


def _sent_and_received(queue: EntityAddress, count: int) -> list:
    service_bus.send(queue, [Message(BODY)] * count)
    return [message.lock_token for message in service_bus.receive(queue, count)]


def _two_connections(report, words: str, work: Callable[[EntityAddress], int], backlog: int) -> None:
    queues = {name: _queue(name) for name in NAMESPACES}
    ratios = []
    for turn in range(measuring.scale.turns * 3):
        rates = {}
        for name in sorted(queues, reverse=turn % 2 == 1):
            fill(queues[name], backlog)
            rates[name] = rate(partial(work, queues[name]), connections_=2)
        _empty()
        ratios.append(rates["not kept"] / rates["kept"])
    report.row(f"messages kept, two connections: {words}", statistics.median(ratios), "times", 1.03, at_most=True)
    report.line("", f"{min(ratios):.3g} to {max(ratios):.3g}", f"in {len(ratios)} pairs")
