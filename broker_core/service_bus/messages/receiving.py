"""Receive messages, with a lock, with deletion, or by number; and peek."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from broker_core.common.arguments import require_count, require_kind, whole_numbers
from broker_core.common.errors import (
    BrokerError,
    EntityDisabled,
    EntityNotFound,
    InvalidArgument,
    MessageNotFound,
    NotAllowed,
    SessionLockLost,
)
from broker_core.common.lock_tokens import SettleReport, Tokens, sequence_number_of, settle_report, unique_tokens
from broker_core.common.types import Actor, EntityAddress, Right, SubQueue
from broker_core.runtime import dispatcher
from broker_core.runtime.caches import BoundedCache
from broker_core.runtime.entity_cache import CachedEntity, forget
from broker_core.runtime.keeping import ending
from broker_core.runtime.pacing import BATCH, HEAD_LAG, advance_head
from broker_core.runtime.wake_ups import WatchedList
from broker_core.service_bus.rules import sessions
from broker_core.service_bus.rules.values import LockedMessage, Received, Session
from broker_core.store import connections
from broker_core.store.driver import AfterCommit, Batch, Steps
from broker_core.store.statements import Statement, call
from broker_core.store.use_cases import complete_only, use_case

from .renewal import renewer
from .rows import by_number, locked_message, stored_message
from .settling import release, release_unclaimed, stop_renewing
from .shared import entity_id_of, on_entity, require_receivable, run_on_entity, touch
from .tidying import end_all_expired_locks, tidy
from .waiting import Receiver, receive_or_wait

log = logging.getLogger(__name__)


@use_case(on_cancel=release_unclaimed)
def receive(
    address: EntityAddress,
    max_count: int = 1,
    *,
    max_wait_seconds: float = 0,
    auto_renew: timedelta | None = None,
    completing: Tokens | None = None,
    actor: Actor | None = None,
) -> Steps:
    """Lock up to max_count messages, lowest number first (SB-061, SB-062); an empty list when there are none.

    max_wait_seconds: how long to wait for the first one. auto_renew: this process renews the locks for that time, or until the
    messages are settled here. Due changes on the entity (expired, spent and scheduled messages) are made first, so the result is
    correct without sweeps (SB-032).
    completing: lock tokens of this entity, whose messages are completed (SB-080) in the transaction that receives the next ones,
    before any waiting. The result is then a Received, whose `completed` reports the tokens as `complete` does for a list; a lost
    lock raises nothing. An entity that refuses receives completes nothing.
    """
    if auto_renew is not None:
        require_kind("auto_renew", auto_renew, timedelta)
    completion = None if completing is None else _Completion(unique_tokens(completing))
    rows = yield from _received("receive", address, max_count, max_wait_seconds, actor, release_missed, completion)
    messages = [locked_message(row, address) for row in rows]
    if completion is not None:
        messages = Received(messages, completion.report())
    if auto_renew is not None:
        for message in messages:
            renewer.hold(message, for_=auto_renew, actor=actor)
    return messages


@use_case(on_cancel=complete_only)
def receive_and_delete(
    address: EntityAddress, max_count: int = 1, *, max_wait_seconds: float = 0, actor: Actor | None = None
) -> Steps:
    """Remove and return up to max_count messages; they cannot be received again (SB-060). If the call is cancelled in the moment
    of the deletion, its messages are lost."""
    rows = yield from _received("receive_and_delete", address, max_count, max_wait_seconds, actor, report_deleted)
    return [stored_message(row) for row in rows]


@use_case(on_cancel=release_unclaimed)
def receive_from(addresses: Sequence[EntityAddress], max_count: int = 1, *, actor: Actor | None = None) -> Steps:
    """Lock up to max_count messages of several queues, with a single statement if all are empty.

    Queues are served in the order given; a caller rotates them for fairness. Queues that do not exist, are disabled or forward
    their messages count as empty. Any other error is raised only if nothing was locked: the locks of earlier queues are
    committed, and their messages must reach the caller.
    """
    require_count("max_count", max_count)
    ids: dict[int, EntityAddress] = {}
    for address in addresses:
        require_kind("addresses", address, EntityAddress)
        with suppress(EntityNotFound):
            ids[(yield from entity_id_of(address))] = address
    rows = yield call("ready_entities", entity_ids=list(ids))
    for missing in ids.keys() - {row.entity_id for row in rows}:
        forget(ids[missing])  # looked up again by the next call
    ready = {row.entity_id for row in rows if row.is_ready}
    messages: list[LockedMessage] = []
    failure: BrokerError | None = None
    for entity_id, address in ids.items():
        if entity_id not in ready or len(messages) == max_count:
            continue
        try:
            messages += yield from receive.steps(address, max_count - len(messages), actor=actor)
        except (EntityNotFound, EntityDisabled):  # EntityNotFound: deleted in the meantime
            continue
        except BrokerError as exc:
            if connections.in_callers_transaction():
                raise  # the caller decides whether the other locks are committed
            failure = exc
            if not isinstance(exc, NotAllowed):
                break  # it is about the server
    if failure is not None and not messages:
        raise failure
    return messages


@use_case(on_cancel=release_unclaimed)
def receive_deferred(
    address: EntityAddress, sequence_numbers: Sequence[int], *, session: Session | None = None, actor: Actor | None = None
) -> Steps:
    """Lock deferred messages by number: all of them, or none and MessageNotFound (SB-084, SB-085, SB-912).

    If the entity requires sessions, `session` must be locked and own them (SB-120); otherwise SessionLockLost is raised.
    """
    actor = actor or Actor.local()
    actor.require(Right.LISTEN, address)
    numbers = whole_numbers(sequence_numbers)
    if not numbers:
        return []
    statement, key = "receive_deferred", {}
    if session is not None:
        statement, key = "receive_deferred_from_session", session_key(session, address)
    params = {"numbers": numbers, "holder": actor.holder_label, "expires_deferred": True, "properties": None} | key

    def attempt(entity: CachedEntity) -> Steps:
        sessions.check_received_with(address, entity.requires_session, session=session is not None)
        return (yield (yield from ending(statement, entity.id, subqueue=address.subqueue, **params)))

    _, rows, status = yield from on_entity(address, attempt)
    if status:
        require_receivable(address, status)
        if session is not None:
            raise SessionLockLost(str(address), session.session_id)
    deferred_rows = [row for row in rows or [] if row.sequence_number is not None]
    if not deferred_rows:
        raise MessageNotFound(str(address), numbers, "unlocked deferred message")
    return [locked_message(row, address) for row in deferred_rows]


def session_key(session: Session, address: EntityAddress) -> dict[str, Any]:
    """The parameters that identify a locked session. Raises InvalidArgument for a session of another entity."""
    if session.address != address:
        raise InvalidArgument("session", f"belongs to '{session.address}', not to '{address}'")
    return {"session_id": session.session_id, "session_token": session.lock_token}


@use_case
def peek(
    address: EntityAddress,
    from_sequence_number: int = 1,
    max_count: int = 100,
    *,
    session_id: str | None = None,
    actor: Actor | None = None,
) -> Steps:
    """Up to max_count messages in any state, from a number on, unchanged (SB-140, SB-141). Counts as activity (SB-147).

    session_id: only messages of this session, locked or not (SB-145).
    """
    actor = actor or Actor.local()
    actor.require(Right.LISTEN, address)
    require_count("max_count", max_count)
    from_number = whole_numbers([from_sequence_number])[0]
    statement, params = "peek", dict[str, Any](from_number=from_number, max_count=max_count)
    if session_id is not None:
        sessions.check_session_id(session_id)
        statement, params = "peek_session", params | {"session_id": session_id}
    _, rows, _ = yield from run_on_entity(address, statement, **params)
    return [stored_message(row) for row in rows]


class _Completion:
    """Tokens to complete with the next receive. is_due: it has not been tried. rows: of those that were completed."""

    def __init__(self, tokens: list[UUID]):
        self.tokens, self.is_due = tokens, bool(tokens)
        self.rows: list = []

    def and_receive(self, entity_id: int, subqueue: SubQueue, actor: Actor, receiving: Statement) -> Steps[list]:
        numbers = [sequence_number_of(token) for token in self.tokens]
        completing = yield from ending(
            "complete", entity_id, subqueue=subqueue, actor=str(actor), numbers=numbers, tokens=self.tokens
        )
        completed, received = yield Batch((completing, receiving))
        self.rows += completed
        return received

    def end(self) -> Steps[None]:
        if self.is_due and renewer.has_locks:
            yield AfterCommit(stop_renewing(self.tokens))
        self.is_due = False

    def report(self) -> SettleReport:
        return settle_report(self.tokens, self.rows)


def _received(
    name: str,
    address: EntityAddress,
    max_count: int,
    max_wait_seconds: float,
    actor: Actor | None,
    release: dispatcher.Release,
    completion: _Completion | None = None,
) -> Steps[list]:
    """The rows of a receive; with the other calls of this process that wait for the list, by one statement."""
    actor = actor or Actor.local()
    actor.require(Right.LISTEN, address)
    require_count("max_count", max_count)
    receiver, receive = Receiver(address, actor, max_count), partial(_receive_in_turns, name)
    if completion is not None:
        rows = [row for _, row in (yield from receive(receiver, [receiver], completion)).assignments]
        if rows or max_wait_seconds <= 0:
            return rows

    def watched(entity_id: int) -> WatchedList:
        return WatchedList(entity_id, address.subqueue)

    passes_on = name == "receive_and_delete"
    return by_number(
        (yield from receive_or_wait(receiver, max_wait_seconds, receive, release, watched, mode=name, passes_on=passes_on))
    )


def _receive_in_turns(
    name: str, receiver: Receiver, waiting: Sequence[Receiver], completion: _Completion | None = None
) -> Steps[dispatcher.Received]:
    """Receive for all that wait: for one by a statement of its own, for several in turns."""
    address, take = receiver.address, _Taker(name, receiver, waiting, completion)

    def attempt(entity: CachedEntity) -> Steps:
        sessions.check_received_with(address, entity.requires_session, session=False)
        return (yield from take(entity.id))

    entity, rows, status = yield from on_entity(address, attempt)
    if completion is not None:
        yield from completion.end()
    if status:
        require_receivable(address, status)
    if (status or rows[0]).idle:
        yield AfterCommit(touch("touch_by_receive", entity.id))
    if take.left or take.bounds_lag:
        status = status or next(iter((yield call("entity_status", entity_id=entity.id))), None)
        if status:
            yield from _tidy_and_take(take, entity.id, status)
    return dispatcher.Received(take.assignments, not take.left, entity.id)


def _tidy_and_take(take: _Taker, entity_id: int, status: Any) -> Steps[None]:
    """Make the due changes on the entity, advance the bounds of the list, and take more messages if there may be some."""
    subqueue = take.address.subqueue
    passes_locked = subqueue in status.passes_locked
    if passes_locked and status.locks and not (yield from end_all_expired_locks(entity_id)):
        yield call("walk_from_head", entity_id=entity_id, subqueue=subqueue)
    changed = yield from tidy(entity_id, status)
    if take.bounds_lag or changed >= BATCH:
        yield from advance_head(entity_id, subqueue)
    if take.left and (changed or passes_locked and (not take.assignments or status.locks)):
        yield from take.more(entity_id)


class _Taker:
    """Runs the statement of a receive. While the receives of a list pass its locked messages, that is another statement; each
    process remembers these lists.

    assignments: the rows with their receivers. bounds_lag: whether the first call found messages far above the bounds of the
    list.
    """

    def __init__(self, name: str, receiver: Receiver, waiting: Sequence[Receiver], completion: _Completion | None):
        self.address, self._completion = receiver.address, completion
        self._is_for_one = len(waiting) == 1
        self._name = name if self._is_for_one else f"{name}_in_turns"
        self._plan: Sequence[Receiver] = (
            [receiver] * receiver.max_count if self._is_for_one else dispatcher.turns(waiting, dispatcher.MOST_IN_A_ROUND)
        )
        self.assignments: list[tuple[Receiver, Any]] = []
        self.bounds_lag = False

    @property
    def left(self) -> int:
        """How many more messages are wanted."""
        return len(self._plan) - len(self.assignments)

    def __call__(self, entity_id: int) -> Steps[list]:
        if (connections.current_database(), entity_id, self.address.subqueue) in _passing_locked:
            rows = yield from self._past_locked(entity_id, past_deadlines=False)
        else:
            rows = yield from self._run(self._name, entity_id)
        first = next((row.sequence_number for row in rows if row.sequence_number >= row.start), 0)
        self.bounds_lag = bool(rows) and first - rows[0].start > HEAD_LAG
        return rows

    def more(self, entity_id: int) -> Steps[None]:
        """Take messages after the locks that had ended were ended, by the statement that is right for all lists."""
        yield from self._past_locked(entity_id, past_deadlines=True)

    def _run(self, statement: str, entity_id: int, **params: Any) -> Steps[list]:
        takers = self._plan[len(self.assignments) :]
        params |= {"subqueue": self.address.subqueue, "max_count": len(takers)}
        if self._is_for_one:
            params["holder"] = takers[0].holder
        else:
            params["holders"] = [taker.holder for taker in takers]
        receiving = yield from ending(statement, entity_id, **params)
        if self._completion is not None and self._completion.is_due:
            rows = yield from self._completion.and_receive(entity_id, self.address.subqueue, takers[0].actor, receiving)
        else:
            rows = yield receiving
        rows = by_number(rows)
        self.assignments += zip(takers, rows, strict=False)
        return rows

    def _past_locked(self, entity_id: int, *, past_deadlines: bool) -> Steps[list]:
        rows = yield from self._run(f"{self._name}_past_locked", entity_id, past_deadlines=past_deadlines)
        key = connections.current_database(), entity_id, self.address.subqueue
        if rows and rows[0].passes_locked:
            _passing_locked.keep(key, True)
        elif rows:
            _passing_locked.pop(key, None)
        return rows


_passing_locked = BoundedCache(100_000)  # (database, entity id, subqueue) of the lists whose receives pass locked messages


def release_missed(missed: Sequence[tuple[Receiver, Any]]) -> Steps[None]:
    """Release messages whose receivers had gone; no failed delivery is counted (SB-926)."""
    for receiver, row in missed:
        yield from release.steps(receiver.address, [row.lock_token], actor=receiver.actor)


def report_deleted(missed: Sequence[tuple[Receiver, Any]]) -> Steps[None]:
    """Messages were deleted for receivers that had gone (SB-060)."""
    for receiver, row in missed:
        log.warning("%s: message %d was deleted for a receiver that had gone", receiver.address, row.sequence_number)
    yield from ()
