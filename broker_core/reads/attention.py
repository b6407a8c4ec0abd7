"""Entities that may need a person: the facts of each, from which the explorer's rules decide (explorer/pages/attention.py)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, Right
from broker_core.store.driver import Atomically, Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .entities import EntityRow, rows_of
from .entity_lists import EntityFilter
from .shared import require

MINUTES = 30  # of the trend
USUAL_MINUTES = 60  # over which the usual wait is taken
REASON_CAP = 500  # dead letters of an entity that are grouped by reason, the latest first
REASONS_CAP = 10  # different reasons of an entity


@dataclass(frozen=True, slots=True)
class TopReason:
    """The most frequent reason among the latest `of` dead letters. description: of one of them. all: their reasons, REASONS_CAP
    of them if there are more; None is among them if some have none."""

    reason: str
    description: str
    count: int
    of: int
    all: frozenset[str | None] = frozenset()


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of an entity that may need a person.

    active, dead: how many messages it had at the end of each of the last MINUTES minutes, oldest first; the last is now.
    usual_wait:   the mean time to the first receive of the messages completed in the last hour; None: none was.
    quota_share:  how much of its size or length is used; None: less than was asked for, or it has no limit.
    reason:       None: it has no dead letters with one.
    """

    entity: EntityRow
    active: tuple[int, ...]
    dead: tuple[int, ...]
    usual_wait: timedelta | None
    quota_share: float | None
    reason: TopReason | None


@dataclass(frozen=True, slots=True)
class Candidates:
    """facts: of some entities of each sort of candidate, those with the most messages first. entities: how many candidates there
    are."""

    facts: tuple[Facts, ...]
    entities: int


def _joined(results: list[Candidates]) -> Candidates:
    return Candidates(tuple(chain.from_iterable(result.facts for result in results)), sum(result.entities for result in results))


@use_case(namespace="filter", combine=_joined)
def attention(
    filter: EntityFilter = EntityFilter(),
    *,
    many_dead: int = 1,
    new_minutes: int = 5,
    older_than: timedelta = timedelta(minutes=1),
    fuller_than: float = 0.8,
    most: int = 20,
    actor: Actor | None = None,
) -> Steps[Candidates]:
    """Entities with dead letters, at least many_dead or new ones of the last new_minutes; with messages but no receiver within
    the last minute; that are disabled; whose oldest message is older than `older_than`; that are fuller than a share of their
    quota. `most`: of each of these sorts."""
    require(actor, Right.BROWSE, filter.namespace or "all namespaces")
    if not 1 <= new_minutes <= MINUTES:
        raise InvalidArgument("new_minutes", f"{new_minutes!r} must be a whole number from 1 to {MINUTES}")
    since = datetime.fromtimestamp((int(time.time()) // 60 - new_minutes) * 60, UTC)
    bounds = {"many_dead": many_dead, "since": since, "older_than": older_than, "fuller_than": fuller_than, "most": most}
    rows = yield Atomically(_candidates(filter, bounds))
    ids = [row.id for row in rows if row.id is not None]
    if not ids:
        return Candidates((), 0)
    entities = yield from rows_of(ids)
    first = int(time.time()) // 60 - USUAL_MINUTES + 1
    changes = yield call("read_depth_changes", ids=ids, since=datetime.fromtimestamp(first * 60, UTC))
    reasons = yield call("read_top_reasons", ids=ids, scan_cap=REASON_CAP, reasons_cap=REASONS_CAP)
    shares = {row.id: row.quota_share for row in rows}
    top = {
        row.entity_id: TopReason(row.reason, row.description or "", row.n, row.scanned, frozenset(row.reasons)) for row in reasons
    }
    facts = (
        _facts(row, [change for change in changes if change.entity_id == row.id], first, shares[row.id], top.get(row.id))
        for row in entities
    )
    return Candidates(tuple(facts), rows[0].candidates)


def _candidates(filter: EntityFilter, bounds: Mapping[str, Any]) -> Steps[list[Any]]:
    yield call("prepare_for_sums")
    return (yield call("read_candidates", **filter.parameters(), **bounds, with_oldest=True))


def _facts(
    entity: EntityRow, changes: Sequence[Any], first_minute: int, quota_share: float | None, reason: TopReason | None
) -> Facts:
    by_minute = {int(row.at.timestamp()) // 60 - first_minute: row for row in changes}
    active, dead = entity.counts.active, entity.counts.dead_letter + entity.counts.transfer_dead_letter
    actives: list[int] = []
    deads: list[int] = []
    for minute in range(max([USUAL_MINUTES - 1, *by_minute]), USUAL_MINUTES - MINUTES - 1, -1):
        if len(actives) < MINUTES:
            actives.append(max(0, active))
            deads.append(max(0, dead))
        if row := by_minute.get(minute):
            active, dead = active - int(row.active_change), dead - int(row.dead_change)
    completed = sum(row.completed for row in changes)
    waited = sum(row.waiting_sum for row in changes)
    usual = timedelta(seconds=waited / int(completed)) if completed and waited else None
    return Facts(entity, tuple(actives[::-1]), tuple(deads[::-1]), usual, quota_share, reason)
