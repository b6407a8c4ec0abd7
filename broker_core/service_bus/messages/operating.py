"""Operations for operators: resubmit dead letters, drop locks, delete messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from broker_core.common.arguments import require_count, require_reason, whole_numbers
from broker_core.common.errors import InvalidArgument, MessageTooLarge
from broker_core.common.types import Actor, EntityAddress, MessageState, Right, SubQueue, Tier
from broker_core.runtime.keeping import ending
from broker_core.runtime.pacing import BATCH
from broker_core.runtime.room import require_room
from broker_core.runtime.waiting import wake
from broker_core.service_bus.configured_limits import limits
from broker_core.service_bus.rules import messages as service_bus
from broker_core.service_bus.rules.sessions import check_session_id
from broker_core.store.driver import AfterCommit, Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .forwarding import forward_on
from .shared import entity_id_of, entity_status, require_properties_fit, require_sendable, run_on_entity
from .tidying import end_expired_locks


@use_case
def resubmit(
    address: EntityAddress,
    sequence_numbers: Sequence[int],
    *,
    properties: Mapping[str, Any] | None = None,
    body: bytes | None = None,
    actor: Actor | None = None,
) -> Steps:
    """Move dead letters back to their queue, in one transaction (SB-105). Returns old number -> new number.

    Numbers missing from the result do not exist or are locked. The new messages record their origin; `properties` are added to
    them, and `body` replaces theirs. Raises MessageTooLarge for a message over the entity's limit (SB-007), or if a message would
    exceed the limit on application properties; with either, which may make messages larger, NamespaceFull and StorageFull.
    """
    actor = actor or Actor.local()
    actor.require(Right.OPERATE, address)
    numbers = whole_numbers(sequence_numbers)
    if not numbers:
        return {}
    if body is not None or properties:
        yield from require_room(address.namespace)
    if body is not None:
        service_bus.check_body(body)
        entity_id, status = yield from entity_status(address)
        (row,) = yield call("largest_beside_body", entity_id=entity_id, numbers=numbers)
        if (size := len(body) + row.size) > status.largest:
            raise MessageTooLarge("message", size, status.largest)
    patch = service_bus.properties_json(properties)
    yield from require_properties_fit(address.dead_letter, numbers, patch)
    entity_id, rows, status = yield from run_on_entity(
        address.main, "resubmit", actor=str(actor), numbers=numbers, properties=patch, body=body
    )
    if not rows:
        require_sendable(address, status)
        return {}
    yield from wake([entity_id], rows[0].waiting, subqueue=SubQueue.MAIN)
    if rows[0].forwards:
        yield AfterCommit(forward_on([entity_id]))
    return {row.old_number: row.new_number for row in rows}


@use_case
def drop_locks(address: EntityAddress, *, actor: Actor | None = None) -> Steps:
    """End all locks on messages and sessions of an entity now, in all its lists, as a service update does (SB-072, SB-073).

    Holders get LockLost, and each lock counts as a failed delivery. Returns how many messages were locked.
    """
    actor = actor or Actor.local()
    actor.require(Right.OPERATE, address)
    entity_id = yield from entity_id_of(address)
    yield call("drop_session_locks", entity_id=entity_id, session_id=None)
    total = 0
    while True:
        row = yield from end_expired_locks(entity_id, dropped_by=str(actor))
        total += row.done
        if row.deadlines < BATCH:
            return total


@use_case
def release_locks(
    address: EntityAddress, sequence_numbers: Sequence[int], *, reason: str | None = None, actor: Actor | None = None
) -> Steps[list[int]]:
    """End the locks of these messages now, in any list of the entity (SB-077). Their holders get LockLost, and each counts as a
    failed delivery (SB-090, SB-091). Returns the numbers of those that were locked. reason: for the messages' history."""
    actor = actor or Actor.local()
    actor.require(Right.OPERATE, address)
    numbers = whole_numbers(sequence_numbers)
    require_reason(reason)
    if not numbers:
        return []
    entity_id = yield from entity_id_of(address)
    return (yield from _end_locks_of(entity_id, numbers, reason, actor))


@use_case
def release_session(
    address: EntityAddress, session_id: str, *, reason: str | None = None, actor: Actor | None = None
) -> Steps[bool]:
    """End the lock of a session now, and those of the messages received through it, in one transaction (SB-077). Its holder gets
    SessionLockLost; each message counts one failed delivery (SB-092). Returns whether it was locked."""
    actor = actor or Actor.local()
    actor.require(Right.OPERATE, address)
    check_session_id(session_id)
    require_reason(reason)
    entity_id = yield from entity_id_of(address)

    def steps() -> Steps[bool]:
        (dropped,) = yield call("drop_session_locks", entity_id=entity_id, session_id=session_id)
        if not dropped.done:
            return False
        locked = yield call("locked_in_session", entity_id=entity_id, session_id=session_id)
        yield from _end_locks_of(entity_id, [row.sequence_number for row in locked], reason, actor)
        return True

    return (yield Atomically(steps()))


