"""Scopes of unsaved queues, and tables of rows, for tests of presenters without a database."""

from datetime import timedelta
from typing import Any

import pyarrow as pa

from broker_core.common.types import Family
from broker_core.models import Entity, Namespace
from explorer.analysis.reports.scope import Range, Scope
from explorer.analysis.reports.tables import Tables

from ..factories import NOON

HOUR = timedelta(hours=1)
SPAN = Range(NOON, NOON + HOUR)


def a_scope(*paths: str, family: Family = Family.SERVICE_BUS, span: Range = SPAN, **changes: Any) -> Scope:
    """Queues 1, 2 and so on of a namespace; all of it if there are several."""
    namespace = Namespace(name="shop", family=family)
    queues = [Entity(pk=i, path=path, namespace=namespace, kind="queue") for i, path in enumerate(paths or ("q",), start=1)]
    return Scope(queues, namespace, len(queues) > 1, span, span.end, **changes)


def tables(columns: Any, **rows: Any) -> Tables:
    """Tables by name. columns: of each table, with what a row has unless it says otherwise."""
    made = {name: [dict(default) | dict(row) for row in rows.get(name, [])] for name, default in columns.items()}
    return Tables({
        name: pa.Table.from_pylist(some) if some else pa.table({column: [] for column in columns[name]})
        for name, some in made.items()
    })  # fmt: skip
