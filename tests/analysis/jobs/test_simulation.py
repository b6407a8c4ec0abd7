"""The replay: small histories followed by hand, a queue whose waiting is known from theory, feedback, and its limits."""

import math
import random
from dataclasses import replace

import pytest

from explorer.analysis.jobs.simulation import (
    FOREVER,
    History,
    Message,
    Outcome,
    Result,
    Setting,
    absences,
    backlog_share,
    concurrency,
    consumers_needed,
    replay,
)

S = 1_000_000
WELL, FAILED, VANISHED = Result


def message(arrived, *work, **changes):
    """Arrives after so many seconds; work: seconds, or (seconds, result)."""
    deliveries = [item if isinstance(item, tuple) else (item, WELL) for item in work]
    return Message(arrived * S, work=tuple((seconds * S, result) for seconds, result in deliveries), **changes)


P95 = 3  # of Outcome.waiting


def run(messages, *, absent=(), until=1000, crashes=False, visibility=False, **setting) -> Outcome:
    history = History(messages, [(start * S, end * S, share) for start, end, share in absent], until * S, crashes, visibility)
    return replay(history, Setting(**{"consumers": 1} | setting), within=60 * S)


def test_a_consumer_processes_messages_sequentially():
    done = run([message(0, 10), message(0, 10), message(5, 10)])
    assert (done.processed, done.lost, done.depth, done.waiting[P95]) == (3, 0, 3, 15 * S)


def test_more_or_faster_consumers_shorten_the_wait():
    there = [message(0, 10), message(0, 10), message(5, 10)]
    assert run(there, consumers=3).waiting[P95] == 0
    assert run(there, pace=2.0).waiting[P95] == 5 * S


def test_the_locks_of_prefetched_messages_begin_when_they_are_received():
    there = [message(0, 10), message(0, 10), message(0, 10)]
    assert run(there, prefetch=3, lock=25 * S).locks_lost == 1
    done = run(there, prefetch=1, lock=25 * S)
    assert (done.locks_lost, done.processed) == (0, 3)


def test_processing_longer_than_the_lock_is_repeated_and_delays_other_messages():
    done = run([message(0, 40, 10), message(1, 5)], lock=30 * S)
    assert (done.duplicates, done.processed, done.waiting[P95]) == (1, 2, 49 * S)  # 40 in vain, 10 again, then the second


def test_the_delivery_limit_is_enforced():
    there = [message(0, *[(5, FAILED)] * 5, 5)]
    assert run(there, deliveries=5).dead_lettered == 1
    done = run(there, deliveries=6)
    assert (done.dead_lettered, done.processed) == (0, 1)


def test_poison_messages_delay_other_messages():
    there = [message(0, *[(10, FAILED)] * 10), message(1, 1)]
    assert (run(there, deliveries=2).waiting[P95], run(there, deliveries=5).waiting[P95]) == (19 * S, 49 * S)


def test_messages_expire_while_waiting_but_not_while_locked():
    there = [message(0, 30), message(0, 1)]
    done = run(there, time_to_live=20 * S)
    assert (done.expired, done.processed) == (1, 1)
    assert run([message(0, 30), message(0, 1, time_to_live=20 * S)]).expired == 1
    assert run(there, time_to_live=30 * S).expired == 1  # it ends at the instant at which it could be received
    assert run(there, time_to_live=31 * S).expired == 0


def test_a_message_of_a_crashed_consumer_is_available_when_its_lock_ends():
    there = [message(0, (5, VANISHED), 1)]
    assert run(there, lock=60 * S, until=60).processed == 0
    done = run(there, lock=60 * S, until=62)
    assert (done.processed, done.locks_lost, done.duplicates) == (1, 1, 0)
    assert run(there, lock=60 * S, until=7, crashes=True).processed == 1


def test_no_message_is_received_while_consumers_are_absent():
    done = run([message(0, 1), message(10, 1)], absent=[(5, 100, 0)])
    assert (done.waiting[P95], done.processed) == (90 * S, 2)
    half = run([message(0, 1), *[message(10, 50)] * 3], absent=[(5, 100, 0.5)], consumers=2)
    assert half.waiting[P95] == 90 * S  # one works on two of them, one after the other; then both are there


def test_removed_messages_are_not_lost_and_unprocessed_messages_remain():
    done = run([message(0, 30), message(0, 1, removed=10 * S), message(0, 500)], until=100)
    assert (done.processed, done.lost, done.messages) == (1, 0, 3)


