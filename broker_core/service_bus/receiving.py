"""Receiving: with a lock, for good, by number, or just looking."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from broker_core.common.arguments import require_count, require_kind, whole_numbers
from broker_core.common.errors import EntityNotFound, InvalidArgument, MessageNotFound, SessionLockLost
from broker_core.common.types import Actor, EntityAddress, LockedMessage, Right, Session
from broker_core.runtime.entity_cache import CachedEntity, entity_id_of, forget, on_entity
from broker_core.runtime.pacing import BATCH, HEAD_LAG, advance_head
from broker_core.runtime.waiting import poll_for_messages
from broker_core.store.driver import Steps
from broker_core.store.rows import locked_message, stored_message
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .renewal import renewer
from .rules import sessions
from .settling import release_unclaimed
from .shared import on, require_receivable
from .tidying import tidy


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

    With max_wait_seconds it waits so long for the first one. With auto_renew this process renews the locks for that time, or
    until the messages are settled here. What is due on the entity (expired, spent, scheduled) is applied on the way, so it is
    right with no sweep running (SB-032).
    """
    if auto_renew is not None:
        require_kind("auto_renew", auto_renew, timedelta)
    take = _taker("receive", address, max_count, actor, locked_message)
    messages = yield from wait_for_messages(take, address, max_wait_seconds)
    if auto_renew is not None:
        for message in messages:
            renewer.hold(message, for_=auto_renew, actor=actor)
    return messages


@use_case
def receive_and_delete(
    address: EntityAddress, max_count: int = 1, *, max_wait_seconds: float = 0, actor: Actor | None = None
) -> Steps:
    """Remove and return up to max_count messages: what the caller loses is lost (SB-060)."""
    take = _taker("receive_and_delete", address, max_count, actor, lambda row, _: stored_message(row))
    return (yield from wait_for_messages(take, address, max_wait_seconds))


@use_case(on_cancel=release_unclaimed)
def receive_from(addresses: Sequence[EntityAddress], max_count: int = 1, *, actor: Actor | None = None) -> Steps:
    """Lock up to max_count messages of several queues: one question to the database when all are empty.

    Queues are served in the order given, so a caller rotates them for fairness. Ones that do not exist have nothing.
    """
    require_count("max_count", max_count)
    ids: dict[int, EntityAddress] = {}
    for address in addresses:
        require_kind("addresses", address, EntityAddress)
        with suppress(EntityNotFound):
            ids[(yield from entity_id_of(address))] = address
    rows = yield call("ready", entity_ids=list(ids))
    for gone in ids.keys() - {row.entity_id for row in rows}:
        forget(ids[gone])  # made anew, it is found the next time
    ready = {row.entity_id for row in rows if row.is_ready}
    found: list[LockedMessage] = []
    for entity_id, address in ids.items():
        if entity_id in ready and len(found) < max_count:
            with suppress(EntityNotFound):  # deleted at this very moment
                found += yield from receive.steps(address, max_count - len(found), actor=actor)
    return found


@use_case(on_cancel=release_unclaimed)
def receive_deferred(
    address: EntityAddress, sequence_numbers: Sequence[int], *, session: Session | None = None, actor: Actor | None = None
) -> Steps:
    """Lock deferred messages by number: all of them, or none and MessageNotFound (SB-084, SB-085, SB-912).

    Where the entity requires sessions, those of a session that is held (SB-120): SessionLockLost if it is not.
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
    """What statements know a held session by. Raises InvalidArgument for a session of another entity."""
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
    """Up to max_count messages from a number on, in every state, changing nothing (SB-140, SB-141). It is activity (SB-147).

    session_id: only those of this session, whoever holds it (SB-145).
    """
    actor = actor or Actor.local()
    actor.require(Right.LISTEN, address)
    require_count("max_count", max_count)
    from_number = whole_numbers([from_sequence_number])[0]
    statement, params = "peek", dict[str, Any](from_number=from_number, max_count=max_count)
    if session_id is not None:
        sessions.check_session_id(session_id)
        statement, params = "peek_session", params | {"session_id": session_id}
    _, rows, _ = yield from on(address, statement, **params)
    return [stored_message(row) for row in rows]


def _taker(name: str, address: EntityAddress, max_count: int, actor: Actor | None, as_message):
    actor = actor or Actor.local()
    actor.require(Right.LISTEN, address)
    require_count("max_count", max_count)

    params = {"holder": actor.holder_label}

    def attempt(entity: CachedEntity) -> Steps:
        sessions.check_received_with(address, entity.requires_session, session=False)
        return (yield call(name, entity_id=entity.id, subqueue=address.subqueue, max_count=max_count, **params))

    def take() -> Steps:
        entity, rows, status = yield from on_entity(address, attempt)
        entity_id, rows = entity.id, rows or []
        if status:
            require_receivable(address, status)
        far = bool(rows) and rows[0].sequence_number - rows[0].head > HEAD_LAG
        if len(rows) < max_count or far:
            if not status:
                status = next(iter((yield call("entity_status", entity_id=entity_id))), None)
            touched = status and (yield from tidy(entity_id, status))
            if far or touched and touched >= BATCH:
                yield from advance_head(entity_id, address.subqueue)
            if touched and len(rows) < max_count:
                more = call(name, entity_id=entity_id, subqueue=address.subqueue, max_count=max_count - len(rows), **params)
                rows = [*rows, *(yield more)]
        return [as_message(row, address) for row in rows]

    return take


def wait_for_messages(take, address: EntityAddress, max_wait_seconds: float) -> Steps:
    """Take; and if there is nothing, wait for a wake-up, looking once a second behind it (docs/design.md D8)."""
    messages = yield from take()
    if messages or max_wait_seconds <= 0:
        return messages
    entity_id = yield from entity_id_of(address)
    return (yield from poll_for_messages(take, (entity_id,), max_wait_seconds))
