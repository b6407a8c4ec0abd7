"""Forwarding of messages from one entity to another, automatic (SB-170) or by a transaction (SB-166).

A message is stored first and forwarded later, in a separate transaction that removes it from one entity and stores it in the
other. So a send never fails because of a destination, and if a process dies in between, the next send, receive or sweep forwards
the message.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from broker_core.common.errors import BrokerError
from broker_core.common.sweep_refusals import Refusals
from broker_core.common.types import BROKER, EntityKind, EntityStatus, SubQueue
from broker_core.runtime.waiting import wake
from broker_core.service_bus.rules.forwarding import (
    CannotForward,
    Destination,
    list_of_failures,
    quota_exceeded,
    why_not_forward,
)
from broker_core.service_bus.rules.messages import Prepared
from broker_core.store.driver import AfterCommit, Atomically, Steps, all_or_none, undo
from broker_core.store.statements import call

from .duplicates import claim_ids, record_ids
from .publishing import Entry, SourceMessage, Stored, columns, merge_numbers, publish
from .rows import sent_message

log = logging.getLogger(__name__)

BATCH = 100
LISTS = (SubQueue.MAIN, SubQueue.DEAD_LETTER, SubQueue.TRANSFER)
ROUNDS = 50  # per call; a sweep forwards the rest


def wake_and_forward(stored: Stored) -> Steps[None]:
    """Run after a send: wake receivers and forward messages. Forwarding starts after the commit, because a transaction that holds
    a counter must not wait for a forwarder."""
    yield from wake(stored.entity_ids, stored.waiting, subqueue=SubQueue.MAIN)
    if stored.forwards:
        yield AfterCommit(forward_on(stored.forwards))


def forward_on(entity_ids: Iterable[int], refusals: Refusals | None = None) -> Steps:
    """Forward the messages of these entities, and on from their destinations. Never fails; the next sweep forwards what is left.

    refusals: where a sweep counts what was refused. Returns how many messages were moved.
    """
    left, total = list(dict.fromkeys(entity_ids)), 0
    for _ in range(ROUNDS):
        if not left:
            break
        entity_id = left.pop(0)
        try:
            done, further = yield from forward_from(entity_id)
        except BrokerError as exc:
            log.warning("entity %s could not forward now: %s", entity_id, exc)
            if refusals is not None:
                refusals.add(f"entity {entity_id}", exc)
            continue
        total += done
        left += [i for i in further if i not in left]
    return total


def forward_from(entity_id: int) -> Steps:
    """Forward a batch of each list. Returns how many messages were moved, and the entities that now have messages to forward."""
    total, further = 0, []
    for subqueue in LISTS:
        done, stored, more = yield Atomically(_forward_batch(entity_id, subqueue))
        total += done
        for result in stored:
            further += result.forwards
            yield from wake(result.entity_ids, result.waiting)
        if done and more:
            further.append(entity_id)
    return total, further


def _forward_batch(entity_id: int, subqueue: SubQueue) -> Steps:
    """Forward a batch of one list. A full destination of a transaction's messages (SB-166) does not block other destinations."""
    yield call("lock_forwarder", entity_id=entity_id, subqueue=subqueue)
    stored: list[Any] = []
    full: list[str] = []
    done, taken = 0, BATCH
    while taken == BATCH and not done:
        rows = yield call("forwardable", entity_id=entity_id, subqueue=subqueue, max_count=BATCH, waited_for=full)
        taken = len(rows)
        # Destinations are handled in the same order by all forwarders, so that they cannot deadlock.
        for path, group in groupby(sorted(rows, key=_destination), key=_destination):
            removed, arrived, all_removed = yield from _forward_to(entity_id, subqueue, list(group))
            done += removed
            stored += arrived
            if not all_removed:
                full.append(path)
    return done, stored, taken == BATCH


def _destination(row: Any) -> str:
    return row.target.lower()


def _forward_to(entity_id: int, subqueue: SubQueue, rows: Sequence[Any]) -> Steps:
    """Forward rows of one list to one destination. Returns how many were removed, what was stored, and whether all were
    removed."""
    path, namespace_id = rows[0].target, rows[0].namespace_id
    targets = yield call("forward_target", namespace_id=namespace_id, path=path)
    target: Any = targets[0] if targets else None
    refused = _refusals(rows, path, target)
    accepted = [row for row in rows if refused[row.sequence_number] is None]
    arrived, left = yield from store_until_full(entity_id, target, accepted)
    for part, stored in arrived:
        numbers = [row.sequence_number for row in part]
        yield call(
            "remove_forwarded",
            entity_id=entity_id,
            subqueue=subqueue,
            numbers=numbers,
            new_numbers=stored.numbers,
            to_id=target.id,
        )
    if left and not (yield call("forward_target", namespace_id=namespace_id, path=path)):  # deleted in the meantime
        refused |= _refusals(left, path, None)
    elif subqueue is not SubQueue.TRANSFER:  # a full destination is waited for only by a transaction's messages (SB-166)
        refused |= {row.sequence_number: quota_exceeded(path) for row in left}
    failures = {number: why for number, why in refused.items() if why is not None}
    if failures:
        yield _dead_letter_failed(entity_id, subqueue, failures)
    removed = sum(len(part) for part, _ in arrived) + len(failures)
    return removed, [stored for _, stored in arrived], removed == len(rows)


