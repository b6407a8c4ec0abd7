"""Publishing: a message to an exchange, and from there to every queue it is routed to."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from broker_core.semantics.errors import InvalidArgument
from broker_core.semantics.rabbitmq import errors, messages, table
from broker_core.semantics.types import Actor, EntityAddress, Right
from broker_core.store.driver import AfterCommit, Steps, use_case
from broker_core.store.statements import call

from . import consumers, topology
from .dead_lettering import EXPIRED, dead_letter, dying, expire_at_head, has_priorities, hold_chain, keep_limits
from .delivering import Delivery, as_delivery, requeue
from .limits import drops_head, is_limited, refuses
from .placing import Outgoing, Placing
from .properties import NONE, Properties, check, check_routing_key
from .topology import QueueInfo, Topology
from .work import TRIES_UNHELD, Stale, Work, transact, wake

RELIEF = 100  # messages that consumers are given at most before a publication counts what is too much
FOR_GOOD = {
    "rabbit_hand_over": "rabbit_hand_over_for_good",
    "rabbit_take": "rabbit_take_for_good",
    "rabbit_take_by_priority": "rabbit_take_for_good_by_priority",
}


@dataclass(frozen=True, slots=True)
class Publication:
    """A message and where it is published. mandatory: the publisher wants it back if it is routed to no queue (RMQ-363)."""

    body: bytes
    exchange: str = ""
    routing_key: str = ""
    properties: Properties = NONE
    mandatory: bool = False


class Published(NamedTuple):
    """What became of a publication.

    queues: the queues that took it, with the number it has there. refused: a queue refused it, so the publisher is told (RMQ-093,
    RMQ-095). unroutable: no queue was found for it; whoever said mandatory gets it back, else it is dropped (RMQ-363, RMQ-364).
    """

    queues: tuple[tuple[str, int], ...] = ()
    refused: bool = False
    unroutable: bool = False


class _Prepared(NamedTuple):
    """A publication that was checked. headers: as published. properties, stored_headers: as stored, as texts, BCC removed."""

    body: bytes
    message_id: str | None
    expiration: int | None
    keys: Sequence[str]
    headers: Mapping[str, Any]
    exchange: str
    properties: dict[str, Any]
    stored_headers: dict[str, list] | None


@use_case
def publish(vhost: str, publications: Iterable[Publication], *, owner_id: int | None = None, actor: Actor | None = None) -> Steps:
    """Publish messages in order, all or none. Returns Published for each.

    owner_id: the connection that publishes; anybody may publish to an exclusive queue (RMQ-330).
    Raises AmqpError for a missing or internal exchange (404, 403) and for what cannot be published (406), InvalidArgument.
    """
    actor = actor or Actor.local()
    actor.require(Right.SEND, vhost)
    prepared = [_prepare(publication) for publication in publications]
    if not prepared:
        return []
    for _ in range(TRIES_UNHELD):
        known = yield from topology.of(vhost)
        try:
            return (yield from _publish(known, prepared, str(actor)))
        except Stale:
            topology.forget(vhost)
    return (yield from transact(vhost, str(actor), lambda work: _publish_with_care(work, prepared)))


def _prepare(publication: Publication) -> _Prepared:
    if not isinstance(publication.body, bytes | bytearray | memoryview):
        raise InvalidArgument("body", f"must be bytes, not {type(publication.body).__name__}")
    messages.check_body(publication.body)
    check_routing_key(publication.routing_key)
    checked = check(publication.properties)
    headers = publication.properties.headers
    keys, kept = messages.keys_of(publication.routing_key, headers) if headers else ((publication.routing_key,), {})
    stored = {"exchange": publication.exchange, "routing_key": publication.routing_key, **checked.stored}
    return _Prepared(
        bytes(publication.body),
        checked.message_id,
        checked.expiration,
        keys,
        headers,
        publication.exchange,
        stored,
        table.encode(kept) if kept else None,
    )


def _publish(known: Topology, prepared: Sequence[_Prepared], actor: str) -> Steps:
    """Store by what is known of the topology. Raises Stale if that is not how it is any more."""
    routed = yield from _route(known, prepared)
    names = {name for found in routed for name in found}
    if not names:
        yield from _require_current(known)
        return [Published(unroutable=True) for _ in prepared]
    queues = {name: known.queues[name] for name in names}
    if any(is_limited(q) or q.effective.get("message_ttl") == 0 for q in queues.values()) or any(
        p.expiration == 0 for p in prepared
    ):
        return (yield from transact(known.vhost, actor, lambda work: _publish_with_care(work, prepared)))
    if len(names) == 1 and all(routed):
        return (yield from _publish_to_one(known, *queues.items(), prepared, actor))
    work = Work(known, actor)
    published = yield from _publish_copies(work, prepared, routed)
    yield from wake(work.waiting)
    return published


def _route(known: Topology, prepared: Sequence[_Prepared]) -> Steps:
    """The queues of each publication. Many of a batch go the same way, which is then found once."""
    ways: dict[Any, tuple[str, ...]] = {}
    routed = []
    for p in prepared:
        way = None if p.headers else (p.exchange, *p.keys)
        found = ways.get(way) if way else None
        if found is None:
            try:
                found = known.router.route(p.exchange, p.keys, p.headers).queues
            except errors.AmqpError:
                yield from _require_current(known)  # else the exchange may be there by now
                raise
            if way:
                ways[way] = found
        routed.append(found)
    return routed


def _require_current(known: Topology) -> Steps:
    (row,) = yield call("rabbit_topology_is", namespace_id=known.namespace_id, topology_version=known.version)
    if not row.is_current:
        raise Stale


def _publish_to_one(known: Topology, target: tuple[str, QueueInfo], prepared: Sequence[_Prepared], actor: str) -> Steps:
    """The common case: one queue gets all."""
    name, queue = target
    rows = yield call(
        "rabbit_publish",
        entity_id=queue.id,
        topology_version=known.version,
        actor=actor,
        bytes=sum(len(p.body) for p in prepared),
        bodies=[p.body for p in prepared],
        message_ids=_unless_empty([p.message_id for p in prepared]),
        expirations=_unless_empty([p.expiration for p in prepared]),
        properties=_as_texts(p.properties for p in prepared),
        headers=_unless_empty([p.stored_headers and json.dumps(p.stored_headers) for p in prepared]),
    )
    if not rows:
        raise Stale
    if rows[0].waiting:
        yield from wake([queue.id])
    return [Published(((name, number),)) for number in range(rows[0].first, rows[0].first + len(prepared))]


def _as_texts(properties: Iterable[Mapping[str, Any]]) -> list[str]:
    """As JSON; most of a batch have the same, and share one text."""
    found: dict[tuple, str] = {}
    return [found.get(key := tuple(p.items())) or found.setdefault(key, json.dumps(p)) for p in properties]


def _unless_empty(values: list) -> list | None:
    return None if all(value is None for value in values) else values


def _publish_copies(work: Work, prepared: Sequence[_Prepared], routed: Sequence[Sequence[str]]) -> Steps:
    """Store copies in all queues that take them."""
    placing, outcomes = Placing(work), []
    for place, (p, names) in enumerate(zip(prepared, routed, strict=True)):
        message = Outgoing(place, len(p.body), p.message_id, p.properties, p.stored_headers, p.expiration)
        outcomes.append((yield from placing.put(message, names)))
    numbers: dict[tuple[int, str], int] = {}
    if placing.picks:
        rows = yield call(
            "rabbit_publish_copies",
            namespace_id=work.topology.namespace_id,
            topology_version=work.topology.version,
            actor=work.actor,
            bodies=[p.body for p in prepared],
            **placing.columns(),
        )
        if not rows:
            raise Stale
        work.waiting.update(row.entity_id for row in rows if row.waiting)
        for row in rows:
            name = placing.names[row.entity_id]
            for number, place in enumerate(placing.places(row.entity_id), row.first):
                numbers.setdefault((place, name), number)  # what follows is the same message dead-lettered by another queue
    else:
        yield from _require_current(work.topology)
    return [
        Published(
            tuple((name, numbers[place, name]) for name in placed.taken if (place, name) in numbers),  # else it is gone by now
            bool(placed.refused),
            not (placed.taken or placed.refused),
        )
        for place, placed in enumerate(outcomes)
    ]


# Where a queue has a limit, or a message no time to live


def _publish_with_care(work: Work, prepared: Sequence[_Prepared]) -> Steps:
    """In one transaction: what has expired at the head of a queue that refuses makes room first; what consumers have room for is
    theirs; what is too much then leaves again, and so does what may live for no time."""
    routed = yield from _route(work.topology, prepared)
    limited = [name for name in dict.fromkeys(n for names in routed for n in names) if is_limited(work.topology.queues[name])]
    for name in limited:
        if refuses(work.topology.queues[name]):
            yield from expire_at_head(work, name)
            yield from _relieve(work, name)
    if any("dead_letter_exchange" in work.topology.queues[name].effective for name in limited):
        yield from hold_chain(work, {name for names in routed for name in names}, list({key for p in prepared for key in p.keys}))
    published = yield from _publish_copies(work, prepared, routed)
    yield from _at_once(work, prepared, published)
    for name in limited:
        if drops_head(work.topology.queues[name]):
            yield from _relieve(work, name)
    yield from keep_limits(work, limited)
    return published


def _at_once(work: Work, prepared: Sequence[_Prepared], published: Sequence[Published]) -> Steps:
    """RMQ-016: what may live for no time goes to a consumer that has room for it now, or has expired."""
    lives_for_no_time: dict[str, list[int]] = {}
    for p, outcome in zip(prepared, published, strict=True):
        for name, number in outcome.queues:
            if p.expiration == 0 or work.topology.queues[name].effective.get("message_ttl") == 0:
                lives_for_no_time.setdefault(name, []).append(number)
    for name, numbers in lives_for_no_time.items():
        queue = work.topology.queues[name]
        left = yield from _hand_over(work, name, queue, numbers)
        if not left:
            continue
        if queue.effective.get("message_ttl") == 0:
            rows = yield from dying("by_number", queue, numbers=left)
            yield from keep_limits(work, (yield from dead_letter(work, name, rows, EXPIRED)))
        else:
            yield from expire_at_head(work, name)


def _hand_over(work: Work, name: str, queue: QueueInfo, numbers: list[int]) -> Steps:
    """Give messages to consumers of this process (RMQ-922). Returns the numbers that nobody has room for."""
    plan = consumers.takers(queue.id, len(numbers))
    left = numbers[len(plan) :]
    for consumer in dict.fromkeys(plan):
        given = [number for number, taker in zip(numbers, plan, strict=False) if taker is consumer]
        if not (yield from _give(work, name, queue, consumer, "rabbit_hand_over", numbers=given)):
            left += given
    return sorted(left)


def _relieve(work: Work, name: str) -> Steps:
    """A queue with a limit: the head goes to consumers of this process that have room, since only what they leave is too much."""
    queue = work.topology.queues[name]
    if queue.effective.get("message_ttl") == 0:  # nothing waits there
        return
    for consumer, count in Counter(consumers.takers(queue.id, RELIEF)).items():
        statement = "rabbit_take" if not has_priorities(queue) else "rabbit_take_by_priority"
        yield from _give(work, name, queue, consumer, statement, max_count=count, past_expired=True)


def _give(work: Work, name: str, queue: QueueInfo, consumer: consumers.Consumer, statement: str, **which: Any) -> Steps:
    """Deliver messages to a consumer, once this transaction is committed. Returns whether its connection is still there."""
    if not (yield call("rabbit_give_to", connection_id=consumer.owner_id)):
        return False
    if consumer.no_ack:
        statement = FOR_GOOD[statement]
    rows = yield call(statement, entity_id=queue.id, owner_id=consumer.owner_id, holder=consumer.holder, **which)
    address = EntityAddress(work.vhost, name)
    deliveries = [as_delivery(row, address, queue) for row in rows if row.sequence_number is not None]
    if deliveries:
        yield AfterCommit(_handed(consumer, deliveries))
    return True


def _handed(consumer: consumers.Consumer, deliveries: Sequence[Delivery]) -> Steps:
    """Once it is stored that they are its: the consumer gets them, unless its channel was closed in between."""
    held = [delivery.token for delivery in deliveries if delivery.token is not None]
    if not consumer.hand_over(deliveries) and held:
        yield from requeue.steps(deliveries[0].address, held, actor=consumer.channel.connection.actor)
