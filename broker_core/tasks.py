"""The sweeps as Celery tasks, `broker_core.<name>`, which run in every database that holds namespaces. The site decides how often
each runs; late or repeated runs do no harm."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from celery import shared_task

from broker_core.sweeps.registry import SWEEPS

from .sweeps import runs


def sweep_task(sweep: Callable[[], Any]) -> Any:
    """A task `broker_core.<name>` that runs the sweep and records the runs."""

    @wraps(sweep)
    def run() -> dict[str, Any]:
        return runs.recorded_in_each_database(sweep.__name__, sweep)

    return shared_task(name=f"broker_core.{sweep.__name__}", ignore_result=True)(run)


globals().update({sweep.name: sweep_task(sweep.run) for sweep in SWEEPS})
