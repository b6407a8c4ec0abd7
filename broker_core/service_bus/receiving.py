"""Receive messages, with a lock, with deletion, or by number; and peek."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from broker_core.common.arguments import require_count, require_kind, whole_numbers
from broker_core.common.errors import EntityNotFound, InvalidArgument, MessageNotFound, SessionLockLost
from broker_core.common.types import Actor, EntityAddress, LockedMessage, Right, Session
from broker_core.runtime.entity_cache import BoundedCache, CachedEntity, entity_id_of, forget, on_entity
from broker_core.runtime.pacing import BATCH, HEAD_LAG, advance_head
from broker_core.runtime.waiting import poll_for_messages
from broker_core.store import connections
from broker_core.store.driver import AfterCommit, Steps
from broker_core.store.rows import by_number, locked_message, stored_message
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .renewal import renewer
from .rules import sessions
from .settling import release_unclaimed
from .shared import require_receivable, run_on_entity, touch
from .tidying import end_all_expired_locks, tidy


@use_case(on_cancel=release_unclaimed)
def receive(
    address: EntityAddress,
    max_count: int = 1,
    *,
    max_wait_seconds: float = 0,
    auto_renew: timedelta | None = None,
    actor: Actor | None = None,
) -> Steps:
    """Lock up to max_count messages, lowest number first (SB-061, SB-062); an empty list when there are none.

    max_wait_seconds: how long to wait for the first one. auto_renew: this process renews the locks for that time, or until the
    messages are settled here. Due changes on the entity (expired, spent and scheduled messages) are made first, so the result is
    correct without sweeps (SB-032).
    """
    if auto_renew is not None:
        require_kind("auto_renew", auto_renew, timedelta)
    receive_once = _receiver("receive", address, max_count, actor, locked_message)
    messages = yield from wait_for_messages(receive_once, address, max_wait_seconds)
    if auto_renew is not None:
        for message in messages:
            renewer.hold(message, for_=auto_renew, actor=actor)
    return messages


@use_case
def receive_and_delete(
    address: EntityAddress, max_count: int = 1, *, max_wait_seconds: float = 0, actor: Actor | None = None
) -> Steps:
    """Remove and return up to max_count messages; they cannot be received again (SB-060)."""
    receive_once = _receiver("receive_and_delete", address, max_count, actor, lambda row, _: stored_message(row))
    return (yield from wait_for_messages(receive_once, address, max_wait_seconds))


@use_case(on_cancel=release_unclaimed)
def receive_from(addresses: Sequence[EntityAddress], max_count: int = 1, *, actor: Actor | None = None) -> Steps:
    """Lock up to max_count messages of several queues, with a single statement if all are empty.

    Queues are served in the order given; a caller rotates them for fairness. Queues that do not exist count as empty.
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
    found: list[LockedMessage] = []
    for entity_id, address in ids.items():
        if entity_id in ready and len(found) < max_count:
            with suppress(EntityNotFound):  # deleted in the meantime
                found += yield from receive.steps(address, max_count - len(found), actor=actor)
    return found


