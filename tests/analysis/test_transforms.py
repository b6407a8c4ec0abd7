"""The questions to lives, on tiny frames."""

from datetime import timedelta

import pytest

from explorer.analysis.jobs import outcomes, transforms

from .conftest import NOON

SECOND = timedelta(seconds=1)


def counted(frame, *keys):
    return {tuple(row[key] for key in keys): row for row in frame.collect()}


def timed(lives, *rows):
    return [(row.waiting_us, row.processing_us) for row in lives(*rows).transform(transforms.with_time_in_queue).collect()]


def test_waiting_ends_with_the_first_receive_and_processing_begins_with_the_last(lives):
    row = {"first_received_at": NOON + 3 * SECOND, "last_received_at": NOON + 10 * SECOND, "ended_at": NOON + 14 * SECOND}
    assert timed(lives, row) == [(3_000_000, 4_000_000)]


@pytest.mark.parametrize(
    ("outcome", "reason", "processed"),
    [
        (outcomes.COMPLETED, None, True),
        (outcomes.DEAD_LETTERED, "BadPayload", True),
        (outcomes.DEAD_LETTERED, None, True),
        (outcomes.DEAD_LETTERED, "TTLExpiredException", False),
        (outcomes.DEAD_LETTERED, "MaxDeliveryCountExceeded", False),
        (outcomes.MOVED, "rejected", True),
        (outcomes.MOVED, "expired", False),
        (outcomes.MOVED, "maxlen", False),
        (outcomes.DROPPED, "rejected", True),
        (outcomes.DROPPED, "delivery_limit", False),
        (outcomes.EXPIRED, None, False),
        (outcomes.PURGED, None, False),
        (outcomes.RECEIVED_AND_DELETED, None, False),
        (outcomes.STILL_THERE, None, False),
    ],
)
def test_only_what_a_receiver_settled_was_processed(lives, outcome, reason, processed):
    [(_, processing)] = timed(lives, {"outcome": outcome, "reason": reason})
    assert (processing is not None) == processed


def test_never_received_is_no_waiting_time_but_receive_and_delete_is_one(lives):
    never = {"outcome": outcomes.EXPIRED, "first_received_at": None, "last_received_at": None}
    at_once = {
        "outcome": outcomes.RECEIVED_AND_DELETED,
        "first_received_at": None,
        "last_received_at": None,
        "ended_at": NOON + 5 * SECOND,
    }
    assert timed(lives, never, at_once) == [(None, None), (5_000_000, None)]


def test_a_clock_set_back_gives_no_negative_time(lives):
    assert timed(lives, {"first_received_at": NOON - SECOND}) == [(0, 2_000_000)]


def test_a_message_that_ended_after_the_export_is_counted_once_by_its_end(lives):
    ended = lives({"sequence_number": 7, "xid": 200}, {"sequence_number": 8, "xid": 90})
    there = lives({"sequence_number": 7, "outcome": 0, "xid": 0}, {"sequence_number": 9, "outcome": 0, "xid": 0})
    both = transforms.lives_and_still_there(ended, there, exported_xmin=100).collect()
    assert sorted((row.sequence_number, row.outcome) for row in both) == [(7, 6), (8, 6), (9, 0)]


def test_range_includes_its_start_and_excludes_its_end_other_queues_and_the_dead_letter_queue(lives):
    hour = timedelta(hours=1)
    found = lives(
        {"sequence_number": 1, "enqueued_at": NOON},
        {"sequence_number": 2, "enqueued_at": NOON + hour},
        {"sequence_number": 3, "enqueued_at": NOON - SECOND},
        {"sequence_number": 4, "entity_id": 2},
        {"sequence_number": 5, "subqueue": 1},
    ).transform(transforms.entered_between, NOON, NOON + hour, [1, 3])
    assert [row.sequence_number for row in found.collect()] == [1]


