"""Which parts of a lesson's screen a step needs. A part appears with the first step that uses it, and stays. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from .lesson import Step


class Part(StrEnum):
    """A part of the screen. SPEED: play, speeds and sliders of the clock. WORDS: the switch to another family's terms."""

    BOARD = "board"
    TIMELINE = "timeline"
    CLOCK = "clock"
    SPEED = "speed"
    WORDS = "words"
    LOAD = "load"


EXCEPT_LOAD = frozenset(Part) - {Part.LOAD}


def needed(steps: Sequence[Step], index: int, *, has_messages: bool) -> frozenset[Part]:
    """The parts on the screen at a step, by its index. has_messages: whether there is something to see on the board.

    The last step invites to experiment, so it and what follows have all of them. A load has a screen of its own.
    """
    if index >= len(steps) - 1:
        return EXCEPT_LOAD
    shown = {part for step in steps[: index + 1] for part in _used(step)}
    return frozenset(shown | ({Part.BOARD} if has_messages or index > 0 else set()))


def _used(step: Step) -> set[Part]:
    moves_clock = any(do.action == "advance" for do in step.do) or any(expectation.clock for expectation in step.expect)
    uses = {
        Part.TIMELINE: step.show == "timeline",
        Part.CLOCK: step.show == "clock" or moves_clock,
        Part.WORDS: bool(step.other),
    }
    return {part for part, is_used in uses.items() if is_used}
