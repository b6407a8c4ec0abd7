"""Operations in words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple
from urllib.parse import urlencode

from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from broker_core.common.durations import human
from broker_core.common.types import Actor
from broker_core.operations import Kind, Operation, Selection, State
from broker_core.reads import EntityRow
from explorer.frames.family import pages_of
from explorer.frames.presenters import plural

from .forms import FORMS
from .selecting import count, selection
from .tally import Tally, tally

SECONDS_TO_COUNT = 0.1  # of the buttons of a filtered list
MOST_AT_ONCE = 1_000  # more are done only after a page that says how many


class Verb(NamedTuple):
    """A kind in words: to do, doing, done; its icon; what it does to a message."""

    verb: str
    doing: str
    done: str
    icon: str
    effect: str


VERBS = {
    Kind.RESUBMIT: Verb("Resubmit", "Resubmitting", "Resubmitted", "back", "go back to where they came from, as new messages."),
    Kind.REPAIR: Verb("Repair and resubmit", "Repairing", "Repaired", "back", "get the new content, and go back to their queue."),
    Kind.MOVE: Verb("Move", "Moving", "Moved", "forward", "go to another queue, as new messages."),
    Kind.ARCHIVE: Verb("Archive", "Archiving", "Archived", "down", "leave the list, and can be restored at any time."),
    Kind.DISCARD: Verb("Discard", "Discarding", "Discarded", "trash", "leave the list; after 30 minutes they are deleted."),
    Kind.PURGE: Verb("Purge", "Purging", "Purged", "trash", "leave the list; after 30 minutes they are deleted."),
    Kind.RELEASE: Verb("Release", "Releasing", "Released", "unlock", "become available at once; their holders lose them."),
    Kind.IMPORT: Verb("Import", "Importing", "Imported", "up", "are sent as new messages."),
    Kind.DELETE: Verb("Delete", "Deleting", "Deleted", "trash", "are deleted with it after 30 minutes."),
    Kind.EXPORT: Verb("Export", "Exporting", "Exported", "down", "are written to a file, which is kept for a day."),
}
MOVING = (Kind.RESUBMIT, Kind.REPAIR, Kind.MOVE)  # they leave copies elsewhere
STATES = {
    State.QUEUED: ("waiting for a worker", "scheduled"),
    State.RUNNING: ("running", "active"),
    State.PAUSED: ("paused", "deferred"),
    State.STOPPED: ("stopped", "gone"),
    State.DONE: ("done", "done"),
    State.FAILED: ("failed", "dead"),
    State.UNDOING: ("undoing", "active"),
    State.UNDONE: ("undone", "gone"),
}


@dataclass(frozen=True, slots=True)
class Offer:
    """A button of a list. all: its text for everything that the list shows now. page: where it posts to, if not to the page that
    starts operations."""

    kind: Kind
    icon: str
    verb: str
    all: str = ""
    page: str = ""

    @property
    def key(self) -> str:
        """The shortcut that acts on the selected messages."""
        return {Kind.RESUBMIT: "u", Kind.MOVE: "m", Kind.DISCARD: "d"}.get(self.kind, "")

    @property
    def is_danger(self) -> bool:
        return self.kind is Kind.DISCARD

    @property
    def acts_at_once(self) -> bool:
        """Whether it acts on selected messages without asking for more."""
        return self.kind not in FORMS


@dataclass(frozen=True, slots=True)
class Line:
    """An operation as pages show it."""

    operation: Operation

    @property
    def verb(self) -> Verb:
        return VERBS[self.operation.kind]

    @property
    def title(self) -> str:
        """What it does, with its count."""
        operation = self.operation
        if operation.kind is Kind.DELETE:
            return f"Deleted {self.deleted} ({plural(operation.done, 'message')})"
        number = plural(operation.counted, "message") if operation.counted is not None else "all matching messages"
        return f"{self.verb.verb} {number}{self.target}"

    @property
    def deleted(self) -> str:
        """The entity that it deleted: "queue demo/orders"."""
        address = self.operation.address
        return f"{self.operation.options.get('entity', 'queue')} {address.namespace}/{address.path}"

    @property
    def target(self) -> str:
        to = self.operation.options.get("to")
        return f" {pages_of(self.operation.family).operations.target_words(to)}" if to else ""

    @property
    def state(self) -> str:
        return STATES[self.operation.state][0]

    @property
    def hue(self) -> str:
        return STATES[self.operation.state][1]

    @property
    def icon(self) -> str:
        return {"active": "play", "deferred": "pause", "scheduled": "scheduled"}.get(self.hue, self.hue)

    @property
    def percent(self) -> int | None:
        """How much is processed; None if it is not known how much there is."""
        operation = self.operation
        if operation.state is State.UNDOING:
            return min(100, 100 * operation.undone // max(1, operation.done))
        if operation.counted is None:
            return None
        return min(100, 100 * operation.processed // max(1, operation.counted))

    @property
    def rate(self) -> float | None:
        """Messages per second so far."""
        operation = self.operation
        if operation.started_at is None or operation.read_at is None or operation.state in (State.UNDOING, State.UNDONE):
            return None
        seconds = ((operation.finished_at or operation.read_at) - operation.started_at).total_seconds()
        return operation.processed / seconds if seconds > 1 else None

    @property
    def tally(self) -> Tally:
        return tally(self.operation)

    @property
    def took(self) -> str:
        operation = self.operation
        return human(operation.finished_at - operation.started_at) if operation.finished_at and operation.started_at else ""

    @property
    def undo_verb(self) -> str:
        return "Restore" if self.operation.kind in (Kind.ARCHIVE, Kind.DELETE) else "Undo"

    @property
    def undo_text(self) -> str:
        """The text of the button that undoes it."""
        return self.undo_verb if self.operation.kind is Kind.DELETE else f"{self.undo_verb} {self.operation.done:,}"

    @property
    def undo_left(self) -> str:
        """For how long it can be undone; empty: without a limit, or not."""
        operation = self.operation
        if not operation.can_be_undone or operation.kept_until is None or operation.read_at is None:
            return ""
        return human(timedelta(minutes=max(1, round((operation.kept_until - operation.read_at) / timedelta(minutes=1)))))

    @property
    def undo_effect(self) -> str:
        """What an undo does."""
        if self.operation.kind is Kind.DELETE:
            return "It returns with its messages, settings and keys; locks that were held then have ended."
        if self.operation.kind is Kind.IMPORT:
            return "Imported messages that still wait are removed; what was received stays, and is listed."
        if self.operation.kind in MOVING:
            return "Copies that still wait are removed and the originals return; what was received stays, and is listed."
        return "The messages return with their numbers and delivery counts."

    @property
    def what(self) -> str:
        """Which messages."""
        if self.operation.kind is Kind.DELETE:
            return "with all its messages"
        chosen = self.operation.selection
        if file := self.operation.options.get("file"):
            return f"from {file}"
        if chosen.numbers is not None:
            return f"{plural(len(chosen.numbers), 'selected message')}"
        return f"all that match {chosen.filter}" if chosen.filter else "all"

    @property
    def repair(self) -> str:
        """What a repair changes; empty for other kinds. Not for people who may not see bodies."""
        options, parts = self.operation.options, []
        if "body" in options:
            parts.append("a new body")
        if "merge_patch" in options:
            parts.append(f"merge patch {json.dumps(options['merge_patch'], ensure_ascii=False)}")
        if "replace" in options:
            parts.append("{!r} replaced by {!r}".format(*options["replace"]))
        if "properties" in options:
            parts.append(f"properties {', '.join(f'{name}={value}' for name, value in options['properties'].items())}")
        return "; ".join(parts)


def report(operation: Operation) -> str:
    """The result of an operation, for a notice and the audit."""
    verb = VERBS[operation.kind]
    if operation.is_open:
        return (
            f"{verb.doing} {plural(operation.counted, 'message') if operation.counted is not None else 'all matching messages'}."
        )
    text = (
        f"{verb.done} {plural(operation.done, 'message')}{Line(operation).target}."
        if operation.done
        else f"{verb.done} no messages."
    )
    if operation.state is State.FAILED:
        text = f"{text} {operation.message}"
    numbers = tally(operation)
    if numbers.skipped_why:
        skipped = ", ".join(f"{number:,} {why}" for why, number in numbers.skipped_why[:3])
        text = f"{text} Skipped: {skipped}."
    return f"{text} Not attempted: {numbers.not_attempted:,}." if numbers.not_attempted else text


def undo_report(operation: Operation) -> str:
    """The result of an undo."""
    if operation.state is State.UNDOING:
        return f"Undoing operation {operation.id}."
    if operation.kind is Kind.DELETE:
        return f"Restored the {Line(operation).deleted} with {plural(operation.done, 'message')}."
    left = operation.done - operation.undone
    way = "removed" if operation.kind is Kind.IMPORT else "returned"
    text = f"Undone: {plural(operation.undone, 'message')} {way}."
    return f"{text} {left:,} could not be {way}; operation {operation.id} lists them." if left else text


def offers(entity: EntityRow, tab: str, filter: str, *, actor: Actor) -> dict:
    """Context of the buttons of a list: what can be done with its messages, and with all that it shows."""
    provided = pages_of(entity.family).operations
    if tab not in provided.lists:
        return {}
    counted = count(selection(entity.address, entity.family, tab, filter=filter), actor=actor, seconds=SECONDS_TO_COUNT)
    locked = provided.lists[tab].locked
    kinds: Sequence[tuple[Kind, bool]] = [
        (Kind.RESUBMIT, provided.resubmits(tab, entity)),
        (Kind.RELEASE, tab in provided.releases),
        (Kind.MOVE, not locked),
        (Kind.ARCHIVE, not locked),
        (Kind.DISCARD, not locked),
    ]
    own_page = {Kind.MOVE: provided.move_page(entity.address)}
    offered = [_offer(kind, counted.text, bool(filter), own_page.get(kind, "")) for kind, has in kinds if has]
    for_all = [offer for offer in offered if offer.all]
    return {"operate": offered, "operate_all": for_all, "counted": counted, "operate_filter": filter} if offered else {}


def _offer(kind: Kind, number: str, filtered: bool, page: str) -> Offer:
    """Discarding everything is called a purge."""
    verb = VERBS[kind]
    in_all = VERBS[Kind.PURGE].verb if kind is Kind.DISCARD else verb.verb
    text = f"{in_all} {number} that match" if filtered else f"{in_all} all {number}"
    with_all = kind in (Kind.DISCARD, Kind.RESUBMIT, Kind.MOVE)
    return Offer(kind, verb.icon, verb.verb, f"{text}{'…' if kind is Kind.MOVE else ''}" if with_all else "", page)


def title_of(kind: Kind, chosen: Selection, number: str) -> str:
    verb = VERBS[kind].verb
    return f"{verb} {number} messages" if number != "1" else f"{verb} 1 message"


def page_of(operation: Operation) -> str:
    return reverse("explorer:operation", args=(operation.id,))


def local(url: str) -> str:
    """The address of a page to return to, if it is one of this site."""
    return url if url_has_allowed_host_and_scheme(url, allowed_hosts=None) else ""


def undo_url(operation: Operation, back_to: str) -> str:
    """Where the notice's Undo button posts to; empty: it cannot be undone."""
    if not operation.can_be_undone:
        return ""
    query = urlencode({"action": "undo", "next": local(back_to) or list_url(operation)})
    return f"{reverse('explorer:operation_change', args=(operation.id,))}?{query}"


def list_url(operation: Operation) -> str:
    """The list that the operation worked on."""
    address = operation.address
    url = reverse("explorer:entity", args=(address.namespace, address.path))
    return f"{url}?tab={operation.selection.tab}" if operation.selection.tab else url
