"""Sessions of ten messages each, processed by eight receivers of the next session, against messages without sessions."""

from __future__ import annotations

import statistics

from broker_core import service_bus
from broker_core.common.errors import NoSessionAvailable
from broker_core.common.types import EntityAddress

from . import measuring
from .measuring import a_queue, empty, fill, rate

RECEIVERS = 8
EACH = 10  # messages per session


def run(report) -> None:
    measuring.make_bare_tables()
    ratios, rates = [], []
    for _ in range(max(2, measuring.scale.turns - 2)):
        by_session = _turn(_next_session, a_queue(requires_session=True), measuring.scale.sessions)
        without = _turn(_ten, a_queue(), 0)
        ratios.append(by_session / without)
        rates.append((by_session, without))
    name = f"{measuring.scale.sessions:,} sessions of {EACH}, {RECEIVERS} receivers of the next"
    report.row(f"{name}, in times of the rate without sessions", statistics.median(ratios), "times", 0.5)
    own_rate, plain_rate = (statistics.median(side) for side in zip(*rates, strict=True))
    report.line("", f"{own_rate:,.0f}/s", f"against {plain_rate:,.0f}/s")


def _turn(work, queue: EntityAddress, sessions: int) -> float:
    fill(queue, measuring.scale.sessions * EACH, sessions=sessions)
    turn_rate = rate(lambda: work(queue), connections_=RECEIVERS)
    empty()
    return turn_rate


def _next_session(queue: EntityAddress) -> int:
    try:
        session = service_bus.accept_session(queue, max_count=EACH)
    except NoSessionAvailable:
        return 0
    done = service_bus.complete(queue, [m.lock_token for m in session.messages])
    service_bus.close_session(session)
    return len(done.settled)


def _ten(queue: EntityAddress) -> int:
    return len(service_bus.complete(queue, [m.lock_token for m in service_bus.receive(queue, EACH)]).settled)
