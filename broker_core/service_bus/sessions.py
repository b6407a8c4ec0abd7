"""Sessions: accept, receive in order, renew, close, get and set their state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

from broker_core.common.arguments import require_count, require_kind
from broker_core.common.errors import (
    EntityNotFound,
    InvalidArgument,
    NoSessionAvailable,
    ServerBusy,
    SessionCannotBeLocked,
    SessionLockLost,
)
from broker_core.common.types import Actor, EntityAddress, Right, Tier, WaitKind
from broker_core.runtime.dispatcher import Received, Release
from broker_core.runtime.entity_cache import CachedEntity
from broker_core.runtime.pacing import HEAD_LAG
from broker_core.runtime.waiting import wake
from broker_core.runtime.wake_ups import WatchedList
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import complete_only, use_case

from .configured_limits import limits
from .messages.receiving import release_missed, report_deleted, session_key
from .messages.renewal import Renewed, renewer
from .messages.rows import locked_message, stored_message
from .messages.settling import release_unclaimed, renew
from .messages.shared import entity_id_of, on_entity, require_receivable, run_on_entity
from .messages.tidying import tidy
from .messages.waiting import Receiver, receive_or_wait
from .rules import sessions
from .rules.values import Session, SessionSummary

TRIES = 3  # attempts of operations that take two statements


def _close_unclaimed(session: Session, asked: Mapping[str, Any]) -> Steps:
    """Close the session that a cancelled call accepted. asked: the arguments of that call."""
    return close_session.steps(session, actor=asked.get("actor"))


@use_case(on_cancel=_close_unclaimed)
def accept_session(
    address: EntityAddress,
    session_id: str | None = None,
    *,
    max_wait_seconds: float = 0,
    max_count: int = 0,
    auto_renew: timedelta | None = None,
    actor: Actor | None = None,
) -> Steps:
    """Lock a session for its entity's lock_duration: the given one, with or without messages (SB-112), or without an id the
    unlocked session with deliverable messages that has the lowest first number (SB-113).

    Receives up to max_count of its messages in the same call. max_wait_seconds: how long to wait for a session to be free.
    auto_renew: this process renews the lock for that time, or until the session is closed here.
    Raises SessionCannotBeLocked, NoSessionAvailable, NotAllowed on an entity without sessions (SB-110).
    """
    actor = actor or Actor.local()
    actor.require(Right.LISTEN, address)
    if max_count:
        require_count("max_count", max_count)
    if auto_renew is not None:
        require_kind("auto_renew", auto_renew, timedelta)
    if session_id is not None:
        sessions.check_session_id(session_id)
    session = yield from _accepted(Receiver(address, actor, 1, (session_id, max_count)), session_id, max_wait_seconds)
    if session is None:
        if session_id is None:
            raise NoSessionAvailable(str(address), max_wait_seconds)
        raise SessionCannotBeLocked(str(address), session_id)
    if session_id is not None and max_count:
        messages = yield from receive_from_session.steps(session, max_count, actor=actor)
        session = replace(session, messages=tuple(messages))
    if auto_renew is not None:
        renewer.hold(session, for_=auto_renew, actor=actor)
    return session


@use_case(on_cancel=release_unclaimed)
def receive_from_session(
    session: Session, max_count: int = 1, *, max_wait_seconds: float = 0, actor: Actor | None = None
) -> Steps:
    """Lock the session's next messages until the session's lock ends, strictly in order (SB-114, SB-116).

    Raises SessionLockLost if the session is no longer locked with this token.
    """
    rows = yield from _received("receive_from_session", session, max_count, max_wait_seconds, actor, release_missed)
    return [locked_message(row, session.address) for row in rows]


@use_case(on_cancel=complete_only)
def receive_and_delete_from_session(
    session: Session, max_count: int = 1, *, max_wait_seconds: float = 0, actor: Actor | None = None
) -> Steps:
    """Remove and return the session's next messages (SB-123)."""
    rows = yield from _received("receive_and_delete_from_session", session, max_count, max_wait_seconds, actor, report_deleted)
    return [stored_message(row) for row in rows]


@use_case
def renew_session(session: Session, *, actor: Actor | None = None) -> Steps:
    """Extend the session's lock, and those of the messages received through it, to lock_duration from now (SB-116). Returns the
    session with its new `locked_until`. Raises SessionLockLost."""
    actor = actor or Actor.local()
    actor.require(Right.LISTEN, session.address)
    row = yield from _while_locked(session, call("renew_session", **(yield from _key(session)), actor=str(actor)))
    if row is None:
        raise SessionLockLost(str(session.address), session.session_id)
    return replace(session, locked_until=row.locked_until, lock_duration=row.lock_duration)


