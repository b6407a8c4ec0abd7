"""Placing: which queues take a message that was routed to them, and what becomes of it where one refuses.

The same for what clients publish and for dead letters, which the broker publishes (RMQ-080).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from broker_core.rabbitmq.rules import deaths, messages, table
from broker_core.rabbitmq.topology.compiled import QueueInfo
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from .length_limits import REJECT_PUBLISH_DLX, Rooms
from .routing_transaction import RoutingTransaction

MOST_HOPS = 16  # from one queue that is too full to the next, in one transaction
BLIND_KEYS = "bcc"  # kept with a message's properties for its dead letters, and given to no consumer (RMQ-395)
PLACE_PROPERTIES = ("exchange", "routing_key", BLIND_KEYS)


class Outgoing(NamedTuple):
    """A message to be stored. place: which body it has, as the statement counts them. properties, headers: as they are stored.

    expiration: its own life in milliseconds. origin: of a dead letter, for its event.
    """

    place: int
    size: int
    message_id: str | None
    properties: Mapping[str, Any]
    headers: Mapping[str, list] | None
    expiration: int | None = None
    origin: Mapping[str, Any] | None = None


class DeadLetterCopy(NamedTuple):
    """A dead letter and the queues it goes to; without any, `why` says where it could not go."""

    letter: Outgoing | None
    queues: tuple[str, ...] = ()
    why: str | None = None


class Placed(NamedTuple):
    """Names of the queues that take a message and of those that refuse it."""

    taken: tuple[str, ...]
    refused: tuple[str, ...]


class Placing:
    """Collects messages and the queues they go to, for one statement."""

    def __init__(self, work: RoutingTransaction):
        self.names: dict[int, str] = {}  # of queues that get something, by id
        self.picks: dict[int, list[int]] = {}
        self._entries: list[Outgoing] = []
        self._refused: list[tuple[int, int]] = []  # queue, and which of those that it gets: what another queue refused
        self._work, self._rooms = work, Rooms()

    def put(self, message: Outgoing, names: Iterable[str], *, hops: int = 0) -> Steps:
        """Place a message in queues. Returns Placed."""
        queues = [(name, queue) for name in names if (queue := self._work.queue(name)) is not None]
        yield from self._rooms.look(queue for _, queue in queues)
        admitted = {name: self._rooms.admit(queue, message.size) for name, queue in queues}
        taken = tuple(name for name, _ in queues if admitted[name])
        if taken:
            self._entries.append(message)
            for name, queue in queues:
                if admitted[name]:
                    self.names[queue.id] = name
                    picked = self.picks.setdefault(queue.id, [])
                    picked.append(len(self._entries))
                    if hops:
                        self._refused.append((queue.id, len(picked) - 1))
        for name, queue in queues:
            if not admitted[name] and queue.effective.get("overflow") == REJECT_PUBLISH_DLX and hops < MOST_HOPS:
                yield from self._put_refused(message, name, queue, hops + 1)
        return Placed(taken, tuple(name for name, _ in queues if not admitted[name]))

    def put_whole(self, message: Outgoing, names: Iterable[str]) -> Steps:
        """Place a message in all of these queues, or in none where one refuses it; then it is not dead-lettered either: it stays
        where it is. Returns the name of the queue that refuses it."""
        queues = {name: queue for name in names if (queue := self._work.queue(name)) is not None}
        yield from self._rooms.look(queues.values())
        refusing = next((name for name, queue in queues.items() if not self._rooms.fits(queue, message.size)), None)
        if refusing is None:
            yield from self.put(message, queues)
        return refusing

    def _put_refused(self, message: Outgoing, name: str, queue: QueueInfo, hops: int) -> Steps:
        """RMQ-094: what such a queue refuses is dead-lettered."""
        (row,) = yield call("rabbit_now", namespace_id=self._work.topology.namespace_id)
        dead = dead_letter_copy(self._work, name, queue, message, "maxlen", row.now)
        if dead.letter is not None:
            yield from self.put(
                dead.letter._replace(origin={"from": origin_of(name, queue, None, "maxlen")}), dead.queues, hops=hops
            )

    def places(self, entity_id: int) -> list[int]:
        """The places of the messages that a queue gets, in the order of their numbers there."""
        return [self._entries[i - 1].place for i in self.picks[entity_id]]

    def dead_letters(self, firsts: Mapping[int, int]) -> dict[str, list[int]]:
        """Of what other queues refused and dead-lettered the numbers, by the name of the queue that has it.

        firsts: the first number that each queue gave, by its id.
        """
        found: dict[str, list[int]] = {}
        for entity_id, at in self._refused:
            if entity_id in firsts:
                found.setdefault(self.names[entity_id], []).append(firsts[entity_id] + at)
        return found

    def columns(self) -> dict[str, Any]:
        """What was placed, as the arrays that statements take."""
        entries = self._entries
        return {
            "places": [e.place for e in entries],
            "sizes": [e.size for e in entries],
            "message_ids": [e.message_id for e in entries],
            "expirations": [e.expiration for e in entries],
            "properties": [json.dumps(e.properties) for e in entries],
            "headers": [None if e.headers is None else json.dumps(e.headers) for e in entries],
            "details": [None if e.origin is None else json.dumps(e.origin) for e in entries],
            "entity_ids": list(self.picks),
            "picks": ["{" + ",".join(map(str, chosen)) + "}" for chosen in self.picks.values()],
        }


def dead_letter_copy(
    work: RoutingTransaction, name: str, queue: QueueInfo, message: Outgoing, reason: str, at: datetime
) -> DeadLetterCopy:
    """What a message becomes that leaves a queue for this reason (RMQ-060 to RMQ-073), and where it goes."""
    exchange = queue.effective.get("dead_letter_exchange")
    if exchange is None:
        return DeadLetterCopy(None)
    headers = table.decode(message.headers or {})
    keys, _ = messages.keys_of(message.properties["routing_key"], headers)
    blind = message.properties.get(BLIND_KEYS, [])
    own_key = queue.effective.get("dead_letter_routing_key")
    died = deaths.die(
        headers,
        {key: value for key, value in message.properties.items() if key not in PLACE_PROPERTIES},
        queue=name,
        reason=reason,
        at=at,
        exchange=message.properties["exchange"],
        routing_keys=[*keys, *blind],
        dead_letter_routing_key=own_key,
    )
    routed = work.topology.router.route(exchange, died.routing_keys, died.headers, by_broker=True)
    if exchange in routed.missing:
        return DeadLetterCopy(None, why=f"There is no exchange '{exchange}' (RMQ-061).")
    if not routed.queues:
        return DeadLetterCopy(None, why=f"The exchange '{exchange}' does not route it to any queue (RMQ-079).")
    queues = tuple(target for target in routed.queues if not deaths.is_cycle(died.headers, target))
    if not queues:
        return DeadLetterCopy(
            None, why=f"Dead-letter cycle: it died in '{routed.queues[0]}' before and was not rejected since (RMQ-072)."
        )
    letter = message._replace(
        properties={
            "exchange": exchange,
            "routing_key": died.routing_keys[0],
            **died.properties,
            **({BLIND_KEYS: blind} if blind and own_key is None else {}),
        },
        headers=table.encode(died.headers) or None,
        expiration=None,
        origin={"from": origin_of(name, queue, message.place, reason)},
    )
    return DeadLetterCopy(letter, queues)


def origin_of(name: str, queue: QueueInfo, number: int | None, reason: str) -> dict[str, Any]:
    """Where a message comes from that was elsewhere before, as its event tells it."""
    return {"entity": queue.id, "path": name, "sequence_number": number, "reason": reason}
