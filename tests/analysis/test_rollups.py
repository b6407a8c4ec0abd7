"""Roll-ups: the bins, the job against the definitions of the pages, the manifest, and the tail that is not rolled up yet."""

import random
from datetime import UTC, date, datetime, timedelta
from io import StringIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import IntegrityError

from broker_core.history import archive, compaction, schema, verification
from broker_core.models import ArchiveEpoch, ArchiveFile, ArchiveRollup, ArchiveSlice, Namespace
from explorer.analysis import messages, rollups, tasks
from explorer.analysis.jobs import measures, outcomes
from explorer.analysis.running import submission
from explorer.models import AnalysisRun
from tests.history.conftest import archive_folder, postgres  # noqa: F401 - fixtures

from .conftest import NOON, a_life

SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
VALUES = [*range(200), *(2**i + d for i in range(6, 53) for d in (-1, 0, 1)), 86_400_000_000, 10**15, 2**62, 2**63 - 1]


def test_bins_cover_all_numbers_in_order_without_gaps():
    numbers = [measures.bin_of(value) for value in range(5000)]
    assert numbers == sorted(numbers) and set(numbers) == set(range(numbers[-1] + 1))
    for value in VALUES:
        number = measures.bin_of(value)
        assert measures.lower_bound(number) <= value < measures.lower_bound(number + 1)
        assert abs(measures.middle(number) - value) <= value / 64


@pytest.mark.parametrize("off", [0, 1])
def test_a_number_with_seven_significant_bits_has_the_same_bin(off):
    """As history_present cuts them; its logarithm may be off by one just below a power of two."""
    for value in VALUES:
        places = max(0, value.bit_length() - 1 - 6 + off)
        assert measures.bin_of(value >> places << places) == measures.bin_of(value)


def test_columns_are_those_of_the_archive():
    assert list(measures.COLUMNS) == schema.ROLLUP.names


def test_every_implementation_has_the_same_bins(spark):
    from explorer.analysis.jobs import roll_up

    expected = [measures.bin_of(value) for value in VALUES]
    assert rollups.bins_of(pa.chunked_array([VALUES], pa.int64())).to_pylist() == expected
    frame = spark.createDataFrame([(i, value) for i, value in enumerate(VALUES)], "i int, value long")
    assert [row.bin for row in frame.select("i", roll_up.bin_of(frame.value).alias("bin")).orderBy("i").collect()] == expected
    assert rollups.bins_of(pa.chunked_array([[None]], pa.int64())).to_pylist() == [None]


def an_attempt(**changes) -> dict:
    return dict.fromkeys(schema.ATTEMPT.names) | {
        "entity_id": 1, "subqueue": 0, "sequence_number": 1, "outcome": 6, "received_at": NOON, "ended_at": NOON + SECOND,
        "xid": 1, "generated": False,
    } | changes  # fmt: skip


def some_lives(count: int, seed: int = 1) -> list[dict]:
    """Lives of all outcomes, received or not, over three hours, with some odd ones."""
    draw = random.Random(seed)
    found = []
    for number in range(count):
        enqueued = NOON + draw.random() * 3 * HOUR
        received = draw.choice([None, enqueued + draw.expovariate(1) * SECOND, enqueued - SECOND])
        reason = draw.choice([None, "Bad 7", *outcomes.BROKER_REASONS])
        found.append(
            a_life(
                entity_id=draw.choice([1, 2]), sequence_number=number, subqueue=draw.choice([0, 0, 1]), enqueued_at=enqueued,
                outcome=draw.choice([*outcomes.COLUMNS.values(), outcomes.CANCELLED, 20]), reason=reason, error=reason,
                first_received_at=received, last_received_at=received, generated=draw.random() < 0.1,
                ended_at=(received or enqueued) + draw.random() * HOUR,
                time_to_live_in_force_us=draw.choice([None, 5_000_000, 2**63 - 1]),
            )
        )  # fmt: skip
    return [*found, a_life(sequence_number=count) | {"enqueued_at": None}]


