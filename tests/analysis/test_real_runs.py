"""What an analysis says about another setting, against the same history really run on the broker with that setting."""

from datetime import timedelta
from typing import Any

from broker_core.common.types import EntityAddress
from explorer.analysis import simulation
from explorer.analysis.reports import deliveries, lock, replay_history

from .real_run import run, scope_of, script

MANY = 40
S = 1_000_000
SECOND = timedelta(seconds=1)


def queue(name):
    return EntityAddress("real", name)


def test_another_lock_and_another_maximum_of_deliveries(archive):
    """Enough consumers for all messages, so that nothing feeds back."""
    played = script(1, MANY, every=2, mean=20, failing=0.3, crashing=0.05, until=2000)
    limits: dict[str, Any] = {"lock_duration": 60 * SECOND, "max_delivery_count": 6}
    run(queue("a"), played, consumers=MANY, **limits)
    was = scope_of(queue("a"))
    really = run(queue("b"), played, consumers=MANY, **limits | {"lock_duration": 20 * SECOND})
    share = really["LOCK_LOST"] / really["RECEIVED"]
    said = lock.answer(lock.history(was), 20 * SECOND).lost
    assert said.low <= share <= said.high and said.high - said.low < 0.35
    assert abs(said.share - share) < 0.12
    really = run(queue("c"), played, consumers=MANY, **limits | {"max_delivery_count": 2})
    one = deliveries.answer(deliveries.history(was), 2)
    assert round(one.dead.share * MANY) == really["DEAD_LETTERED"] > 3  # the same deliveries: no chance is left
    assert round(one.wasted * MANY) == really["ABANDONED"] + really["LOCK_LOST"]


def test_a_replay_of_what_was_and_of_other_settings(archive):
    """Two consumers that take three at once, are absent for a while, and lose locks."""
    played = script(3, MANY, every=3, mean=5, failing=0.1, until=600, absent=[(60, 75)])
    run(queue("a"), played, consumers=2, prefetch=3, lock_duration=15 * SECOND, max_delivery_count=10)
    found = replay_history.read(scope_of(queue("a")), 10)
    assert (found.setting.consumers, found.setting.prefetch, found.setting.lock) == (2, 3, 15 * S)
    actual, replayed = found.actual, simulation.replay_all(found.history, [found.setting])[0]
    assert (actual.messages, actual.processed, actual.lost) == (MANY, MANY, 0)
    assert abs(replayed.waiting - actual.waiting) < 0.15 * actual.waiting
    assert abs(replayed.depth - actual.depth) <= 3 and abs(replayed.processed - actual.processed) <= 1
    really = run(queue("b"), played, consumers=4, prefetch=1, lock_duration=15 * SECOND, max_delivery_count=10)
    truth = replay_history.read(scope_of(queue("b")), 10).actual
    [other] = simulation.replay_all(found.history, simulation.grid(found.setting, consumers=[4], prefetch=[1]))
    assert abs(other.waiting - truth.waiting) < 0.15 * truth.waiting and truth.waiting < actual.waiting
    assert abs(other.locks_lost - really["LOCK_LOST"]) <= 4 and abs(other.depth - truth.depth) <= 3
