"""Background tasks that tidy up: they free space, move what is due, and remove old records. Receiving is correct without
them (docs/design.md D5).

Each sweep works in bounded batches, each batch its own short transaction, and is safe to run several times at once: rows
another one holds are skipped. A sweep returns what it did, counted by name; an empty answer means there was nothing to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from broker_core.common.errors import BrokerError
from broker_core.common.family import definition_of
from broker_core.common.types import EntityAddress, SubQueue
from broker_core.rabbitmq.connections import channels, connections
from broker_core.runtime.pacing import BATCH, advance_head
from broker_core.service_bus import forwarding, tidying
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

ROLL_UP_BATCH = 20_000
SEEN_BATCH = 5_000
SECONDS_AT_MOST = 20.0  # a sweep leaves the rest to its next run


@use_case
def expire_messages(
    *, namespace: str | None = None, seconds_at_most: float = SECONDS_AT_MOST, pause: Callable[[float], None] = time.sleep
) -> Steps:
    """Expired messages to where their family has them go, on every entity whose mode lets a sweep do it now (SB-902, QS-074,
    RMQ-012). namespace: of that one alone."""
    deadline, total = time.monotonic() + seconds_at_most, 0
    for entity in (yield call("entities_with_due", namespace=namespace)):
        family = definition_of(entity.family)
        if family.has_expired(entity):
            total += yield from family.expire(entity, deadline, pause)
    return {"expired": total}


@use_case
def end_locks(*, namespace: str | None = None, seconds_at_most: float = SECONDS_AT_MOST) -> Steps:
    """Messages whose lock has ended: counted as a failed delivery, dead-lettered at the last one, expired where their life is
    over (SB-070, SB-090, SB-091). namespace: of that one alone."""
    deadline, total = time.monotonic() + seconds_at_most, 0
    for entity in (yield call("entities_with_due", namespace=namespace)):
        while entity.locks and time.monotonic() < deadline:
            row = yield from tidying.end_expired_locks(entity.entity_id)
            total += row.done
            if row.deadlines < BATCH:
                break
    return {"locks_ended": total}


@use_case
def activate_scheduled(*, namespace: str | None = None, seconds_at_most: float = SECONDS_AT_MOST) -> Steps:
    """Scheduled messages that are due to the end of their queue (SB-047). namespace: of that one alone."""
    deadline, total = time.monotonic() + seconds_at_most, 0
    for entity in (yield call("entities_with_due", namespace=namespace)):
        done = BATCH
        while entity.scheduled and done == BATCH and time.monotonic() < deadline:
            done = yield from tidying.activate(entity.entity_id, entity.kind)
            total += done
    return {"activated": total}


@use_case
def follow_clock(namespace: str, *, seconds_at_most: float = 1.0) -> Steps:
    """What a step of a namespace's clock made due, done at once: who steps it wants to see what comes of it (docs/design.md D6).

    Nothing depends on it. What takes longer is left to the sweeps, and so is all that they do for space alone.
    """
    done = yield from activate_scheduled.steps(namespace=namespace, seconds_at_most=seconds_at_most)
    done |= yield from end_locks.steps(namespace=namespace, seconds_at_most=seconds_at_most)
    done |= yield from channels.end_overdue.steps()
    done |= yield from expire_messages.steps(namespace=namespace, seconds_at_most=seconds_at_most)
    return done | (yield from delete_idle_entities.steps(namespace=namespace))


@use_case
def forward_messages(*, seconds_at_most: float = SECONDS_AT_MOST) -> Steps:
    """Messages that are to be forwarded, and that whoever stored them did not forward (SB-170, SB-178, SB-166)."""
    deadline, total = time.monotonic() + seconds_at_most, 0
    for entity_id in {row.entity_id: None for row in (yield call("entities_with_transfers"))}:
        if time.monotonic() < deadline:
            total += yield from forwarding.forward_on([entity_id])
    return {"forwarded": total}


@use_case
def forget_seen_ids(*, seconds_at_most: float = SECONDS_AT_MOST) -> Steps:
    """Message ids that left the window of duplicate detection (SB-132, SB-137)."""
    deadline, total, done = time.monotonic() + seconds_at_most, 0, SEEN_BATCH
    while done == SEEN_BATCH and time.monotonic() < deadline:
        (row,) = yield call("forget_seen_ids", max_count=SEEN_BATCH)
        done = row.done
        total += done
    return {"forgotten": total}


@use_case
def forget_sessions(*, seconds_at_most: float = SECONDS_AT_MOST) -> Steps:
    """Sessions that ended without being closed: those without messages and state are forgotten, the others get their first number
    (SB-111)."""
    deadline, total = time.monotonic() + seconds_at_most, 0
    for entity in (yield call("session_entities")):
        after = None
        while time.monotonic() < deadline:
            done, after = yield Atomically(tidying.settle_sessions(entity.entity_id, after, BATCH))
            total += done
            if after is None:
                break
    return {"sessions": total}


@use_case
def advance_heads() -> Steps:
    """Raise the bounds below which nothing is present, so that receives skip what is gone."""
    heads = yield call("heads")
    for head in heads:
        yield from advance_head(head.entity_id, SubQueue(head.subqueue))
    return {"heads": len(heads)}


@use_case
def delete_idle_entities(*, namespace: str | None = None) -> Steps:
    """Delete entities that have been idle for their auto-delete interval (SB-190, SB-194, RMQ-040). namespace: of that one
    alone."""

    deleted: list[str] = []
    for row in (yield call("idle_entities")):
        if namespace not in (None, row.namespace_name):
            continue
        try:
            if (yield from definition_of(row.family).delete_idle(row)):
                deleted.append(str(EntityAddress(row.namespace_name, row.path)))
        except BrokerError:  # used or deleted meanwhile
            continue
    return {"deleted": deleted} if deleted else {}


@use_case
def end_connections() -> Steps:
    """What dead processes held and owned is free again (RMQ-123); channels that keep a delivery too long are closed (RMQ-126)."""
    ended = yield from connections.recover_dead.steps()
    overdue = yield from channels.end_overdue.steps()
    return ended | overdue


@use_case
def remove_deleted_entities(*, seconds_at_most: float = SECONDS_AT_MOST) -> Steps:
    """The messages and small rows of entities that were deleted (SB-240); each message's last event says so."""
    deadline, total, entities_done = time.monotonic() + seconds_at_most, 0, 0
    for entity in (yield call("deleted_entities")):
        done = BATCH
        while done == BATCH and time.monotonic() < deadline:
            (row,) = yield call("remove_deleted", entity_id=entity.entity_id, max_count=BATCH)
            done = row.done
            total += done
        if done < BATCH and (yield Atomically(_on_sums("forget_deleted", entity_id=entity.entity_id))) is not None:
            entities_done += 1
    return {"messages": total, "entities": entities_done}


@use_case
def roll_up_counts(*, seconds_at_most: float = SECONDS_AT_MOST) -> Steps:
    """Fold the ledger's differences into its sums and into the traffic of ten seconds each (docs/design.md D9)."""
    deadline, total, done = time.monotonic() + seconds_at_most, 0, ROLL_UP_BATCH
    while done == ROLL_UP_BATCH and time.monotonic() < deadline:
        done = _done((yield Atomically(_on_sums("roll_up", max_count=ROLL_UP_BATCH))))
        total += done
    return {"folded": total, "forgotten": _done((yield Atomically(_on_sums("forget_ended_counts"))))}


@use_case
def check_ledger() -> Steps:
    """Compare the ledger with the messages themselves and correct it. Whatever it finds is a mistake of ours, so it is told."""
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


def _on_sums(name: str, **params: Any) -> Steps[list[Any] | None]:
    """Run a statement that changes the ledger's sums, or removes some, unless another one runs: None, as this one is left to the
    next run. Each locks rows of several tables, in an order of its own."""
    (row,) = yield call("one_at_a_time", work="sums")
    return (yield call(name, **params)) if row.mine else None


def _done(rows: list[Any] | None) -> int:
    return rows[0].done if rows else 0
