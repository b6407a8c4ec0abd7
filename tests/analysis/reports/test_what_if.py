"""What if? The answer, its notes, the picture and the error of the replay; from direct replays, without Spark or a database."""

from collections import Counter

import pyarrow as pa
import pytest

from broker_core.common.types import Family
from explorer.analysis.jobs import measures
from explorer.analysis.jobs.measures import bin_of
from explorer.analysis.jobs.replaying import Delivery, End, Life, Traits, replayable
from explorer.analysis.jobs.reports import what_if as job
from explorer.analysis.jobs.simulation import Result
from explorer.analysis.reports import what_if
from explorer.analysis.reports.tables import Tables

from .scopes import a_scope

S = 1_000_000
ASKED = {"share": 95.0, "within": 60 * S, "time_to_live": None, "lock": None, "deliveries": None, "consumers": None}


def queued(count=60, every=10, work=12):
    """One consumer that is too slow: in seconds (number, arrived, received)."""
    rows, free = [], 0
    for number in range(1, count + 1):
        begun = max(number * every, free)
        rows.append((number, number * every, begun))
        free = begun + work
    return rows, work


def unqueued(count=60, wait=20):
    """Consumers that look into the queue every now and then, as many as there are messages."""
    return [(number, number * 10, number * 10 + wait * (number % 3)) for number in range(1, count + 1)], 1


def report(rows, work, *, more=(), **asked):
    lives = [Life(n, at * S, begun * S, (begun + work) * S, End.PROCESSED) for n, at, begun in rows]
    made = [Delivery(n, 1, begun * S, (begun + work) * S, f"c{n}", Result.WELL, 30 * S) for n, _, begun in rows]
    until = (rows[-1][2] + 1000) * S
    history = replayable([*lives, *(one for one, _ in more)], [*made, *(one for _, one in more)], [], until, Traits(5))
    values = ASKED | asked
    varied, settings = job.grid(history, values | {"traits": {"deliveries": 5, "more": 0}})
    work_ = job.Work(history, [setting for _, setting in settings], job.Plan(8, 4, 10**6), 0.95, values["within"])
    outcomes = [job.outcome_row(*task, *job.replayed(work_, *task)) for task in work_.tasks]
    outcomes.append(job.outcome_row(0, job.ACTUAL, history.actual, None))
    about = dict.fromkeys(job.ABOUT.names, 0) | {
        "problem": None, "varied": varied, "messages": len(rows), "replayed": len(rows), "longest": 1,
        "blocks": len(history.blocks), "backlog_ppm": round(1e6 * history.backlog),
        "by_messages_ppm": round(1e6 * history.by_messages), "by_waiting_ppm": round(1e6 * history.by_waiting),
        "headless": history.headless,
    }  # fmt: skip
    waits = Counter(bin_of((begun - at) * S) for _, at, begun in rows)
    tables = Tables({
        "about": pa.Table.from_pylist([about]),
        "settings": pa.Table.from_pylist([
            dict(zip(job.SETTING.names, (at, role, s.consumers, s.prefetch, s.lock, s.deliveries, s.time_to_live), strict=True))
            for at, (role, s) in enumerate(settings)
        ]),
        "outcomes": pa.table([list(column) for column in zip(*outcomes, strict=True)], names=job.OUTCOME.names),
        "waits": pa.Table.from_pylist([
            {"measure": measures.WAITING, "bins": sorted(waits), "counts": [waits[wait] for wait in sorted(waits)]}
        ]),
    })  # fmt: skip
    return what_if.present(a_scope("orders"), values, tables)


def test_the_default_question_is_how_many_consumers_are_needed():
    result = report(*queued())
    assert result.finding == (
        "shop/orders needs 2 consumers to receive 95\xa0% of its messages within 1 min; with 1 consumer, 51.7\xa0% are."
    )
    assert not result.refusal and "In resampled histories" in result.notes[0]
    settings = result.tables["settings"]
    assert [row[0].value for row in settings.rows] == [1, 2, 4]
    [figure] = result.sections[0].figures
    assert [tick.text for tick in figure.charts[0].x_ticks] == ["1", "2", "4"]


def test_with_a_backlog_the_time_to_live_is_replayed_and_the_estimate_is_an_upper_bound():
    result = report(*queued(), time_to_live=30 * S)
    assert result.finding.startswith("With a time-to-live of 30 s, ") and "it was 0.0\xa0%." in result.finding
    assert "behind busy consumers" in result.notes[0]
    said = float(result.finding.split(", ")[1].split("\xa0%")[0])
    most = float(result.notes[1].removeprefix("At most ").split("\xa0%")[0])
    assert said < 20 and most > 60  # the consumer has time for five of six messages


def test_without_a_backlog_the_estimate_is_the_answer():
    result = report(*unqueued(), time_to_live=30 * S)
    assert "Kaplan-Meier estimate of the waiting, as messages did not wait behind others" in result.notes[0]
    share = sum(begun - at > 30 for _, at, begun in unqueued()[0]) / 60
    assert f"{100 * share:.1f}\xa0%" in result.finding


def test_lost_locks_are_counted_by_delivery_and_bounded_by_the_recorded_losses():
    result = report(*queued(), lock=10 * S)
    assert result.finding.startswith("With a lock duration of 10 s, 100.0\xa0% of the deliveries of shop/orders would have lost")
    result = report(*queued(), deliveries=7)
    assert result.finding == (
        "With a maximum delivery count of 7, at most 0.0\xa0% of the messages of shop/orders would have reached the limit of "
        "deliveries, as no message was delivered more than 1 times."
    )


def test_the_replay_of_the_current_settings_is_compared_with_the_history():
    rows = {row[0]: row[1:] for row in report(*queued()).tables["calibration"].rows}
    assert rows["Processed"] == ("60", "60", "none") and rows["95 % received within"][2] == "none"


def test_a_note_counts_messages_without_their_first_delivery():
    second = (Life(99, 700 * S, 900 * S, 905 * S, End.PROCESSED), Delivery(99, 2, 900 * S, 905 * S, "z", Result.WELL, 30 * S))
    assert any("first delivery of 1 message" in note for note in report(*queued(), more=[second]).notes)


def test_a_history_that_cannot_be_replayed_is_refused():
    about = dict.fromkeys(job.ABOUT.names) | {"problem": "Only 3 deliveries are known."}
    result = what_if.present(a_scope("orders"), ASKED, Tables({"about": pa.Table.from_pylist([about])}))
    assert result.refusal == "Only 3 deliveries are known." and not result.sections


@pytest.mark.parametrize(("text", "value"), [("30 s", 30 * S), ("", None)])
def test_durations_are_in_microseconds(text, value):
    assert what_if.Microseconds(required=False).clean(text) == value


def test_each_family_has_its_own_terms():
    limits = a_scope("q", family=Family.QUEUE_STORAGE).family.limits
    assert limits.by_visibility and not a_scope("q").family.limits.by_visibility
    assert what_if.in_words(ASKED | {"lock": 10 * S, "consumers": 2}, limits) == "a visibility timeout of 10 s and 2 consumers"
