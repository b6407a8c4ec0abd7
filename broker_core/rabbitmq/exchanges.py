"""Exchanges: declared, declared again, deleted (RMQ 1.2)."""

from __future__ import annotations

from collections.abc import Sequence

from broker_core.store.driver import Steps
from broker_core.store.statements import call


def delete_idle(ids: Sequence[int]) -> Steps:
    """Of exchanges that just lost bindings, delete the auto-delete ones that have none left as source; and so on from there."""
    while ids:
        (row,) = yield call("delete_idle_exchanges", ids=list(ids))
        ids = row.sources
