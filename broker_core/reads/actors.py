"""What an actor did recently: how many events of which kind, of which entities. No index finds the newest events of an actor
(docs/design.md D7), so those of all namespaces are looked at, up to a bound that the result names."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import chain

from broker_core.common.actors import spellings
from broker_core.common.types import Actor, EntityAddress, EventKind, Family, Right
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, use_case

from .shared import require

MOST_ACTOR_EVENTS = 20_000  # the newest ones, which are looked at
MOST_SEARCHED = 2_000_000  # for an event that names an actor
WINDOW = timedelta(hours=1)
RATE_WINDOW = timedelta(minutes=5)


@dataclass(slots=True)
class ActorInEntity:
    """What an actor did in an entity. counts: of its events by kind; recent: those of the last RATE_WINDOW. last_at: real
    time."""

    entity_id: int
    address: EntityAddress
    family: Family
    is_deleted: bool
    counts: dict[EventKind, int] = field(default_factory=dict)
    recent: dict[EventKind, int] = field(default_factory=dict)
    last_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class ActorActivity:
    """entities: those in which the actor did something, the latest first. examined: how many events were looked at, since: of the
    oldest of them or WINDOW ago. seconds: what `recent` counts cover. read_at: real time."""

    entities: tuple[ActorInEntity, ...]
    examined: int
    since: datetime
    seconds: float
    read_at: datetime


def _joined(results: list[ActorActivity]) -> ActorActivity:
    latest = sorted(chain.from_iterable(result.entities for result in results), key=_last_at, reverse=True)
    return ActorActivity(
        tuple(latest), sum(result.examined for result in results), max(result.since for result in results),
        min(result.seconds for result in results), max(result.read_at for result in results),
    )  # fmt: skip


def _last_at(entity: ActorInEntity) -> datetime:
    assert entity.last_at is not None
    return entity.last_at


@use_case(namespace=WHOLE_DATABASE, combine=_joined)
def actor_activity(name: str, *, except_namespaces: tuple[str, ...] = (), actor: Actor | None = None) -> Steps[ActorActivity]:
    """What the actor of this name ("process:web-1") did in the last WINDOW, by the newest MOST_ACTOR_EVENTS events of all
    namespaces."""
    require(actor, Right.BROWSE, "all namespaces")
    texts, prefixes = spellings(name)
    rows = yield call(
        "read_actor_activity", actors=texts, prefixes=prefixes, seconds=int(WINDOW.total_seconds()),
        rate_seconds=int(RATE_WINDOW.total_seconds()), max_events=MOST_ACTOR_EVENTS,
        except_namespaces=[namespace.lower() for namespace in except_namespaces] or None,
    )  # fmt: skip
    entities: dict[int, ActorInEntity] = {}
    for row in rows:
        if row.entity_id is None:
            continue
        address = EntityAddress(row.namespace_name, row.path)
        fresh = ActorInEntity(row.entity_id, address, Family(row.family), row.is_deleted)
        entity = entities.setdefault(row.entity_id, fresh)
        kind = EventKind(row.kind)
        entity.counts[kind], entity.recent[kind] = row.events, row.recent
        entity.last_at = max(filter(None, (entity.last_at, row.last_at)))
    head = rows[0]
    latest = sorted(entities.values(), key=_last_at, reverse=True)
    return ActorActivity(tuple(latest), head.examined, head.since, head.rate_seconds, head.now)


@use_case(namespace=WHOLE_DATABASE, combine=any)
def actor_known(name: str, *, actor: Actor | None = None) -> Steps[bool]:
    """Whether an event that is kept names the actor; also true if there are more events than are searched."""
    require(actor, Right.BROWSE, "all namespaces")
    texts, prefixes = spellings(name)
    (row,) = yield call("read_actor_known", actors=texts, prefixes=prefixes, max_events=MOST_SEARCHED)
    return row.known or row.examined >= MOST_SEARCHED
