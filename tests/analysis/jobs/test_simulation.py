"""The replay: small histories followed by hand, a queue whose waiting is known from theory, feedback, and its limits."""

import math
import random
import time

import pytest

from explorer.analysis import simulation
from explorer.analysis.simulation import History, Message, Outcome, Result, Setting, TooMuch, absences, concurrency, replay_all

S = 1_000_000
WELL, FAILED, VANISHED = Result


def message(arrived, *work, **changes):
    """Arrives after so many seconds; work: seconds, or (seconds, result)."""
    given = [one if isinstance(one, tuple) else (one, WELL) for one in work]
    return Message(arrived * S, work=tuple((seconds * S, result) for seconds, result in given), **changes)


def run(messages, *, absent=(), until=1000, crashes=False, **setting) -> Outcome:
    history = History(messages, [(start * S, end * S, share) for start, end, share in absent], until * S, crashes)
    [outcome] = replay_all(history, [Setting(**{"consumers": 1} | setting)])
    return outcome


def test_one_consumer_works_on_one_message_after_the_other():
    done = run([message(0, 10), message(0, 10), message(5, 10)])
    assert (done.processed, done.lost, done.depth, done.waiting) == (3, 0, 3, 15 * S)


def test_more_or_faster_consumers_shorten_the_wait():
    there = [message(0, 10), message(0, 10), message(5, 10)]
    assert run(there, consumers=3).waiting == 0
    assert run(there, pace=2.0).waiting == 5 * S


def test_the_locks_of_prefetched_messages_begin_at_the_receipt():
    there = [message(0, 10), message(0, 10), message(0, 10)]
    assert run(there, prefetch=3, lock=25 * S).locks_lost == 1
    done = run(there, prefetch=1, lock=25 * S)
    assert (done.locks_lost, done.processed) == (0, 3)


def test_work_that_is_longer_than_the_lock_is_done_twice_and_takes_time_from_others():
    done = run([message(0, 40, 10), message(1, 5)], lock=30 * S)
    assert (done.duplicates, done.processed, done.waiting) == (1, 2, 49 * S)  # 40 in vain, 10 again, then the second


def test_the_last_delivery_is_the_limit():
    there = [message(0, *[(5, FAILED)] * 5, 5)]
    assert run(there, deliveries=5).dead_lettered == 1
    done = run(there, deliveries=6)
    assert (done.dead_lettered, done.processed) == (0, 1)


def test_poison_messages_hold_up_others():
    there = [message(0, *[(10, FAILED)] * 10), message(1, 1)]
    assert (run(there, deliveries=2).waiting, run(there, deliveries=5).waiting) == (19 * S, 49 * S)


def test_messages_expire_while_they_wait_and_not_while_they_are_held():
    there = [message(0, 30), message(0, 1)]
    done = run(there, time_to_live=20 * S)
    assert (done.expired, done.processed) == (1, 1)
    assert run([message(0, 30), message(0, 1, time_to_live=20 * S)]).expired == 1
    assert run(there, time_to_live=30 * S).expired == 1  # it ends at the instant at which it could be received
    assert run(there, time_to_live=31 * S).expired == 0


def test_a_message_of_a_crashed_consumer_comes_back_when_its_lock_ends():
    there = [message(0, (5, VANISHED), 1)]
    assert run(there, lock=60 * S, until=60).processed == 0
    done = run(there, lock=60 * S, until=62)
    assert (done.processed, done.locks_lost, done.duplicates) == (1, 1, 0)
    assert run(there, lock=60 * S, until=7, crashes=True).processed == 1


def test_nobody_receives_while_consumers_are_absent():
    done = run([message(0, 1), message(10, 1)], absent=[(5, 100, 0)])
    assert (done.waiting, done.processed) == (90 * S, 2)
    half = run([message(0, 1), *[message(10, 50)] * 3], absent=[(5, 100, 0.5)], consumers=2)
    assert half.waiting == 90 * S  # one works on two of them, one after the other; then both are there


def test_removed_messages_are_not_lost_and_what_is_not_done_is_still_there():
    done = run([message(0, 30), message(0, 1, removed=10 * S), message(0, 500)], until=100)
    assert (done.processed, done.lost, done.messages) == (1, 0, 3)


def test_the_wait_of_a_random_queue_is_that_of_theory():
    """One consumer, half busy, exponential arrivals and work: P(wait > t) = rho exp(-(1 - rho) t / mean work)."""
    draw, at, there = random.Random(5), 0.0, []
    for _ in range(30_000):
        at += draw.expovariate(1 / 20)
        there.append(Message(round(at * S), work=((round(draw.expovariate(1 / 10) * S), WELL),)))
    done = run(there, until=10**7)
    assert done.waiting / S == pytest.approx(math.log(0.5 / 0.05) * 20, rel=0.08)


def test_deliveries_that_there_were_not_are_drawn_and_repeat():
    there = [message(i, (1, FAILED), 1) if i % 2 else message(i, 1) for i in range(200)] + [message(201, (1, FAILED))]
    first, again = (run(there, consumers=5, deliveries=10) for _ in range(2))
    assert first == again and first.processed == 201


def test_the_grid_has_all_combinations_and_is_bounded():
    found = simulation.grid(Setting(2, lock=S), consumers=[1, 2], lock=[S, 2 * S, 3 * S], pace=[])
    assert len(found) == 6 and {(one.consumers, one.lock) for one in found} == {(c, n * S) for c in (1, 2) for n in (1, 2, 3)}
    with pytest.raises(TooMuch, match="49 combinations"):
        simulation.grid(Setting(1), consumers=range(1, 8), prefetch=range(1, 8))


def test_what_takes_too_long_is_refused(monkeypatch):
    history = History([message(i, 1) for i in range(5000)], (), 10**12)
    monkeypatch.setattr(simulation, "MOST_MESSAGES", 4000)
    with pytest.raises(TooMuch, match="5,000 messages entered"):
        replay_all(history, [Setting(1)])
    monkeypatch.setattr(simulation, "MOST_MESSAGES", 5000)
    monkeypatch.setattr(simulation, "MOST_STEPS", 10_000)
    with pytest.raises(TooMuch, match="at most 2 combinations"):
        replay_all(history, [Setting(1)] * 3)
    monkeypatch.setattr(simulation, "LONGEST", -1.0)
    with pytest.raises(TooMuch, match="took longer"):
        replay_all(history, [Setting(1)])


def test_a_full_size_replay_ends_in_time():
    started = time.process_time()
    replay_all(History([message(i, 1, (1, FAILED)) for i in range(5000)], (), 10**12), [Setting(2)])
    assert time.process_time() - started < 2  # a tenth of what is allowed takes a tenth of the time


def test_consumers_are_absent_when_messages_wait_and_nobody_works():
    waiting, working = [(0, 1 * S), (10 * S, 60 * S), (61 * S, 62 * S)], [(1 * S, 20 * S), (60 * S, 61 * S), (62 * S, 63 * S)]
    assert absences(waiting, working, 1) == [(20 * S, 60 * S, 0)]
    assert absences(waiting, working, 2) == [(10 * S, 20 * S, 0.5), (20 * S, 60 * S, 0)]
    assert absences([], [], 1) == [] and absences([(0, 2**40)], [], 1) == [(0, 2**40, 0)]


def test_the_number_of_consumers_is_the_most_that_worked_at_once_but_for_moments():
    assert concurrency([]) == 1
    assert concurrency([(0, 100), (0, 100), (100, 200)]) == 2
    assert concurrency([(0, 10_000), (500, 510)]) == 1
