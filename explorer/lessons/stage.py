"""A namespace in which a lesson or scenario is played: performs actions, and compares expectations with the broker's events."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils import timezone

from broker_core import namespaces, reads, sweeps
from broker_core.common.durations import human
from broker_core.common.errors import BrokerError, EntityNotFound
from broker_core.common.types import BROKER, Actor, EntityAddress, EventKind, Family, Right, SubQueue
from broker_core.operations import Kind
from broker_core.reads import Event, News, Position
from explorer import operations
from explorer.frames.family import pages_of
from explorer.frames.presenters import plural

from . import load
from .lesson import Action, Do, Expect, as_table

MOST_EVENTS = 200  # of a step that are compared with its expectations
MOST_READ = 100  # marks whose events are kept
MOST_LOGGED = 200  # actions of a sandbox
MOST_BODY = 4096  # bytes of a recorded body; of a longer one, its size is recorded

_read: dict[tuple[str, str], News] = {}  # the events after a mark that were read, by namespace and mark


@dataclass(slots=True)
class Stage:
    """person: who performs what names nobody else. memory: what an action leaves to a later one, such as lock tokens; JSON.
    actor: who performs the current action. log: of the actions, for a recording (scenario.py); JSON.
    """

    namespace: str
    family: Family
    person: Actor
    actions: Mapping[str, Action]
    has_policy: Callable[[str, str], bool]
    memory: MutableMapping[str, Any] = field(default_factory=dict)
    log: list[dict[str, Any]] = field(default_factory=list)
    actor: Actor = Actor("process", "nobody")

    def at(self, queue: str, subqueue: SubQueue = SubQueue.MAIN) -> EntityAddress:
        return EntityAddress(self.namespace, queue, subqueue)

    def perform(self, actions: Iterable[Do]) -> tuple[list[str], BrokerError | None]:
        """Perform actions until one is refused. Returns what happened, in words, and the refusal."""
        results: list[str] = []
        for do in actions:
            self.actor = Actor("process", do.by, Right.ALL) if do.by else self.person
            entry = {"do": as_table(do), "after": self.position().event_id, "began": timezone.now().isoformat()}
            try:
                results.append(self.actions[do.action].run(self, do.arguments))
            except BrokerError as refusal:
                return results, refusal
            finally:
                namespaces.hide_entities(self.namespace, actor=self.person)
                self.log = [
                    *self.log,
                    entry
                    | {"until": self.position().event_id, "at": self.clock().isoformat(), "ended": timezone.now().isoformat()},
                ][-MOST_LOGGED:]
        return [text for text in results if text], None

    def label(self, do: Do) -> str:
        """The text of an action's button."""
        words = {key: human(value) if hasattr(value, "total_seconds") else value for key, value in do.arguments.items()}
        return do.label or self.actions[do.action].label.format_map(_Lenient(words))

    def clock(self) -> datetime:
        return namespaces.get_clock(self.namespace, actor=self.person).now

    def position(self) -> Position:
        """Where the events are now."""
        return reads.position(self.namespace, actor=self.person)

    def beginning(self) -> dict[str, Any]:
        """What the expectations of a step that begins now are compared with; JSON."""
        return {"mark": self.position().snapshot, "clock": self.clock().isoformat()}

    def events_since(self, mark: str) -> list[Event]:
        """The newest events after a mark, a snapshot, oldest first. Those that were read for this mark before are kept, since a
        read examines the events of all namespaces since the one before."""
        key = self.namespace, mark
        last = _read.get(key, News(mark, ()))
        news = reads.events_since(self.namespace, last.snapshot, limit=MOST_EVENTS, actor=self.person)
        if len(_read) >= MOST_READ:
            _read.clear()
        known = sorted((*last.events, *news.events), key=lambda event: event.event_id)[-MOST_EVENTS:]
        _read[key] = News(news.snapshot, tuple(known))
        return known

    def unmet(self, expected: Sequence[Expect], events: Sequence[Event], began_at: datetime | None) -> list[Expect]:
        """Those of the expectations that do not hold. events: since the step began. began_at: the clock then."""
        return [expectation for expectation in expected if not self._is_met(expectation, events, began_at)]

    def _is_met(self, expected: Expect, events: Sequence[Event], began_at: datetime | None) -> bool:
        if expected.clock is not None:
            return began_at is not None and self.clock() - began_at >= expected.clock
        if expected.deleted:
            return not self._exists(expected.deleted)
        if expected.policy:
            return self.has_policy(self.namespace, expected.policy)
        if expected.load:
            counted = self.memory.get("load") or load.count(self.namespace)
            return counted.get(expected.load, 0) >= expected.attributes["times"]
        matching = [event for event in events if matches(event, expected, self.person)]
        return len(matching) >= expected.attributes.get("times", 1)

    def _exists(self, path: str) -> bool:
        try:
            reads.entity(self.at(path), actor=self.person)
        except EntityNotFound:
            return False
        return True


def body_of(arguments: Mapping[str, Any], name: str, other: str) -> bytes:
    """The body that an action sends: a text, or one of a size. other: without either."""
    return b"x" * arguments["size"] if "size" in arguments else str(arguments.get(name, other)).encode()


class _Lenient(dict):
    def __missing__(self, key: str) -> str:
        return ""


