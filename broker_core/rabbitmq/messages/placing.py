"""Placing: which queues accept a routed message, and what happens if one rejects it.

Used for published messages and for dead letters (RMQ-080).
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

from .length_limits import REJECT_PUBLISH_DLX, Capacity
from .routing_transaction import RoutingTransaction

MOST_HOPS = 16  # dead-letter hops between full queues in one transaction
BLIND_KEYS = "bcc"  # stored with the properties for dead letters, not delivered to consumers (RMQ-395)
PLACE_PROPERTIES = ("exchange", "routing_key", BLIND_KEYS)


class Outgoing(NamedTuple):
    """A message to be stored. place: identifies its body in the statement. properties, headers, encoded: as stored.

    expiration: its own TTL in milliseconds. origin: details for the event of a dead letter.
    """

    place: int
    size: int
    message_id: str | None
    properties: Mapping[str, Any]
    headers: Mapping[str, list] | None
    encoded: bytes | None
    expiration: int | None = None
    origin: Mapping[str, Any] | None = None


class DeadLetterCopy(NamedTuple):
    """A dead letter and its target queues; without any, `why` says why it is dropped."""

    letter: Outgoing | None
    queues: tuple[str, ...] = ()
    why: str | None = None


class Placed(NamedTuple):
    """Names of the queues that accept a message and of those that reject it."""

    taken: tuple[str, ...]
    refused: tuple[str, ...]


class Placing:
    """Collects messages and their target queues for one statement."""

    def __init__(self, transaction: RoutingTransaction):
        self.names: dict[int, str] = {}  # target queues by id
        self.picks: dict[int, list[int]] = {}
        self._entries: list[Outgoing] = []
        self._refused: list[tuple[int, int]] = []  # queue id and index into its picks, of messages rejected by another queue
        self._transaction, self._capacity = transaction, Capacity()

    def put(self, message: Outgoing, names: Iterable[str], *, hops: int = 0) -> Steps:
        """Place a message in queues. Returns Placed."""
        queues = [(name, queue) for name in names if (queue := self._transaction.queue(name)) is not None]
        yield from self._capacity.load(queue for _, queue in queues)
        admitted = {name: self._capacity.admit(queue, message.size) for name, queue in queues}
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
        """Place a message in all of these queues, or in none if one rejects it. Returns the name of that queue. The message is
        not dead-lettered."""
        queues = {name: queue for name in names if (queue := self._transaction.queue(name)) is not None}
        yield from self._capacity.load(queues.values())
        refusing = next((name for name, queue in queues.items() if not self._capacity.fits(queue, message.size)), None)
        if refusing is None:
            yield from self.put(message, queues)
        return refusing

    def _put_refused(self, message: Outgoing, name: str, queue: QueueInfo, hops: int) -> Steps:
        """Dead-letter a message rejected by a queue with reject-publish-dlx (RMQ-094)."""
        (row,) = yield call("rabbit_now", namespace_id=self._transaction.topology.namespace_id)
        dead = dead_letter_copy(self._transaction, name, queue, message, "maxlen", row.now)
        if dead.letter is not None:
            yield from self.put(
                dead.letter._replace(origin={"from": origin_of(name, queue, None, "maxlen")}), dead.queues, hops=hops
            )

    def places(self, entity_id: int) -> list[int]:
        """The places of the messages stored in a queue, in sequence-number order."""
        return [self._entries[i - 1].place for i in self.picks[entity_id]]

    def dead_letters(self, firsts: Mapping[int, int]) -> dict[str, list[int]]:
        """Sequence numbers of messages that were rejected and dead-lettered by other queues, by queue name.

        firsts: the first sequence number assigned in each queue, by queue id.
        """
        numbers: dict[str, list[int]] = {}
        for entity_id, at in self._refused:
            if entity_id in firsts:
                numbers.setdefault(self.names[entity_id], []).append(firsts[entity_id] + at)
        return numbers

    def columns(self) -> dict[str, Any]:
        """The placed messages as statement parameters."""
        entries = self._entries
        return {
            "places": [e.place for e in entries],
            "sizes": [e.size for e in entries],
            "message_ids": [e.message_id for e in entries],
            "expirations": [e.expiration for e in entries],
            "properties": [json.dumps(e.properties) for e in entries],
            "headers": [None if e.headers is None else json.dumps(e.headers) for e in entries],
            "encoded": [e.encoded for e in entries],
            "details": [None if e.origin is None else json.dumps(e.origin) for e in entries],
            "entity_ids": list(self.picks),
            "picks": ["{" + ",".join(map(str, chosen)) + "}" for chosen in self.picks.values()],
        }


def dead_letter_copy(
    transaction: RoutingTransaction, name: str, queue: QueueInfo, message: Outgoing, reason: str, at: datetime
) -> DeadLetterCopy:
    """The dead letter of a message that is removed for this reason (RMQ-060 to RMQ-073), and its target queues."""
    exchange = queue.effective.get("dead_letter_exchange")
    if exchange is None:
        return DeadLetterCopy(None)
    headers = table.decode(message.headers or {})
    keys, _ = messages.keys_of(message.properties["routing_key"], headers)
    blind = message.properties.get(BLIND_KEYS, [])
    own_key = queue.effective.get("dead_letter_routing_key")
    died = deaths.dead_letter(
        headers,
        {key: value for key, value in message.properties.items() if key not in PLACE_PROPERTIES},
        queue=name,
        reason=reason,
        at=at,
        exchange=message.properties["exchange"],
        routing_keys=[*keys, *blind],
        dead_letter_routing_key=own_key,
    )
    routed = transaction.topology.router.route(exchange, died.routing_keys, died.headers, by_broker=True)
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
    """The origin of a moved or dead-lettered message, as stored in its event."""
    return {"entity": queue.id, "path": name, "sequence_number": number, "reason": reason}
