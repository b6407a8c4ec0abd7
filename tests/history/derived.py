"""Lives and attempts of all archived events, by the oracle."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from broker_core.history import schema
from broker_core.models import ArchiveFile
from tests.analysis.jobs import oracle


def derived(folder: Path) -> tuple[list[dict], list[dict]]:
    """(lives, attempts) of all archived events."""
    files = ArchiveFile.objects.filter(content=ArchiveFile.EVENTS).order_by("path")
    tables = [pq.read_table(folder / file.path, partitioning=None).replace_schema_metadata(None) for file in files]
    events = pa.concat_tables([schema.EVENT.empty_table(), *tables])
    lives, attempts = oracle.lives(events, events.slice(0, 0))
    return lives.to_pylist(), attempts.to_pylist()
