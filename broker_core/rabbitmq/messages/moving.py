"""Moving: an operator moves ready messages to another queue or exchange, or dead letters back to the queue they came from.

Each batch is one transaction, so that no message is lost or duplicated (RMQ-393). Messages that cannot be moved stay, and the
report says why (RMQ-392). A moved message starts afresh: its deaths are archived (RMQ-391), and its TTL is that of the target
queue.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from broker_core.common.arguments import whole_numbers
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EntityAddress, EventKind, Right, SubQueue
from broker_core.rabbitmq.rules import deaths, errors, messages, table
from broker_core.rabbitmq.rules.deaths import MOVED, Death
from broker_core.rabbitmq.rules.expiration import parse
from broker_core.rabbitmq.topology import compiled
from broker_core.rabbitmq.topology.compiled import QueueInfo, Topology
from broker_core.runtime.pacing import BATCH, advance_head
from broker_core.runtime.room import require_room
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .arrivals import lock_for_arrivals, settle_arrivals
from .dead_lettering import as_outgoing, remove_and_store
from .length_limits import Capacity, drops_head, exceeds, ready
from .placing import PLACE_PROPERTIES, Outgoing, Placing, origin_of
from .properties import check_routing_key
from .routing_transaction import RoutingTransaction, require_current, transact

MOST_NAMED = 1_000  # messages listed in a report; all are counted
SCAN_CAP = 10_000  # messages read by a preview
SCAN_BATCH = 2_000


@dataclass(frozen=True, slots=True)
class Back:
    """To the queue in which each message died last, or first, with the exchange and routing key it had there (RMQ-390)."""

    first: bool = False


@dataclass(frozen=True, slots=True)
class ToQueue:
    """To one queue, through the default exchange."""

    name: str


@dataclass(frozen=True, slots=True)
class ToExchange:
    """To an exchange, as if republished; without a routing key, each message keeps its own."""

    exchange: str
    routing_key: str | None = None


Target = Back | ToQueue | ToExchange


@dataclass(frozen=True, slots=True)
class DeadLetterOrigin:
    """A group of messages (RMQ-397): the queue in which they died last, or first, and the reason.

    Both are None for messages without a recorded death.
    """

    queue: str | None
    reason: str | None
    first: bool = False


class Why(StrEnum):
    """Why a message was not moved (RMQ-392). {} is a queue."""

    UNACKED = "held by a consumer"
    BUSY = "taken by another consumer"
    EXPIRED = "expired"
    GONE = "no longer in the queue"
    NEVER_DIED = "no recorded death"
    DIED_IN_THIS_QUEUE = "it died in this queue"
    NO_QUEUE = "the queue {} no longer exists"
    NO_ROUTE = "the exchange does not route it to any queue"
    REFUSED = "the queue {} is full"


class Left(NamedTuple):
    """Why a message was not moved, and the queue that caused it, if any."""

    why: Why
    queue: str | None = None

    def __str__(self) -> str:
        return self.why.format(self.queue)


@dataclass(frozen=True, slots=True)
class Moved:
    """The result of a move.

    count:    messages moved. arrived: copies by target queue. left: messages not moved, counted by reason.
    places:   queue and sequence number of each moved message, by its old number. stayed: reasons by number. At most MOST_NAMED
    each.
    """

    count: int = 0
    arrived: Mapping[str, int] = field(default_factory=dict)
    left: Mapping[Left, int] = field(default_factory=dict)
    places: Mapping[int, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    stayed: Mapping[int, Left] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MoveGroup:
    """Messages of a preview with the same origin and the same target queues."""

    origin: DeadLetterOrigin
    queues: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class MovePreview:
    """What a move would do now. last_number: the highest sequence number at that time; a move up to it excludes newer
    messages.

    overflowing: queues that would exceed their limit and drop messages from their head (RMQ-091); whether those are
    dead-lettered.
    scanned: messages read; capped: there are more, so the counts are lower bounds.
    """

    groups: tuple[MoveGroup, ...]
    left: Mapping[Left, int]
    overflowing: Mapping[str, bool]
    last_number: int
    scanned: int
    capped: bool

    @property
    def count(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def arriving(self) -> dict[str, int]:
        """Copies by target queue."""
        counts = Counter(dict.fromkeys(sorted({name for group in self.groups for name in group.queues}), 0))
        for group in self.groups:
            counts.update(dict.fromkeys(group.queues, group.count))
        return dict(counts)


class _Request(NamedTuple):
    """A request to move messages. numbers: only these, ascending; None: all. of: only this group of them."""

    to: Target
    numbers: Sequence[int] | None
    of: DeadLetterOrigin | None


class _Destination(NamedTuple):
    """Where a message is moved to, and its new properties. origin: according to the death used, or its last one."""

    queues: tuple[str, ...]
    properties: Mapping[str, Any]
    origin: DeadLetterOrigin


@use_case
def move(
    address: EntityAddress,
    to: Target,
    sequence_numbers: Sequence[int] | None = None,
    *,
    of: DeadLetterOrigin | None = None,
    up_to: int | None = None,
    actor: Actor | None = None,
) -> Steps[Moved]:
    """Move ready messages of a queue, oldest first, in batches of one transaction each.

    sequence_numbers: only these; None: all messages in the queue now. up_to: of all, none with a higher number, as given by a
    preview.
    of: only this group; other messages are neither moved nor reported (RMQ-397).
    Raises AmqpError: no such queue (404), exclusive to another connection (405), exchange missing or internal (404, 403). Also
    NamespaceFull and StorageFull, where an exchange routes a message to several queues.
    """
    actor = actor or Actor.local()
    actor.require(Right.OPERATE, address)
    request = _request(to, sequence_numbers, of)
    queue = yield from _source(address, to)
    last = yield from _last(queue, request.numbers, up_to)
    outcome, after = _Result(), -1
    while numbers := (yield from _next_numbers(queue, request.numbers, after, last, BATCH)):
        moved = yield from transact(address.namespace, str(actor), partial(_move_some, address, queue, request, numbers))
        if moved is None:  # the queue was deleted
            break
        outcome.add(*moved)
        after = numbers[-1]
    if outcome.count >= BATCH:
        yield from advance_head(queue.id, SubQueue.MAIN)
    return outcome.result()


@use_case
def move_numbers(
    address: EntityAddress,
    to: Target,
    sequence_numbers: Sequence[int],
    *,
    of: DeadLetterOrigin | None = None,
    actor: Actor | None = None,
) -> Steps[tuple[dict[int, list[tuple[int, int]]], dict[int, str]]]:
    """Move these ready messages, at most MOST_NAMED; of: only this group of them. Returns where each is now, as (entity id,
    number), and why others stayed.

    Raises as `move` does.
    """
    if len(sequence_numbers) > MOST_NAMED:
        raise InvalidArgument("sequence_numbers", f"must be at most {MOST_NAMED:,}")
    moved = yield from move.steps(address, to, sequence_numbers, of=of, actor=actor)
    queues = (yield from compiled.cached(address.namespace)).queues
    copies = {old: [(queues[name].id, number) for name, number in places] for old, places in moved.places.items()}
    return copies, {number: str(why) for number, why in moved.stayed.items()}


@use_case
def preview_move(
    address: EntityAddress,
    to: Target,
    sequence_numbers: Sequence[int] | None = None,
    *,
    of: DeadLetterOrigin | None = None,
    actor: Actor | None = None,
) -> Steps[MovePreview]:
    """What `move` would do now. Changes and locks nothing, and reads at most SCAN_CAP messages.

    Raises as `move` does.
    """
    (actor or Actor.local()).require(Right.BROWSE, address)
    request = _request(to, sequence_numbers, of)
    queue = yield from _source(address, to)
    last = yield from _last(queue, request.numbers, None)
    known = yield from compiled.current(address.namespace)
    builder, scanned, after = _PreviewBuilder(known), 0, -1
    while scanned < SCAN_CAP and (numbers := (yield from _next_numbers(queue, request.numbers, after, last, SCAN_BATCH))):
        destinations, stay = yield from _classify(known, address.path, queue, request, numbers)
        yield from builder.add(destinations.values(), stay.values())
        scanned, after = scanned + len(numbers), numbers[-1]
    capped = scanned >= SCAN_CAP and bool((yield from _next_numbers(queue, request.numbers, after, last, 1)))
    overflowing = yield from builder.overflowing()
    return MovePreview(builder.groups(), builder.left, overflowing, last, scanned, capped)


def _request(to: Target, sequence_numbers: Sequence[int] | None, of: DeadLetterOrigin | None) -> _Request:
    return _Request(to, None if sequence_numbers is None else sorted(whole_numbers(sequence_numbers)), of)


def _source(address: EntityAddress, to: Target) -> Steps[QueueInfo]:
    """The queue to move from, after the request was checked."""
    known = yield from compiled.current(address.namespace)
    queue = known.queues.get(address.path)
    if queue is None:
        raise errors.not_found_queue(address.namespace, address.path)
    if queue.owner_id is not None:
        raise errors.locked_queue(address.namespace, address.path)
    match to:
        case ToQueue(name) if name == address.path:
            raise InvalidArgument("to", f"'{name}' is the queue that contains the messages; choose another one")
        case ToQueue(name) if name not in known.queues:
            raise errors.not_found_queue(address.namespace, name)
        case ToExchange(exchange, routing_key):
            check_routing_key("" if routing_key is None else routing_key)
            known.router.route(exchange, (), {})
        case ToQueue() | Back():
            pass
        case _:
            raise InvalidArgument("to", f"must be a ToQueue, a ToExchange or Back, not {to!r:.80}")
    return queue


def _last(queue: QueueInfo, chosen: Sequence[int] | None, up_to: int | None) -> Steps[int]:
    if chosen is not None:
        return chosen[-1] if chosen else 0
    rows = yield call("rabbit_last_number", entity_id=queue.id)
    last = rows[0].last_number if rows else 0
    return last if up_to is None else min(up_to, last)


def _next_numbers(queue: QueueInfo, chosen: Sequence[int] | None, after: int, last: int, count: int) -> Steps[list[int]]:
    if chosen is not None:
        at = bisect_right(chosen, after)
        return list(chosen[at : at + count])
    rows = yield call("rabbit_numbers", entity_id=queue.id, after=after, last_number=last, max_count=count)
    return [row.sequence_number for row in rows]


def _classify(known: Topology, name: str, queue: QueueInfo, request: _Request, numbers: Sequence[int]) -> Steps:
    """Where each of these messages can be moved, with its content, and why others cannot. Messages of other groups are in
    neither result; messages no longer in the queue are reported only if they were requested by number."""
    rows = yield call("rabbit_movable", entity_id=queue.id, numbers=numbers, dead_letters=True)
    destinations: dict[int, tuple[_Destination, Outgoing]] = {}
    stay: dict[int, Left] = {}
    for row in rows:
        if request.of is not None and _origin(_death(row, first=request.of.first), first=request.of.first) != request.of:
            continue
        outcome: _Destination | Left
        if row.is_unacked:
            outcome = Left(Why.UNACKED)
        elif row.expired:
            outcome = Left(Why.EXPIRED)
        else:
            outcome = _destination_of(known, name, row, request.to)
        if isinstance(outcome, Left):
            stay[row.sequence_number] = outcome
        else:
            destinations[row.sequence_number] = outcome, as_outgoing(row)
    if request.numbers is not None:
        stay |= dict.fromkeys(set(numbers) - {row.sequence_number for row in rows}, Left(Why.GONE))
    return destinations, stay


def _death(row: Any, *, first: bool) -> Death | None:
    """The death that says where a message came from."""
    stored = row.application_properties or {}
    origin_headers = table.decode({header: stored[header] for header in deaths.ORIGIN_HEADERS if header in stored})
    return deaths.origin(origin_headers, first=first)


def _origin(death: Death | None, *, first: bool) -> DeadLetterOrigin:
    return DeadLetterOrigin(death.queue, death.reason, first) if death else DeadLetterOrigin(None, None, first)


def _destination_of(known: Topology, name: str, row: Any, to: Target) -> _Destination | Left:
    first = isinstance(to, Back) and to.first
    death = _death(row, first=first)
    origin = _origin(death, first=first)
    match to:
        case ToQueue(target):
            destination = _Destination((target,), _republished_properties(row, "", target), origin)
        case ToExchange(exchange, key):
            stored = row.application_properties or {}
            key = row.properties["routing_key"] if key is None else key
            keys, headers = messages.keys_of(key, _headers(stored))
            queues = known.router.route(exchange, keys, headers, by_broker=True).queues
            destination = _Destination(queues, _republished_properties(row, exchange, key), origin)
        case Back() if death is None:
            return Left(Why.NEVER_DIED)
        case Back() if death.queue == name:
            return Left(Why.DIED_IN_THIS_QUEUE)
        case Back():
            destination = _Destination((death.queue,), _properties_at_death(row, death), origin)
    missing = next((target for target in destination.queues if target not in known.queues), None)
    if missing is not None:
        return Left(Why.NO_QUEUE, missing)
    return destination if destination.queues else Left(Why.NO_ROUTE)


def _headers(stored: Mapping[str, list]) -> dict[str, Any]:
    """The headers of a moved message."""
    return deaths.archive_deaths(table.decode(stored))


def _properties_at_death(row: Any, death: Death) -> dict[str, Any]:
    """A message's properties with the exchange and routing key it had when it died.

    With the queue name as its routing key, its next dead letter might not be routed (RMQ-062).
    """
    exchange, key = (death.exchange, death.routing_keys[0]) if death.routing_keys else ("", death.queue)
    return {**row.properties, "exchange": exchange, "routing_key": key}


def _republished_properties(row: Any, exchange: str, key: str) -> dict[str, Any]:
    """The properties of a republished message, without the BCC keys of the original."""
    remaining = {name: value for name, value in row.properties.items() if name not in PLACE_PROPERTIES}
    return {"exchange": exchange, "routing_key": key, **remaining}


def _move_some(
    address: EntityAddress, queue: QueueInfo, request: _Request, numbers: Sequence[int], transaction: RoutingTransaction
) -> Steps:
    """New places by sequence number, and why others stay; None if the queue was deleted.

    Making room in the target queues may deliver and remove messages of this queue. Messages are therefore locked afterwards,
    and only locked ones are moved.
    """
    known = transaction.queue(address.path)
    if known is None or known.id != queue.id:
        return None
    destinations, stay = yield from _classify(transaction.topology, address.path, queue, request, numbers)
    if any(len(destination.queues) > 1 for destination, _ in destinations.values()):
        yield from require_room(address.namespace)
    targets = dict.fromkeys(name for destination, _ in destinations.values() for name in destination.queues)
    limited = yield from lock_for_arrivals(
        transaction, targets, {destination.properties["routing_key"] for destination, _ in destinations.values()}
    )
    rows = (yield call("rabbit_hold_movable", entity_id=queue.id, numbers=list(destinations))) if destinations else ()
    rows_by_number = {row.sequence_number: row for row in rows}
    placing, movable = Placing(transaction), []
    for number, (destination, message) in destinations.items():
        if number not in rows_by_number or rows_by_number[number].expired:
            stay[number] = Left(Why.EXPIRED if number in rows_by_number else Why.BUSY)
            continue
        refusing = yield from placing.put_whole(_republished(address.path, queue, message, destination), destination.queues)
        if refusing is not None:
            stay[number] = Left(Why.REFUSED, refusing)
        else:
            movable.append(rows_by_number[number])
    if not movable:
        yield from require_current(transaction.topology)  # otherwise a missing queue or exchange may exist now
    places = (yield from _transfer(transaction, queue, movable, placing)) if movable else {}
    yield from settle_arrivals(transaction, limited, _zero_ttl_numbers(transaction, places))
    return places, stay


def _republished(name: str, queue: QueueInfo, message: Outgoing, destination: _Destination) -> Outgoing:
    """The message as republished. Its own expiration, which dead letters never have, starts again."""
    return message._replace(
        properties=destination.properties,
        headers=table.encode(_headers(message.headers or {})) or None,
        expiration=parse(message.properties.get("expiration")),
        origin={"from": origin_of(name, queue, message.place, MOVED)},
    )


def _transfer(transaction: RoutingTransaction, queue: QueueInfo, rows: Sequence[Any], placing: Placing) -> Steps:
    """Remove the placed messages from their queue and store the copies. Returns the new places by old sequence number."""
    firsts = yield from remove_and_store(transaction, queue, rows, [(EventKind.MOVED, None)] * len(rows), MOVED, placing)
    places: dict[int, list[tuple[str, int]]] = {row.sequence_number: [] for row in rows}
    for entity_id, name in placing.names.items():
        for number, old in enumerate(placing.places(entity_id), firsts[entity_id]):
            places[old].append((name, number))
    return {old: tuple(copies) for old, copies in places.items()}


def _zero_ttl_numbers(transaction: RoutingTransaction, places: Mapping[int, Sequence[tuple[str, int]]]) -> dict[str, list[int]]:
    """Sequence numbers of stored messages with a TTL of zero, by queue."""
    numbers: dict[str, list[int]] = {}
    for name, number in (place for group in places.values() for place in group):
        if transaction.topology.queues[name].has_zero_ttl:
            numbers.setdefault(name, []).append(number)
    return numbers


class _PreviewBuilder:
    """Collects a preview: targets of messages, and the capacity of queues as far as it is known without locking."""

    def __init__(self, known: Topology):
        self.left = Counter[Left]()
        self._known, self._capacity = known, Capacity()
        self._groups = Counter[tuple[DeadLetterOrigin, tuple[str, ...]]]()
        self._counts, self._sizes = Counter[str](), Counter[str]()

    def add(self, destinations: Collection[tuple[_Destination, Outgoing]], stay: Iterable[Left]) -> Steps:
        """Add messages with a target, and the reasons of others, in order."""
        queues = self._known.queues
        yield from self._capacity.load(
            (queues[name] for destination, _ in destinations for name in destination.queues), lock=False
        )
        self.left.update(stay)
        for destination, message in destinations:
            refusing = next((name for name in destination.queues if not self._capacity.fits(queues[name], message.size)), None)
            if refusing is not None:
                self.left[Left(Why.REFUSED, refusing)] += 1
                continue
            for name in destination.queues:
                self._capacity.admit(queues[name], message.size)
                self._counts[name] += 1
                self._sizes[name] += message.size
            self._groups[destination.origin, destination.queues] += 1

    def groups(self) -> tuple[MoveGroup, ...]:
        """The groups, largest first."""
        return tuple(MoveGroup(origin, names, count) for (origin, names), count in self._groups.most_common())

    def overflowing(self) -> Steps[dict[str, bool]]:
        """The target queues that would drop messages from their head; whether those are dead-lettered."""
        queues = {name: queue for name in self._counts if drops_head(queue := self._known.queues[name])}
        ready_counts = (yield from ready([queue.id for queue in queues.values()])) if queues else {}
        dead_letters = {}
        for name, queue in queues.items():
            n, size = ready_counts.get(queue.id, (0, 0))
            if exceeds(queue, n + self._counts[name], size + self._sizes[name]):
                dead_letters[name] = "dead_letter_exchange" in queue.effective
        return dead_letters


class _Result:
    """Collects the result of a move."""

    def __init__(self) -> None:
        self.count = 0
        self._arrived, self._left = Counter[str](), Counter[Left]()
        self._places: dict[int, tuple[tuple[str, int], ...]] = {}
        self._stayed: dict[int, Left] = {}

    def add(self, places: Mapping[int, tuple], stay: Mapping[int, Left]) -> None:
        """Add the result of a batch."""
        self.count += len(places)
        self._arrived.update(name for group in places.values() for name, _ in group)
        self._left.update(stay.values())
        _add_named(self._places, places)
        _add_named(self._stayed, stay)

    def result(self) -> Moved:
        return Moved(self.count, dict(self._arrived), dict(self._left), self._places, self._stayed)


def _add_named(named: dict[int, Any], new: Mapping[int, Any]) -> None:
    """Add the lowest of the new numbers, up to MOST_NAMED in total."""
    named.update((number, new[number]) for number in sorted(new)[: max(0, MOST_NAMED - len(named))])
