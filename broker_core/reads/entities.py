"""Namespaces and entities with their counts and rates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from broker_core.common.errors import EntityNotFound
from broker_core.common.types import Actor, Behaviour, EntityAddress, EntityKind, EntityStatus, Family, HistoryLevel, Right
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import WHOLE_DATABASE, by_namespace, use_case

from .shared import EXPIRED_CAP, EXPIRED_CAP_OF_MANY, Capped, ClockReading, clock_of, entity_id_of, require


@dataclass(frozen=True, slots=True)
class NamespaceRow:
    """A namespace. entities: their number, including hidden ones. is_system: whether it is Vitrine's own. behaviour: of a Service
    Bus namespace. max_size_in_megabytes: of all its messages; None: unlimited."""

    id: int
    name: str
    family: Family
    description: str
    is_system: bool
    created_at: datetime
    entities: int
    clock: ClockReading
    behaviour: Behaviour = Behaviour.CONVENIENT
    max_size_in_megabytes: int | None = None


@dataclass(frozen=True, slots=True)
class Counts:
    """Messages of one entity by list and state, exact at `read_at`, from the ledger (docs/design.md D9).

    active:   in the main queue, including locked messages and expired ones not yet removed (SB-031, SB-923).
    locked:   active messages that are locked at `read_at`. deferred and scheduled are not part of `active`.
    deferred_locked, dead_letter_locked: deferred and dead-lettered messages that are locked.
    delayed, rescheduled, extended: active messages that are invisible for another reason than a receive. Messages made
              invisible by a receive, or held by a connection, are counted in `locked`.
    """

    active: int = 0
    locked: int = 0
    deferred: int = 0
    scheduled: int = 0
    dead_letter: int = 0
    transfer_dead_letter: int = 0
    deferred_locked: int = 0
    dead_letter_locked: int = 0
    read_at: datetime | None = None
    delayed: int = 0
    rescheduled: int = 0
    extended: int = 0

    @property
    def total(self) -> int:
        return self.active + self.deferred + self.scheduled + self.dead_letter + self.transfer_dead_letter


@dataclass(frozen=True, slots=True)
class EntityRow:
    """One line of the overview.

    expired_pending:   expired messages not yet removed by a sweep or receive (state "expired, pending").
    expired_leased, expired_delayed: in a storage queue: how many of these the ledger still counts as invisible for that reason.
    size_bytes:        stored bytes of all its messages, including dead letters.
    sent_rate, completed_rate: messages per second over the last minute (database's clock).
    oldest_active_at:  when the oldest message of the main queue was enqueued; None: it has none.
    consumers_waiting: whether a receive is waiting for messages now.
    last_receive_at:   the last receive by a client, accurate to some seconds; None: never.
    consumers:         the number of registered consumers of a RabbitMQ queue.
    subscriptions:     the number of a topic's subscriptions. rules: of a subscription. topic_id: a subscription's topic.
    forward_to:        the path to which all its messages are forwarded; None: they are not.
    protected:         whether deleting it is refused.
    options, effective: settings that only its family has: as given, and as they apply with policies.
    waits_for_operator: a poison queue, or a queue that only collects dead letters: its messages are dead letters.
    """

    id: int
    address: EntityAddress
    kind: EntityKind
    family: Family
    status: EntityStatus
    hidden: bool
    history_level: HistoryLevel
    counts: Counts
    expired_pending: Capped
    size_bytes: int
    sent_rate: float
    completed_rate: float
    oldest_active_at: datetime | None
    consumers_waiting: bool
    last_receive_at: datetime | None
    clock: ClockReading
    topic_id: int | None = None
    subscriptions: int = 0
    rules: int = 0
    requires_session: bool = False
    forward_to: str | None = None
    consumers: int = 0
    expired_leased: int = 0
    expired_delayed: int = 0
    protected: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    effective: Mapping[str, Any] = field(default_factory=dict)
    waits_for_operator: bool = False

    @property
    def holds_messages(self) -> bool:
        """Whether messages can be received from it; a topic stores only scheduled messages."""
        return self.kind != EntityKind.TOPIC

    @property
    def oldest_active_age(self) -> timedelta | None:
        """By the namespace's clock; None if there is no active message."""
        return None if self.oldest_active_at is None else self.clock.now - self.oldest_active_at


@use_case(namespace=WHOLE_DATABASE, combine=by_namespace)
def namespaces(*, actor: Actor | None = None) -> Steps[list[NamespaceRow]]:
    """All namespaces by name, with their clocks."""
    require(actor, Right.BROWSE, "namespaces")
    rows = yield call("read_namespaces", name=None)
    return [_namespace(row) for row in rows]


@use_case
def now(namespace: str, *, actor: Actor | None = None) -> Steps[ClockReading]:
    """The clock of one namespace. Raises EntityNotFound."""
    require(actor, Right.BROWSE, namespace)
    rows = yield call("read_namespaces", name=namespace)
    if not rows:
        raise EntityNotFound(namespace, "namespace")
    return clock_of(rows[0])


@use_case(combine=by_namespace)
def overview(
    namespace: str | None = None, prefix: str | None = None, *, include_hidden: bool = False, actor: Actor | None = None
) -> Steps[list[EntityRow]]:
    """All entities, or those of a namespace or with a path that begins with `prefix` (case-insensitive), by namespace and path.

    A topic is followed by its subscriptions.
    """
    require(actor, Right.BROWSE, namespace or "all namespaces")
    return (yield from _listed(namespace=namespace, prefix=prefix, hidden=include_hidden))


@use_case
def subscriptions(topic: EntityAddress, *, actor: Actor | None = None) -> Steps[list[EntityRow]]:
    """The overview rows of a topic's subscriptions by name, including hidden ones. Raises EntityNotFound."""
    require(actor, Right.BROWSE, topic)
    topic_id = yield from entity_id_of(topic)
    return (yield from _listed(topic_id=topic_id, hidden=True))


@use_case
def entity(address: EntityAddress, *, actor: Actor | None = None) -> Steps[EntityRow]:
    """The overview row of one entity. Raises EntityNotFound."""
    require(actor, Right.BROWSE, address)
    entity_id = yield from entity_id_of(address)
    rows = yield from rows_of([entity_id])
    if not rows:
        raise EntityNotFound(str(address))
    return rows[0]


@use_case
def counts(address: EntityAddress, *, actor: Actor | None = None) -> Steps[Counts]:
    """The exact counts of one entity. Raises EntityNotFound."""
    require(actor, Right.BROWSE, address)
    rows = yield call("read_counts", entity_id=(yield from entity_id_of(address)))
    if not rows:
        raise EntityNotFound(str(address))
    return counts_of(rows[0])


def rows_of(ids: list[int]) -> Steps[list[EntityRow]]:
    """The overview rows of these entities, by namespace and path."""
    cap = EXPIRED_CAP if len(ids) == 1 else EXPIRED_CAP_OF_MANY
    rows = yield call("read_overview", ids=ids, with_oldest=True, expired_cap=cap)
    return [_entity_row(row, cap) for row in rows]


def _listed(
    *, namespace: str | None = None, prefix: str | None = None, topic_id: int | None = None, hidden: bool
) -> Steps[list[EntityRow]]:
    """The overview rows of all entities, Vitrine's own included, or of those in a namespace or topic or with a prefix."""
    ids = yield call(
        "read_listed", namespace=namespace, prefix=prefix, topic_id=topic_id, hidden=hidden, system=True, kind=None, family=None,
        parts=None, paused=None, first=0, max_count=None, except_namespaces=[],
    )  # fmt: skip
    return (yield from rows_of([row.id for row in ids]))


def _namespace(row: Any) -> NamespaceRow:
    facts = (row.is_system, row.created_at, row.entities, clock_of(row), Behaviour(row.behaviour), row.max_size_in_megabytes)
    return NamespaceRow(row.id, row.name, Family(row.family), row.description, *facts)


def counts_of(row: Any) -> Counts:
    return Counts(
        active=row.active,
        locked=row.locked,
        deferred=row.deferred,
        scheduled=row.scheduled,
        dead_letter=row.dead_letter,
        transfer_dead_letter=row.transfer_dead_letter,
        deferred_locked=row.deferred_locked,
        dead_letter_locked=row.dead_letter_locked,
        read_at=getattr(row, "now", None),
        delayed=row.delayed,
        rescheduled=row.rescheduled,
        extended=row.extended,
    )


def _entity_row(row: Any, expired_cap: int) -> EntityRow:
    return EntityRow(
        id=row.id,
        address=EntityAddress(row.namespace_name, row.path),
        kind=EntityKind(row.kind),
        family=Family(row.family),
        status=EntityStatus(row.status),
        hidden=row.hidden,
        history_level=HistoryLevel(row.history_level),
        counts=counts_of(row),
        expired_pending=Capped(min(row.expired_pending, expired_cap), row.expired_pending > expired_cap),
        size_bytes=row.size_bytes,
        sent_rate=row.sent_rate,
        completed_rate=row.completed_rate,
        oldest_active_at=row.oldest_active_at,
        consumers_waiting=row.consumers_waiting,
        last_receive_at=row.last_receive_at,
        clock=clock_of(row),
        topic_id=row.topic_id,
        subscriptions=row.subscriptions,
        rules=row.rules,
        requires_session=row.requires_session,
        forward_to=row.forward_to,
        consumers=row.consumers,
        expired_leased=row.expired_leased,
        expired_delayed=row.expired_delayed,
        protected=row.protected,
        options=row.options,
        effective=row.effective,
        waits_for_operator=row.waits_for_operator,
    )
