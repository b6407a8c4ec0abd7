"""What became of a message that was resubmitted or moved: still waiting, received, completed, or failed again. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from broker_core.common.types import EventKind
from broker_core.reads import Event, LinkedMessage
from explorer.frames.presenters import actor_name

_LEAVES = (EventKind.RESUBMITTED, EventKind.MOVED)
_GOOD = {
    EventKind.COMPLETED: "Completed",
    EventKind.RECEIVED_AND_DELETED: "Received and deleted",
}
_BAD = {
    EventKind.DEAD_LETTERED: "Failed again",
    EventKind.EXPIRED: "Expired before it was completed",
    EventKind.MOVED: "Failed again",
    EventKind.DROPPED: "Dropped",
}
_OVER = {EventKind.PURGED: "Purged", EventKind.DELETED: "Deleted with its queue", EventKind.CANCELLED: "Cancelled"}
_ON_THE_WAY = {
    EventKind.SENT: "Waiting for a receiver",
    EventKind.RECEIVED: "Received",
    EventKind.RENEWED: "Received, lock renewed",
    EventKind.ABANDONED: "Abandoned: waiting for the next receiver",
    EventKind.RELEASED: "Released: waiting for the next receiver",
    EventKind.LOCK_LOST: "Lock expired: waiting for the next receiver",
    EventKind.DEFERRED: "Deferred",
    EventKind.FORWARDED: "Forwarded",
    EventKind.EDITED: "Edited: waiting for a receiver",
}


@dataclass(frozen=True, slots=True)
class Step:
    """Something that happened to it. detail: a reason, or who did it."""

    text: str
    at: datetime
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a message. verdict: "waiting", "good", "bad" or "over". place: where it is now, or was last."""

    verdict: str
    steps: tuple[Step, ...]
    place: LinkedMessage | None

    @property
    def icon(self) -> str:
        return {"good": "done", "bad": "dead"}.get(self.verdict, "right")

    @property
    def is_decided(self) -> bool:
        return self.verdict != "waiting"

    @property
    def last(self) -> Step:
        return self.steps[-1]


def fate(events: Sequence[Event], entity_id: int, number: int) -> Fate | None:
    """The fate of a message since it last left this place. None: it has not left, or its history is off."""
    left = [
        place for place, event in enumerate(events)
        if event.kind in _LEAVES and (event.entity_id, event.sequence_number) == (entity_id, number)
    ]  # fmt: skip
    if not left:
        return None
    start = events[left[-1]]
    place = start.other
    steps, verdict = [Step(f"Resubmitted{_as(place)}", start.at)], "waiting"
    for event in events[left[-1] + 1 :]:
        if (event.entity_id, event.sequence_number) == (entity_id, number):
            continue
        text, verdict = _judged(event)
        if text:
            steps.append(Step(text, event.at, _detail(event)))
        place = LinkedMessage(event.entity_id, event.address, event.sequence_number)
        if verdict != "waiting":
            break
    return Fate(verdict, tuple(steps), place)


def _judged(event: Event) -> tuple[str, str]:
    for verdict, texts in (("good", _GOOD), ("bad", _BAD), ("over", _OVER)):
        if event.kind in texts:
            return texts[event.kind], verdict
    return _ON_THE_WAY.get(event.kind, ""), "waiting"


def _detail(event: Event) -> str:
    if event.kind in _BAD:
        return ": ".join(filter(None, (event.reason, str(event.details.get("description") or ""))))
    if event.kind in (EventKind.RECEIVED, EventKind.COMPLETED) and event.actor:
        return f"by {actor_name(event.actor)}"
    return event.reason or ""


def _as(place: LinkedMessage | None) -> str:
    if place is None or place.sequence_number is None:
        return ""
    return f" as message {place.sequence_number}"