def test_the_wait_of_a_random_queue_agrees_with_queueing_theory():
    """One consumer, half busy, exponential arrivals and work: P(wait > t) = rho exp(-(1 - rho) t / mean work)."""
    draw, at, there = random.Random(5), 0.0, []
    for _ in range(30_000):
        at += draw.expovariate(1 / 20)
        there.append(Message(round(at * S), work=((round(draw.expovariate(1 / 10) * S), WELL),)))
    done = run(there, until=10**7)
    assert done.waiting[P95] / S == pytest.approx(math.log(0.5 / 0.05) * 20, rel=0.08)


def test_missing_deliveries_are_sampled_reproducibly():
    there = [message(i, (1, FAILED), 1) if i % 2 else message(i, 1) for i in range(200)] + [message(201, (1, FAILED))]
    first, again = (run(there, consumers=5, deliveries=10) for _ in range(2))
    assert first == again and first.processed == 201


def test_messages_received_in_time_are_counted_as_far_as_known():
    done = run([message(0, 70), message(0, 1), message(990, 1), message(995, 500)], until=1000)
    assert (done.prompt, done.due, done.messages) == (3, 4, 4)  # the second one waited for 70 s
    done = run([message(0, 990), message(950, 1)], until=1000)
    assert (done.prompt, done.due) == (2, 2)
    assert run([message(0, 2000), message(990, 1)], until=1000).due == 1  # of the second one it is not known yet


def test_the_smallest_sufficient_number_of_consumers_is_found():
    there = [message(i, 10) for i in range(200)]
    history = History(there, (), 10_000 * S)
    needed = consumers_needed(history, Setting(1), 0.95, 60 * S)
    done = [replay(history, Setting(n), within=60 * S) for n in (needed - 1, needed)]
    assert [result.prompt >= 0.95 * result.due for result in done] == [False, True] and 7 <= needed <= 10
    assert consumers_needed(replace(history, absences=[(0, FOREVER, 0.0)]), Setting(1), 0.95, 60 * S, 50) is None


def test_expired_messages_that_were_never_received_are_counted_separately():
    done = run([message(0, (25, FAILED), 1), message(1, 1)], time_to_live=20 * S)
    assert (done.expired, done.unreceived) == (2, 1)


def test_consumers_that_renew_do_not_lose_their_lock():
    assert run([message(0, 40, renews=True)], lock=30 * S).locks_lost == 0
    assert run([message(0, (5, VANISHED), 1, renews=True)], lock=30 * S).locks_lost == 1


def test_with_visibility_a_late_settlement_counts_until_the_next_delivery():
    there = [message(0, 40, 1)]
    assert run(there, lock=30 * S).locks_lost == 1
    late = run(there, lock=30 * S, visibility=True)
    assert (late.locks_lost, late.processed, late.deliveries) == (0, 1, 1)
    again = run(there, lock=30 * S, visibility=True, consumers=2)
    assert (again.locks_lost, again.processed, again.deliveries) == (1, 1, 2)


def test_with_visibility_a_returned_message_loses_its_position_and_can_expire_while_leased():
    there = [message(0, (5, FAILED), 5), message(1, 50)]
    assert run(there).waiting[-1] == 9 * S  # the first one comes back at its place
    assert run(there, visibility=True).waiting[-1] == 4 * S
    assert run([message(0, 30)], time_to_live=20 * S, visibility=True).expired == 1


def test_waiting_for_busy_consumers_is_a_backlog_and_waiting_for_absent_consumers_is_not():
    assert backlog_share([(0, 10), (5, 20)], [(0, 20)], 1) == 1
    assert backlog_share([(0, 100)], [(100, 110)], 1) == 0
    assert backlog_share([(0, 100), (10, 110)], [(100, 110)], 1) == pytest.approx(10 / 200)
    assert backlog_share([], [], 1) == 0


def test_consumers_are_absent_when_messages_wait_and_no_consumer_works():
    waiting, working = [(0, 1 * S), (10 * S, 60 * S), (61 * S, 62 * S)], [(1 * S, 20 * S), (60 * S, 61 * S), (62 * S, 63 * S)]
    assert absences(waiting, working, 1) == [(20 * S, 60 * S, 0)]
    assert absences(waiting, working, 2) == [(10 * S, 20 * S, 0.5), (20 * S, 60 * S, 0)]
    assert absences([], [], 1) == [] and absences([(0, 2**40)], [], 1) == [(0, 2**40, 0)]


def test_the_number_of_consumers_is_their_maximum_concurrency_except_for_short_peaks():
    assert concurrency([]) == 1
    assert concurrency([(0, 100), (0, 100), (100, 200)]) == 2
    assert concurrency([(0, 10_000), (500, 510)]) == 1