@use_case(on_cancel=release_unclaimed)
def receive_deferred(
    address: EntityAddress, sequence_numbers: Sequence[int], *, session: Session | None = None, actor: Actor | None = None
) -> Steps:
    """Lock deferred messages by number: all of them, or none and MessageNotFound (SB-084, SB-085, SB-912).

    If the entity requires sessions, `session` must be held and own them (SB-120); otherwise SessionLockLost is raised.
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
        return (yield call(statement, entity_id=entity.id, subqueue=address.subqueue, **params))

    _, rows, status = yield from on_entity(address, attempt)
    if status:
        require_receivable(address, status)
        if session is not None:
            raise SessionLockLost(str(address), session.session_id)
    found = [row for row in rows or [] if row.sequence_number is not None]
    if not found:
        raise MessageNotFound(str(address), numbers, "unlocked deferred message")
    return [locked_message(row, address) for row in found]


def session_key(session: Session, address: EntityAddress) -> dict[str, Any]:
    """The parameters that identify a held session. Raises InvalidArgument for a session of another entity."""
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


def _receiver(name: str, address: EntityAddress, max_count: int, actor: Actor | None, as_message):
    actor = actor or Actor.local()
    actor.require(Right.LISTEN, address)
    require_count("max_count", max_count)

    def receive_once() -> Steps:
        take = _Taker(name, address, actor.holder_label)

        def attempt(entity: CachedEntity) -> Steps:
            sessions.check_received_with(address, entity.requires_session, session=False)
            return (yield from take(entity.id, max_count))

        entity, rows, status = yield from on_entity(address, attempt)
        entity_id, rows = entity.id, rows or []
        if status:
            require_receivable(address, status)
        if (status or rows[0]).idle:
            yield AfterCommit(touch("touch_by_receive", entity_id))
        if len(rows) < max_count or take.bounds_lag:
            status = status or next(iter((yield call("entity_status", entity_id=entity_id))), None)
            if status:
                rows = yield from _tidy_and_take(take, entity_id, rows, max_count, status)
        return [as_message(row, address) for row in rows]

    return receive_once


def _tidy_and_take(take: _Taker, entity_id: int, rows: list, max_count: int, status: Any) -> Steps[list]:
    """Make the due changes on the entity, advance the bounds of the list, and take more messages if there may be some."""
    subqueue = take.address.subqueue
    passes_locked = subqueue in status.passes_locked
    if passes_locked and status.locks and not (yield from end_all_expired_locks(entity_id)):
        yield call("walk_from_head", entity_id=entity_id, subqueue=subqueue)
    changed = yield from tidy(entity_id, status)
    if take.bounds_lag or changed >= BATCH:
        yield from advance_head(entity_id, subqueue)
    if len(rows) < max_count and (changed or passes_locked and (not rows or status.locks)):
        return by_number([*rows, *(yield from take.more(entity_id, max_count - len(rows)))])
    return rows


class _Taker:
    """Runs the statement of a receive. While the receives of a list pass its locked messages, that is another statement; each
    process remembers these lists.

    bounds_lag: whether the first call found messages far above the bounds of the list.
    """

    def __init__(self, name: str, address: EntityAddress, holder: str):
        self.name, self.address, self.holder = name, address, holder
        self.bounds_lag = False

    def __call__(self, entity_id: int, count: int) -> Steps[list]:
        if (connections.current_database(), entity_id, self.address.subqueue) in _passing_locked:
            rows = yield from self._past_locked(entity_id, count, past_deadlines=False)
        else:
            rows = yield from self._run(self.name, entity_id, count)
        first = next((row.sequence_number for row in rows if row.sequence_number >= row.start), 0)
        self.bounds_lag = bool(rows) and first - rows[0].start > HEAD_LAG
        return rows

    def more(self, entity_id: int, count: int) -> Steps[list]:
        """Take messages after the locks that had ended were ended, by the statement that is right for all lists."""
        return (yield from self._past_locked(entity_id, count, past_deadlines=True))

    def _run(self, statement: str, entity_id: int, count: int, **params: Any) -> Steps[list]:
        params |= {"subqueue": self.address.subqueue, "holder": self.holder}
        return by_number((yield call(statement, entity_id=entity_id, max_count=count, **params)))

    def _past_locked(self, entity_id: int, count: int, *, past_deadlines: bool) -> Steps[list]:
        rows = yield from self._run(f"{self.name}_past_locked", entity_id, count, past_deadlines=past_deadlines)
        key = connections.current_database(), entity_id, self.address.subqueue
        if rows and rows[0].passes_locked:
            _passing_locked.keep(key, True)
        elif rows:
            _passing_locked.pop(key, None)
        return rows


_passing_locked = BoundedCache(100_000)  # (database, entity id, subqueue) of the lists whose receives pass locked messages


def wait_for_messages(receive_once, address: EntityAddress, max_wait_seconds: float) -> Steps:
    """Receive; if there are no messages, wait for a wake-up and also poll once a second (docs/design.md D8)."""
    messages = yield from receive_once()
    if messages or max_wait_seconds <= 0:
        return messages
    entity_id = yield from entity_id_of(address)
    return (yield from poll_for_messages(receive_once, (entity_id,), max_wait_seconds))