@use_case
def close_session(session: Session, *, actor: Actor | None = None) -> Steps:
    """Unlock the session. Its unsettled messages are available at once, and no failed delivery is counted (SB-092, SB-118).
    Returns whether it was still locked; if not, nothing is changed."""
    actor = actor or Actor.local()
    actor.require(Right.LISTEN, session.address)
    renewer.drop([session.lock_token])
    key = yield from _key(session)
    row = yield from _while_locked(session, call("close_session", **key, actor=str(actor)))
    if row is not None:
        yield from wake([key["entity_id"]], row.waiting)
    return row is not None


@use_case
def get_session_state(session: Session, *, actor: Actor | None = None) -> Steps:
    """The session's state; None if it has none (SB-119). Raises SessionLockLost."""
    (actor or Actor.local()).require(Right.LISTEN, session.address)
    rows = yield call("get_session_state", **(yield from _key(session)))
    if not rows:
        raise SessionLockLost(str(session.address), session.session_id)
    return rows[0].session_state


@use_case
def set_session_state(session: Session, state: bytes | bytearray | memoryview | None, *, actor: Actor | None = None) -> Steps:
    """Replace the session's state; None clears it (SB-119). It is kept when the session has no messages. Raises
    SessionLockLost."""
    (actor or Actor.local()).require(Right.LISTEN, session.address)
    yield from _check_state(session.address, state)
    stored = None if state is None else bytes(state)
    rows = yield call("set_session_state", **(yield from _key(session)), state=stored)
    if not rows:
        raise SessionLockLost(str(session.address), session.session_id)


@use_case
def list_sessions(
    address: EntityAddress,
    *,
    updated_since: datetime | None = None,
    skip: int = 0,
    top: int = 100,
    actor: Actor | None = None,
) -> Steps:
    """Sessions with an active message or a state as SessionSummary, in the order of their ids; with updated_since, those whose
    state was set after it (SB-122)."""
    (actor or Actor.local()).require(Right.LISTEN, address)
    require_count("top", top)
    if not isinstance(skip, int) or skip < 0:
        raise InvalidArgument("skip", f"{skip!r} must be a whole number of 0 or more")
    if updated_since is not None and updated_since.tzinfo is None:
        raise InvalidArgument("updated_since", "needs a time zone")

    def attempt(entity: CachedEntity) -> Steps:
        sessions.check_received_with(address, entity.requires_session, session=True)
        return (yield call("list_sessions", entity_id=entity.id, updated_since=updated_since, skip=skip, top=top))

    _, rows, _ = yield from on_entity(address, attempt)
    return [SessionSummary(**row._asdict()) for row in rows or []]


def _key(session: Session) -> Steps:
    entity_id = yield from entity_id_of(session.address)
    return {"entity_id": entity_id, "subqueue": session.address.subqueue} | session_key(session, session.address)


def _check_state(address: EntityAddress, state: bytes | bytearray | memoryview | None) -> Steps:
    """Raise if the state is invalid or too large for the namespace's tier, which is looked up only if the size requires it."""
    sessions.check_state(state, limits())
    if state is not None and len(state) > limits(Tier.BASIC).session_state:
        rows = yield call("get_namespace", name=address.namespace)
        if not rows:
            raise EntityNotFound(str(address))
        sessions.check_state(state, limits(Tier(rows[0].tier)))


def _while_locked(session: Session, statement: Any) -> Steps:
    """Lock the session's row, then run the statement with its own snapshot, so that it sees all earlier changes. Returns the
    statement's row, or None if the session is no longer locked."""
    lock_key = {name: statement.params[name] for name in ("entity_id", "session_id", "session_token")}

    def steps() -> Steps:
        if not (yield call("lock_session", **lock_key)):
            return None
        return next(iter((yield statement)), None)

    for tries_left in reversed(range(TRIES)):
        try:
            return (yield Atomically(steps()))
        except ServerBusy:  # deadlock with a settlement of the same messages; nothing was changed
            if not tries_left:
                raise


def _accepted(receiver: Receiver, session_id: str | None, max_wait_seconds: float) -> Steps[Session | None]:
    """Accept a session, this one or the next one; with the other calls of this process that wait for it."""
    kind = WaitKind.NEXT_SESSION if session_id is None else WaitKind.THIS_SESSION

    def watched(entity_id: int) -> WatchedList:
        return WatchedList(entity_id, receiver.address.subqueue, kind, session_id)

    sessions = yield from receive_or_wait(receiver, max_wait_seconds, _accept_in_turn, _close_missed, watched, mode="accept")
    return sessions[0] if sessions else None


