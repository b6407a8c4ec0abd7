"""What became of the messages that an operation matched, in numbers that add up. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from broker_core.operations import NOT_UNDONE, Kind, Operation, State


@dataclass(frozen=True, slots=True)
class Tally:
    """The numbers of an operation: matched = done + skipped + failed + not_attempted + left + waiting, and after an undo
    done = undone + kept.

    matched:       messages that were counted at the start; None: not exactly known, and neither is what follows from it.
    waiting:       not reached yet by an operation that continues. not_attempted: not reached by one that ended before its end.
    left:          no longer in the list when the operation reached their place.
    kept:          done, and not undone. skipped_why, kept_why: the most frequent reason first.
    """

    matched: int | None
    done: int
    skipped: int = 0
    failed: int = 0
    waiting: int = 0
    not_attempted: int = 0
    left: int = 0
    undone: int = 0
    kept: int = 0
    skipped_why: tuple[tuple[str, int], ...] = ()
    kept_why: tuple[tuple[str, int], ...] = ()

    @property
    def parts(self) -> list[str]:
        """The numbers in words, without those that are 0."""
        of = f" of {self.matched:,}" if self.matched is not None else ""
        others = (
            (self.undone, "undone"), (self.kept, "not undone"), (self.skipped, "skipped"), (self.failed, "failed"),
            (self.not_attempted, "not attempted"), (self.left, "left the list before"),
        )  # fmt: skip
        return [f"{self.done:,}{of} done", *(f"{number:,} {word}" for number, word in others if number)]

    @property
    def settled(self) -> int:
        """How many need no more work: the length of the progress bar."""
        return self.done + self.skipped + self.failed + self.left


def tally(operation: Operation) -> Tally:
    """The numbers of an operation in any state."""
    skipped_why, kept_why = _split(operation.reasons)
    rest = max(0, operation.counted - operation.processed) if operation.counted is not None else 0
    undone = operation.undone
    kept = operation.done - undone if operation.state is State.UNDONE else sum(number for _, number in kept_why)
    return Tally(
        operation.counted, operation.done, operation.skipped, operation.failed, undone=undone, kept=kept,
        skipped_why=skipped_why, kept_why=kept_why, **{_rest_is(operation): rest},
    )  # fmt: skip


def _rest_is(operation: Operation) -> str:
    """What the messages are that were matched and not processed."""
    if operation.state is State.DONE or _reached_its_end(operation):
        return "left"
    if operation.state in (State.QUEUED, State.RUNNING, State.PAUSED):
        return "waiting"
    return "not_attempted"


def _reached_its_end(operation: Operation) -> bool:
    if operation.kind is Kind.IMPORT:  # a line of a file does not leave it
        return False
    numbers = operation.selection.numbers
    return operation.position >= (max(numbers, default=0) if numbers is not None else operation.selection.up_to)


def _split(reasons: Mapping[str, int]) -> tuple[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]]:
    """The reasons of what was skipped, and of what was not undone."""
    kept = {why.removeprefix(NOT_UNDONE): number for why, number in reasons.items() if why.startswith(NOT_UNDONE)}
    return _sorted((why, n) for why, n in reasons.items() if not why.startswith(NOT_UNDONE)), _sorted(kept.items())


def _sorted(reasons: Iterable[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(reasons, key=lambda pair: -pair[1]))
