"""Notices that other processes send to the same entity, and then lets the senders wait less for each other.

A send holds the entity's counter until its commit, flush included (docs/design.md D3). Where senders meet, a send is committed
first and flushed afterwards, when the next one already has the counter; it is acknowledged after the flush (`Contended`). For a
sender that is alone this would only be an additional statement.
"""

from __future__ import annotations

import os

from broker_core.store import connections
from broker_core.store.driver import Contended, Steps
from broker_core.store.statements import Statement

from .caches import BoundedCache

STAYS = 50  # sends that are made as if contended after others were noticed
FEW = 20  # messages; larger batches gain nothing by queueing before the counter


class _Counter:
    """What this process knows of an entity's numbers. expected: the next one if no other process sends."""

    __slots__ = ("expected", "in_flight", "left")

    def __init__(self) -> None:
        self.expected: int | None = None
        self.in_flight = self.left = 0


_counters = BoundedCache(10_000)  # (database, entity) -> _Counter
os.register_at_fork(after_in_child=_counters.clear)


def send_in_turn(entity_id: int, statement: Statement, count: int) -> Steps[list]:
    """Run a statement that stores `count` messages. Its row, if there is one, has the `first` number."""
    key = connections.current_database(), entity_id
    counter: _Counter = _counters.get(key) or _counters.keep(key, _Counter())
    is_contended = counter.left > 0 or counter.in_flight > 0
    counter.in_flight += 1
    try:
        rows = yield Contended(statement, entity_id if count < FEW else None) if is_contended else statement
    finally:
        counter.in_flight -= 1
    if rows:
        first = rows[0].first
        counter.left = STAYS if counter.expected not in (None, first) else max(counter.left - 1, 0)
        counter.expected = first + count
    return rows