def _accept_in_turn(receiver: Receiver, waiting: Sequence[Receiver]) -> Steps[Received]:
    """A session for each of those who wait, as far as there are any, first come, first served. If there is none, due changes on
    the entity are made, and it is tried again."""
    address, (session_id, _) = receiver.address, receiver.asked
    accepted: list[tuple[Receiver, Session]] = []

    def attempt(entity: CachedEntity) -> Steps:
        sessions.check_received_with(address, entity.requires_session, session=True)
        for candidate in waiting if session_id is None else waiting[:1]:
            if (session := (yield from _accept(entity, candidate))) is None:
                break
            accepted.append((candidate, session))
        return accepted

    entity, _, status = yield from on_entity(address, attempt)
    if status is not None:
        require_receivable(address, status)
        if session_id is None and (yield from tidy(entity.id, status)):
            yield from attempt(entity)
    return Received(accepted, len(accepted) == len(waiting), entity.id)


def _accept(entity: CachedEntity, receiver: Receiver) -> Steps[Session | None]:
    (session_id, max_count), token = receiver.asked, uuid4()
    params = {"entity_id": entity.id, "session_token": token, "holder": receiver.holder}
    if session_id is not None:
        rows = yield call("accept_session", session_id=session_id, **params)
    else:
        rows = yield call("accept_next_session", subqueue=receiver.address.subqueue, max_count=max_count, **params)
    return _session(rows, receiver.address, token)


def _close_missed(missed: Sequence[tuple[Receiver, Session]]) -> Steps[None]:
    """Close sessions whose receivers had gone."""
    for receiver, session in missed:
        yield from close_session.steps(session, actor=receiver.actor)


def _session(rows: list, address: EntityAddress, token: Any) -> Session | None:
    if not rows:
        return None
    first = rows[0]
    return Session(
        address,
        first.accepted,
        token,
        first.session_locked_until,
        first.lock_duration,
        first.session_state,
        tuple(locked_message(row, address) for row in rows if getattr(row, "sequence_number", None) is not None),
    )


def _received(
    name: str, session: Session, max_count: int, max_wait_seconds: float, actor: Actor | None, release: Release
) -> Steps[list]:
    """The rows of a receive from a locked session."""
    address, actor = session.address, actor or Actor.local()
    actor.require(Right.LISTEN, address)
    require_count("max_count", max_count)
    session_key(session, address)

    def watched(entity_id: int) -> WatchedList:
        return WatchedList(entity_id, address.subqueue, WaitKind.MESSAGES_OF_SESSION, session.session_id, session.lock_token)

    receive, receiver = partial(_receive_in_order, name), Receiver(address, actor, max_count, session)
    return (yield from receive_or_wait(receiver, max_wait_seconds, receive, release, watched, mode=name))


def _receive_in_order(name: str, receiver: Receiver, waiting: Sequence[Receiver]) -> Steps[Received]:
    """Receive from a locked session for the first waiting receiver; if there are too few messages, due changes on the entity are
    made first."""
    first, session, address = waiting[0], receiver.asked, receiver.address

    def receive(count: int) -> Steps:
        params = session_key(session, address) | {"holder": first.holder, "max_count": count}
        entity_id, rows, status = yield from run_on_entity(address, name, **params)
        if status:
            require_receivable(address, status)
            raise SessionLockLost(str(address), session.session_id)
        return entity_id, rows[0].first_number, [row for row in rows if row.sequence_number is not None]

    max_count = first.max_count
    entity_id, bound, rows = yield from receive(max_count)
    if len(rows) < max_count:
        status = yield call("entity_status", entity_id=entity_id)
        if status and not rows:
            require_receivable(address, status[0])
        if status and (yield from tidy(entity_id, status[0])):
            _, _, more = yield from receive(max_count - len(rows))
            rows = [*rows, *more]
    if bound is not None and (not rows or rows[0].sequence_number - bound > HEAD_LAG):
        yield from _while_locked(session, call("advance_session", **(yield from _key(session))))
    return Received([(first, row) for row in rows], len(rows) == max_count, entity_id)


def _renew_locks(address: EntityAddress, tokens: Sequence[UUID], session: Session | None, actor: Actor) -> Renewed:
    """Called by the lock renewer from its thread."""
    if session is not None:
        return tokens, [], renew_session(session, actor=actor).lock_duration
    report = renew(address, tokens, actor=actor)
    return [token for token, _ in report.settled], report.lost, report.lock_duration or timedelta()


renewer.renew = _renew_locks
