"""The records of operations: requested, claimed, ended. Every write of a run names its claim, so a run whose lease ended, or
whose operation was paused or stopped, changes nothing any more."""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import chain
from typing import Any

from broker_core.common.errors import EntityNotFound, InvalidArgument, NotAllowed
from broker_core.common.types import Actor, EntityAddress, Family, MessageState, Right, SubQueue
from broker_core.runtime.room import require_room
from broker_core.store import connections
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, use_case

LEASE = timedelta(seconds=15)
UNDO_TIME = timedelta(minutes=30)
FILE_TIME = timedelta(days=1)  # for which the file of an export is kept
MOST_SHOWN = 200
SLOWEST, FASTEST = 0.1, 100_000.0  # messages per second
PACE_PROBLEM = f"must be {SLOWEST} to {FASTEST:,.0f} messages per second, or empty for no limit"


class Kind(StrEnum):
    """What an operation does to the messages it selects."""

    RESUBMIT = "resubmit"
    REPAIR = "repair"
    MOVE = "move"
    ARCHIVE = "archive"
    DISCARD = "discard"
    PURGE = "purge"
    RELEASE = "release"
    IMPORT = "import"
    EXPORT = "export"
    DELETE = "delete"  # of the entity itself (operations.deletions)

    @property
    def can_be_undone(self) -> bool:
        return self not in (Kind.RELEASE, Kind.EXPORT)

    @property
    def retention(self) -> timedelta | None:
        """For how long what it removed, or its file, is kept after its end. None: without a limit."""
        return {Kind.ARCHIVE: None, Kind.EXPORT: FILE_TIME}.get(self, UNDO_TIME)


class State(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    DONE = "done"
    FAILED = "failed"
    UNDOING = "undoing"
    UNDONE = "undone"


OPEN = frozenset({State.QUEUED, State.RUNNING, State.PAUSED, State.UNDOING})
_OVER = (State.STOPPED, State.DONE, State.FAILED)


@dataclass(frozen=True, slots=True)
class Place:
    """The list of an entity that an operation works on. holds: as in reads.MessageFilter. locked: only the locked messages, or
    only others; None: both."""

    subqueue: SubQueue = SubQueue.MAIN
    states: tuple[MessageState, ...] = (MessageState.ACTIVE,)
    holds: tuple[int, ...] | None = None
    locked: bool | None = None


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages of an entity: these numbers, or all that match a filter and were there when it was made.

    tab:     the page's name of the list, to return to it. filter: as written in the filter field; empty: all.
    up_to:   the highest number at that time. at: that time, by the namespace's clock.
    """

    address: EntityAddress
    tab: str = ""
    place: Place = Place()
    numbers: tuple[int, ...] | None = None
    filter: str = ""
    up_to: int = 0
    at: datetime | None = None

    def as_json(self) -> dict[str, Any]:
        place = self.place
        return {
            "tab": self.tab, "subqueue": int(place.subqueue), "states": [int(state) for state in place.states],
            "holds": None if place.holds is None else list(place.holds), "locked": place.locked,
            "numbers": None if self.numbers is None else list(self.numbers), "filter": self.filter, "up_to": self.up_to,
            "at": self.at and self.at.isoformat(),
        }  # fmt: skip

    @classmethod
    def of(cls, address: EntityAddress, stored: Mapping[str, Any]) -> Selection:
        holds, numbers = stored["holds"], stored["numbers"]
        place = Place(
            SubQueue(stored["subqueue"]),
            tuple(MessageState(state) for state in stored["states"]),
            None if holds is None else tuple(holds),
            stored["locked"],
        )
        return cls(
            EntityAddress(address.namespace, address.path, place.subqueue), stored["tab"], place,
            None if numbers is None else tuple(numbers), stored["filter"], stored["up_to"],
            datetime.fromisoformat(stored["at"]) if stored["at"] else None,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation as read at `read_at` of the database's clock. See the table vitrine_operation."""

    id: int
    kind: Kind
    actor: str
    family: Family
    address: EntityAddress
    entity_id: int
    selection: Selection
    options: Mapping[str, Any]
    counted: int | None
    done: int
    skipped: int
    failed: int
    reasons: Mapping[str, int]
    listed: Sequence[Sequence[Any]]
    pace: float | None
    state: State
    position: int
    undone: int
    undo_position: int
    requested_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    kept_until: datetime | None
    claimed_by: str
    lease_until: datetime | None
    message: str
    read_at: datetime | None = field(default=None, compare=False)
    entity_is_deleted: bool = False
    entity_deleted_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        """Whether it runs, waits or is paused."""
        return self.state in OPEN

    @property
    def processed(self) -> int:
        return self.done + self.skipped + self.failed

    @property
    def can_be_undone(self) -> bool:
        """Whether there is something to undo, and time for it."""
        return self._had_an_undo and self.entity_is_deleted == (self.kind is Kind.DELETE)

    @property
    def lost_with_entity(self) -> bool:
        """Whether it could be undone if its entity had not been deleted."""
        return self._had_an_undo and self.entity_is_deleted and self.kind is not Kind.DELETE

    @property
    def _had_an_undo(self) -> bool:
        has_done = self.done > 0 or self.kind is Kind.DELETE
        return self.kind.can_be_undone and has_done and self.state in (*_OVER, State.PAUSED) and self._is_kept

    @property
    def has_file(self) -> bool:
        """Whether there is a file to download: of an export that is over, for as long as it is kept."""
        return self.kind is Kind.EXPORT and self.done > 0 and self.state in _OVER and self._is_kept

    @property
    def _is_kept(self) -> bool:
        return self.kept_until is None or self.read_at is None or self.kept_until > self.read_at


@use_case(namespace=WHOLE_DATABASE)
def _next_number() -> Steps[int]:
    (row,) = yield call("operation_number")
    return row.id


def new_number() -> int:
    """A number for a new operation, from the default database."""
    with connections.using(connections.DEFAULT):
        return _next_number()


@use_case
def _create(namespace: str, *, lines: Mapping[int, str], **values: Any) -> Steps[Operation]:
    def steps() -> Steps[Any]:
        if lines:
            yield from require_room(namespace)
        (row,) = yield call("operation_create", namespace=namespace, **values)
        if lines:
            yield call("import_store", operation_id=row.id, lines=list(lines), contents=list(lines.values()))
        return row

    return operation_of((yield Atomically(steps())))


def create(
    kind: Kind,
    selection: Selection,
    *,
    counted: int | None,
    entity_id: int,
    family: Family,
    pace: float | None = None,
    options: Mapping[str, Any] | None = None,
    lines: Mapping[int, str] | None = None,
    actor: Actor,
) -> Operation:
    """Record a requested operation. lines: of an import, by their numbers in the file. Raises InvalidArgument for a pace of 0 or
    less, NotAuthorized without Right.OPERATE; for an import also NamespaceFull and StorageFull, as a send."""
    address = selection.address
    actor.require(Right.OPERATE, address)
    check_pace(pace)
    return _create(
        address.namespace, lines=lines or {},
        id=new_number(), kind=str(kind), actor=str(actor), family=str(family), path=address.path, entity_id=entity_id,
        selection=json.dumps(selection.as_json()), options=json.dumps(dict(options or {})), counted=counted, pace=pace,
    )  # fmt: skip


def check_pace(pace: float | None) -> None:
    """Raise InvalidArgument unless a pace in messages per second is None or within the limits."""
    if pace is not None and not SLOWEST <= pace <= FASTEST:
        raise InvalidArgument("pace", PACE_PROBLEM)


def claim_token() -> str:
    return f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex}"


