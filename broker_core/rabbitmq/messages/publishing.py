"""Publishing: a message is published to an exchange and stored in every queue it is routed to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any, NamedTuple

from broker_core.common.arguments import require_kind
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, Right
from broker_core.rabbitmq.rules import errors, messages, table, wire_table
from broker_core.rabbitmq.topology import compiled
from broker_core.rabbitmq.topology.compiled import QueueInfo, Topology
from broker_core.runtime.gathering import Gathering
from broker_core.runtime.room import require_room
from broker_core.runtime.waiting import wake
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .arrivals import lock_for_arrivals, settle_arrivals
from .dead_lettering import process_arrivals
from .length_limits import is_limited
from .placing import BLIND_KEYS, Outgoing, Placing
from .properties import NONE, Properties, check, check_routing_key, check_short
from .routing_transaction import TRIES_WITHOUT_LOCK, RoutingTransaction, Stale, require_current, transact

_BODY_BYTES_LIKE_A_MESSAGE = 8192  # large bodies fill a group sooner, at some 4 MB


@dataclass(frozen=True, slots=True)
class Publication:
    """A message and where it is published. mandatory: the publisher wants it returned if it is unroutable (RMQ-363)."""

    body: bytes
    exchange: str = ""
    routing_key: str = ""
    properties: Properties = NONE
    mandatory: bool = False


class Published(NamedTuple):
    """The result of a publication.

    queues: the queues that accepted it, with its sequence number. refused: a queue rejected it, which the publisher is
    notified of (RMQ-093, RMQ-095). unroutable: it was routed to no queue; it is returned if mandatory and dropped otherwise
    (RMQ-363, RMQ-364).
    """

    queues: tuple[tuple[str, int], ...] = ()
    refused: bool = False
    unroutable: bool = False


class _Prepared(NamedTuple):
    """A validated publication. headers: as published. properties, stored_headers: as stored, without BCC.

    encoded: the table of headers as published, where stored_headers do not say it all.
    """

    body: bytes
    message_id: str | None
    expiration: int | None
    keys: Sequence[str]
    headers: Mapping[str, Any]
    exchange: str
    properties: dict[str, Any]
    stored_headers: dict[str, list] | None
    encoded: bytes | None


@use_case
def publish(vhost: str, publications: Iterable[Publication], *, owner_id: int | None = None, actor: Actor | None = None) -> Steps:
    """Publish messages in order, all or none. Returns Published for each.

    owner_id: the publishing connection; any connection may publish to an exclusive queue (RMQ-330).
    Raises AmqpError for a missing or internal exchange (404, 403) and for invalid properties (406), InvalidArgument,
    NamespaceFull, StorageFull.
    """
    actor = actor or Actor.local()
    actor.require(Right.SEND, vhost)
    prepared = [_prepare(publication) for publication in publications]
    if not prepared:
        return []
    yield from require_room(vhost)
    for _ in range(TRIES_WITHOUT_LOCK):
        known = yield from compiled.cached(vhost)
        try:
            return (yield from _publish(known, prepared, str(actor)))
        except Stale:
            compiled.mark_outdated(vhost)
    return (yield from transact(vhost, str(actor), lambda transaction: _publish_transactionally(transaction, prepared)))


def _prepare(publication: Publication) -> _Prepared:
    require_kind("publications", publication, Publication)
    if not isinstance(publication.body, bytes | bytearray | memoryview):
        raise InvalidArgument("body", f"must be bytes, not {type(publication.body).__name__}")
    messages.check_body(publication.body)
    check_short("exchange", publication.exchange)
    check_routing_key(publication.routing_key)
    checked = check(publication.properties)
    headers = checked.headers
    keys, remaining = messages.keys_of(publication.routing_key, headers) if headers else ((publication.routing_key,), {})
    stored = {"exchange": publication.exchange, "routing_key": publication.routing_key, **checked.stored}
    header_table, stored_headers = publication.properties.header_table, table.encode(remaining) if remaining else None
    if blind := messages.carbon_copies(headers, messages.BCC):
        stored[BLIND_KEYS] = tuple(blind)
    return _Prepared(
        bytes(publication.body),
        checked.message_id,
        checked.expiration,
        keys,
        headers,
        publication.exchange,
        stored,
        stored_headers,
        None if header_table is None else wire_table.to_store(header_table, stored_headers),
    )


def _publish(known: Topology, prepared: Sequence[_Prepared], actor: str) -> Steps:
    """Store messages according to the cached topology. Raises Stale if it is outdated."""
    routed = yield from _route(known, prepared)
    names = {name for targets in routed for name in targets}
    if not names:
        yield from require_current(known)
        return [Published(unroutable=True) for _ in prepared]
    queues = {name: known.queues[name] for name in names}
    yield from _require_accepting(known, queues)
    if any(is_limited(q) or q.has_zero_ttl for q in queues.values()) or any(p.expiration == 0 for p in prepared):
        return (yield from transact(known.vhost, actor, lambda transaction: _publish_transactionally(transaction, prepared)))
    if len(names) == 1 and all(routed):
        [target] = queues.items()
        return (yield from _publish_to_one(known, target, prepared, actor))
    return (yield from _copied.call((known.vhost, known.version, actor), (known, prepared, routed)))


def _route(known: Topology, prepared: Sequence[_Prepared]) -> Steps:
    """The queues of each publication. Each distinct route of a batch is computed once."""
    routes: dict[Any, tuple[str, ...]] = {}
    routed = []
    for p in prepared:
        route_key = None if p.headers else (p.exchange, *p.keys)
        queues = routes.get(route_key) if route_key else None
        if queues is None:
            try:
                queues = known.router.route(p.exchange, p.keys, p.headers).queues
            except errors.AmqpError:
                yield from require_current(known)  # otherwise the exchange may exist now
                raise
            if route_key:
                routes[route_key] = queues
        routed.append(queues)
    return routed


def _require_accepting(known: Topology, names: Iterable[str]) -> Steps[None]:
    """Raise AmqpError (406) if a queue accepts no messages because sending is paused (RMQ-929). Dead letters are accepted."""
    for name in names:
        queue = known.queues.get(name)
        if queue is not None and not queue.may_send:
            yield from require_current(known)
            raise errors.paused_queue(known.vhost, name)


def _publish_to_one(
    known: Topology, target: tuple[str, QueueInfo], prepared: Sequence[_Prepared], actor: str
) -> Steps[list[Published]]:
    """The common case: one queue gets all messages. Concurrent publications to it are stored together."""
    name, queue = target
    first = yield from _publications.call((queue.id, known.version, actor), prepared)
    return [Published(((name, number),)) for number in range(first, first + len(prepared))]


def _publish_together(key: tuple[int, int, str], groups: Sequence[Sequence[_Prepared]]) -> Steps[list[Any]]:
    """Store the messages of several calls in a queue, in order. Returns the first sequence number of each call, or Stale."""
    queue_id, version, actor = key
    prepared = [p for group in groups for p in group]
    rows = yield call(
        "rabbit_publish",
        entity_id=queue_id,
        topology_version=version,
        actor=actor,
        bytes=sum(len(p.body) for p in prepared),
        bodies=[p.body for p in prepared],
        message_ids=_unless_empty([p.message_id for p in prepared]),
        expirations=_unless_empty([p.expiration for p in prepared]),
        properties=_as_json(p.properties for p in prepared),
        headers=_unless_empty([p.stored_headers and json.dumps(p.stored_headers) for p in prepared]),
        encoded=_unless_empty([p.encoded for p in prepared]),
    )
    if not rows:
        return [Stale() for _ in groups]
    yield from wake([queue_id], rows[0].waiting)
    return list(accumulate(map(len, groups[:-1]), initial=rows[0].first))


def _weight(prepared: Sequence[_Prepared]) -> int:
    return sum(1 + len(p.body) // _BODY_BYTES_LIKE_A_MESSAGE for p in prepared)


_publications: Gathering[Sequence[_Prepared], int] = Gathering(_publish_together, size_of=_weight)


def _as_json(properties: Iterable[Mapping[str, Any]]) -> list[str]:
    """Properties as JSON. Messages of a batch with equal properties share one string."""
    texts: dict[tuple, str] = {}
    return [texts.get(key := tuple(p.items())) or texts.setdefault(key, json.dumps(p)) for p in properties]


def _unless_empty(values: list) -> list | None:
    return None if all(value is None for value in values) else values


def _publish_copies_together(
    key: tuple[str, int, str], groups: Sequence[tuple[Topology, Sequence[_Prepared], Sequence[Sequence[str]]]]
) -> Steps[list[list[Published]]]:
    """Store the messages of several calls in their queues, in order. Returns what became of those of each call."""
    transaction = RoutingTransaction(groups[0][0], key[-1])  # of one version
    prepared = [p for _, group, _ in groups for p in group]
    routed = [names for _, _, group in groups for names in group]
    published = iter((yield from _publish_copies(transaction, prepared, routed)))
    yield from wake(transaction.stored_in, transaction.waiting)
    return [list(islice(published, len(group))) for _, group, _ in groups]


def _weight_of_copies(call: tuple[Topology, Sequence[_Prepared], Sequence[Sequence[str]]]) -> int:
    return _weight(call[1]) + sum(map(len, call[2]))


_copied: Gathering[Any, list[Published]] = Gathering(_publish_copies_together, size_of=_weight_of_copies)


def _publish_copies(
    transaction: RoutingTransaction, prepared: Sequence[_Prepared], routed: Sequence[Sequence[str]]
) -> Steps[list[Published]]:
    """Store copies in all queues that accept them."""
    placing, outcomes = Placing(transaction), []
    for place, (p, names) in enumerate(zip(prepared, routed, strict=True)):
        message = Outgoing(place, len(p.body), p.message_id, p.properties, p.stored_headers, p.encoded, p.expiration)
        outcomes.append((yield from placing.put(message, names)))
    numbers: dict[tuple[int, str], int] = {}
    if placing.picks:
        rows = yield call(
            "rabbit_publish_copies",
            namespace_id=transaction.topology.namespace_id,
            topology_version=transaction.topology.version,
            actor=transaction.actor,
            bodies=[p.body for p in prepared],
            **placing.columns(),
        )
        if not rows:
            raise Stale
        transaction.stored_in.update(row.entity_id for row in rows)
        transaction.waiting.update(row.entity_id for row in rows if row.waiting)
        for row in rows:
            name = placing.names[row.entity_id]
            for number, place in enumerate(placing.places(row.entity_id), row.first):
                numbers.setdefault((place, name), number)  # later entries are the same message dead-lettered by another queue
        yield from process_arrivals(transaction, placing.dead_letters({row.entity_id: row.first for row in rows}))
    else:
        yield from require_current(transaction.topology)
    return [
        Published(
            tuple((name, numbers[place, name]) for name in placed.taken if (place, name) in numbers),  # otherwise already removed
            bool(placed.refused),
            not (placed.taken or placed.refused),
        )
        for place, placed in enumerate(outcomes)
    ]


def _publish_transactionally(transaction: RoutingTransaction, prepared: Sequence[_Prepared]) -> Steps:
    """Publish in one transaction where a queue has a length limit or a message has a TTL of zero (see arrivals)."""
    routed = yield from _route(transaction.topology, prepared)
    names = dict.fromkeys(name for queues in routed for name in queues)
    yield from _require_accepting(transaction.topology, names)
    limited = yield from lock_for_arrivals(transaction, names, {key for p in prepared for key in p.keys})
    published = yield from _publish_copies(transaction, prepared, routed)
    yield from settle_arrivals(transaction, limited, _zero_ttl_numbers(transaction, prepared, published))
    return published


def _zero_ttl_numbers(
    transaction: RoutingTransaction, prepared: Sequence[_Prepared], published: Sequence[Published]
) -> dict[str, list[int]]:
    """Sequence numbers of stored messages with a TTL of zero, by queue."""
    numbers: dict[str, list[int]] = {}
    for p, outcome in zip(prepared, published, strict=True):
        for name, number in outcome.queues:
            if p.expiration == 0 or transaction.topology.queues[name].has_zero_ttl:
                numbers.setdefault(name, []).append(number)
    return numbers
