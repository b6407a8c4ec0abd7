"""What presenters are given, without a database: queues that are not saved, a range, and rows of tables."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from broker_core.common.types import Family
from broker_core.models import Entity, Namespace
from explorer.analysis.reports.scope import Range, Scope
from explorer.analysis.reports.tables import Tables

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)  # a Sunday
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def a_scope(*paths: str, start: datetime = NOON, end: datetime = NOON + HOUR, **changes: Any) -> Scope:
    """Queues 1, 2 and so on of the namespace "shop"; all of it if there are several."""
    shop = Namespace(name="shop", family=Family.SERVICE_BUS)
    queues = [Entity(pk=i, path=path, namespace=shop, kind="queue") for i, path in enumerate(paths or ("q",), start=1)]
    return Scope(queues, shop, len(queues) > 1, Range(start, end), end, **changes)


def tables(**rows: Any) -> Tables:
    """Tables by name; "known" has a row by default."""
    known = {"since": NOON - 60 * DAY, "messages": 0, "generated": 0}
    return Tables({name: pa.Table.from_pylist(list(each)) for name, each in ({"known": [known], "before": []} | rows).items()})
