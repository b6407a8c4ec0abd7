"""Who received from what: deliveries by queue, hour and client, derived from attempts when these are archived.

Counts of several files add up. A page reads these few rows where it would otherwise read all attempts.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from broker_core.models import ArchiveFile

from . import schema, storage

KEYS = ["entity_id", "subqueue", "hour", "client", "outcome"]
_HOUR = schema.CLIENT.field("hour").type
_SUMS = {"deliveries": "sum", "held_us": "sum", "first_at": "min", "last_at": "max", "generated": "sum"}


def of_attempts(attempts: pa.Table) -> pa.Table:
    """The rows of schema.CLIENT for these attempts; by `day` too, if they have it."""
    held = pc.subtract(pc.cast(attempts["ended_at"], pa.int64()), pc.cast(attempts["received_at"], pa.int64()))
    one = pa.repeat(pa.scalar(1, pa.int64()), attempts.num_rows)
    columns = {
        "entity_id": attempts["entity_id"],
        "subqueue": attempts["subqueue"],
        "hour": pc.cast(pc.floor_temporal(attempts["received_at"], unit="hour"), _HOUR),
        "client": attempts["received_by"],
        "outcome": attempts["outcome"],
        "deliveries": one,
        "held_us": pc.max_element_wise(held, 0),  # a clock may have been set back
        "first_at": attempts["received_at"],
        "last_at": attempts["ended_at"],
        "generated": pc.cast(attempts["generated"], pa.int64()),
    }
    day = {"day": attempts["day"]} if "day" in attempts.column_names else {}
    return _summed(pa.table(columns | day), [*KEYS, *day])


def read(entity_ids: Sequence[int], start: datetime, end: datetime) -> pa.Table:
    """The rows of these entities whose deliveries began in the hours that a range touches, and are archived."""
    files = ArchiveFile.objects.filter(content=ArchiveFile.CLIENTS, last_at__gte=start)
    first = pa.scalar(start.replace(minute=0, second=0, microsecond=0), _HOUR)
    wanted = pc.field("entity_id").isin(list(entity_ids)) & (pc.field("hour") >= first)
    wanted &= pc.field("hour") < pa.scalar(end, _HOUR)
    here, found = storage.archive_here(), [schema.CLIENT.empty_table()]
    for file in files.order_by("path"):
        with here.open(file.path) as opened:
            found.append(schema.conform(pq.read_table(opened, filters=wanted), schema.CLIENT))
    return schema.conform(_summed(pa.concat_tables(found), KEYS), schema.CLIENT)


def _summed(rows: pa.Table, keys: list[str]) -> pa.Table:
    total = rows.group_by(keys).aggregate(list(_SUMS.items()))
    names = {f"{name}_{how}": name for name, how in _SUMS.items()}
    total = total.rename_columns([names.get(name, name) for name in total.column_names])
    return total.sort_by([(name, "ascending") for name in keys])
