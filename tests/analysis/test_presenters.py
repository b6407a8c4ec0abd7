"""What results say to a reader: pure."""

from datetime import timedelta

import pytest

from explorer.analysis import presenters
from explorer.models import AnalysisReason

from .factories import NOON, a_result, a_run

HOUR = timedelta(hours=1)


def test_the_outcome_in_a_sentence_most_frequent_first():
    whole = a_result(completed=900, dead_lettered=80, still_there=20)
    assert presenters.outcome_sentence(whole, [("Bad", 60), ("Late", 20)]) == (
        "Of 1,000 messages, 90 % were completed, 8 % were dead-lettered and 2 % are still in the queue. "
        "Most frequent reason: Bad."
    )
    assert presenters.outcome_sentence(a_result(expired=1), []) == "Of 1 message, 100 % was expired."


def test_reasons_are_of_what_left_for_a_reason():
    def why(**counts):
        return presenters.queue_view(a_run(), a_run().queues[0], [a_result(**counts)], []).why

    assert why(dead_lettered=3, completed=1) == "dead-lettered"
    assert why(moved=3, dropped=1) == "moved or dropped"
    assert why(dead_lettered=1, moved=3, dropped=1) == "dead-lettered, moved or dropped"
    assert why(completed=1) == ""


@pytest.mark.parametrize(
    ("count", "of", "text"),
    [(1, 3, "33.3 %"), (1, 2, "50 %"), (1, 100_000, "under 0.1 %"), (99_999, 100_000, "over 99.9 %"), (5, 5, "100 %")],
)
def test_a_share_never_hides_the_rest(count, of, text):
    assert presenters.share(count, of) == text


def test_times_in_a_sentence():
    whole = a_result(completed=3, waited=3, waiting_p50=timedelta(seconds=1), waiting_p95=timedelta(seconds=9), waiting_p99=HOUR)
    said = presenters.time_sentence(whole, "waiting", "received", "none")
    assert said == "Of 3 messages, half were received within 1.0 s, 95 % within 9.0 s and 99 % within 1.0 h."
    assert presenters.time_sentence(whole, "processing", "settled", "none") == "none"


@pytest.mark.parametrize(
    ("bucket", "start", "expected"),
    [
        ("hour", NOON.replace(minute=59), [NOON, NOON + HOUR, NOON + 2 * HOUR]),
        ("day", NOON, [NOON.replace(hour=0)]),
        ("minute", NOON.replace(hour=14, minute=58, second=30), [NOON.replace(hour=14, minute=m) for m in (58, 59)]),
    ],
)
def test_buckets_cover_the_range_and_begin_at_whole_units(bucket, start, expected):
    assert presenters.buckets(a_run(start_at=start, bucket=bucket)) == expected


def test_a_view_has_a_row_for_each_bucket_with_messages_and_charts_for_all():
    run = a_run()
    results = [
        a_result(completed=3, expired=1, waited=3, waiting_p50=HOUR, waiting_p95=HOUR, waiting_p99=HOUR),
        a_result(bucket_at=NOON + HOUR, completed=3, expired=1, waited=3, waiting_p50=HOUR, waiting_p95=HOUR, waiting_p99=HOUR),
    ]
    view = presenters.queue_view(run, run.queues[0], results, [])
    assert [row.bucket_at for row in view.rows] == [NOON + HOUR]
    assert list(view.outcomes) == ["completed", "expired"]
    assert len(view.outcome_charts[0].spots) == 3
    assert view.outcome_charts[0].spots[1].text == "2026-03-01 13:00: 3 completed, 1 expired"
    assert view.outcome_charts[0].spots[0].text == "2026-03-01 12:00: none"
    assert [shape.name for shape in view.trouble_charts[0].shapes] == ["expired"]
    assert view.trouble_sentence.startswith("1 of 4 (25 %)")


def test_a_queue_that_nothing_entered_has_no_view():
    run = a_run()
    assert presenters.queue_view(run, run.queues[0], [], []) is None


def test_reasons_are_summed_over_buckets():
    rows = [AnalysisReason(reason=reason, messages=count) for reason, count in (("a", 1), ("b", 5), ("a", 3))]
    assert presenters.rank_reasons(rows) == [("b", 5), ("a", 4)]


@pytest.mark.parametrize(
    ("changes", "percent"),
    [
        ({}, 0),
        ({"steps": 5, "step": 1}, 0),
        ({"steps": 5, "step": 3, "tasks_done": 1, "tasks_total": 2}, 50),
        ({"steps": 5, "step": 5, "tasks_done": 2, "tasks_total": 2}, 99),
        ({"steps": 5, "step": 5, "state": "succeeded"}, 100),
    ],
)
def test_progress_counts_steps_and_tasks_and_is_whole_only_at_the_end(changes, percent):
    assert presenters.progress_percent(a_run(**changes)) == percent


def test_the_file_holds_what_the_table_holds():
    run = a_run()
    result = a_result(
        bucket_at=NOON, completed=2, waited=2, waiting_p50=timedelta(seconds=1.5), waiting_p95=None, waiting_p99=None
    )
    header, row = presenters.csv_rows(run, [result])
    told = dict(zip(header, row, strict=True))
    assert (told["queue"], told["bucket"], told["messages"], told["completed"]) == (
        "demo/orders",
        "2026-03-01T12:00:00+00:00",
        2,
        2,
    )
    assert (told["waiting_p50_seconds"], told["waiting_p95_seconds"]) == ("1.500000", "")