def _refusals(rows: Sequence[Any], path: str, target: Any) -> dict[int, CannotForward | None]:
    """Why each message, by number, cannot be forwarded, as far as can be decided beforehand. target: None: no such entity."""
    destination = target and Destination(
        target.path, EntityKind(target.kind), EntityStatus(target.status), target.requires_session, target.largest
    )
    return {row.sequence_number: why_not_forward(_hops(row), row.session_id, path, destination, row.size) for row in rows}


def store_until_full(source_id: int, target: Any, rows: Sequence[Any], actor: str = BROKER) -> Steps:
    """Store messages at their destination until it is full. Returns pairs of messages and Stored, and the remaining messages."""
    arrived, count = [], len(rows)
    while rows and count:
        stored = yield from _store_detecting_duplicates(source_id, target, rows[:count], actor)
        if stored is None:
            count //= 2
        else:
            arrived.append((rows[:count], stored))
            rows = rows[count:]
    return arrived, rows


def _dead_letter_failed(entity_id: int, subqueue: SubQueue, failures: dict[int, CannotForward]):
    return call(
        "forward_failed",
        entity_id=entity_id,
        subqueue=subqueue,
        to_subqueue=list_of_failures(subqueue),
        numbers=list(failures),
        reasons=[why.reason for why in failures.values()],
        descriptions=[why.description for why in failures.values()],
    )


def _store_detecting_duplicates(source_id: int, target: Any, rows: Sequence[Any], actor: str) -> Steps:
    """Store messages at their destination, with duplicate detection as for any send (SB-133). Returns Stored; None if it is
    full."""
    if not target.requires_duplicate_detection:
        return (yield from _store(source_id, target, rows, actor))

    def steps() -> Steps:
        ids = [row.message_id for row in rows]
        is_new = yield from claim_ids(target.id, ids)
        new_rows = [row for row, new in zip(rows, is_new, strict=True) if new]
        stored = (yield from _store(source_id, target, new_rows, actor)) if new_rows else Stored([])
        if stored is None:
            undo()  # also removes the recorded ids
        left = iter(stored.numbers)
        numbers = [next(left) if new else None for new in is_new]
        yield from record_ids(target.id, ids, numbers, actor)
        return stored._replace(numbers=numbers)

    return (yield from all_or_none(steps()))


def _store(source_id: int, target: Any, rows: Sequence[Any], actor: str) -> Steps:
    if target.kind == EntityKind.TOPIC:
        return (yield from _store_in_topic(source_id, target, rows, actor))
    return (yield from _deliver(source_id, target, rows, actor))


def _store_in_topic(source_id: int, target: Any, rows: Sequence[Any], actor: str) -> Steps:
    """As in any send, scheduled messages wait at the topic (SB-051); the others are published."""
    later = {i for i, row in enumerate(rows) if row.scheduled_enqueue_at and row.scheduled_enqueue_at > row.now}
    rest = [row for i, row in enumerate(rows) if i not in later]

    def publish_rest() -> Steps:
        return (yield from publish(target.id, [as_sent(row) for row in rest], actor, [_origin(row) for row in rest]))

    def steps() -> Steps:
        scheduled = yield from _deliver(source_id, target, [rows[i] for i in sorted(later)], actor)
        if scheduled is None:
            undo()
        if not rest:
            return scheduled
        published = yield from publish_rest()
        if published is None:
            undo()
        return published._replace(numbers=merge_numbers(len(rows), later, scheduled.numbers, published.numbers))

    return (yield from (all_or_none(steps()) if later else publish_rest()))


def _deliver(source_id: int, target: Any, rows: Sequence[Any], actor: str) -> Steps[Stored | None]:
    prepared = [as_sent(row) for row in rows]
    origins = [_origin(row) for row in rows]
    entries = [Entry(place, p, origin) for place, (p, origin) in enumerate(zip(prepared, origins, strict=True))]
    params = columns(prepared, entries, {target.id: list(range(1, len(rows) + 1))})
    delivered = yield call("deliver", entity_id=target.id, from_id=source_id, actor=actor, **params)
    if not delivered:
        return None
    first = delivered[0].first
    return Stored(list(range(first, first + len(rows))), [target.id], delivered[0].waiting, delivered[0].forwards)


def as_sent(row: Any) -> Prepared:
    """A stored message, prepared to be sent again; its properties were checked when it was sent."""
    return Prepared(
        sent_message(row),
        row.time_to_live,
        row.size,
        None if row.properties is None else json.dumps(row.properties),
        None if row.application_properties is None else json.dumps(row.application_properties),
        row.encoded,
    )


def _origin(row: Any) -> SourceMessage:
    """The origin to store: the original number (SB-172), and the source and reason of a dead letter (SB-104)."""
    return SourceMessage(
        enqueued_number=row.sequence_number if row.enqueued_sequence_number is None else row.enqueued_sequence_number,
        source=row.dead_letter_source,
        reason=row.dead_letter_reason,
        description=row.dead_letter_description,
        transfer=json.dumps({"hops": _hops(row) + 1}),
    )


def _hops(row: Any) -> int:
    return (row.transfer or {}).get("hops", 0)