def some_attempts(count: int) -> list[dict]:
    draw = random.Random(2)
    locks = [None, NOON, NOON + 30 * SECOND]
    return [
        an_attempt(
            sequence_number=i, outcome=draw.choice([6, 7, 12]), ended_at=NOON + draw.random() * HOUR,
            error=draw.choice([None, "e"]), locked_until=draw.choice(locks),
        )
        for i in range(count)
    ]  # fmt: skip


def tables(lives=(), attempts=()):
    return pa.Table.from_pylist(list(lives), schema=schema.LIFE), pa.Table.from_pylist(list(attempts), schema=schema.ATTEMPT)


def test_the_job_equals_the_pages_definitions_cell_by_cell(spark, tmp_path):
    """One file is compacted: its rows of slice 9 are in another roll-up already."""
    from explorer.analysis.jobs import roll_up

    lives, attempts = tables(some_lives(400), some_attempts(60))
    files = {}
    for content, table in (("lives", lives), ("attempts", attempts)):
        folder = tmp_path / content / "day=2026-03-01" / "namespace=3"
        folder.mkdir(parents=True)
        files[content] = [str(folder / f"slice-{part}.parquet") for part in range(2)]
        half = table.num_rows // 2
        pq.write_table(table.slice(0, half), files[content][0])
        compacted = pa.concat_tables([table.slice(half), table.slice(0, 5)])
        slices = pa.array([8] * (compacted.num_rows - 5) + [9] * 5)
        pq.write_table(compacted.append_column(schema.SLICE, slices), files[content][1])
    spec = {
        "archive": str(tmp_path),
        "days": [
            {"day": "2026-03-01", "namespace_id": 3, "covered": [9]},
            {"day": "2026-03-02", "namespace_id": 3, "covered": [8]},
            {"day": "2026-03-03", "namespace_id": 3, "covered": []},
        ],
    }
    roll_up.rolled_up(spark, spec | files).write.parquet(str(tmp_path / "rows"))
    written = pq.read_table(tmp_path / "rows")
    by_spark = rollups.in_order(schema.conform(written, schema.ROLLUP)).to_pylist()
    by_arrow = rollups.summed(pa.concat_tables([rollups.of_lives(lives), rollups.of_attempts(attempts)])).to_pylist()
    assert by_spark == by_arrow
    assert set(written["namespace"].to_pylist()) == {3} and set(written["day"].to_pylist()) == {"2026-03-01"}
    lives_counted = sum(row["messages"] for row in by_arrow if row["measure"] == measures.LIFE)
    assert lives_counted == sum(1 for life in some_lives(400) if life["enqueued_at"] and life["outcome"] != outcomes.CANCELLED)


def test_a_life_is_counted_with_its_times_and_causes():
    life = a_life(outcome=outcomes.DEAD_LETTERED, error="Order #", reason="Order 1", time_to_live_in_force_us=100)
    never = a_life(outcome=outcomes.EXPIRED, first_received_at=None, last_received_at=None, reason="x", error="x")
    rows = rollups.of_lives(tables([life, never])[0]).to_pylist()
    found = {(row["measure"], row["cause"]): (row["bin"], row["time_to_live_bin"]) for row in rows}
    second = measures.bin_of(1_000_000)
    assert found == {
        (measures.LIFE, "Order #"): (0, measures.bin_of(100)),
        (measures.WAITING, "Order #"): (second, measures.bin_of(100)),
        (measures.PROCESSING, "Order #"): (measures.bin_of(2_000_000), measures.bin_of(100)),
        (measures.LIFE, None): (0, None),
        (measures.NEVER_RECEIVED, None): (measures.bin_of(3_000_000), None),
    }


def test_a_message_that_was_removed_after_its_time_to_live_could_be_received_only_until_then():
    late = a_life(outcome=outcomes.EXPIRED, first_received_at=None, last_received_at=None, time_to_live_in_force_us=500_000)
    rows = rollups.of_lives(tables([late])[0]).to_pylist()
    assert [row["bin"] for row in rows if row["measure"] == measures.NEVER_RECEIVED] == [measures.bin_of(500_000)]