def matches(event: Event, expected: Expect, person: Actor) -> bool:
    """Whether an event is of the kind and has the attributes that are expected. by: "you", "broker", or the name of a process."""
    if event.kind != expected.kind:
        return False
    attributes = expected.attributes
    has = {
        "queue": event.address.path if event.address else None,
        "number": event.sequence_number,
        "reason": event.reason,
        "count": event.delivery_count,
        "session": event.session_id,
        "by": "you" if event.actor == str(person) else (event.actor or "broker").rpartition(":")[2],
        "to": event.other.address.path if event.other and event.other.address else None,
    }
    return all(has[key] == value for key, value in attributes.items() if key != "times")


def body_argument(name: str, event: Event, memory: Mapping[str, Any]) -> dict[str, Any]:
    """The body of a message as an argument of an action: a text, or, if it is no text or too long, its size."""
    body = memory.get("bodies", {}).get(f"{event.entity_id}#{event.sequence_number}")
    if body is None:
        return {}
    with suppress(UnicodeDecodeError):
        text = body.decode()
        if len(body) <= MOST_BODY and all(letter.isprintable() or letter in "\n\t" for letter in text):
            return {name: text}
    return {"size": len(body)}


def actor_argument(event: Event, person: Actor) -> dict[str, str] | None:
    """Who caused an event, as a `do` says it; None: the broker."""
    if not event.actor or event.actor == BROKER or event.address is None:
        return None
    kind, _, name = event.actor.rpartition(":")
    is_own = event.actor == str(person) or kind != "process" and name.strip() == person.name  # over a connection of its own
    return {} if is_own else {"as": name.strip()}


def operation(event: Event, who: Mapping[str, str]) -> dict[str, Any] | None:
    """The action of an operation on a list's messages, such as Purge, by an event of one of them; None: it is no such event. who:
    as a `do` says it."""
    copies = event.details.get("to", ())
    if event.kind is EventKind.PURGED:
        action: dict[str, Any] = {"action": _PURGES.get(event.reason or "", "purge")}
    elif event.kind is EventKind.MOVED and event.reason in _MOVED_BY_HAND and len(copies) == 1:
        action = {"action": "move", "to": copies[0]["path"]}
    else:
        return None
    if event.address is None:
        return None
    dead = {"dead_letters": True} if event.address.subqueue is SubQueue.DEAD_LETTER else {}
    return {**action, "queue": event.address.path, "number": event.sequence_number, **dead, **who}


def is_unrepeatable(event: Event) -> bool:
    """Whether a person caused an event that no action of a scenario causes."""
    return (
        event.kind in _UNREPEATABLE
        or event.kind is EventKind.MOVED
        and event.reason in _MOVED_BY_HAND
        or (event.kind is EventKind.LOCK_LOST and "dropped_by" in event.details)
    )


_PURGES = {"discarded": "discard", "archived": "archive"}  # by the reason of the event
_MOVED_BY_HAND = ("moved", "Requeued")
_UNREPEATABLE = (
    EventKind.DELETED, EventKind.RELEASED, EventKind.RESTORED, EventKind.DUPLICATE_DROPPED, EventKind.EDITED,
)  # fmt: skip


def _operate(kind: Kind, word: str) -> Callable[[Stage, Mapping[str, Any]], str]:
    """An operation on one message of a list, as the buttons of the list start it."""

    def run(stage: Stage, arguments: Mapping[str, Any]) -> str:
        pages = pages_of(stage.family).operations
        subqueue = SubQueue.DEAD_LETTER if arguments.get("dead_letters") else SubQueue.MAIN
        tab = next((name for name, place in pages.lists.items() if place.subqueue == subqueue), "")
        chosen = operations.selection(stage.at(arguments["queue"]), stage.family, tab, numbers=[arguments["number"]])
        options = {"to": pages.target(arguments["to"])} if "to" in arguments else {}
        done = operations.start(kind, chosen, actor=stage.actor, options=options)
        return f"{word} {plural(done.done, 'message')}."

    return run


def _advance(stage: Stage, arguments: Mapping[str, Any]) -> str:
    clock = namespaces.step_clock(stage.namespace, arguments["by"], actor=stage.actor)
    sweeps.follow_clock(stage.namespace)
    return f"Advanced the clock by {human(arguments['by'])} to {clock.now:%H:%M:%S}."


def _load(stage: Stage, arguments: Mapping[str, Any]) -> str:
    """A load on a queue, for as long as the action says."""
    settings = load.LoadSettings.read(arguments)
    lasts = min(arguments["for"], load.DURATION)
    stage.memory["load"] = load.play(stage.at(arguments["queue"]), stage.family, settings, lasts.total_seconds())
    return f"Put a load on {arguments['queue']} for {human(lasts)}."


COMMON: dict[str, Action] = {
    "load": Action(_load, "Put a load on {queue} for {for}", ("queue", "for"), tuple(load.LIMITS)),
    "advance": Action(_advance, "Advance the clock by {by}", needs=("by",)),
    "purge": Action(_operate(Kind.PURGE, "Purged"), "Purge message {number}", ("queue", "number"), ("dead_letters",)),
    "discard": Action(_operate(Kind.DISCARD, "Discarded"), "Discard message {number}", ("queue", "number"), ("dead_letters",)),
    "archive": Action(_operate(Kind.ARCHIVE, "Archived"), "Archive message {number}", ("queue", "number"), ("dead_letters",)),
    "move": Action(_operate(Kind.MOVE, "Moved"), "Move message {number} to {to}", ("queue", "number", "to"), ("dead_letters",)),
}
