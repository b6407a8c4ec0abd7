"""The job that generates a history: the files have what the generator draws, and no worker needs a part of Vitrine."""

from dataclasses import asdict, replace
from datetime import UTC, datetime
from io import StringIO

import pyarrow.parquet as pq

from explorer.analysis.jobs import generated, generation
from explorer.analysis.jobs.load import LOAD, Incident
from explorer.analysis.jobs.runner import Reporter

from .. import generated_events

REPORTER = Reporter(StringIO(), 2)
UNTIL = datetime(2026, 3, 8, tzinfo=UTC)
BUSY = replace(LOAD, work=2.0, lock=10.0, fails=0.1, outages=2.0, max_deliveries=3, incident=Incident(20_000, 4000, absence=1000))


def test_files_contain_the_events_generated_for_each_queue(spark, tmp_path):
    queues = [generated.Queue(7, "a", 1), generated.Queue(8, "b", 101, has_sessions=True)]
    spec = {
        "queues": [asdict(one) for one in queues], "loads": [asdict(BUSY), asdict(replace(BUSY, incident=None))],
        "messages": [300, 200], "days": 1.5, "until": UNTIL.isoformat(), "seed": 3, "namespace_id": 5,
        "output": str(tmp_path / "out"), "partitions": 2,
    }  # fmt: skip
    truths = generation.run(spark, spec, REPORTER)["truths"]
    files = sorted((tmp_path / "out").glob("content=events/day=*/namespace=5/*.parquet"))
    rows = [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]
    expected, drawn = [], {}
    for place, (queue, load, many) in enumerate(zip(queues, (BUSY, replace(BUSY, incident=None)), (300, 200), strict=True)):
        played = generated.played(queue, place, many, 1.5, UNTIL, load, 3)
        drawn[queue.entity_id] = played.truth
        for table in generated.Events([queue], [played], archived=True, first_id=place * generation.IDS + 1).by_time():
            expected += table.to_pylist()
    assert [(truth["path"], truth["messages"], truth["expired"]) for truth in truths] == [
        (truth.path, truth.messages, truth.expired) for truth in drawn.values()
    ]
    key = lambda row: row["event_id"]  # noqa: E731
    names = generated.EVENT.names
    assert [{name: row[name] for name in names} for row in sorted(rows, key=key)] == sorted(expected, key=key)
    assert all(file.parent.parent.name == f"day={row['recorded_at']:%Y-%m-%d}" for file in files for row in
               pq.read_table(file, partitioning=None).to_pylist())  # fmt: skip
    generated_events.check(rows, drawn)
