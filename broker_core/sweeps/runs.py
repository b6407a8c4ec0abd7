"""Records when each sweep ran, how long it took and what it did."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from datetime import timedelta
from typing import Any

from broker_core.store import connections
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, use_case

RETENTION = timedelta(days=7)
EMPTY_RETENTION = timedelta(hours=1)  # runs that found nothing to do, of which there are two per second
LONGEST_ERROR = 2000


def recorded(name: str, sweep: Callable[[], Any]) -> dict[str, Any]:
    """Run a sweep and record it under `name`; returns its outcome. An exception is recorded and raised again."""
    run_id = _start(name)
    try:
        outcome = as_outcome(sweep())
    except Exception as exc:
        _finish(run_id, {}, f"{type(exc).__name__}: {exc}"[:LONGEST_ERROR])
        raise
    _finish(run_id, outcome, "")
    return outcome


def recorded_in_each_database(name: str, sweep: Callable[[], Any]) -> dict[str, Any]:
    """Run and record a sweep in each database; returns its outcome, or the outcomes by alias if there are several databases. A
    failure in one database does not keep the sweep from the others; the first is raised at the end."""
    outcomes, failures = {}, []
    for database in connections.databases():
        try:
            with connections.using(database):
                outcomes[database.alias] = recorded(name, sweep)
        except Exception as exc:
            failures.append(exc)
    if failures:
        raise failures[0]
    return outcomes if connections.are_several() else next(iter(outcomes.values()))


def as_outcome(result: Any) -> dict[str, Any]:
    """Convert the result of a sweep to JSON values: dataclasses become their fields, dates and the like become text."""
    if is_dataclass(result) and not isinstance(result, type):
        result = asdict(result)
    if not isinstance(result, Mapping):
        result = {} if result is None else {"result": result}
    return json.loads(json.dumps(result, default=str))


@use_case(namespace=WHOLE_DATABASE)
def forget_sweep_runs() -> Steps:
    """Remove old records of runs: after RETENTION, or after EMPTY_RETENTION if the run found nothing to do."""
    (row,) = yield call("forget_sweep_runs", retention=RETENTION, empty_retention=EMPTY_RETENTION)
    return {"forgotten": row.done}


@use_case(namespace=WHOLE_DATABASE)
def _start(name: str) -> Steps:
    (row,) = yield call("start_sweep_run", name=name)
    return row.id


@use_case(namespace=WHOLE_DATABASE)
def _finish(run_id: int, outcome: dict[str, Any], error: str) -> Steps[None]:
    yield call("finish_sweep_run", run_id=run_id, outcome=json.dumps(outcome), error=error.replace("\x00", ""))
