"""The job that imports a foreign history: what is accepted, what is refused and how, and the events that are written."""

from datetime import UTC, datetime, timedelta
from io import StringIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from broker_core.common.types import EventKind
from explorer.analysis.jobs import importing, message_files
from explorer.analysis.jobs.kinds import Kind
from explorer.analysis.jobs.runner import Reporter

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)
REPORTER = Reporter(StringIO(), 2)
HEAD = "enqueued_at,ended_at,outcome"


@pytest.fixture
def specification(spark, tmp_path):
    """given(lines) -> the specification of a CSV file."""

    def write(lines: list[str], **more):
        (tmp_path / "old.csv").write_text("\n".join(lines))
        return {
            "file": str(tmp_path / "old.csv"), "form": "csv", "columns": lines[0].split(","), "numbers_from": 1, "entity_id": 7,
            "namespace_id": 3, "partitions": 2, **more,
        }  # fmt: skip

    return write


@pytest.fixture
def refusal(spark, specification):
    return lambda lines, **more: importing.run(spark, specification(lines, **more), REPORTER)["refusal"]


@pytest.fixture
def imported(spark, tmp_path):
    """imported(specification) -> the events that are written, by number."""

    def run(spec):
        importing.run(spark, spec | {"output": str(tmp_path / "out")}, REPORTER)
        files = sorted((tmp_path / "out").glob("content=events/*/namespace=3/*.parquet"))
        rows = [
            row | {"file": file.parent.parent.name}
            for file in files
            for row in pq.read_table(file, partitioning=None).to_pylist()
        ]
        assert len({row["event_id"] for row in rows}) == len(rows)
        return sorted(rows, key=lambda row: (row["sequence_number"], row["event_id"]))

    return run


def row(**changes: str) -> str:
    good = {"enqueued_at": "2026-03-01T12:00:00Z", "ended_at": "2026-03-01T12:00:02Z", "outcome": "completed"} | changes
    return ",".join(good.values())


REFUSALS = [
    ([HEAD, row(), row(ended_at="yesterday")],
     "Row 2, column ended_at: 'yesterday' is not a time with its zone, such as 2026-03-01T12:00:00Z"),
    ([HEAD, row(enqueued_at="2026-03-01T12:00:00")], "Row 1, column enqueued_at: '2026-03-01T12:00:00' is not"),
    ([HEAD, row(), row(outcome="")], "Row 2, column outcome: it is empty"),
    ([HEAD, row(outcome="done")], "Row 1, column outcome: 'done' is none of completed, "),
    ([HEAD, row(), row(ended_at="2026-03-01T11:00:00Z")],
     "Row 2, column ended_at: it is before enqueued_at. Check whether the two columns are exchanged"),
    ([HEAD + ",deliveries", row(n="1.5")], "Row 1, column deliveries: '1.5' is not a whole number"),
    ([HEAD + ",size", row(n="-1")], "Row 1, column size: it is negative"),
    ([HEAD + ",time_to_live_seconds", row(n="1e15")], "Row 1, column time_to_live_seconds: it is too long"),
    ([HEAD + ",time_to_live_seconds", row(n="nan")], "Row 1, column time_to_live_seconds: 'nan' is not a number of seconds"),
    ([HEAD + ",time_to_live_seconds", row(n="1d")], "Row 1, column time_to_live_seconds: '1d' is not a number of seconds"),
    ([HEAD + ",sequence_number", row(n="2"), row(n="3"), row(n="2")],
     "Row 3, column sequence_number: row 1 has the same. Give each row another one"),
    ([HEAD + ",sequence_number", row(n="0")], "Row 1, column sequence_number: it is below 1, the queue's next number"),
    ([HEAD + ",sequence_number", row(n="5"), row(n="")], "Row 2, column sequence_number: it is empty. Number all rows"),
    ([HEAD, row(), "a,b"], "Row 2: it does not have 3 values (a,b). Put texts with commas in quotation marks"),
    ([HEAD, row(), row(n="one more"), row(outcome="done")], "Row 2: it does not have 3 values ("),
]  # fmt: skip


@pytest.mark.parametrize(("lines", "said"), REFUSALS, ids=range(len(REFUSALS)))
def test_a_refusal_names_the_row_the_column_and_the_remedy(refusal, lines, said):
    problem = refusal(lines)
    assert problem.startswith(said) and problem.endswith(".")


def test_messages_that_ended_before_the_retained_days_are_refused(refusal):
    kept = {"not_before": (NOON + SECOND).isoformat(), "too_old": "it is too old."}
    assert refusal([HEAD, row(), row(ended_at="2026-03-01T12:00:00.5Z")], **kept) == "Row 2, column ended_at: it is too old."