def test_the_use_of_a_lock_is_in_thousandths():
    rows = rollups.of_attempts(tables(attempts=[an_attempt(locked_until=NOON + 4 * SECOND), an_attempt()])[1]).to_pylist()
    assert {(r["measure"], r["bin"], r["messages"]) for r in rows} == {
        (measures.HELD, measures.bin_of(1_000_000), 2), (measures.LOCK_USE, measures.bin_of(250), 1)
    }  # fmt: skip


@pytest.fixture
def archived(archive_folder, transactional_db):  # noqa: F811
    """Write a slice of lives to the archive: its day, and the lives."""
    namespace = Namespace.objects.create(name="demo")
    epoch = ArchiveEpoch.objects.create(system_identifier=1, from_xid=1, began_at=NOON)

    def write(day: date, lives: list[dict]) -> ArchiveFile:
        last = ArchiveSlice.objects.count()
        one = ArchiveSlice.objects.create(
            epoch=epoch, from_xid=last + 1, to_xid=last + 2, state="done", opened_at=NOON, done_at=NOON
        )
        path, table = f"lives/day={day}/namespace={namespace.pk}/slice-{one.pk}.parquet", tables(lives)[0]
        stored = archive.storage.archive_here().write(table.cast(schema.with_metadata(schema.LIFE)), path)
        enqueued = [life["enqueued_at"] for life in lives if life["enqueued_at"]]
        return ArchiveFile.objects.create(
            slice=one, content="lives", day=day, namespace_id=namespace.pk, path=path, rows=len(lives), bytes=stored.bytes,
            schema_version=schema.VERSION, checksum=stored.checksum, first_at=min(enqueued), last_at=max(enqueued),
        )  # fmt: skip

    write.namespace = namespace
    yield write
    for model in (ArchiveRollup, ArchiveFile, ArchiveSlice, ArchiveEpoch):
        model.objects.all().delete()


def rolled(days: list[rollups.Day]) -> pa.Table:
    """What the job would return for these days, by the pages' definitions."""
    here, parts = archive.storage.archive_here(), []
    for day in days:
        read = [pq.read_table(here.open(file.path)) for file in day.lives]
        read = [table.filter(~pc.field("slice_id").isin(list(day.covered))) if day.covered else table for table in read]
        lives = pa.concat_tables([schema.conform(table, schema.LIFE) for table in read])
        rows = rollups.of_lives(lives)
        rows = rows.append_column("day", pa.array([day.day.isoformat()] * rows.num_rows))
        parts.append(rows.append_column("namespace", pa.array([day.namespace_id] * rows.num_rows)))
    return pa.concat_tables(parts)


def read(archived, start=NOON, end=NOON + 9 * HOUR):
    return rollups.summed(rollups.read([1, 2], [archived.namespace.pk], start, end))


def test_what_is_read_is_the_same_before_and_after_a_roll_up_and_with_a_tail(archived):
    first, second, third = some_lives(40, 1), some_lives(40, 2), some_lives(40, 3)
    archived(NOON.date(), first)
    archived(NOON.date(), second)
    before = read(archived)
    rollups.store(days := rollups.uncovered(), rolled(days))
    assert read(archived).equals(before) and rollups.uncovered() == []
    archived(NOON.date(), third)  # late, of the same day
    whole = read(archived)
    assert whole.equals(rollups.summed(rollups.of_lives(tables([*first, *second, *third])[0])))
    rollups.store(days := rollups.uncovered(), rolled(days))
    assert len(days[0].slice_ids) == 1, "what is rolled up is not read again"
    assert read(archived).equals(whole) and ArchiveRollup.objects.count() == 2
    assert list(verification.damages(verification.finished_files(), deep=True)) == []


def test_a_roll_up_repeated_is_equal_byte_by_byte(archived):
    archived(NOON.date(), some_lives(40))
    days = rollups.uncovered()
    rows = rolled(days)
    rollups.store(days, rows)
    first = ArchiveRollup.objects.get()
    first.delete()
    rollups.store(days, rows.take(list(reversed(range(rows.num_rows)))))  # Spark promises no order
    assert ArchiveRollup.objects.get().checksum == first.checksum


