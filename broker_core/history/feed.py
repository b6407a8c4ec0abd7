"""Follows the event table: what happened to some entities since one last asked.

By difference of snapshots, not by number or time: a number is given before its transaction commits, so whoever follows numbers
misses late commits; and the horizon that the archive waits for stalls behind any open writer (docs/design.md D8).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from broker_core.common.types import EventKind
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

MAX_EVENTS = 5_000


@dataclass(frozen=True, slots=True)
class News:
    """What became visible since the previous look.

    latest:   by entity, by sequence number: the last thing that happened to that message.
    overflow: there was more than the cap: `latest` is not all, so any watched entity may have changed.
    clocks_moved: a namespace's clock was paused, stepped or resumed.
    """

    latest: dict[int, dict[int, EventKind]] = field(default_factory=dict)
    overflow: bool = False
    clocks_moved: bool = False


class Follower:
    """One reader's place in the event table. Not for use by two threads at once."""

    def __init__(self) -> None:
        self._snapshot: str | None = None
        self._clocks: str | None = None

    def begin(self) -> str:
        """Take a place, unless there is one: what happens from now on will be told. Who reads a state afterwards misses
        nothing. Returns the place."""
        if self._snapshot is None:
            begun = _start()
            self._snapshot, self._clocks = begun.snapshot, begun.clocks
        return self._snapshot

    def look(self, entity_ids: Iterable[int], max_events: int = MAX_EVENTS) -> News:
        """What happened to these entities since the last look, or since `begin`.

        Raises BrokerUnavailable when the database does not answer; the place is kept, so the next look misses nothing.
        """
        rows = _news(self.begin(), list(entity_ids), max_events)
        clocks_moved = rows[0].clocks != self._clocks
        self._snapshot, self._clocks = rows[0].snapshot, rows[0].clocks
        latest: dict[int, dict[int, EventKind]] = {}
        for row in rows:
            if row.entity_id is not None:
                latest.setdefault(row.entity_id, {})[row.sequence_number] = EventKind(row.kind)
        return News(latest, rows[0].events >= max_events, clocks_moved)

    def forget(self) -> None:
        """Begin anew at the next look."""
        self._snapshot = None


@use_case
def _start() -> Steps:
    rows = yield call("feed_start")
    return rows[0]


@use_case
def _news(previous: str, watched: list[int], max_events: int) -> Steps[list[Any]]:
    return (yield call("feed", previous=previous, watched=watched, max_events=max_events))
