"""Background maintenance: frees space, moves due messages and removes old records. Delivery is correct without it
(docs/design.md D5).

Each sweep works in bounded batches, each a short transaction. It may run several times at once, since locked rows are skipped. A
sweep returns counts by name; an empty dict, or zeros, mean that there was nothing to do. Each family provides its part of them,
and sweeps of its own (FamilyDefinition).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from broker_core.common.errors import BrokerError
from broker_core.common.family import definition_of, installed
from broker_core.common.sweep_refusals import Refusals
from broker_core.common.types import EntityAddress, SubQueue
from broker_core.runtime.keeping import ending
from broker_core.runtime.pacing import BATCH, SWEEP_SECONDS, advance_head
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, use_case

ROLL_UP_BATCH = 20_000


@use_case
def expire_messages(
    *, namespace: str | None = None, seconds_at_most: float = SWEEP_SECONDS, pause: Callable[[float], None] = time.sleep
) -> Steps:
    """Remove or dead-letter expired messages, except in entities whose expiry mode does not allow it now (SB-902, QS-074,
    RMQ-012). namespace: only in this one."""
    deadline, total = time.monotonic() + seconds_at_most, 0
    for entity in (yield call("entities_with_due", namespace=namespace)):
        family = definition_of(entity.family)
        if family.has_expired(entity):
            total += yield from family.expire(entity, deadline, pause)
    return {"expired": total}


@use_case
def end_locks(*, namespace: str | None = None, seconds_at_most: float = SWEEP_SECONDS) -> Steps:
    """End the locks that have expired: count a failed delivery, dead-letter after the last one allowed, and expire messages whose
    time-to-live has ended (SB-070, SB-090, SB-091). namespace: only in this one."""
    deadline, total = time.monotonic() + seconds_at_most, 0
    for entity in (yield call("entities_with_due", namespace=namespace)):
        if entity.locks:
            total += yield from definition_of(entity.family).end_locks(entity, deadline)
    return {"locks_ended": total}


@use_case
def activate_scheduled(*, namespace: str | None = None, seconds_at_most: float = SWEEP_SECONDS) -> Steps:
    """Move due scheduled messages to the end of their queue (SB-047). namespace: only in this one."""
    deadline, total = time.monotonic() + seconds_at_most, 0
    for entity in (yield call("entities_with_due", namespace=namespace)):
        if entity.scheduled:
            total += yield from definition_of(entity.family).activate(entity, deadline)
    return {"activated": total}


@use_case
def follow_clock(namespace: str, *, seconds_at_most: float = 1.0) -> Steps:
    """Process what a step of a namespace's clock made due, so that its effects are visible at once (docs/design.md D6).

    Correctness does not depend on it. Work that takes longer, or only frees space, is left to the sweeps.
    """
    done = yield from activate_scheduled.steps(namespace=namespace, seconds_at_most=seconds_at_most)
    done |= yield from end_locks.steps(namespace=namespace, seconds_at_most=seconds_at_most)
    for family in installed():
        done |= yield from family.clock_stepped(namespace)
    done |= yield from expire_messages.steps(namespace=namespace, seconds_at_most=seconds_at_most)
    for family in installed():
        done |= yield from family.forward(namespace)  # what became active or was dead-lettered just now
    return done | (yield from delete_idle_entities.steps(namespace=namespace))


@use_case(namespace=WHOLE_DATABASE)
def advance_heads() -> Steps:
    """Advance the heads of lists, so that receives skip removed messages."""
    heads = yield call("heads")
    for head in heads:
        yield from advance_head(head.entity_id, SubQueue(head.subqueue))
    return {"heads": len(heads)}


@use_case
def delete_idle_entities(*, namespace: str | None = None) -> Steps:
    """Delete entities that were idle for their auto-delete interval (SB-190, SB-194, RMQ-040), also protected ones (SB-197).
    namespace: only in this one."""
    deleted: list[str] = []
    refusals = Refusals()
    for row in (yield call("idle_entities")):
        if namespace not in (None, row.namespace_name):
            continue
        address = EntityAddress(row.namespace_name, row.path)
        try:
            if (yield from definition_of(row.family).delete_idle(row)):
                deleted.append(str(address))
        except BrokerError as refusal:
            refusals.add(str(address), refusal)
    return ({"deleted": deleted} if deleted else {}) | refusals.outcome()


@use_case(namespace=WHOLE_DATABASE)
def remove_deleted_entities(*, seconds_at_most: float = SWEEP_SECONDS) -> Steps:
    """Remove the messages and other rows of deleted entities (SB-240), with an event for each message; of those that can be
    restored, when their time is over."""
    deadline, total, entities_done = time.monotonic() + seconds_at_most, 0, 0
    yield call("end_soft_deletions")
    deleted = yield call("deleted_entities")
    if deleted:
        yield from _fold(deadline)  # what they did belongs to the traffic of their namespaces
    for entity in deleted:
        done = BATCH
        while done == BATCH and time.monotonic() < deadline:
            (row,) = yield (yield from ending("remove_deleted", entity.entity_id, max_count=BATCH))
            done = row.done
            total += done
        if done < BATCH and (yield Atomically(_on_sums("forget_deleted", entity_id=entity.entity_id))) is not None:
            entities_done += 1
    return {"messages": total, "entities": entities_done}


@use_case(namespace=WHOLE_DATABASE)
def purge_hidden_messages(*, seconds_at_most: float = SWEEP_SECONDS) -> Steps:
    """Delete what operations removed and can no longer be undone, and the records of operations after the retention of the
    history (docs/design.md D18)."""
    from broker_core.history.retention import RETENTION

    deadline, total, done = time.monotonic() + seconds_at_most, 0, BATCH
    while done == BATCH and time.monotonic() < deadline:
        (row,) = yield call("purge_hidden", max_count=BATCH)
        done = row.done
        total += done
    (row,) = yield call("forget_operations", retention=RETENTION, max_count=BATCH)
    return {name: number for name, number in (("messages", total), ("operations", row.done)) if number}


@use_case(namespace=WHOLE_DATABASE)
def drop_kept_messages() -> Steps:
    """Delete kept messages whose time is over (docs/design.md D20)."""
    (row,) = yield Atomically(_drop_kept())
    return {"bytes": row.bytes} if row.bytes else {}


@use_case(namespace=WHOLE_DATABASE)
def roll_up_counts(*, seconds_at_most: float = SWEEP_SECONDS) -> Steps:
    """Fold the ledger's differences into its sums and into the traffic, and add the times of completed messages to the traffic
    (docs/design.md D9)."""
    deadline = time.monotonic() + seconds_at_most
    total = yield from _fold(deadline)
    rows: list[Any] | None = None
    while (rows is None or rows[0].more) and time.monotonic() < deadline:
        rows = yield Atomically(_on_sums("roll_up_times", max_count=ROLL_UP_BATCH))
        if rows is None:  # another process is at it
            break
    return {"folded": total, "forgotten": _done((yield Atomically(_on_sums("forget_ended_counts"))))}


@use_case(namespace=WHOLE_DATABASE)
def check_ledger() -> Steps:
    """Compare the ledger with the stored messages and correct it. A difference is a bug in the broker, so all are reported."""
    differences = yield call("check_ledger")
    for row in differences:
        yield call(
            "correct_ledger", entity_id=row.entity_id, subqueue=row.subqueue, state=row.state, difference=row.present - row.ledger
        )
    return {
        "differences": [
            {
                "entity": f"{row.namespace_name}/{row.path}",
                "list": [row.subqueue, row.state],
                "ledger": row.ledger,
                "present": row.present,
            }
            for row in differences
        ]
    }


def _drop_kept() -> Steps[list[Any]]:
    return (yield call("drop_kept"))


def _fold(deadline: float) -> Steps[int]:
    total, done = 0, ROLL_UP_BATCH
    while done == ROLL_UP_BATCH and time.monotonic() < deadline:
        done = _done((yield Atomically(_on_sums("roll_up", max_count=ROLL_UP_BATCH))))
        total += done
    return total


def _on_sums(name: str, **params: Any) -> Steps[list[Any] | None]:
    """Run a statement that changes the ledger's sums. Returns None if another one is running: each locks rows of several tables
    in its own order, so they run one at a time, and this one is left to the next run."""
    (row,) = yield call("one_at_a_time", work="sums")
    return (yield call(name, **params)) if row.acquired else None


def _done(rows: list[Any] | None) -> int:
    return rows[0].done if rows else 0