def test_a_slice_is_counted_by_one_roll_up_only(archived):
    archived(NOON.date(), some_lives(5))
    days = rollups.uncovered()
    rollups.store(days, rolled(days))
    archived(NOON.date(), some_lives(5, 2))
    days[0].slice_ids |= rollups.uncovered()[0].slice_ids
    with pytest.raises(IntegrityError):
        rollups.store(days, rolled(days))
    assert ArchiveRollup.objects.count() == 1


def test_compacted_files_give_the_same_and_are_counted_once(archived):
    """One slice is rolled up before its day is compacted; of the compacted file, only the others are still to be counted."""

    def found() -> list[str]:
        return sorted(map(str, messages.find([1], NOON, NOON + 9 * HOUR).rows))

    archived(NOON.date(), some_lives(40, 1))
    rollups.store(days := rollups.uncovered(), rolled(days))
    for seed in range(2, 30):
        archived(NOON.date(), some_lives(2, seed))
    whole, listed = read(archived), found()
    assert compaction.compact_archive().into == 1
    assert read(archived).equals(whole) and found() == listed
    [day] = rollups.uncovered()
    assert (len(day.slice_ids), len(day.covered)) == (28, 1)
    rollups.store([day], rolled([day]))
    assert rollups.uncovered() == [] and read(archived).equals(whole)


def test_a_roll_up_of_files_that_are_compacted_meanwhile_counts_them_once(archived):
    for seed in (1, 2):
        archived(NOON.date(), some_lives(20, seed))
    rows = rolled(days := rollups.uncovered())
    archived(NOON.date(), some_lives(20, 3))
    whole = read(archived)
    compaction.compact_archive()
    rollups.store(days, rows)
    assert read(archived).equals(whole)
    assert [len(day.slice_ids) for day in rollups.uncovered()] == [1]


def test_a_damaged_roll_up_is_found_and_repaired_by_rolling_up_again(archived, archive_folder):  # noqa: F811
    archived(NOON.date(), some_lives(5))
    rollups.store(days := rollups.uncovered(), rolled(days))
    one = ArchiveRollup.objects.get()
    (archive_folder / one.path).write_bytes(b"")
    printed = StringIO()
    with pytest.raises(CommandError, match="1 damaged files"):
        call_command("verify_archive", stdout=printed)
    assert f"{one.path} (day 2026-03-01) has 0 bytes" in printed.getvalue()
    call_command("verify_archive", "--repair", stdout=printed)
    assert "when its day is next rolled up" in printed.getvalue() and len(rollups.uncovered()) == 1


def test_only_what_was_in_a_list_within_the_range_is_read(archived):
    archived(NOON.date(), [a_life(), a_life(sequence_number=2, enqueued_at=NOON + HOUR), a_life(entity_id=3)])
    rows = read(archived, NOON + HOUR, NOON + 2 * HOUR).to_pylist()
    assert {(row["entity_id"], row["hour"]) for row in rows} == {(1, NOON + HOUR)}
    assert read(archived, NOON + 5 * HOUR).num_rows == 0


def test_the_nightly_task_requests_one_roll_up_of_the_days_before_today(archived, monkeypatch):
    submitted = []
    monkeypatch.setattr(tasks.run_analysis, "delay", submitted.append)
    assert tasks._request_roll_up() == {"requested": False}
    archived(NOON.date(), [a_life()])
    assert tasks._request_roll_up() == {"requested": True}
    run = AnalysisRun.objects.get()
    assert (run.kind, run.start_at.date(), run.end_at - run.start_at, submitted) == ("roll_up", NOON.date(), DAY, [run.pk])
    assert tasks._request_roll_up() == {"requested": False}, "one is requested already"
    AnalysisRun.objects.update(state=AnalysisRun.SUCCEEDED)
    assert submission.roll_up(actor=tasks.Actor.local()).kind == "roll_up"


def test_today_is_not_rolled_up(archived):
    today = datetime.now(UTC).date()
    archived(today, [a_life()])
    archived(today - DAY, [a_life()])
    assert [day.day for day in rollups.uncovered(before=today)] == [today - DAY]