@use_case
def claim(namespace: str, operation_id: int, token: str) -> Steps[Operation | None]:
    """Claim an operation to run it. None: it is paused or over, or another worker runs it."""
    rows = yield call("operation_claim", id=operation_id, claim=token, lease=LEASE)
    return operation_of(rows[0]) if rows else None


@use_case
def end(
    namespace: str, operation: Operation, token: str, to: State, *, message: str = "", keep: timedelta | None = None
) -> Steps[Operation | None]:
    """End a run in this state, or with the same state return it to be continued. None: the claim was lost."""
    rows = yield call(
        "operation_end", id=operation.id, claim=token, state=str(operation.state), to=str(to), message=message, keep=keep
    )
    return operation_of(rows[0]) if rows else None


_CHANGES: Mapping[str, tuple[State, tuple[State, ...]]] = {
    "pause": (State.PAUSED, (State.QUEUED, State.RUNNING)),
    "resume": (State.QUEUED, (State.PAUSED, State.FAILED)),
    "stop": (State.STOPPED, (State.QUEUED, State.RUNNING, State.PAUSED)),
    "undo": (State.UNDOING, (State.STOPPED, State.DONE, State.FAILED, State.PAUSED)),
}


@use_case
def _change(namespace: str, operation_id: int, action: str, *, actor: Actor) -> Steps[Operation]:
    stored = yield call("operation", id=operation_id)
    if not stored:
        raise EntityNotFound(f"operation {operation_id}")
    operation = operation_of(stored[0])
    actor.require(Right.OPERATE, operation.address)
    if operation.kind is Kind.DELETE:
        raise NotAllowed(f"Operation {operation_id} deleted an entity, which can be restored, but the operation cannot {action}.")
    to, of = _CHANGES[action]
    if action == "undo" and not operation.can_be_undone:
        raise NotAllowed(why_not_undo(operation))
    continues_file = action == "resume" and operation.kind is Kind.EXPORT
    rows = yield call(
        "operation_change",
        id=operation_id,
        to=str(to),
        of=[str(state) for state in of],
        while_kept=action == "undo" or continues_file,
        keep=operation.kind.retention,
    )
    if not rows:
        if continues_file and operation.state in of:
            raise NotAllowed(f"The file of operation {operation_id} is deleted by now. Export the messages again.")
        raise NotAllowed(f"Operation {operation_id} is {operation.state}, so it cannot {action} now. Nothing was changed.")
    return operation_of(rows[0])


