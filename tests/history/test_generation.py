"""Generated history: its form, that it is consistent, and that its parameters are those that were drawn."""

import json
from datetime import UTC, datetime, timedelta
from io import StringIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from django.core.management import CommandError, call_command

from broker_core.common.types import EventKind
from broker_core.history import generation, retention, verification
from broker_core.models import ArchiveFile, Entity, EntityCounter

UNTIL = datetime(2026, 3, 8, tzinfo=UTC)
LOAD = generation.Load(fails=0.1, poison=0.01, work_sigma=1.8, outages=2.0, time_to_live=600.0)


def read(folder, content: str) -> pa.Table:
    files = ArchiveFile.objects.filter(content=content)
    return pa.concat_tables([pq.read_table(folder / file.path) for file in files])


def test_lives_attempts_and_events_tell_the_same_story_as_the_parameters(archive_folder, queue):
    other = Entity.objects.create(namespace=queue.namespace, path="other")
    EntityCounter.objects.create(entity=other)
    done = generation.generate([queue, other], messages=6000, days=2, until=UNTIL, load=LOAD, skew=0.75, seed=3)
    lives, attempts, events = (read(archive_folder, content) for content in ("lives", "attempts", "events"))
    facts = json.loads((archive_folder / done.parameters).read_text())
    truth = {name: sum(one[name] for one in facts["queues"]) for name in ("messages", "attempts", "expired", "dead_lettered",
                                                                         "locks_lost", "not_ended", "poison")}  # fmt: skip
    assert facts["load"]["fails"] == 0.1 and [one["messages"] for one in facts["queues"]] == [4500, 1500]
    assert lives.num_rows == done.messages == truth["messages"] - truth["not_ended"]
    outcomes = {row["values"]: row["counts"] for row in lives["outcome"].value_counts().to_pylist()}
    assert outcomes[EventKind.EXPIRED] == truth["expired"] > 0
    assert outcomes[EventKind.DEAD_LETTERED] == truth["dead_lettered"] > 0
    assert attempts.num_rows == truth["attempts"] == pc.sum(lives["deliveries"]).as_py()
    lost = pc.sum(pc.equal(attempts["outcome"], int(EventKind.LOCK_LOST))).as_py()
    assert lost == truth["locks_lost"] == pc.sum(lives["locks_lost"]).as_py() > 0
    assert events.num_rows == done.events == lives.num_rows + 2 * attempts.num_rows + truth["expired"]
    assert len(events["event_id"].unique()) == events.num_rows
    assert set(lives["generated"].to_pylist()) == {True}
    by_limit = attempts.filter(pc.equal(attempts["reason"], "MaxDeliveryCountExceeded"))
    assert set(by_limit["outcome"].to_pylist()) == {EventKind.DEAD_LETTERED} and by_limit.num_rows == truth["dead_lettered"]

    by_message = {(row["entity_id"], row["sequence_number"]): row for row in lives.to_pylist()}
    for row in attempts.to_pylist():
        life = by_message[row["entity_id"], row["sequence_number"]]
        assert life["enqueued_at"] < row["received_at"] <= row["ended_at"] <= life["ended_at"] <= UNTIL
        assert (row["attempt"] == 1) == (row["received_at"] == life["first_received_at"])
        assert (row["attempt"] == life["deliveries"]) == (row["ended_at"] == life["ended_at"])
    assert list(verification.damages(verification.finished_files(), deep=True)) == []


def test_waiting_is_what_the_parameters_say(archive_folder, queue):
    """Without outages, bursts and expiry, what waited longer is known exactly; with outages some wait for minutes."""
    calm = generation.Load(outages=0, bursts=0, poison=0, fails=0, time_to_live=None)
    done = generation.generate([queue], messages=4000, days=2, until=UNTIL, load=calm, events=False)
    lives = read(archive_folder, "lives")
    waited = pc.subtract(lives["first_received_at"].cast(pa.int64()), lives["enqueued_at"].cast(pa.int64())).to_pylist()
    [truth] = json.loads((archive_folder / done.parameters).read_text())["queues"]
    assert not ArchiveFile.objects.filter(content="events").exists()
    for longer, count in truth["longer_than"].items():
        assert abs(sum(one > float(longer) * 1e6 for one in waited) - count) <= truth["not_ended"]
    assert 0 < truth["longer_than"]["0.1"] < 600, "2.2 % of the pick-ups, and a few that wait for others"
    busy = generation.Load(outages=4, time_to_live=None)
    outages = generation.generate([queue], messages=4000, days=2, until=UNTIL, load=busy, events=False)
    [truth] = json.loads((archive_folder / outages.parameters).read_text())["queues"]
    assert truth["longer_than"]["60"] > 50 and truth["outages"]


def test_the_same_seed_gives_the_same_and_numbers_go_on(archive_folder, queue, monkeypatch):
    monkeypatch.setattr(generation, "BLOCK", 100)
    first = generation.generate([queue], messages=1000, days=1, until=UNTIL, seed=1).added
    second = generation.generate([queue], messages=1000, days=1, until=UNTIL, seed=1).added
    lives = read(archive_folder, "lives")
    numbers = sorted(lives["sequence_number"].to_pylist())
    assert len(set(numbers)) == len(numbers) and first.rows == second.rows
    times = [sorted(pq.read_table(archive_folder / file.path)["enqueued_at"].to_pylist())
             for file in ArchiveFile.objects.filter(content="lives").order_by("day", "slice_id")]  # fmt: skip
    assert times[0] == times[1]


def test_generated_events_do_not_keep_days_in_the_event_table(archive_folder, queue, happened):
    generation.generate([queue], messages=50, days=1, until=UNTIL)
    retention.create_partitions(UNTIL.date() - timedelta(days=1), days_ahead=0)
    assert retention.drop_old_partitions(UNTIL.date() + timedelta(days=30)).unarchived == ()


def test_the_command_creates_what_is_missing(archive_folder, postgres):
    printed = StringIO()
    call_command("generate_history", "made", "--queues=2", "--messages=300", "--days=0.5", "--no-events", stdout=printed)
    assert "messages with" in printed.getvalue() and "parameters/slice-" in printed.getvalue()
    assert Entity.objects.filter(namespace__name="made", path__startswith="generated-").count() == 2
    with pytest.raises(CommandError, match="at least one queue"):
        call_command("generate_history", "made", "--queues=0")
