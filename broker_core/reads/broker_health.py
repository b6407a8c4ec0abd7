"""The health of the broker: sweep runs and the database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from broker_core.common.types import Actor, Right
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, use_case

from .shared import PAGE_ROWS, require


@dataclass(frozen=True, slots=True)
class SweepRun:
    """A run of a sweep. finished_at None: still running, or its worker died. outcome: counts by names of the sweep's own."""

    id: int
    name: str
    started_at: datetime
    finished_at: datetime | None
    outcome: Mapping
    error: str | None

    @property
    def duration(self) -> timedelta | None:
        return None if self.finished_at is None else self.finished_at - self.started_at


@dataclass(frozen=True, slots=True)
class Health:
    """Figures that slow down all operations as they grow, above all old snapshots (docs/design.md D4).

    oldest_snapshot_age: the age of the oldest transaction with a snapshot; None: there is none.
    oldest_snapshot_by:  its application name, user, state and process id.
    horizon_age:         transactions since the oldest one that may still be running; vacuum and archive wait for it.
    database_bytes, message_bytes, event_bytes, kept_bytes: on disk, including indexes. kept: messages that ended.
    ledger_waiting:      count differences not yet rolled up. connections: open connections to this database.
    buffer_bytes:        the server's shared buffers; a backlog beyond them is read from the disk, or the system's cache.
    """

    read_at: datetime
    oldest_snapshot_age: timedelta | None
    oldest_snapshot_by: str | None
    horizon_age: int
    database_bytes: int
    message_bytes: int
    event_bytes: int
    kept_bytes: int
    ledger_waiting: int
    connections: int
    buffer_bytes: int


@use_case(namespace=WHOLE_DATABASE)
def sweep_runs(name: str | None = None, limit: int = PAGE_ROWS, *, actor: Actor | None = None) -> Steps[list[SweepRun]]:
    """The latest runs of one sweep or of all, newest first."""
    require(actor, Right.BROWSE, "sweeps")
    rows = yield call("read_sweep_runs", name=name, max_count=limit)
    return [_sweep_run(row) for row in rows]


@use_case(namespace=WHOLE_DATABASE)
def last_sweep_runs(*, actor: Actor | None = None) -> Steps[dict[str, SweepRun]]:
    """The latest run of each sweep, by name."""
    require(actor, Right.BROWSE, "sweeps")
    rows = yield call("read_last_sweep_runs")
    return {row.name: _sweep_run(row) for row in rows}


@use_case(namespace=WHOLE_DATABASE)
def health(*, actor: Actor | None = None) -> Steps[Health]:
    """The current health of the database."""
    require(actor, Right.BROWSE, "health")
    [row] = yield call("read_health")
    return Health(**row._asdict())


def _sweep_run(row: Any) -> SweepRun:
    return SweepRun(row.id, row.name, row.started_at, row.finished_at, row.outcome or {}, row.error or None)
