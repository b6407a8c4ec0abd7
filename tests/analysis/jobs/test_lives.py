"""The job "lives" against the oracle: random histories, derived in increments, give the same lives and attempts."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from broker_core.common.types import EventKind
from broker_core.history import ordering
from explorer.analysis.jobs import kinds, lives, runner, schemas

from . import oracle
from .random_events import random_events

INCREMENTS = 3


class Silent(runner.Reporter):
    def __init__(self) -> None:
        super().__init__(StringIO(), 2)


def archived(events: pa.Table, path: Path) -> str:
    """A file of events as the archiver writes it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    by_message = [(name, "ascending") for name in ("entity_id", "sequence_number", "event_id")]
    pq.write_table(ordering.in_order(events.sort_by(by_message)), path)
    return str(path)


def read(folder: Path, content: str) -> list[dict]:
    files = sorted(folder.glob(f"content={content}/**/*.parquet"))
    return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]


def in_increments(spark, events: pa.Table, folder: Path) -> list[dict]:
    """The rows of lives of events that are derived a part after the other. A transaction is in one part."""
    found, carried, begin = [], [], 0
    for number in range(INCREMENTS):
        end = events.num_rows * (number + 1) // INCREMENTS
        while end < events.num_rows and events["xid"][end] == events["xid"][end - 1]:
            end += 1
        part, output = events.slice(begin, end - begin), folder / f"out{number}"
        file = archived(part, folder / f"events/day=2026-03-01/namespace=1/slice-{number}.parquet")
        spec = {"events": [file], "open": carried, "output": str(output), "partitions": 2, "today": "2026-03-02"}
        lives.run(spark, spec, Silent())
        found += read(output, "lives")
        carried, begin = [str(path) for path in sorted(output.glob("content=open/**/*.parquet"))], end
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", [7])
def test_lives_of_random_histories_agree_with_the_oracle(spark, tmp_path, seed):
    events = random_events(seed, 1200)
    rows = in_increments(spark, events, tmp_path)
    ended, attempts = oracle.lives(events, events.slice(0, 0))
    names = schemas.ATTEMPT_NAMES

    def key(row: dict) -> tuple:
        return (
            row["entity_id"],
            row["sequence_number"],
            row["subqueue"],
            row["ended_at"],
            row["outcome"],
            repr(row.get("received_at")),
        )

    mine = {key(row): {name: row[name] for name in oracle.LIFE} for row in rows if row["outcome"] is not None}
    theirs = {key(row): row for row in ended.to_pylist()}
    # An undo after an increment gives the message another life; within one, it goes on.
    undone = {k for k in mine.keys() - theirs.keys() if k[4] in (EventKind.PURGED, EventKind.RESUBMITTED)}
    again = {(row["entity_id"], row["sequence_number"]) for row in events.to_pylist() if row["kind"] == EventKind.RESTORED}
    assert {k[:2] for k in undone} <= again
    twice = {k[:2] for k in undone}
    assert {k: row for k, row in mine.items() if k[:2] not in twice} == {k: v for k, v in theirs.items() if k[:2] not in twice}

    tried = [
        {name: row[names.get(name, name)] for name in schemas.ATTEMPT.names} for row in rows if row["attempt_outcome"] is not None
    ]
    assert sorted(
        (tuple(row[name] for name in oracle.ATTEMPT) for row in tried if key(row)[:2] not in twice), key=repr
    ) == sorted(
        (tuple(row[name] for name in oracle.ATTEMPT) for row in attempts.to_pylist() if key(row)[:2] not in twice), key=repr
    )
    lost = sum(row["kind"] == EventKind.LOCK_LOST for row in events.to_pylist())
    assert sum(row["outcome"] == EventKind.LOCK_LOST for row in tried) == lost, "each lost lock ends one delivery"


def test_event_kinds_agree_with_the_broker():
    named = {name: value for name, value in vars(kinds.Kind).items() if name.isupper()}
    assert named == {kind.name: int(kind) for kind in EventKind}
    assert set(kinds.TERMINAL) == {int(kind) for kind in EventKind if kind.is_terminal}
