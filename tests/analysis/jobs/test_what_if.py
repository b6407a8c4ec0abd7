"""What if: the history that is read, replays by Spark equal to direct ones, and what a worker without the package can run."""

import subprocess
import sys
from dataclasses import replace
from datetime import timedelta

import pytest

from explorer.analysis.jobs import measures, outcomes, replaying
from explorer.analysis.jobs.history import Span
from explorer.analysis.jobs.replaying import Delivery, End, Life, Refusal, Traits, replayable
from explorer.analysis.jobs.reports import what_if
from explorer.analysis.jobs.simulation import Result, Setting

from .rows import HOUR, MINUTE, NOON, SECOND, a_request, history, listed

S = 1_000_000
EVERY = 10  # seconds between messages; the consumer works for 9 s on each, so that those of a minute's outage wait long
VALUES = {"traits": {"deliveries": 5, "more": 0}, "within": 60 * S, "share": 95.0}


def a_history(count=60):
    """One consumer, absent for the first two minutes of every ten; the last message is still there. In seconds: number, arrived,
    received."""
    rows, free = [], 0
    for number in range(1, count + 1):
        arrived = number * EVERY
        begun = max(arrived, free)
        if begun % 600 < 120:
            begun += 120 - begun % 600
        rows.append((number, arrived, begun))
        free = begun + 9
    return rows


def of(spark, values, **more):
    made = a_history()
    lives = [
        {"sequence_number": number, "enqueued_at": NOON + arrived * SECOND, "first_received_at": NOON + begun * SECOND,
         "ended_at": NOON + (begun + 9) * SECOND, "waiting_us": (begun - arrived) * S}
        for number, arrived, begun in made
    ]  # fmt: skip
    attempts = [
        {"sequence_number": number, "received_at": NOON + begun * SECOND, "ended_at": NOON + (begun + 9) * SECOND,
         "held_us": 9 * S, "lock_us": 30 * S}
        for number, _, begun in made
    ]  # fmt: skip
    rows = {"lives": lives, "attempts": attempts, "events": [], "open": []}
    here = history(spark, a_request(values=VALUES | values), **{name: own + more.get(name, []) for name, own in rows.items()})
    return what_if.tables(here)


def direct():
    made = a_history()
    lives = [Life(n, at * S, begun * S, (begun + 9) * S, End.PROCESSED) for n, at, begun in made]
    deliveries = [Delivery(n, 1, begun * S, (begun + 9) * S, "a", Result.WELL, 30 * S) for n, _, begun in made]
    return replayable(lives, deliveries, [], 3600 * S, Traits(5))


@pytest.mark.slow
def test_replays_by_spark_equal_direct_replays(spark):
    tables = of(spark, {"time_to_live": 60 * S})
    there = direct()
    varied, settings = what_if.grid(there, VALUES | {"time_to_live": 60 * S})
    work = what_if.Work(there, [setting for _, setting in settings], what_if.Plan.of(there, len(settings)), 0.95, 60 * S)
    expected = [what_if.outcome_row(*task, *what_if.replayed(work, *task)) for task in work.tasks]
    expected.append(what_if.outcome_row(0, what_if.ACTUAL, there.actual, None))
    assert listed(tables["outcomes"], *what_if.OUTCOME.names) == sorted(expected, key=repr)
    assert len(expected) == 31 * len(settings) + 9 + 1 and varied == "time_to_live"
    [about] = listed(tables["about"], "problem", "messages", "replayed", "headless", "before", "late", "longest")
    assert about == (None, 60, 60, 0, 0, 0, 1)
    [now] = [row for row in listed(tables["settings"], *what_if.SETTING.names) if row[1] == "now"]
    assert now == (0, "now", 1, 1, 30 * S, 5, None)
    [waiting] = listed(tables["waits"], "measure", "counts")
    assert waiting[0] == measures.WAITING and sum(waiting[1]) == 60


