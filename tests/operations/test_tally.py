"""The numbers of an operation's report: they add up in every state, and say only what is known."""

import dataclasses
from datetime import UTC, datetime

import pytest

from broker_core.common.types import EntityAddress, Family
from broker_core.operations import NOT_UNDONE, Kind, Operation, Selection, State
from explorer.operations.tally import Tally, tally

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
LIST = EntityAddress("shop", "orders")


def operation(state, *, counted=409, done=0, skipped=0, failed=0, undone=0, position=0, numbers=None, kind=Kind.RESUBMIT, why=()):
    """An operation on the messages 1 to 409, or on these numbers."""
    return Operation(
        id=1, kind=kind, actor="user:ada", family=Family.SERVICE_BUS, address=LIST, entity_id=1,
        selection=Selection(LIST, numbers=numbers, up_to=0 if kind is Kind.IMPORT else 409), options={}, counted=counted,
        done=done, skipped=skipped, failed=failed, reasons=dict(why), listed=(), pace=None, state=state, position=position,
        undone=undone, undo_position=0, requested_at=NOON, started_at=NOON, finished_at=None, kept_until=None, claimed_by="",
        lease_until=None, message="",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("ran", "expected", "words"),
    [
        (operation(State.QUEUED), {"waiting": 409}, "0 of 409 done"),
        (operation(State.RUNNING, done=100, position=100), {"waiting": 309}, "100 of 409 done"),
        (operation(State.PAUSED, done=100, position=100), {"waiting": 309}, "100 of 409 done"),
        (operation(State.STOPPED, done=350, position=350), {"not_attempted": 59}, "350 of 409 done · 59 not attempted"),
        (
            operation(State.UNDONE, done=350, undone=350, position=350),
            {"not_attempted": 59, "undone": 350},
            "350 of 409 done · 350 undone · 59 not attempted",
        ),
        (
            operation(State.UNDONE, done=350, undone=348, position=350, why=[(f"{NOT_UNDONE}received", 2)]),
            {"not_attempted": 59, "undone": 348, "kept": 2, "kept_why": (("received", 2),)},
            "350 of 409 done · 348 undone · 2 not undone · 59 not attempted",
        ),
        (operation(State.UNDOING, done=350, undone=100, position=350), {"not_attempted": 59, "undone": 100}, None),
        (operation(State.FAILED, done=9, failed=1, position=10), {"failed": 1, "not_attempted": 399}, None),
        (operation(State.DONE, done=400, position=409), {"left": 9}, "400 of 409 done · 9 left the list before"),
        (operation(State.UNDONE, done=400, undone=400, position=409), {"left": 9, "undone": 400}, None),
        (operation(State.STOPPED, done=400, position=409), {"left": 9}, None),  # stopped when it had passed the last one
        (
            operation(State.DONE, done=400, skipped=9, position=409, why=[("locked by billing", 2), ("too large", 7)]),
            {"skipped": 9, "skipped_why": (("too large", 7), ("locked by billing", 2))},
            "400 of 409 done · 9 skipped",
        ),
        (operation(State.STOPPED, counted=3, done=2, position=5, numbers=(2, 5, 9)), {"not_attempted": 1}, None),
        (operation(State.DONE, counted=3, done=3, position=9, numbers=(2, 5, 9)), {}, "3 of 3 done"),
        (operation(State.STOPPED, counted=9, done=4, position=4, kind=Kind.IMPORT), {"not_attempted": 5}, None),
        (operation(State.STOPPED, counted=None, done=4, position=4), {}, "4 done"),
    ],
)
def test_each_message_is_counted_once_and_under_its_name(ran, expected, words):
    numbers = tally(ran)
    assert numbers == dataclasses.replace(Tally(ran.counted, ran.done), **expected)
    if words:
        assert " · ".join(numbers.parts) == words


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("position", [0, 200, 409])
def test_the_numbers_add_up_in_every_state(state, position):
    numbers = tally(operation(state, done=150, skipped=40, failed=10, undone=90, position=position))
    rest = numbers.waiting + numbers.not_attempted + numbers.left
    assert numbers.done + numbers.skipped + numbers.failed + rest == numbers.matched == 409
    if state is State.UNDONE:
        assert numbers.undone + numbers.kept == numbers.done
