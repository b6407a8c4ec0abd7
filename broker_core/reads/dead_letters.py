"""Groups of messages that failed, over all entities and families: dead letters of Service Bus, messages of storage poison queues,
and messages of RabbitMQ queues that have died."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

from broker_core.common.types import Actor, EntityAddress, Family, Right, SubQueue
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .conditions import Pattern
from .entity_lists import EntityFilter
from .filters import exactly
from .shared import require

EXAMINED = 100_000  # messages of all lists together that are grouped
EXAMINED_OF_LIST = 20_000
LEAST_OF_LIST = 500
MOST_GROUPS = 200
PERIODS = 12  # of five minutes each
DESCRIPTION_CHARACTERS = 300

_QUOTED = re.compile(r"\"[^\"]*\"|`[^`]*`|'[^' ]*'")
_WITH_DIGIT = re.compile(r"[0-9A-Za-z_.-]*[0-9][0-9A-Za-z_.-]*")
_SEVERAL = re.compile(r"[*]([ ,:;/]*[*])+")


def description_pattern(description: str) -> str:
    """What descriptions of the same problem have in common: quoted texts, and words with a digit, such as numbers and ids, are
    `*`. The same as the database's vitrine_description_pattern."""
    return _SEVERAL.sub("*", _WITH_DIGIT.sub("*", _QUOTED.sub("*", description[:DESCRIPTION_CHARACTERS])))


@dataclass(frozen=True, slots=True)
class DeadGroup:
    """Messages of a list that failed in the same way.

    address:     the entity and the list.
    reason:      of dead-lettering, death or moving; empty: none was given. description: its pattern.
    origin:      the queue in which they failed; empty: this entity, or unknown.
    count:       among those examined. resubmitted: how many of them were resubmitted before.
    newest:      the highest sequence number.
    recent:      how many failed in each of the last PERIODS periods of five minutes, the newest last.
    """

    entity_id: int
    address: EntityAddress
    family: Family
    reason: str
    description: str
    origin: str
    count: int
    resubmitted: int
    first_at: datetime
    last_at: datetime
    newest: int
    recent: tuple[int, ...]
    read_at: datetime

    @property
    def filter(self) -> str:
        """The filter, in the language of reads.filters, that finds the messages of the group in its list."""
        if self.family is Family.RABBITMQ:
            named = (("prop.x-last-death-reason", self.reason), ("prop.x-last-death-queue", self.origin))
            return " ".join(exactly(name, value) if value else f"-{name}" for name, value in named)
        conditions = [exactly("reason", self.reason) if self.reason else "-reason:*"]
        if self.family is Family.SERVICE_BUS:
            conditions.append(self._description_filter())
        elif self.origin:
            conditions.append(exactly("origin", self.origin))
        return " ".join(conditions)

    def _description_filter(self) -> str:
        if not self.description:
            return "-description:*"
        cut = "*" if len(self.description) >= DESCRIPTION_CHARACTERS else ""
        return f"description={Pattern(tuple(f'{self.description}{cut}'.split('*')))}"


@dataclass(frozen=True, slots=True)
class DeadGroups:
    """The groups, the largest first, at most MOST_GROUPS.

    total:    messages that failed, by the ledger; of RabbitMQ queues those that were found.
    examined: those grouped, the newest of each list. scanned: with the messages of RabbitMQ queues that have not died.
    capped:   whether a list has more messages than were scanned.
    """

    groups: tuple[DeadGroup, ...]
    total: int = 0
    examined: int = 0
    scanned: int = 0
    capped: bool = False


def _joined(results: list[DeadGroups]) -> DeadGroups:
    groups = sorted(chain.from_iterable(result.groups for result in results), key=lambda group: -group.count)[:MOST_GROUPS]
    return DeadGroups(
        tuple(groups), sum(result.total for result in results), sum(result.examined for result in results),
        sum(result.scanned for result in results), any(result.capped for result in results),
    )  # fmt: skip


@use_case(namespace="filter", combine=_joined)
def dead_groups(filter: EntityFilter = EntityFilter(), *, actor: Actor | None = None) -> Steps[DeadGroups]:
    """The groups of the messages that failed in the entities that match. The work is bounded: of each list the newest
    EXAMINED_OF_LIST messages are grouped, fewer if there are many lists. A message of a RabbitMQ queue has failed if it has the
    header x-death; others are the queue's normal traffic, and are not counted."""
    require(actor, Right.BROWSE, filter.namespace or "all namespaces")
    places = yield call("read_dead_places", **filter.parameters())
    if not places:
        return DeadGroups(())
    cap = max(LEAST_OF_LIST, min(EXAMINED_OF_LIST, EXAMINED // len(places)))
    caps = _caps([row.n for row in places], cap)
    rows = yield call(
        "read_dead_groups", entity_ids=[row.id for row in places], subqueues=[row.subqueue for row in places], caps=caps,
        max_count=MOST_GROUPS,
    )  # fmt: skip
    examined = rows[0].examined if rows else 0
    beyond = sum(
        max(0, row.n - most) for row, most in zip(places, caps, strict=True) if Family(row.family) is not Family.RABBITMQ
    )
    scanned = sum(map(min, (row.n for row in places), caps))
    capped = any(row.n > most for row, most in zip(places, caps, strict=True))
    return DeadGroups(tuple(map(_group, rows)), examined + beyond, examined, scanned, capped)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a message failed, and in which queue; empty: not known, or in the queue where it is. attempts: how often it was
    delivered before, in RabbitMQ how often it died; None: not known."""

    reason: str
    origin: str
    attempts: int | None


@use_case
def failures(
    address: EntityAddress, entity_id: int, numbers: Sequence[int], *, actor: Actor | None = None
) -> Steps[dict[int, Failure]]:
    """The failure of each of these dead-lettered or poison messages, by sequence number. Messages that are not in the list are
    left out."""
    require(actor, Right.BROWSE, address)
    rows = yield call("read_dead_reasons", entity_id=entity_id, subqueue=int(address.subqueue), numbers=list(numbers))
    return {row.number: Failure(row.reason, row.origin, row.attempts) for row in rows}


def _caps(sizes: Sequence[int], cap: int) -> list[int]:
    """How many messages of each list are grouped: what short lists leave over goes to the long ones."""
    spare = max(0, EXAMINED - sum(min(size, cap) for size in sizes))
    long = sum(size > cap for size in sizes)
    return [min(EXAMINED_OF_LIST, cap + spare // long) if size > cap else cap for size in sizes]


def _group(row: Any) -> DeadGroup:
    return DeadGroup(
        entity_id=row.entity_id,
        address=EntityAddress(row.namespace_name, row.path, SubQueue(row.subqueue)),
        family=Family(row.family),
        reason=row.reason,
        description=row.description,
        origin=row.origin,
        count=row.n,
        resubmitted=row.resubmitted,
        first_at=row.first_at,
        last_at=row.last_at,
        newest=row.newest,
        recent=_by_period(row.recent),
        read_at=row.now,
    )


def _by_period(recent: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(recent.get(str(place), 0) for place in reversed(range(PERIODS)))
