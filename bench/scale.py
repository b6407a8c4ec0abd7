"""What one server carries: the rates of 1 to 16 client processes, to one queue and to a queue each, against bare inserts by
as many processes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker_core import service_bus
from broker_core.common.types import EntityAddress
from broker_core.service_bus.rules.values import Message

from . import measuring
from .measuring import BODY, INSERT_BARE, a_queue, bare, empty, fill, in_processes, receive_and_complete, send, worked

CLIENTS = (1, 2, 4, 8, 16)
BACKLOG = 80_000  # more than is received in a turn


@dataclass(frozen=True)
class _Work:
    """Work on a queue, and the size of the bare inserts that it is compared with."""

    name: str
    on: Callable[[EntityAddress], int]
    bodies: int
    backlog: int = 0


WORKS = (
    _Work("send 100", send, 100),
    _Work("receive 32 + complete", receive_and_complete, 32, BACKLOG),
    _Work("send 1", lambda queue: len(service_bus.send(queue, [Message(BODY)])), 1),
)


def run(report) -> None:
    measuring.make_bare_tables()
    for work in WORKS:
        plain = bare(INSERT_BARE, (BODY,) * work.bodies)
        for clients in CLIENTS:
            _compare(report, f"{work.name}, one queue, processes: {clients}", work, plain, [a_queue()] * clients)
        for clients in CLIENTS[1:]:
            own = [a_queue() for _ in range(clients)]
            _compare(report, f"{work.name}, a queue each, processes: {clients}", work, plain, own)


def _compare(report, name: str, work: _Work, plain: Callable[[], int], queues: Sequence[EntityAddress]) -> None:
    """The ratio of the rates, in turns, and their medians."""
    pairs = []
    for _ in range(measuring.scale.turns):
        for queue in set(queues) if work.backlog else ():
            fill(queue, work.backlog // len(set(queues)))
        ours = _rate([lambda queue=queue: work.on(queue) for queue in queues])
        pairs.append((ours, _rate([plain] * len(queues))))
        empty()
    report.row(name, statistics.median(ours / bare_ for ours, bare_ in pairs), "times")
    ours, plain_rate = (statistics.median(side) for side in zip(*pairs, strict=True))
    report.line("", f"{ours:,.0f}/s", f"against {plain_rate:,.0f}/s")


def _rate(works: Sequence[Callable[[], int]]) -> float:
    """Messages per second of processes that each do one of these works."""
    rates = in_processes([lambda work=work: worked(work, measuring.scale.seconds) for work in works])
    return sum(rates)