def test_every_life_has_one_outcome(lives):
    every = [*outcomes.COLUMNS.values(), 20]
    frame = lives(*[{"outcome": outcome} for outcome in every])
    [row] = transforms.time_and_outcome(frame.transform(transforms.with_time_in_queue), ["entity_id"], accuracy=100).collect()
    counts = {name: row[name] for name in (*outcomes.COLUMNS, "other")}
    assert counts == dict.fromkeys(counts, 1) and row.messages == len(every)


def test_expired_is_expired_wherever_the_message_went(lives):
    frame = lives(
        {"outcome": outcomes.EXPIRED},
        {"outcome": outcomes.DEAD_LETTERED, "reason": "TTLExpiredException"},
        {"outcome": outcomes.MOVED, "reason": "expired"},
        {"outcome": outcomes.DEAD_LETTERED, "reason": "Bad"},
        {"outcome": outcomes.MOVED, "reason": None},
    ).transform(transforms.with_expiry)
    assert [(row.outcome, row.reason) for row in frame.orderBy("sequence_number").collect()] == [
        *[(outcomes.EXPIRED, None)] * 3,
        (outcomes.DEAD_LETTERED, "Bad"),
        (outcomes.MOVED, None),
    ]


def test_a_cancelled_schedule_never_entered(lives):
    frame = lives({"outcome": outcomes.CANCELLED}, {})
    found = frame.transform(transforms.entered_between, NOON, NOON + timedelta(hours=1), [1])
    assert found.count() == 1


def test_percentiles_of_a_thousand_are_exact_at_accuracy_10000(lives):
    rows = [{"first_received_at": NOON + timedelta(milliseconds=i), "generated": i < 10} for i in range(1, 1001)]
    frame = lives(*rows).transform(transforms.with_time_in_queue)
    [row] = transforms.time_and_outcome(frame, ["entity_id"], accuracy=10_000).collect()
    assert row.waiting_us == [500_000, 950_000, 990_000]
    assert (row.waited, row.generated) == (1000, 9)


def test_a_group_without_times_has_counts_and_no_percentiles(lives):
    never = {"outcome": outcomes.EXPIRED, "first_received_at": None, "last_received_at": None}
    frame = lives(never).transform(transforms.with_time_in_queue)
    [row] = transforms.time_and_outcome(frame, ["entity_id"], accuracy=100).collect()
    assert (row.expired, row.waited, row.waiting_us, row.processing_us) == (1, 0, None, None)


@pytest.mark.parametrize(("unit", "start"), [("minute", (12, 34)), ("hour", (12, 0)), ("day", (0, 0))])
def test_buckets_begin_at_whole_units_of_utc(spark, lives, unit, start):
    frame = lives({"enqueued_at": NOON.replace(minute=34, second=56)}).transform(transforms.with_bucket, unit)
    assert frame.selectExpr("hour(bucket_at)", "minute(bucket_at)", "second(bucket_at)").first() == (*start, 0)


def test_rare_reasons_are_counted_together_by_entity(lives):
    def dead(reason, entity_id=1):
        return {"outcome": outcomes.DEAD_LETTERED, "reason": reason, "entity_id": entity_id}

    frame = lives(
        dead("a"), {"outcome": outcomes.MOVED, "reason": "a"}, dead("b"), {"outcome": outcomes.DROPPED, "reason": "b"},
        dead("c"), dead(None), dead("c", 2), {"outcome": outcomes.COMPLETED, "reason": "a"},
    )  # fmt: skip
    found = counted(transforms.reasons(frame, ["entity_id"], most=2), "entity_id", "reason")
    assert {key: row.messages for key, row in found.items()} == {
        (1, "a"): 2,
        (1, "b"): 2,
        (1, outcomes.OTHER_REASONS): 2,
        (2, "c"): 1,
    }


def test_no_aggregation_keeps_strings_in_its_buffer(lives):
    frame = lives({}).transform(transforms.with_time_in_queue).transform(transforms.with_bucket, "hour")
    plan = transforms.time_and_outcome(frame, ["entity_id", "bucket_at"], accuracy=100)._jdf.queryExecution().toString()
    assert "ObjectHashAggregate" in plan  # percentile_approx; a string in a buffer would make it a SortAggregate
    assert "SortAggregate" not in plan
