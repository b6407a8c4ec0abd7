"""Routes of messages: links between entities and exchanges, and how many messages took each recently."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Any, NamedTuple

from broker_core.common.types import Actor, Right
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .shared import require

WINDOW_SECONDS = 300
MOST_EVENTS = 10_000  # events that are counted
MOST_LINKS = 5_000


class LinkKind(StrEnum):
    """Why messages go from one place to another. DEAD: as dead letters. ALTERNATE: what an exchange could not route."""

    COPY = "copy"
    FORWARD = "forward"
    BINDING = "binding"
    ALTERNATE = "alternate"
    DEAD = "dead"


class Way(StrEnum):
    """How an event moves a message: into an entity, to a receiver, or to the entity's dead-letter queue."""

    IN = "I"
    OUT = "O"
    DEAD = "D"


@dataclass(frozen=True, slots=True)
class Link:
    """A way that messages can take. source, target: an entity's id, or an exchange's name. parts: the number of its bindings or
    rules. routing_key: of one of the bindings, or of dead letters; None: there is none."""

    namespace: str
    kind: LinkKind
    source: int | str
    target: int | str
    parts: int
    routing_key: str | None


class Flow(NamedTuple):
    """The way of a message: to or from the entity `entity_id`. origin_id: the entity it came from; exchange: the exchange it was
    published to; actor: who sent or received it. None: unknown, or there is none."""

    entity_id: int
    way: Way
    origin_id: int | None
    exchange: str | None
    actor: str | None


@dataclass(frozen=True, slots=True)
class Flows:
    """How many messages went which way, by namespace. seconds: how long they took together at least; the counts divided by it are
    rates."""

    counts: dict[tuple[str, Flow], int]
    seconds: float


@use_case(combine=lambda results: list(chain.from_iterable(results)))
def links(namespace: str | None = None, *, actor: Actor | None = None) -> Steps[list[Link]]:
    """The links between the entities of a namespace, or of all but Vitrine's own; at most MOST_LINKS of each database."""
    require(actor, Right.BROWSE, namespace or "all namespaces")
    rows = yield call("read_links", namespace=namespace, max_links=MOST_LINKS)
    return [_link(row) for row in rows]


def _joined(results: list[Flows]) -> Flows:
    counts = {key: count for result in results for key, count in result.counts.items()}
    return Flows(counts, max(result.seconds for result in results))


@use_case(combine=_joined)
def flows(namespace: str | None = None, *, actor: Actor | None = None) -> Steps[Flows]:
    """How many messages went which way in the last WINDOW_SECONDS of real time, by the newest MOST_EVENTS events of all
    namespaces."""
    require(actor, Right.BROWSE, namespace or "all namespaces")
    rows = yield call("read_flows", namespace=namespace, seconds=WINDOW_SECONDS, max_events=MOST_EVENTS)
    counts = {(row.namespace_name, flow_of(row)): row.messages for row in rows}
    return Flows(counts, rows[0].seconds if rows else WINDOW_SECONDS)


def flow_of(row: Any) -> Flow:
    """The flow of a row with the columns of the fragment `flow_of_event`."""
    return Flow(row.target_id, Way(row.way), row.origin_id, row.exchange, row.actor)


def _link(row: Any) -> Link:
    source = row.source_id if row.source_exchange is None else row.source_exchange
    target = row.target_id if row.target_exchange is None else row.target_exchange
    return Link(row.namespace_name, LinkKind(row.kind), source, target, row.parts, row.routing_key)
