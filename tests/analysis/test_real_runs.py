"""What a replay says about another setting, against the same history really run on the broker with that setting. `make soak` runs
many."""

import pytest

from broker_core.common.types import EntityAddress
from explorer.analysis.jobs.simulation import replay

from .known_truth import PlainQueue, band, dead, expired, lost_locks, setting_of
from .real_run import FAMILIES, SECOND, Limits, play, run, script

MANY = 40


@pytest.fixture(autouse=True)
def database(transactional_db):
    pass


def loaded(seed, **shares):
    """For three consumers, with an outage of 40 s."""
    return script(seed, MANY, every=2, mean=5.5, failing=0.1, until=1500, absent=[(20, 60)], **shares)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_replayed_time_to_live_agrees_with_a_real_run_with_a_backlog(family):
    namespace = f"real{family.replace('_', '')}"  # a name stands for one family
    played, limits = loaded(3), Limits(lock=60 * SECOND if family != "rabbitmq" else None, deliveries=4)
    found = run(family, EntityAddress(namespace, "was"), played, limits, consumers=3).replayable()
    assert found.has_backlog and replay(found.history, found.setting).processed == found.actual.processed
    then = Limits(limits.lock, limits.deliveries, 20 * SECOND)
    truth = expired(run(family, EntityAddress(namespace, "then"), played, then, consumers=3).replayable().actual)
    said, low, high = band(found, setting_of(found, then), expired)
    assert low <= truth <= high and abs(said - truth) < 0.05 < truth


def test_a_replayed_longer_lock_agrees_with_a_real_run():
    played = loaded(4, crashing=0.05)
    replay = run("service_bus", EntityAddress("real", "was"), played, Limits(5 * SECOND, 9), consumers=3).replayable()
    assert replay.late > 3 and replay.setting.lock == 5 * SECOND
    then = Limits(10 * SECOND, 9)
    truth = lost_locks(run("service_bus", EntityAddress("real", "then"), played, then, consumers=3).replayable().actual)
    said, low, high = band(replay, setting_of(replay, then), lost_locks)
    assert low <= truth <= high and abs(said - truth) < 0.06 and truth < lost_locks(replay.actual) / 1.5


def test_a_replayed_delivery_limit_agrees_with_a_real_run():
    played = script(5, MANY, every=2, mean=5.5, failing=0.4, until=1500)
    found = run("service_bus", EntityAddress("real", "was"), played, Limits(60 * SECOND, 4), consumers=3).replayable()
    assert replay(found.history, found.setting).dead_lettered == found.actual.dead_lettered
    then = Limits(60 * SECOND, 2)
    truth = dead(run("service_bus", EntityAddress("real", "then"), played, then, consumers=3).replayable().actual)
    assert replay(found.history, setting_of(found, then)).dead_lettered == round(truth * MANY) > 3


def test_the_simulated_queue_agrees_with_the_broker():
    played, limits = loaded(6, crashing=0.05), Limits(8 * SECOND, 3, 60 * SECOND)
    really = run("service_bus", EntityAddress("real", "was"), played, limits, consumers=3)
    queue = PlainQueue(limits)
    play(queue, played, consumers=3)
    plain = queue.happened(played.until)
    assert really.replayable().actual == plain.replayable().actual and len(really.refusals) == len(plain.refusals) > 3
