"""The truth of Queue Storage: every message's life by its events, against what is there and what clients were told."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import namedtuple_row

from broker_core.common.types import EventKind as Kind

from .findings import FOR_ALL, Findings, compare_ledger, entities_of, events_of, instant, next_number_of, rows_of
from .journal import entries
from .storage import GRACE, POISON, TRIES, Scene, base_of

DELAYED, LEASED, RESCHEDULED, EXTENDED = 12, 10, 13, 14  # kinds of hold, as rows have them


@dataclass
class Life:
    """A message as its events tell it. changes: the events that gave it another receipt, or its end."""

    born: Any
    visible_at: datetime
    expires_at: datetime | None
    size: int
    hold: int | None = None
    count: int = 0
    previous_at: datetime | None = None
    gone: Kind | None = None
    changes: list[Any] = field(default_factory=list)

    @property
    def origin(self) -> tuple[str, int] | None:
        """The message of another queue that it was before."""
        came = (self.born.details or {}).get("from")
        return came and (came["path"], came["sequence_number"])

    def is_over_at(self, at: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= at


def examine(scene: Scene, dsn: str, folder: Path, *, empty: bool = False) -> Findings:
    """All that can be said about the account at rest. empty: nothing may be left."""
    findings = Findings()
    told = Told(findings)
    with psycopg.connect(dsn, row_factory=namedtuple_row) as connection:
        lives: dict[str, dict[int, Life]] = {}
        rows: dict[str, dict[int, Any]] = {}
        for entity in entities_of(connection, scene.namespace):
            path = entity.path
            replay = Replay(path, findings)
            for event in events_of(connection, entity.id):
                replay.step(event)
            lives[path], rows[path] = replay.lives, rows_of(connection, entity.id)
            replay.compare(rows[path], next_number_of(connection, entity.id))
            compare_ledger(connection, scene.address(path), entity.id, findings)
            if empty and (left := [number for number, life in replay.lives.items() if life.gone is None]):
                findings.wrong.append(f"{path}: {left[:5]} could not be got, {len(left)} in all")
    told.read(entries(folder), lives)
    told.compare_receipts(lives, rows)
    _compare_moves(lives, findings)
    _compare_texts(told, lives, rows, findings)
    _compare_batches(told, lives, findings)
    return findings


class Replay:
    """Follows the events of one queue and says where one was not possible."""

    def __init__(self, path: str, findings: Findings):
        self._path, self._findings = path, findings
        self.lives: dict[int, Life] = {}

    def step(self, event: Any) -> None:
        kind = Kind(event.kind)
        self._findings.did[f"storage {kind.name.lower()} events"] += 1
        life = self.lives.get(event.sequence_number)
        if life is None:
            self._is_born(event, kind)
        elif kind is Kind.LOCK_LOST:
            self._lease_ended(life, event)
        elif life.gone is not None:
            self._wrong(event, f"was gone already, {life.gone.name}")
        elif kind is Kind.RECEIVED:
            self._got(life, event)
        else:
            self._changes(life, event, kind)

    def _wrong(self, event: Any, what: str) -> None:
        self._findings.of_event(self._path, event, what)

    def _is_born(self, event: Any, kind: Kind) -> None:
        if kind is not Kind.SENT:
            self._wrong(event, "is not born yet")
        details = event.details or {}
        expires_at = None if event.time_to_live is None else event.enqueued_at + event.time_to_live
        life = Life(event, instant(details.get("visible_at")) or event.at, expires_at, event.size)
        life.hold = DELAYED if "visible_at" in details else None
        life.changes.append(event)
        self.lives[event.sequence_number] = life

    def _got(self, life: Life, event: Any) -> None:
        if life.visible_at > event.at:
            self._wrong(event, f"was got while it was invisible until {life.visible_at}")
        if life.is_over_at(event.at):
            self._wrong(event, f"was got after its life ended at {life.expires_at}")
        if self._path == "tries" and life.count >= TRIES:
            self._wrong(event, f"was got though it was tried {life.count} times")
        life.count += 1
        if event.delivery_count != life.count:
            self._wrong(event, f"has the dequeue count {event.delivery_count}, not {life.count}")
        self._hide(life, event, LEASED)

    def _hide(self, life: Life, event: Any, hold: int | None) -> None:
        life.previous_at, life.visible_at, life.hold = life.visible_at, event.locked_until, hold
        life.changes.append(event)

    def _lease_ended(self, life: Life, event: Any) -> None:
        if event.locked_until > event.at:
            self._wrong(event, f"lost a lease that was valid until {event.locked_until}")
        if life.previous_at != event.locked_until:
            self._wrong(event, f"lost a lease until {event.locked_until} that it did not have, but one until {life.previous_at}")

    def _changes(self, life: Life, event: Any, kind: Kind) -> None:
        if kind in (Kind.RENEWED, Kind.ABANDONED):
            self._updated(life, event, kind)
        elif kind is Kind.RELEASED:
            if event.locked_until != life.visible_at or life.visible_at <= event.at:
                self._wrong(event, f"was released from {event.locked_until}; it is invisible until {life.visible_at}")
            self._hide(life, event._replace(locked_until=event.at), None)  # as the others: from when on it is visible
        elif kind.is_terminal:
            self._goes(life, event, kind)
        else:
            self._wrong(event, "is no event of this family")

    def _updated(self, life: Life, event: Any, kind: Kind) -> None:
        if life.is_over_at(event.at):
            self._wrong(event, f"was updated after its life ended at {life.expires_at}")
        if self._path == "brief" and life.expires_at < event.locked_until:
            self._wrong(event, f"was made invisible over the end of its life at {life.expires_at}")
        life.size = (event.details or {}).get("text_bytes", life.size)
        held = EXTENDED if life.count else RESCHEDULED
        self._hide(life, event, None if kind is Kind.ABANDONED else held)

    def _goes(self, life: Life, event: Any, kind: Kind) -> None:
        if kind is Kind.COMPLETED and life.is_over_at(event.at):
            self._wrong(event, f"was deleted after its life ended at {life.expires_at}")
        if kind is Kind.COMPLETED and event.locked_until != (life.visible_at if life.hold else None):
            self._wrong(event, f"was deleted with a lease until {event.locked_until}; it was invisible until {life.visible_at}")
        if kind is Kind.EXPIRED and (life.expires_at is None or life.expires_at + GRACE > event.at):
            self._wrong(event, f"was removed as expired; its life ended at {life.expires_at}")
        if kind is Kind.MOVED:
            self._moved(life, event)
        if kind not in (Kind.COMPLETED, Kind.EXPIRED, Kind.PURGED, Kind.MOVED):
            self._wrong(event, "is no way to go in this family")
        life.gone = kind
        life.changes.append(event)

    def _moved(self, life: Life, event: Any) -> None:
        if self._path == POISON:
            if life.hold in (LEASED, EXTENDED) and life.visible_at > event.at:
                self._wrong(event, f"was moved from under a lease until {life.visible_at}")
        elif life.count < TRIES or life.visible_at > event.at or self._path != "tries":
            self._wrong(event, f"was moved after {life.count} tries, invisible until {life.visible_at}")

    def compare(self, rows: dict[int, Any], next_number: int) -> None:
        """The numbers have no gap, and what events leave over is what is there, as it should be."""
        if missing := sorted(set(range(1, next_number)) ^ set(self.lives))[:5]:
            self._findings.wrong.append(f"{self._path}: numbers without an event, or beyond the counter: {missing}")
        for number, life in self.lives.items():
            row = rows.get(number)
            if (life.gone is None) != (row is not None):
                gone = (
                    "lost, without an event that says how" if row is None else f"gone by its events, {life.gone}, and still there"
                )
                self._findings.wrong.append(f"{self._path} {number}: is {gone}")
            elif row is not None:
                is_so = row.visible_at, row.hold_kind, row.delivery_count, row.size, row.expires_at
                wanted = life.visible_at, life.hold, life.count, life.size, life.expires_at
                if is_so != wanted:
                    self._findings.wrong.append(f"{self._path} {number}: is {is_so}, by its events {wanted}")
        if extra := sorted(set(rows) - set(self.lives))[:5]:
            self._findings.wrong.append(f"{self._path}: there without an event: {extra}")


class Told:
    """What clients were told, each thing at the event that it belongs to.

    issued: of each receipt where it was given: path, number and which of its message's changes gave it.
    """

    def __init__(self, findings: Findings):
        self._findings = findings
        self.issued: dict[str, tuple[str, int, int]] = {}
        self.texts: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))  # that a message was seen with
        self.intended: dict[tuple[str, int], set[str]] = defaultdict(set)  # texts that somebody was about to write
        self.puts: dict[str, set[str]] = defaultdict(set)
        self.batches: list[dict] = []
        self.intended_sizes: dict[str, Counter] = defaultdict(Counter)
        self._uses: list[dict] = []

    def read(self, told: Iterable[dict], lives: dict[str, dict[int, Life]]) -> None:
        order = {"updated": 1, "deleted": 2, "late": 2, "missing": 2}
        for entry in sorted(told, key=lambda e: order.get(e["kind"], 0)):  # receipts are known before they are used
            self._findings.heed(entry)
            if entry["kind"] not in FOR_ALL:
                getattr(self, f"on_{entry['kind']}")(entry, lives)

    def _wrong(self, entry: dict, what: str) -> None:
        self._findings.wrong.append(f"{entry['path']} {entry.get('number', '')}: {what} ({entry})")

    def _issue(self, entry: dict, number: int, receipt: str, place: int | None) -> None:
        if receipt in self.issued:
            self._wrong(entry, f"the receipt {receipt} was given twice")
        if place is None:
            self._wrong(entry, f"{number} has no event of what its client was told")
        else:
            self.issued[receipt] = entry["path"], number, place

    def on_puts(self, entry: dict, _: Any) -> None:
        self.puts[entry["path"]].update(map(base_of, entry["texts"]))
        self.intended_sizes[entry["path"]][len(entry["texts"])] += 1

    def on_put(self, entry: dict, lives: dict) -> None:
        self.batches.append(entry)
        for number, receipt, _, text in entry["made"]:
            self._findings.did["storage accepted messages"] += 1
            life = lives[entry["path"]].get(number)
            self._issue(entry, number, receipt, None if life is None or life.origin else 0)
            self.texts[entry["path"]][number].add(text)

    def on_got(self, entry: dict, lives: dict) -> None:
        before: tuple | None = None
        for number, count, receipt, visible_at, text in entry["got"]:
            self._findings.did["storage gets"] += 1
            life = lives[entry["path"]].get(number)
            place = (
                next((i for i, e in enumerate(life.changes) if e.kind == Kind.RECEIVED and e.delivery_count == count), None)
                if life
                else None
            )
            self._issue(entry, number, receipt, place)
            self.texts[entry["path"]][number].add(text)
            if place is None:
                continue
            if life.changes[place].locked_until != instant(visible_at):
                self._wrong(entry, f"{number} was got until {visible_at}, by its event until {life.changes[place].locked_until}")
            is_now = life.changes[place].xid, visible_since(life, place), number
            if before and before[0] == is_now[0] and is_now < before:
                self._wrong(entry, f"{number}, visible since {is_now[1]}, was got after {before[2]}, since {before[1]}")
            before = is_now

    def on_updates(self, entry: dict, _: Any) -> None:
        self.intended[entry["path"], entry["number"]].add(entry["text"])

    def on_updated(self, entry: dict, lives: dict) -> None:
        number, until = entry["number"], instant(entry["visible_at"])
        life = lives[entry["path"]].get(number)
        places = [i for i, e in enumerate(life.changes) if e.kind in (Kind.RENEWED, Kind.ABANDONED) and e.locked_until == until]
        self._issue(entry, number, entry["new"], places[0] if places else None)
        self._uses.append(entry)

    def _use(self, entry: dict, _: Any) -> None:
        self._uses.append(entry)

    on_deleted = on_late = on_missing = _use

    def on_drained(self, entry: dict, _: Any) -> None:
        if len(entry["numbers"]) != entry["deleted"]:
            self._wrong(entry, "what was just got could not be deleted")

    def on_requeued(self, entry: dict, lives: dict) -> None:
        for old, new in entry["numbers"]:
            self._findings.did["requeued from poison"] += 1
            life = lives["tries"].get(new)
            if life is None or life.origin != (POISON, old):
                self._wrong(entry, f"{old} was said to be {new} of 'tries', which comes from {life and life.origin}")

    def on_removed(self, entry: dict, lives: dict) -> None:
        for number in entry["numbers"]:
            if lives[entry["path"]][number].gone is not Kind.PURGED:
                self._wrong(entry, f"{number} was said to be removed")

    def compare_receipts(self, lives: dict[str, dict[int, Life]], rows: dict[str, dict[int, Any]]) -> None:
        """A receipt counts until there is a newer one, and no longer; what a delete said is done is done."""
        deleted: Counter = Counter()
        for entry in self._uses:
            if entry["receipt"] not in self.issued:
                self._wrong(entry, "was used, and is not known to be given")
                continue
            path, number, place = self.issued[entry["receipt"]]
            life = lives[path][number]
            after = life.changes[place + 1] if place + 1 < len(life.changes) else None
            if entry["kind"] == "updated":
                if (
                    after is None
                    or after.kind not in (Kind.RENEWED, Kind.ABANDONED)
                    or after.locked_until != instant(entry["visible_at"])
                ):
                    self._wrong(
                        entry,
                        f"was updated with an old receipt; after it came {after and Kind(after.kind).name}",
                    )
            elif entry["kind"] == "deleted":
                deleted[path, number] += 1
                if after is None or after.kind != Kind.COMPLETED:
                    self._wrong(
                        entry, f"was said to be deleted; what came after its receipt was {after and Kind(after.kind).name}"
                    )
            else:
                self._compare_refusal(entry, life, after, rows[path].get(number))
        self._findings.did["storage deletes"] += len(deleted)
        self._findings.wrong += [f"{path} {number}: was deleted {n} times" for (path, number), n in deleted.items() if n > 1]
        for path, found in rows.items():
            for number, row in found.items():
                if (given := self.issued.get(str(row.lock_token))) and given != (
                    path,
                    number,
                    len(lives[path][number].changes) - 1,
                ):
                    self._findings.wrong.append(f"{path} {number}: has a receipt that is not its newest one")

    def _compare_refusal(self, entry: dict, life: Life, after: Any, row: Any) -> None:
        """Whoever has the newest receipt is not told that there is a newer one; if the message is there, not that it is gone."""
        self._findings.did["storage late receipts"] += 1
        by = entry.get("by", "missing")
        newest = after is None or Kind(after.kind).is_terminal
        if by == "PopReceiptMismatch" and newest:
            self._wrong(entry, "was refused for a newer receipt, and there is none")
        if by == "MessageNotFound" and row is not None and life.expires_at is None:
            self._wrong(entry, "was said not to be there, and is")
        if by == "missing" and after is None and life.expires_at is None:
            self._wrong(entry, "was not deleted with its newest receipt")
        if by == "InvalidQueryParameterValue" and entry["path"] != "brief":
            self._wrong(entry, "was refused by a queue that is not strict")


def visible_since(life: Life, place: int) -> datetime:
    """When a message became visible before the change at this place."""
    before = life.changes[place - 1]
    if place == 1:
        return instant((before.details or {}).get("visible_at")) or before.at
    return before.locked_until


def _compare_moves(lives: dict[str, dict[int, Life]], findings: Findings) -> None:
    """What was moved is one message elsewhere, which says so, and the other way round."""
    left = {
        (path, number): [(to["path"], to["sequence_number"]) for to in life.changes[-1].details["to"]]
        for path, found in lives.items() for number, life in found.items() if life.gone is Kind.MOVED
    }  # fmt: skip
    came = {(path, number): life.origin for path, found in lives.items() for number, life in found.items() if life.origin}
    for old, new in left.items():
        if len(new) != 1 or came.get(new[0]) != old:
            findings.wrong.append(f"{old}: was moved to {new}, of which the first says it came from {came.get(new[0])}")
    for new, old in came.items():
        if left.get(old) != [new]:
            findings.wrong.append(f"{new}: came from {old}, which went to {left.get(old)}")


def _root(place: tuple[str, int], lives: dict[str, dict[int, Life]]) -> tuple[str, int]:
    """The message that a message was at first."""
    while (life := lives[place[0]].get(place[1])) is not None and life.origin:
        place = life.origin
    return place


def _compare_texts(told: Told, lives: dict, rows: dict, findings: Findings) -> None:
    """Each text that was put is that of one message, and each message has the text that somebody gave it."""
    roots: dict[str, set] = defaultdict(set)
    given: dict[tuple[str, int], set[str]] = defaultdict(set)
    for path, found in rows.items():
        for number, row in found.items():
            told.texts[path][number].add(bytes(row.body).decode())
    for place, texts in told.intended.items():
        given[_root(place, lives)] |= texts
    for path, found in told.texts.items():
        for number, texts in found.items():
            for text in texts:
                roots[base_of(text)].add(_root((path, number), lives))
    for base, places in roots.items():
        if len(places) > 1:
            findings.wrong.append(f"{base}: is the text of {len(places)} messages: {sorted(places)[:5]}")
    put = {number: text for entry in told.batches for number, _, _, text in entry["made"] for number in [(entry["path"], number)]}
    for path, found in told.texts.items():
        for number, texts in found.items():
            root = _root((path, number), lives)
            if root in put and (strange := texts - given[root] - {put[root]}):
                findings.wrong.append(f"{path} {number}: has the text {strange}, which nobody gave it")
            if not {base_of(text) for text in texts} <= told.puts[root[0]]:
                findings.wrong.append(f"{path} {number}: has a text that was not put: {texts}")


def _compare_batches(told: Told, lives: dict, findings: Findings) -> None:
    """A batch is stored whole, in its order, and not twice; what a client puts later has a higher number."""
    for path, found in lives.items():
        stored: dict[int, list] = defaultdict(list)
        for number, life in found.items():
            if life.origin is None:
                stored[life.born.xid].append(number)
        if extra := Counter(map(len, stored.values())) - told.intended_sizes[path]:
            findings.wrong.append(f"{path}: stored in parts or twice: batches of {dict(extra)} that nobody put")
        for numbers in stored.values():
            if sorted(numbers) != list(range(min(numbers), min(numbers) + len(numbers))):
                findings.wrong.append(f"{path}: a batch has the numbers {numbers}")
    last: dict[tuple[str, str], int] = {}
    for entry in told.batches:
        numbers = [number for number, *_ in entry["made"]]
        key = entry["client"], entry["path"]
        if numbers != sorted(numbers) or numbers[0] <= last.get(key, 0):
            findings.wrong.append(f"{entry['path']}: {entry['client']} was given {numbers} after {last.get(key)}")
        last[key] = numbers[-1]
