"""What the time bar shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker_core.common.types import EventKind, Family
from broker_core.reads import Change, ClockReading, Event, NextChange
from explorer.frames import timeline

from . import time_scale as scale
from .clocks import happens

SPEEDS = (0.1, 1.0, 10.0, 60.0)
STEPS = ("1 s", "10 s", "1 min")
MOST_NAMED = 3  # changes with their name on the bar
APART = 12.0  # percent of the bar between two names
_MOVES = (
    ("−1 min", timedelta(minutes=-1)), ("−10 s", timedelta(seconds=-10)), ("−1 s", timedelta(seconds=-1)),
    ("+1 s", timedelta(seconds=1)), ("+10 s", timedelta(seconds=10)), ("+1 min", timedelta(minutes=1)),
)  # fmt: skip
AT_END = 5.0  # percent of the bar in which a text is aligned with its end
BASE = 40  # of the lines in the picture
_HUES = {
    Change.LOCK: "locked", Change.SESSION: "locked", Change.DUE: "scheduled", Change.VISIBLE: "scheduled", Change.LIFE: "expired",
    Change.REMOVAL: "expired", Change.UNACKNOWLEDGED: "locked", Change.QUEUE: "dead",
    Change.IDLE: "dead",
}  # fmt: skip
_SHORT = {
    Change.LOCK: "{} lock ends", Change.SESSION: "session lock ends", Change.DUE: "{} due", Change.VISIBLE: "{} visible",
    Change.LIFE: "{} expires", Change.REMOVAL: "{} removed", Change.UNACKNOWLEDGED: "{} times out", Change.QUEUE: "queue expires",
    Change.IDLE: "deleted on idle",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Coming:
    """A change to come. place: in percent of the bar; None: beyond its end. name: on the bar; empty: there is no space."""

    words: str
    hue: str
    at: datetime
    number: int | None
    place: float | None
    name: str

    @property
    def side(self) -> str:
        """The class of the name near the end of the bar."""
        return _side(self.place or 0)


@dataclass(frozen=True, slots=True)
class Past:
    """An event on the bar. height: of its line; dead letters are the highest."""

    hue: str
    place: float
    height: int

    @property
    def top(self) -> int:
        return BASE - self.height


@dataclass(frozen=True, slots=True)
class Speed:
    rate: float
    chosen: bool

    @property
    def word(self) -> str:
        return f"{self.rate:g}×"


@dataclass(frozen=True, slots=True)
class TimeBar:
    """The bar at an instant. at: of the past, if the page shows that; clock: the namespace's, now. before, after: the instants of
    the last event before `at`, and of the next one.

    may_set: whether this person may move the clock. travels: whether the bar leads to the past. page: where a form returns to.
    is_shown: False for a bar that appears later. plays: whether it has the controls to play the clock, and the sliders.
    may_fold: whether it is a line while there is nothing to see.
    """

    namespace: str
    path: str
    page: str
    clock: ClockReading
    coming: tuple[Coming, ...]
    past: tuple[Past, ...]
    may_set: bool
    travels: bool = True
    at: datetime | None = None
    before: datetime | None = None
    after: datetime | None = None
    is_shown: bool = True
    plays: bool = True
    may_fold: bool = True

    @property
    def moves(self) -> list[tuple[str, datetime]]:
        """Instants near that of the past, with how far they are; none in the future."""
        ways = [(text, self.now + by) for text, by in _MOVES]
        return [(text, at) for text, at in ways if at <= self.clock.now]

    @property
    def now(self) -> datetime:
        return self.at or self.clock.now

    @property
    def next(self) -> Coming | None:
        return self.coming[0] if self.coming else None

    @property
    def is_folded(self) -> bool:
        """Whether it is a line: the clock shows real time, and nothing is due within the bar's reach."""
        is_due = self.next is not None and self.next.place is not None
        return self.may_fold and not (self.at or self.clock.is_manual or is_due)

    @property
    def labels(self) -> list[tuple[float, str, str]]:
        """Places on the scale with their texts and classes: whether a narrow bar leaves out the text."""
        texts = scale.labels()
        minor = [min(i, len(texts) - 1 - i) % 2 == 1 for i in range(len(texts))]
        return [(place, text, f"{' minor' * leaves}{_side(place)}") for (place, text), leaves in zip(texts, minor, strict=True)]

    @property
    def speeds(self) -> list[Speed]:
        return [Speed(rate, self.clock.rate == rate and self.clock.is_manual) for rate in SPEEDS]

    @property
    def steps(self) -> tuple[str, ...]:
        return STEPS

    @property
    def slider_steps(self) -> int:
        return scale.STEPS

    @property
    def near_seconds(self) -> float:
        return scale.NEAR.total_seconds()

    @property
    def reach_seconds(self) -> float:
        return scale.REACH.total_seconds()


def coming(changes: Iterable[NextChange], now: datetime) -> tuple[Coming, ...]:
    """The changes to come, the first ones with their names as far as these have space."""
    marks: list[Coming] = []
    last = 0.0
    named = 0
    for change in changes:
        ahead = change.at - now
        place = scale.place(ahead) if ahead <= scale.REACH else None
        name = ""
        if place is not None and named < MOST_NAMED and place - last >= APART:
            name, last, named = _SHORT[change.what].format(change.sequence_number), place, named + 1
        marks.append(Coming(happens(change), _HUES[change.what], change.at, change.sequence_number, place, name))
    return tuple(marks)


def past(events: Sequence[Event], now: datetime, family: Family) -> tuple[Past, ...]:
    """The events on the bar; of several at one place the most important."""
    marks: dict[float, Past] = {}
    for event in events:
        ago = now - event.at
        if not timedelta(0) <= ago <= scale.REACH:
            continue
        words = timeline.words(event.kind, family, event.reason)
        mark = Past(words.hue, round(scale.place(-ago), 1), _height(event.kind))
        if mark.height > (known.height if (known := marks.get(mark.place)) else 0):
            marks[mark.place] = mark
    return tuple(marks[place] for place in sorted(marks))


def _side(place: float) -> str:
    """The class of a text that would stand beyond the end of the bar if its middle were here."""
    return " at-start" if place < AT_END else " at-end" if place > 100 - AT_END else ""


def _height(kind: EventKind) -> int:
    if kind in (EventKind.DEAD_LETTERED, EventKind.EXPIRED, EventKind.LOCK_LOST, EventKind.DROPPED):
        return 20
    return 14 if kind in (EventKind.SENT, EventKind.SCHEDULED) else 9