def _end_locks_of(entity_id: int, numbers: Sequence[int], reason: str | None, actor: Actor) -> Steps[list[int]]:
    statement = yield from ending(
        "end_locks_of", entity_id, subqueue=SubQueue.MAIN, numbers=numbers, actor=str(actor), reason=reason,
        expires_deferred=False, properties=None,
    )  # fmt: skip
    (row,) = yield statement
    yield from wake([entity_id], row.waiting)
    if row.forwards:
        yield AfterCommit(forward_on([entity_id]))
    return list(row.numbers)


@use_case
def dead_letter_unlocked(
    address: EntityAddress,
    sequence_numbers: Sequence[int],
    reason: str | None = None,
    description: str | None = None,
    *,
    actor: Actor | None = None,
) -> Steps[list[int]]:
    """Move unlocked active and deferred messages to the dead-letter queue (SB-078). Returns the numbers of those moved:
    the others are locked, scheduled, expired or gone."""
    actor = actor or Actor.local()
    actor.require(Right.OPERATE, address)
    service_bus.check_dead_letter_texts(reason, description)
    numbers = whole_numbers(sequence_numbers)
    if not numbers:
        return []
    entity_id, rows, _ = yield from run_on_entity(
        address.main, "dead_letter_unlocked", actor=str(actor), numbers=numbers, reason=reason, description=description,
        properties=None,
    )  # fmt: skip
    if not rows:
        return []
    yield from wake([entity_id], rows[0].waiting, subqueue=SubQueue.DEAD_LETTER)
    if rows[0].forwards:
        yield AfterCommit(forward_on([entity_id]))
    return sorted(row.sequence_number for row in rows)


@use_case
def delete_batch(
    address: EntityAddress,
    max_count: int,
    *,
    enqueued_before: datetime | None = None,
    session_id: str | None = None,
    actor: Actor | None = None,
) -> Steps:
    """Delete up to max_count unlocked messages in one call, oldest first. Returns how many (SB-150, SB-151).

    enqueued_before: None: now. Deferred and scheduled messages stay (SB-930). session_id: only messages of this session. It may
    delete fewer than there are; 0 means that there were none. Raises InvalidArgument for more than the namespace's tier allows.
    """
    actor = actor or Actor.local()
    actor.require(Right.LISTEN, address)
    require_count("max_count", max_count)
    entity_id, status = yield from entity_status(address)
    most = limits(None if status.is_system else Tier(status.tier)).messages_per_batch_delete
    if max_count > most:
        raise InvalidArgument(
            "max_count", f"{max_count:,} is out of range: at most {most:,} messages are deleted at once (SB-150)"
        )
    just_after_now = status.now + timedelta(microseconds=1)
    return (
        yield from _purge_batch(
            entity_id, address, MessageState.ACTIVE, max_count, enqueued_before or just_after_now, actor, session_id=session_id
        )
    )


@use_case
def purge(
    address: EntityAddress,
    *,
    states: Sequence[MessageState] = (MessageState.ACTIVE,),
    enqueued_before: datetime | None = None,
    sequence_numbers: Sequence[int] | None = None,
    session_id: str | None = None,
    max_count: int | None = None,
    actor: Actor | None = None,
) -> Steps:
    """Delete the unlocked messages of a list, oldest first. Returns how many (SB-153).

    enqueued_before: None: when the call began. session_id: only messages of this session. Works in batches, each in its own
    transaction.
    """
    actor = actor or Actor.local()
    actor.require(Right.OPERATE, address)
    numbers = None if sequence_numbers is None else whole_numbers(sequence_numbers)
    entity_id, status = yield from entity_status(address)
    total = 0
    for state in states:
        # enqueued_at of a scheduled message is when it was accepted, so one cut-off serves every state.
        while max_count is None or total < max_count:
            limit = BATCH if max_count is None else min(BATCH, max_count - total)
            before = enqueued_before or status.now
            done = yield from _purge_batch(
                entity_id, address, state, limit, before, actor, numbers=numbers, session_id=session_id
            )
            total += done
            if done < limit:
                break
    return total


def _purge_batch(
    entity_id: int,
    address: EntityAddress,
    state: MessageState,
    max_count: int,
    enqueued_before: datetime,
    actor: Actor,
    *,
    numbers: Sequence[int] | None = None,
    session_id: str | None = None,
) -> Steps:
    statement = yield from ending(
        "purge",
        entity_id,
        subqueue=address.subqueue,
        state=state,
        max_count=max_count,
        enqueued_before=enqueued_before,
        actor=str(actor),
        numbers=numbers,
        session_id=session_id,
    )
    (row,) = yield statement
    return row.done
