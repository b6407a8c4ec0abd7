"""What an analysis says about another setting, against the same history really run on the broker with that setting."""

from datetime import timedelta

import pytest

from broker_core.common.types import EntityAddress
from broker_core.history import archive
from broker_core.models import ArchiveEpoch, ArchiveFile, ArchiveSlice, Entity
from broker_core.namespaces import get_clock
from explorer.analysis import replay, replay_history, what_if_deliveries, what_if_lock

from .real_run import run, script

MANY = 40
S = 1_000_000


def queue(name):
    return EntityAddress("real", name)


@pytest.fixture
def archived(transactional_db, settings, tmp_path):
    """Archives what was run, and returns the entity and a range with all of it."""
    settings.ARCHIVE_URL = str(tmp_path)

    def everything(name):
        archive.archive_events()
        now = get_clock("real").now
        return Entity.objects.get(path=name), now - timedelta(days=30), now + timedelta(microseconds=1)

    yield everything
    for model in (ArchiveFile, ArchiveSlice, ArchiveEpoch):
        model.objects.all().delete()


def test_another_lock(archived):
    """Enough consumers for all messages, so that nothing feeds back."""
    played = script(1, MANY, every=2, mean=25, crashing=0.05, until=2000)
    run(queue("a"), played, consumers=MANY, lock_duration=timedelta(minutes=1))
    history = what_if_lock.history(*archived("a"))
    really = run(queue("b"), played, consumers=MANY, lock_duration=timedelta(seconds=20), max_delivery_count=100)
    share = really["LOCK_LOST"] / really["RECEIVED"]
    said = what_if_lock.answer(history, timedelta(seconds=20)).lost
    assert said.low <= share <= said.high and said.high - said.low < 0.35
    assert abs(said.share - share) < 0.12


def test_another_maximum_of_deliveries(archived):
    played = script(2, MANY, every=2, mean=5, failing=0.4, poison=0.05, until=2000)
    run(queue("a"), played, consumers=MANY, max_delivery_count=6)
    history = what_if_deliveries.history(*archived("a"))
    really = run(queue("b"), played, consumers=MANY, max_delivery_count=2)
    one = what_if_deliveries.answer(history, 2)
    assert round(one.dead.share * MANY) == really["DEAD_LETTERED"] > 3  # the same deliveries: no chance is left
    assert round(one.wasted * MANY) == really["ABANDONED"] + really["LOCK_LOST"]


def test_a_replay_of_what_was_and_of_other_settings(archived):
    """Two consumers that take three at once, are absent for a while, and lose locks."""
    played = script(3, MANY, every=3, mean=5, failing=0.1, until=600, absent=[(60, 75)])
    lock = timedelta(seconds=15)
    run(queue("a"), played, consumers=2, prefetch=3, lock_duration=lock, max_delivery_count=10)
    entity, start, end = archived("a")
    found = replay_history.read(entity, start, end, 10, notices_crashes=False)
    assert (found.setting.consumers, found.setting.prefetch, found.setting.lock) == (2, 3, 15 * S)
    actual, replayed = found.actual, replay.replay_all(found.history, [found.setting])[0]
    assert (actual.messages, actual.processed, actual.lost) == (MANY, MANY, 0)
    assert abs(replayed.waiting - actual.waiting) < 0.15 * actual.waiting
    assert abs(replayed.depth - actual.depth) <= 3 and abs(replayed.processed - actual.processed) <= 1
    really = run(queue("b"), played, consumers=4, prefetch=1, lock_duration=lock, max_delivery_count=10)
    entity, start, end = archived("b")
    truth = replay_history.read(entity, start, end, 10, notices_crashes=False).actual
    [other] = replay.replay_all(found.history, replay.grid(found.setting, consumers=[4], prefetch=[1]))
    assert abs(other.waiting - truth.waiting) < 0.15 * truth.waiting and truth.waiting < actual.waiting
    assert abs(other.locks_lost - really["LOCK_LOST"]) <= 4 and abs(other.depth - truth.depth) <= 3