def test_a_worker_does_not_need_the_package(tmp_path):
    there = direct()
    settings = [there.setting, replace(there.setting, time_to_live=60 * S)]
    work = what_if.Work(there, settings, what_if.Plan(1, 1, 10**6), 0.95, 60 * S)
    (tmp_path / "work").write_bytes(what_if.by_value(work))
    code = (
        "import sys; sys.modules['explorer'] = None\n"
        "import pickle; task = pickle.load(open('work', 'rb'))\n"
        "print([task(1, 0), task(-1, 1)])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    expected = [what_if.outcome_row(*task, *what_if.replayed(work, *task)) for task in ((1, 0), (-1, 1))]
    assert done.stdout.strip() == str(expected), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("settlement", ["complete", "dead-letter"])
def test_outcomes_deliveries_and_refusals_are_read(spark, settlement):
    at = NOON + 50 * MINUTE
    lives = [
        {"sequence_number": 101, "enqueued_at": at, "first_received_at": at, "outcome": outcomes.DEAD_LETTERED,
         "result": outcomes.DEAD_LETTERED, "reason": "MaxDeliveryCountExceeded", "ended_at": at + 20 * SECOND},
        {"sequence_number": 102, "enqueued_at": at, "outcome": outcomes.DEAD_LETTERED, "result": outcomes.EXPIRED,
         "reason": "TTLExpiredException", "ended_at": at + 9 * SECOND, "time_to_live_in_force_us": 9 * S},
        {"sequence_number": 103, "enqueued_at": at, "outcome": outcomes.PURGED, "result": outcomes.PURGED,
         "ended_at": at + SECOND},
        {"sequence_number": 104, "enqueued_at": at, "ended_at": NOON + 2 * HOUR, "first_received_at": NOON + 2 * HOUR},
        {"sequence_number": 105, "enqueued_at": NOON - MINUTE},
        {"sequence_number": 106, "enqueued_at": at, "subqueue": 1},
    ]  # fmt: skip
    attempts = [
        {"sequence_number": 101, "attempt": 2, "received_at": at, "ended_at": at + 5 * SECOND, "held_us": 5 * S,
         "lock_us": 5 * S, "let_go": False, "lost": True, "well": False, "failed": True},
        {"sequence_number": 101, "attempt": 3, "received_at": at + 9 * SECOND, "ended_at": at + 10 * SECOND, "held_us": S,
         "lock_us": 5 * S, "well": False, "failed": True},
        {"sequence_number": 105, "attempt": 1, "received_at": NOON + SECOND, "held_us": S},
    ]  # fmt: skip
    events = [{"sequence_number": 101, "kind": 23, "reason": settlement, "actor": "a", "at": at + 8 * SECOND}]
    tables = of(spark, {}, lives=lives, attempts=attempts, events=events, open=[{"sequence_number": 107, "enqueued_at": at}])
    [actual] = [row for row in listed(tables["outcomes"], "resample", *what_if.FIGURES) if row[0] == what_if.ACTUAL]
    shown = dict(zip(what_if.FIGURES, actual[1:], strict=True))
    assert (shown["messages"], shown["processed"], shown["expired"], shown["dead_lettered"]) == (65, 60, 1, 1)
    assert (shown["unreceived"], shown["deliveries"], shown["locks_lost"]) == (1, 62, 1)
    [about] = listed(tables["about"], "headless", "late", "before", "longest")
    assert about == (1, 1, 1, 3)


def test_the_result_says_why_a_history_cannot_be_replayed(spark):
    nothing = what_if.tables(history(spark, a_request(values=VALUES)))
    assert "needs at least 30" in listed(nothing["about"], "problem")[0][0] and not listed(nothing["outcomes"])
    tables = of(spark, {}, lives=[{"enqueued_at": NOON, "session_id": "s", "sequence_number": 500}])
    assert "sessions" in listed(tables["about"], "problem")[0][0]


def test_contiguous_parts_of_a_long_history_are_sampled():
    five = timedelta(minutes=5)
    span = Span(NOON, NOON + 100 * five)
    steps = [(NOON + i * five, 100) for i in range(100)]
    assert what_if.drawn(steps, span, 10_000) == []
    parts = what_if.drawn(steps, span, 4000, 4)
    assert len(parts) == 4 and all(part.end - part.start == 10 * five for part in parts)
    assert all(before.end <= after.start for before, after in zip(parts, parts[1:], strict=False))
    [part] = what_if.drawn([(NOON, 100_000)], span, 4000, 4)
    assert part == Span(NOON, NOON + five / 100)
    place = what_if.Placed(parts)
    start, second = (what_if._us(part.start) for part in parts[:2])
    assert start + place.by(start) == 0 and second + place.by(second) == 20 * five.total_seconds() * S


def test_the_grid_has_settings_around_the_chosen_setting():
    there = direct()
    varied, grid = what_if.grid(there, VALUES)
    assert varied == "consumers" and [setting.consumers for _, setting in grid] == [1, 2, 4]
    varied, grid = what_if.grid(there, VALUES | {"lock": 8 * S, "deliveries": 3})
    assert varied == "lock" and grid[1] == ("chosen", Setting(1, lock=8 * S, deliveries=3))
    assert [setting.lock // S for role, setting in grid if role == "varied" and setting.consumers == 1] == [2, 4, 16, 32]
    varied, grid = what_if.grid(there, {"deliveries": 2, "traits": {"more": 1}})
    assert grid[1][1].deliveries == 3 and varied == "deliveries"
    varied, grid = what_if.grid(there, {"deliveries": 0, "traits": {"more": 1}})  # of RabbitMQ: no redelivery
    assert grid[1][1].deliveries == 1 and varied == "deliveries"


def test_the_work_of_a_replay_is_bounded(monkeypatch):
    there = direct()
    assert what_if.Plan.of(there, 5) == what_if.Plan(30, 8, 60)
    monkeypatch.setattr(what_if, "FEWEST_OF_RESAMPLE", 10)
    monkeypatch.setattr(what_if, "MOST_WORK", 60 * 13 + 15 * (30 * 5 + 8 * 8))
    assert what_if.Plan.of(there, 5).most == 15


def test_blocks_are_cut_where_no_message_waits_and_never_inside_an_outage():
    waiting = [(at * 100 * S, at * 100 * S + 1) for at in range(100)] + [(2050 * S, 4050 * S)]
    cuts = replaying.blocks_of(sorted(waiting), 10_000 * S)
    assert len(cuts) == 28 and not any(2050 * S < start < 4050 * S for start, _ in cuts)
    assert cuts[0][0] == 0 and all(before[1] == after[0] for before, after in zip(cuts, cuts[1:], strict=False))


@pytest.mark.parametrize(("at", "result"), [(8, Result.WELL), (3, Result.VANISHED)])
def test_a_late_settlement_gives_the_time_needed(at, result):
    made = [Delivery(1, 1, 0, 5 * S, "a", Result.VANISHED, 5 * S), Delivery(1, 2, 9 * S, 10 * S, "a", Result.WELL, 5 * S)]
    deliveries, late = replaying.with_needed_times(
        made, [Refusal(1, at * S, "a", Result.WELL), Refusal(1, 8 * S, "b", Result.WELL)]
    )
    assert (deliveries[0].result, late) == (result, int(result is Result.WELL)) and deliveries[1] == made[1]
    assert deliveries[0].until == (8 * S if late else 5 * S)


def test_bands_of_few_blocks_are_wider():
    shares = [0.1, 0.2, 0.3]
    few, many = replaying.share_band(0.2, shares, 100, 4), replaying.share_band(0.2, shares, 100, 40)
    assert few[0] < many[0] < 0.2 < many[1] < few[1]
    assert replaying.share_band(0.0, [0.0, 0.0], 100, 10) == (0.0, 0.03)
    low, high = replaying.amount_band(1000, [900, 1100], 40, 0.5)
    assert 800 < low < 1000 < high < 1200
