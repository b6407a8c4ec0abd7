"""Follows the event table: reads the events of some entities since the previous read.

New events are found by comparing snapshots. Event numbers are assigned before the commit, so following them would miss late
commits, and the archive's horizon stalls behind any open writer (docs/design.md D8).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from broker_core.common.types import EventKind
from broker_core.reads.flows import Flow, flow_of
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, use_case

MAX_EVENTS = 5_000


@dataclass(frozen=True, slots=True)
class NewEvents:
    """The events that became visible since the previous read.

    latest:   the kind of the last event, by entity and sequence number.
    overflow: there were more events than the cap: `latest` is incomplete, so any watched entity may have changed.
    clocks_moved: a namespace's clock was paused, stepped or resumed.
    flows:    how many messages went which way, if it was asked for.
    """

    latest: dict[int, dict[int, EventKind]] = field(default_factory=dict)
    overflow: bool = False
    clocks_moved: bool = False
    flows: dict[Flow, int] = field(default_factory=dict)


class Follower:
    """A reader's position in the event table of one database. Not thread-safe."""

    def __init__(self) -> None:
        self._snapshot: str | None = None
        self._clocks: str | None = None

    def begin(self) -> str:
        """Set the position to now unless there is one; later reads return all events from there on. A state that is read after
        this call therefore misses none. Returns the position."""
        if self._snapshot is None:
            start = _start()
            self._snapshot, self._clocks = start.snapshot, start.clocks
        return self._snapshot

    def read(self, entity_ids: Iterable[int], max_events: int = MAX_EVENTS, *, with_flows: bool = False) -> NewEvents:
        """The events of these entities since the last read, or since `begin`.

        Raises BrokerUnavailable if the database does not respond; the position is kept, so the next read misses nothing.
        """
        rows = _new_events(self.begin(), list(entity_ids), max_events, with_flows)
        clocks_moved = rows[0].clocks != self._clocks
        self._snapshot, self._clocks = rows[0].snapshot, rows[0].clocks
        latest: dict[int, dict[int, EventKind]] = {}
        flows: dict[Flow, int] = {}
        for row in rows:
            if row.entity_id is not None:
                latest.setdefault(row.entity_id, {})[row.sequence_number] = EventKind(row.kind)
            elif row.way is not None:
                flows[flow_of(row)] = row.messages
        return NewEvents(latest, rows[0].events >= max_events, clocks_moved, flows)

    def forget(self) -> None:
        """Drop the position; the next read begins at its own time."""
        self._snapshot = None


@use_case(namespace=WHOLE_DATABASE)
def _start() -> Steps:
    rows = yield call("feed_start")
    return rows[0]


@use_case(namespace=WHOLE_DATABASE)
def _new_events(previous: str, watched: list[int], max_events: int, with_flows: bool) -> Steps[list[Any]]:
    return (yield call("feed", previous=previous, watched=watched, max_events=max_events, with_flows=with_flows))
