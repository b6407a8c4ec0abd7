"""The route of a publication through exchanges and bindings, and a replay of recent publications with a draft of bindings or of a
policy. Nothing is changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from broker_core.common.errors import InvalidArgument
from broker_core.common.routes import Comparison, Rerouted, RouteStep, StepKind, Verdict, compare
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.rabbitmq.messages import length_limits
from broker_core.rabbitmq.rules import messages, table
from broker_core.rabbitmq.rules.exchanges import BindingDef, Router
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.rabbitmq.rules.routing import MATCHERS, Destination
from broker_core.rabbitmq.topology import catalog, compiled, effective
from broker_core.rabbitmq.topology.compiled import QueueInfo, Topology
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from . import policies

WINDOW_SECONDS = 3600
MOST_EVENTS, RECENT_EVENTS = 300_000, 50_000  # examined to find publications; to find some of them
MOST_GROUPS = 10_000  # publications with different routing keys or headers that are replayed
MOST_BINDINGS = 200  # of an exchange that do not match and are listed all the same


@dataclass(frozen=True, slots=True)
class PublishedGroup:
    """Publications with the same exchange, keys and headers. keys: the routing key, then those of CC and BCC.

    count: how many. A publication that reached several queues was recorded at each, so it is the largest count of a queue.
    example: the newest of them, in one of its queues. last_at: when that was published, by the virtual host's clock.
    """

    exchange: str
    keys: tuple[str, ...]
    headers: Mapping[str, Any]
    count: int
    example: tuple[EntityAddress, int]
    last_at: datetime


@dataclass(frozen=True, slots=True)
class RoutingDraft:
    """A change of the topology: bindings that are added and removed, and a policy that is set."""

    added: tuple[BindingDef, ...] = ()
    removed: tuple[BindingDef, ...] = ()
    policy: Policy | None = None


@dataclass(frozen=True, slots=True)
class RoutingReplay:
    """Recent publications, routed by the topology as it is and by the draft; destinations are names of queues.

    capped: there were more publications.
    """

    comparison: Comparison[str, tuple[EntityAddress, int]]
    capped: bool


@use_case
def published_groups(
    vhost: str,
    *,
    exchange: str | None = None,
    limit: int = 20,
    max_events: int = RECENT_EVENTS,
    actor: Actor | None = None,
) -> Steps[list[PublishedGroup]]:
    """What was published in the last WINDOW_SECONDS of real time, to an exchange or to all, newest first, among the newest
    max_events events of all queues.

    Dead letters count as published to their dead-letter exchange. A publication that no queue accepted is not recorded; headers
    of more than 4 KB are not recorded either, and missing here. Raises AmqpError (530) for an unknown virtual host.
    """
    (actor or Actor.local()).require(Right.BROWSE, vhost)
    known = yield from compiled.cached(vhost)
    rows = yield call(
        "rabbit_published", namespace_id=known.namespace_id, exchange=exchange, seconds=WINDOW_SECONDS, max_events=max_events
    )
    groups: dict[Any, list[Any]] = defaultdict(list)
    for row in rows:
        groups[row.exchange, row.routing_key, str(row.blind), str(row.headers)].append(row)
    published = [_group(vhost, group) for group in groups.values()]
    return sorted(published, key=lambda group: group.last_at, reverse=True)[:limit]


@use_case
def replay_routing(vhost: str, draft: RoutingDraft, *, actor: Actor | None = None) -> Steps[RoutingReplay]:
    """Route the publications of the last hour by the topology as it is, and with the draft.

    Raises InvalidArgument for a removed binding that does not exist, AmqpError (530) for an unknown virtual host.
    """
    published = yield from published_groups.steps(vhost, limit=MOST_GROUPS + 1, max_events=MOST_EVENTS, actor=actor)
    known = yield from compiled.current(vhost)
    after = yield from _drafted(known, draft, actor)
    routes = (
        Rerouted(group.example, _queues(known.router, group), _queues(after, group), group.count)
        for group in published[:MOST_GROUPS]
    )
    return RoutingReplay(compare(routes), len(published) > MOST_GROUPS)


@use_case
def route(
    vhost: str,
    exchange: str,
    routing_key: str,
    headers: Mapping[str, Any] | None = None,
    *,
    size: int = 0,
    actor: Actor | None = None,
) -> Steps[list[RouteStep]]:
    """What would happen to a message published now: each binding, exchange and queue, with its reason (RMQ-301 to RMQ-315).

    size: bytes of the body, for length limits. Raises AmqpError as publishing does (RMQ-309, RMQ-312).
    """
    (actor or Actor.local()).require(Right.BROWSE, vhost)
    known = yield from compiled.current(vhost)
    keys, remaining = messages.keys_of(routing_key, headers or {})
    names = known.router.route(exchange, keys, remaining).queues
    capacity = length_limits.Capacity()
    yield from capacity.load([known.queues[name] for name in names if name in known.queues], lock=False)
    bindings: dict[str, list[BindingDef]] = defaultdict(list)
    for binding in known.bindings.values():
        bindings[binding.source].append(binding)
    exchanges = {stored.name: stored for stored in (yield from catalog.list_exchanges.steps(vhost, actor=actor))}
    return list(_Walk(known, exchanges, bindings, capacity, keys, remaining, size).exchange(exchange, 0))


# Replay


def _group(vhost: str, rows: Sequence[Any]) -> PublishedGroup:
    newest = max(rows, key=lambda row: row.last_at)
    headers = table.decode(newest.headers or {})
    keys, headers = messages.keys_of(newest.routing_key, headers)
    return PublishedGroup(
        newest.exchange,
        tuple(dict.fromkeys([*keys, *(newest.blind or ())])),
        headers,
        max(row.messages for row in rows),
        (EntityAddress(vhost, newest.path), newest.number),
        newest.last_at,
    )


def _queues(router: Router, group: PublishedGroup) -> dict[str, list[None]]:
    return {name: [None] for name in router.route(group.exchange, group.keys, group.headers, by_broker=True).queues}


def _drafted(known: Topology, draft: RoutingDraft, actor: Actor | None) -> Steps[Router]:
    """The router with the draft's bindings and policy."""
    existing = yield from policies.list_policies.steps(known.vhost, actor=actor)
    if draft.policy is not None:
        key = (draft.policy.name, draft.policy.is_operator)
        existing = [policy for policy in existing if (policy.name, policy.is_operator) != key] + [draft.policy]
    stored = yield from catalog.list_exchanges.steps(known.vhost, actor=actor)
    exchanges = [
        exchange.definition(effective.of_exchange(exchange.name, exchange.arguments, existing).values.get("alternate_exchange"))
        for exchange in stored
    ]
    bindings = list(known.bindings.values())
    for gone in draft.removed:
        if gone not in bindings:
            raise InvalidArgument("binding", f"{gone.source} to {gone.destination} with key '{gone.routing_key}' does not exist")
        bindings.remove(gone)
    return Router(
        exchanges, [*bindings, *(binding for binding in draft.added if binding not in bindings)], known.queues.keys(), known.vhost
    )


