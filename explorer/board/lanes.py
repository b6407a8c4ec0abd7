"""Builds the lanes of a board from messages and events. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from broker_core.common.types import EventKind, Family
from broker_core.reads import Capped, Event, MessageRow, SessionRow
from explorer.frames import presenters, timeline
from explorer.frames.actors import ShownActor, shown_actor
from explorer.frames.presenters import Deadline
from explorer.frames.values import Badge, Lane

MOST = 40  # chips of a lane
MOST_LEFT = 6  # chips of those that left
TAIL = 4  # characters of a message id
SEEN_FOR = timedelta(minutes=5)  # since its last receive, a receiver has a box without messages
_NUMBERED_ANEW = (EventKind.ACTIVATED, EventKind.RESUBMITTED)  # it is still there, under another number


@dataclass(frozen=True, slots=True)
class Chip:
    """A message on the board.

    key: its id in the page, the same in all lanes. was: the key under which it was on the board before. tail: the end of its
    message id. due: the next change by time alone. since: when its present state began. age_of: the instant whose age is shown;
    None: the countdown to `due` is. tries: how often it failed, or was received; tried: as a number. note: said after it.
    """

    key: str
    number: int
    tail: str
    badge: Badge
    url: str
    due: Deadline | None = None
    since: datetime | None = None
    age_of: datetime | None = None
    tries: str = ""
    tried: int = 0
    note: str = ""
    was: str = ""


@dataclass(frozen=True, slots=True)
class Box:
    """Some chips of a lane. of: their receiver, or the words for their session or reason. holder: who has locked the session;
    until: when that lock ends."""

    of: ShownActor | str
    chips: tuple[Chip, ...]
    holder: ShownActor | None = None
    until: datetime | None = None

    @property
    def title(self) -> str:
        return str(self.of)

    @property
    def receiver(self) -> ShownActor | None:
        return self.of if isinstance(self.of, ShownActor) else None


@dataclass(frozen=True, slots=True)
class ShownLane:
    """A lane as the page shows it. chips: outside of boxes. count: of its messages, in words; more: how many are not shown."""

    lane: Lane
    chips: tuple[Chip, ...]
    boxes: tuple[Box, ...]
    count: str
    more: int
    url: str

    @property
    def is_boxed(self) -> bool:
        return self.lane.by is not None

    @property
    def is_empty(self) -> bool:
        return not self.chips and not self.boxes


@dataclass(frozen=True, slots=True)
class Board:
    """An entity's board.

    lanes: of the messages that are there. left: messages that left recently, newest first. now: the instant at which it is true.
    rate: of messages that leave, a second; None in the past. dead_letters: where dead letters go, as name and URL, if no lane has
    them.
    """

    lanes: tuple[ShownLane, ...]
    left: tuple[Chip, ...]
    now: datetime
    rate: float | None
    dead_letters: tuple[str, str] | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no lane has anything, so that none is folded."""
        return all(lane.is_empty for lane in self.lanes)


def key_of(entity_id: int, number: int | None) -> str:
    return f"b-{entity_id}-{number}"


def tail_of(message_id: str | None) -> str:
    """The end of a message id, with an ellipsis; a short id as it is."""
    text = message_id or ""
    return text if len(text) <= TAIL + 2 else f"…{text[-TAIL:]}"


def chip_of(
    row: MessageRow,
    url: Callable[[MessageRow], str],
    *,
    tries: Callable[[MessageRow], tuple[int, str]],
    was: Mapping[str, str],
) -> Chip:
    """The chip of a message that is there."""
    due = presenters.deadline(row)
    is_held = row.locked_by is not None and due is not None and due.words != "expires in"
    since = (row.held_since or row.last_received_at or row.enqueued_at) if is_held else row.enqueued_at
    counts_down = due is not None and due.words != "expires in"
    key = key_of(row.entity_id, row.sequence_number)
    tried, text = tries(row)
    return Chip(
        key, row.sequence_number, tail_of(row.message_id), presenters.badge(row), url(row), due,
        since if due else None,
        None if counts_down else row.dead_lettered_at or (row.last_received_at if row.owner_id else row.enqueued_at),
        tried=tried, tries=text, was=was.get(key, ""),
    )  # fmt: skip


def shown_lane(
    lane: Lane,
    rows: Sequence[MessageRow],
    chips: Mapping[int, Chip],
    count: int | Capped | None,
    *,
    url: str,
    boxes: Iterable[Box] = (),
) -> ShownLane:
    """A lane with these messages, in its order. boxes: those that are shown even without messages."""
    empty = {box.of: box for box in boxes}
    inside: dict[ShownActor | str, list[Chip]] = {of: [] for of in empty}
    loose: list[Chip] = []
    for row in rows:
        chip = chips[row.sequence_number]
        of = lane.by(row) if lane.by else ""
        (inside.setdefault(of, []) if of else loose).append(chip)
    all_boxes = [_box(of, inside[of], empty.get(of)) for of in sorted(inside, key=str)]
    total = count.value if isinstance(count, Capped) else count or 0
    text = str(count) if isinstance(count, Capped) else f"{count:,}" if count is not None else str(len(rows))
    return ShownLane(lane, tuple(loose), tuple(all_boxes), text, max(0, total - len(rows)), url)


def _box(of: ShownActor | str, chips: Sequence[Chip], known: Box | None) -> Box:
    return Box(of, tuple(chips), known.holder if known else None, known.until if known else None)


def boxes_of_receivers(events: Iterable[Event], now: datetime) -> list[Box]:
    """The receivers that were seen recently, whether or not they hold messages."""
    received = (e for e in events if e.kind == EventKind.RECEIVED and e.actor and now - e.at <= SEEN_FOR)
    return [Box(receiver, ()) for receiver in sorted({shown_actor(event.actor) for event in received}, key=str)]


def boxes_of_sessions(sessions: Iterable[SessionRow]) -> list[Box]:
    """The sessions that somebody has locked."""
    return [
        Box(session_title(session.session_id), (), shown_actor(session.locked_by), session.locked_until)
        for session in sessions
        if session.locked_until
    ]


def session_title(session_id: str | None) -> str:
    return f"session {session_id}" if session_id else ""


def left_of(events: Iterable[Event], present: Iterable[str], family: Family, url: Callable[[Event], str]) -> tuple[Chip, ...]:
    """The chips of what left, newest first. present: the keys of those that are there, as a message can be restored."""
    chips: dict[str, Chip] = {}
    present_keys = set(present)
    for event in events:
        key = key_of(event.entity_id, event.sequence_number)
        if not event.kind.is_terminal or event.kind in _NUMBERED_ANEW or key in present_keys or key in chips:
            continue
        words = timeline.words(event.kind, family, event.reason)
        badge = Badge(words.word, words.hue if words.hue in ("expired", "dead") else "gone", words.icon)
        to = event.other.address if event.kind in (EventKind.MOVED, EventKind.FORWARDED) and event.other else None
        note = f"to {presenters.shown_path(to)}" if to else ""
        chips[key] = Chip(key, event.sequence_number, tail_of(event.message_id), badge, url(event), age_of=event.at, note=note)
        if len(chips) == MOST_LEFT:
            break
    return tuple(chips.values())


def renumbered(events: Iterable[Event]) -> dict[str, str]:
    """By the key of a message, the one that it had before: of schedules that became due, and what was resubmitted or moved."""
    return {
        key_of(other.entity_id, other.sequence_number): key_of(event.entity_id, event.sequence_number)
        for event in events
        if event.kind in (*_NUMBERED_ANEW, EventKind.MOVED)
        for other in event.others
    }