def test_valid_rows_are_counted(spark, specification):
    checked = importing.run(spark, specification([HEAD + ",sequence_number", row(n="9"), row(n="4"), "", row(n="7")]), REPORTER)
    assert checked == {"rows": 3, "last_number": 9, "refusal": None}
    assert importing.run(spark, specification([HEAD]), REPORTER) == {"rows": 0, "last_number": None, "refusal": None}


def test_each_row_is_imported_as_two_events(specification, imported):
    columns = "enqueued_at,first_received_at,ended_at,outcome,message_id,deliveries,time_to_live_seconds,reason,settled_by"
    rows = [
        "2026-03-01T12:00:00Z,2026-03-01T12:00:01Z,2026-03-01T12:00:02.5Z,completed,a,1,60,,alice",
        "2026-03-01T13:00:00+01:00,,2026-03-02T12:00:00Z,expired,b,,,,",
        '2026-03-01T12:00:00Z,2026-03-01T12:00:05Z,2026-03-01T12:00:06Z,dead_lettered,c,10,,"Order ""7"",\nis bad",',
    ]
    sent, completed, second, expired, third, dead = imported(specification([columns, *rows], numbers_from=5))
    assert [event["sequence_number"] for event in (completed, expired, dead)] == [5, 6, 7]
    assert all(event["kind"] == EventKind.SENT for event in (sent, second, third))
    assert (sent["at"], sent["time_to_live_us"], sent["message_id"], sent["entity_id"]) == (NOON, 60_000_000, "a", 7)
    assert (completed["kind"], completed["at"], completed["delivery_count"]) == (EventKind.COMPLETED, NOON + 2.5 * SECOND, 1)
    assert completed["last_received_at"] == completed["first_received_at"] == NOON + SECOND
    assert (completed["enqueued_at"], completed["time_to_live_us"], completed["actor"]) == (NOON, None, "alice")
    assert (second["at"], expired["kind"], expired["first_received_at"]) == (NOON, EventKind.EXPIRED, None), "12:00 in UTC"
    assert (dead["reason"], dead["kind"]) == ('Order "7",\nis bad', EventKind.DEAD_LETTERED)
    files = [event["file"] for event in (sent, completed, second, expired, third, dead)]
    assert files == ["day=2026-03-01"] * 2 + ["day=2026-03-02"] * 2 + ["day=2026-03-01"] * 2, "both in the file of the end"
    assert sent["recorded_at"] == completed["at"] and second["recorded_at"] == expired["at"]


def test_typed_parquet_columns_are_imported(spark, imported, tmp_path):
    table = pa.table({
        "enqueued_at": pa.array([NOON] * 2, pa.timestamp("ns", tz="UTC")), "ended_at": [NOON.isoformat()] * 2,
        "outcome": ["completed"] * 2, "sequence_number": pa.array([5, 9], pa.int32()), "size": [10.0, 20.0],
        "settled_by": ["alice", None], "session_id": [None, "s"], "deliveries": [0, 3],
    })  # fmt: skip
    spec = {
        "file": str(tmp_path / "old.parquet"), "form": "parquet", "columns": table.column_names, "nanoseconds": ["enqueued_at"],
        "numbers_from": 1, "entity_id": 7, "namespace_id": 3, "partitions": 1,
    }  # fmt: skip
    pq.write_table(table, tmp_path / "old.parquet")
    assert importing.run(spark, spec, REPORTER) == {"rows": 2, "last_number": 9, "refusal": None}
    sent, end, other, last = imported(spec)
    assert [event["sequence_number"] for event in (sent, end, other, last)] == [5, 5, 9, 9] and sent["at"] == end["at"] == NOON
    assert (sent["size"], sent["session_id"], end["actor"], end["delivery_count"]) == (10, None, "alice", 0)
    assert (other["size"], other["session_id"], last["actor"], last["delivery_count"]) == (20, "s", None, 3)
    wrong = table.set_column(4, "size", pa.array([1.5, 2.0])).set_column(2, "outcome", pa.array([1, 2]))
    pq.write_table(wrong, tmp_path / "old.parquet")
    assert importing.run(spark, spec, REPORTER)["refusal"].startswith("Row 1, column size: '1.5' is not a whole number")
    pq.write_table(table.set_column(0, "enqueued_at", pa.array([1, 2])), tmp_path / "old.parquet")
    assert importing.run(spark, spec | {"nanoseconds": []}, REPORTER)["refusal"].startswith(
        "Row 1, column enqueued_at: '1' is not a"
    )


def test_the_outcomes_are_the_events_that_end_a_life():
    ends = {kind for kind in EventKind if kind.is_terminal or kind is EventKind.DEAD_LETTERED} - {EventKind.ACTIVATED}
    assert {kind.name.lower(): int(kind) for kind in ends} == message_files.OUTCOMES and message_files.OUTCOMES[
        "expired"
    ] == Kind.EXPIRED
