"""What a replay takes from lives and deliveries: work, consumers, prefetch, and what really happened. Pure."""

from datetime import timedelta

import pyarrow as pa

from broker_core.common.types import EventKind
from broker_core.history import schema
from explorer.analysis.reports import replay_history
from explorer.analysis.simulation import Result

from .conftest import a_life
from .known_truth import NOON, table

S = 1_000_000
MANY = 30  # deliveries before, one after the other, a second each
BEGIN = NOON + timedelta(hours=1)


def seconds(number):
    return timedelta(seconds=number)


def found(*given, end=NOON + timedelta(hours=2)):
    """given: (arrived, received, held, lost or how it ended), in seconds after BEGIN. Returns the replayable history and the work
    of these messages."""
    rows, lives = [], []
    for i in range(MANY):
        at = NOON + seconds(10 * i)
        rows.append({"sequence_number": i, "received_at": at, "held": 1})
        lives.append(a_life(sequence_number=i, enqueued_at=at, first_received_at=at, ended_at=at + seconds(1)))
    for number, (arrived, received, held, outcome) in enumerate(given, MANY):
        at = BEGIN + seconds(received)
        rows.append({"sequence_number": number, "received_at": at, "held": held, "outcome": int(outcome)})
        enqueued = BEGIN + seconds(arrived)
        lives.append(a_life(sequence_number=number, enqueued_at=enqueued, first_received_at=at, ended_at=at + seconds(held)))
    made = replay_history.replayable(pa.Table.from_pylist(lives, schema.LIFE), table(rows), NOON, end, 5)
    return made, [message.work for message in made.history.messages[MANY:]]


WELL, LOST = EventKind.COMPLETED, EventKind.LOCK_LOST


def test_messages_of_a_batch_are_worked_on_one_after_the_other():
    made, work = found((0, 0, 10, WELL), (0, 0, 25, WELL))
    assert work == [((10 * S, Result.WELL),), ((15 * S, Result.WELL),)]
    assert (made.setting.consumers, made.setting.prefetch, made.setting.lock) == (1, 2, 60 * S)


def test_messages_that_are_settled_together_share_the_time():
    assert found(*[(0, 0, 30, WELL)] * 3)[1] == [((10 * S, Result.WELL),)] * 3


def test_a_consumer_that_lost_a_lock_worked_until_it_received_again_if_messages_waited():
    """Another message took 70 s under a longer lease, so that longer work is known."""
    known = (500, 500, 70, WELL)
    assert found((0, 0, 62, LOST), (50, 100, 1, WELL), known)[1][0] == ((100 * S, Result.WELL),)
    assert found((0, 0, 62, LOST), (100, 100, 1, WELL), known)[1][0] == ((70 * S, Result.WELL),)


def test_a_consumer_that_received_before_its_lock_ended_had_given_up():
    assert found((0, 0, 62, LOST), (0, 20, 1, WELL))[1][0] == ((20 * S, Result.VANISHED),)


def test_what_happened_after_the_range_is_not_known_to_it():
    made, _ = found((0, 0, 10, WELL), (0, 0, 7000, WELL), end=BEGIN + seconds(60))
    assert (made.actual.messages, made.actual.processed, made.actual.depth) == (MANY + 2, MANY + 1, 2)