# The route of one message


class _Walk:
    """Follows a publication from exchange to exchange; each is visited once, and each queue gets one copy (RMQ-314)."""

    def __init__(
        self,
        known: Topology,
        exchanges: Mapping[str, catalog.StoredExchange],
        bindings: Mapping[str, Sequence[BindingDef]],
        capacity: length_limits.Capacity,
        keys: Sequence[str],
        headers: Mapping[str, Any],
        size: int,
    ):
        self._known, self._exchanges, self._bindings, self._capacity = known, exchanges, bindings, capacity
        self._keys, self._headers, self._size = keys, headers, size
        self._seen: set[Destination] = set()

    def exchange(self, name: str, depth: int) -> Iterable[RouteStep]:
        self._seen.add(Destination(name, False))
        stored = self._exchanges.get(name)
        if stored is None:
            yield RouteStep(depth, StepKind.EXCHANGE, name, Verdict.DROPPED, "It does not exist.")
            return
        if not name:
            yield from self._default(depth)
            return
        bindings = self._bindings.get(name, ())
        matching = [candidate for candidate in bindings if _matches(stored.type, candidate, self._keys, self._headers)]
        alternate = stored.effective.get("alternate_exchange")
        yield self._verdict(name, depth, bool(bindings), bool(matching), alternate)
        for binding in matching:
            yield RouteStep(depth + 1, StepKind.BINDING, binding.routing_key, Verdict.MATCHES, subject=binding)
            yield from self._destination(Destination(binding.destination, binding.destination_is_queue), depth + 2)
        for binding in [other for other in bindings if other not in matching][:MOST_BINDINGS]:
            yield RouteStep(depth + 1, StepKind.BINDING, binding.routing_key, Verdict.NO_MATCH, subject=binding)
        if not matching and alternate is not None:
            yield from self._destination(Destination(alternate, False), depth + 1)

    def _verdict(self, name: str, depth: int, bound: bool, matched: bool, alternate: str | None) -> RouteStep:
        step = RouteStep(depth, StepKind.EXCHANGE, name, Verdict.PASSES)
        if matched:
            return step
        reason = "No binding matches." if bound else "It has no bindings."
        if alternate is not None:
            return step._replace(reason=f"{reason} The alternate exchange gets the message.")
        return step._replace(verdict=Verdict.DROPPED, reason=reason)

    def _default(self, depth: int) -> Iterable[RouteStep]:
        """The default exchange routes to the queues that the keys name (RMQ-305)."""
        names = [key for key in self._keys if key in self._known.queues]
        if not names:
            yield RouteStep(depth, StepKind.EXCHANGE, "", Verdict.DROPPED, f"No queue is called '{self._keys[0]}'.")
            return
        yield RouteStep(depth, StepKind.EXCHANGE, "", Verdict.PASSES)
        for name in names:
            yield from self._destination(Destination(name, True), depth + 1)

    def _destination(self, destination: Destination, depth: int) -> Iterable[RouteStep]:
        if destination in self._seen:
            kind = StepKind.QUEUE if destination.is_queue else StepKind.EXCHANGE
            address = EntityAddress(self._known.vhost, destination.name) if destination.is_queue else None
            yield RouteStep(depth, kind, destination.name, Verdict.NO_COPY, "Already on the route.", address)
        elif not destination.is_queue:
            yield from self.exchange(destination.name, depth)
        else:
            self._seen.add(destination)
            yield self._queue(destination.name, self._known.queues[destination.name], depth)

    def _queue(self, name: str, queue: QueueInfo, depth: int) -> RouteStep:
        step = RouteStep(depth, StepKind.QUEUE, name, Verdict.STORED, address=EntityAddress(self._known.vhost, name))
        if not queue.may_send:
            return step._replace(verdict=Verdict.REFUSED, reason="Sending is paused, so the whole publication is refused.")
        if not self._capacity.fits(queue, self._size):
            if queue.effective["overflow"] == length_limits.REJECT_PUBLISH_DLX:
                return step._replace(verdict=Verdict.DEAD, reason="The queue is full.")
            return step._replace(verdict=Verdict.REFUSED, reason="The queue is full.")
        if queue.has_zero_ttl:
            return step._replace(reason="It expires at once unless a consumer is ready for it.")
        return step


def _matches(exchange_type: str, binding: BindingDef, keys: Sequence[str], headers: Mapping[str, Any]) -> bool:
    """Whether one binding matches, decided by the broker's own matcher."""
    matcher = MATCHERS[exchange_type]()
    matcher.add(Destination(binding.destination, binding.destination_is_queue), binding.routing_key, binding.arguments)
    return bool(matcher.match(keys, headers))