def change(operation: Operation, action: str, *, actor: Actor) -> Operation:
    """Pause, resume, stop or undo an operation. Raises NotAllowed if its state does not permit it."""
    return _change(operation.address.namespace, operation.id, action, actor=actor)


@use_case
def _set_pace(namespace: str, operation: Operation, pace: float | None, *, actor: Actor) -> Steps[Operation]:
    actor.require(Right.OPERATE, operation.address)
    check_pace(pace)
    rows = yield call("operation_set_pace", id=operation.id, pace=pace)
    if not rows:
        raise NotAllowed(f"Operation {operation.id} is over, so its pace cannot be changed.")
    return operation_of(rows[0])


def set_pace(operation: Operation, pace: float | None, *, actor: Actor) -> Operation:
    """Change the pace of an operation that is not over; a running one follows with its next batch."""
    return _set_pace(operation.address.namespace, operation, pace, actor=actor)


def why_not_undo(operation: Operation) -> str:
    if operation.state in (State.UNDONE, State.UNDOING):
        return f"Operation {operation.id} is already {operation.state}."
    if operation.kind is Kind.EXPORT:
        return "An export changes no message, so there is nothing to undo."
    if operation.kind is Kind.DELETE:
        return f"{operation.address} could be restored for 30 minutes. Its messages are deleted by now."
    if not operation.kind.can_be_undone:
        return f"A {operation.kind} cannot be undone: receivers may already have the messages."
    if operation.lost_with_entity:
        at = operation.entity_deleted_at
        return f"{operation.address} was deleted{f' at {at:%H:%M} UTC' if at else ''}; nothing can be undone."
    if operation.is_open:
        return f"Operation {operation.id} is {operation.state}. Stop it first, then undo."
    if not operation.done:
        return f"Operation {operation.id} changed no message."
    return f"Operation {operation.id} could be undone for 30 minutes. What it removed is deleted by now."


def _first(results: list[Any]) -> Any:
    return next((result for result in results if result is not None), None)


@use_case(namespace=WHOLE_DATABASE, combine=_first)
def find(operation_id: int) -> Steps[Operation | None]:
    """An operation by its number; None: there is none."""
    rows = yield call("operation", id=operation_id)
    return operation_of(rows[0]) if rows else None


def _newest_first(lists: list[list[Operation]]) -> list[Operation]:
    return sorted(chain.from_iterable(lists), key=lambda operation: -operation.id)


@use_case(namespace=WHOLE_DATABASE, combine=_newest_first)
def newest(
    *,
    open_only: bool = False,
    undoable: bool = False,
    kind: Kind | None = None,
    state: State | None = None,
    namespace: str | None = None,
    by: str = "",
    parts: Sequence[str] = (),
    below: int | None = None,
    limit: int = MOST_SHOWN,
    entity_id: int | None = None,
    except_namespaces: tuple[str, ...] = (),
) -> Steps[list[Operation]]:
    """The newest operations. open_only: only those that run, wait or are paused. undoable: only those that can be undone.
    parts: all of them in the entity's address. by: a part of the name of who started it. below: only older ones than this
    number. except_namespaces: their operations are left out."""
    rows = yield call(
        "operations", open_only=open_only, undoable=undoable, kind=None if kind is None else str(kind),
        state=None if state is None else str(state), namespace=None if namespace is None else namespace.lower(), by=by.lower(),
        parts=[part.lower() for part in parts],
        below=2**63 - 1 if below is None else below, max_count=limit, entity_id=entity_id,
        except_namespaces=[name.lower() for name in except_namespaces],
    )  # fmt: skip
    return [operation_of(row) for row in rows]


@use_case(namespace=WHOLE_DATABASE, combine=lambda lists: list(chain.from_iterable(lists)))
def due() -> Steps[list[int]]:
    """Operations that wait for a worker, or whose worker has died."""
    return [row.id for row in (yield call("operations_due"))]


def operation_of(row: Any) -> Operation:
    """The operation of a row of `operation`."""
    values = row._asdict()
    address = EntityAddress(values.pop("namespace"), values.pop("path"))
    selection = Selection.of(address, values.pop("selection"))
    values["kind"], values["state"], values["family"] = Kind(row.kind), State(row.state), Family(row.family)
    return Operation(address=address, selection=selection, **values)
