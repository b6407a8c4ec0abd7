"""Moving: an operator takes ready messages out of a queue and publishes them elsewhere, dead letters back to where they died.

In one transaction for each batch, so that nothing is lost or doubled on the way (RMQ-393). What cannot go stays where it is, and
the report says why (RMQ-392). A moved message begins anew: its deaths are set aside (RMQ-391), and it lives as long as the queue
says that takes it.
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
from broker_core.store.driver import Steps
from broker_core.store.statements import call
from broker_core.store.use_cases import use_case

from .arrivals import lock_for_arrivals, settle_arrivals
from .dead_lettering import as_outgoing, remove_and_store
from .length_limits import Rooms, drops_head, exceeds, ready
from .placing import PLACE_PROPERTIES, Outgoing, Placing, origin_of
from .properties import check_routing_key
from .routing_transaction import RoutingTransaction, require_current, transact

MOST_NAMED = 1_000  # messages that a report names one by one; all are counted
LOOKED_AT = 10_000  # messages that a preview looks at
LOOK_BATCH = 2_000


@dataclass(frozen=True, slots=True)
class Back:
    """To the queue in which each message died last, or first, and to it alone: with the exchange and the routing key that it had
    there (RMQ-390)."""

    first: bool = False


@dataclass(frozen=True, slots=True)
class ToQueue:
    """To one queue, through the default exchange."""

    name: str


@dataclass(frozen=True, slots=True)
class ToExchange:
    """To an exchange, as if published again; without a routing key, with the one that each message has."""

    exchange: str
    routing_key: str | None = None


Target = Back | ToQueue | ToExchange


@dataclass(frozen=True, slots=True)
class DeadLetterOrigin:
    """What messages of a group have in common (RMQ-397): the queue in which they died last, or first, and the reason.

    Both None: of those that do not say where they died.
    """

    queue: str | None
    reason: str | None
    first: bool = False


class Why(StrEnum):
    """Why a message was left where it is (RMQ-392). {} is a queue."""

    HELD = "held by a consumer"
    BUSY = "taken by another consumer"
    EXPIRED = "expired"
    GONE = "no longer in the queue"
    NEVER_DIED = "no recorded death"
    DIED_HERE = "it died in this queue"
    NO_QUEUE = "the queue {} no longer exists"
    NO_ROUTE = "the exchange does not route it to any queue"
    REFUSED = "the queue {} is full"


class Left(NamedTuple):
    """Why a message was left, and the queue that is to blame, if one is."""

    why: Why
    queue: str | None = None

    def __str__(self) -> str:
        return self.why.format(self.queue)


@dataclass(frozen=True, slots=True)
class Moved:
    """What a move did.

    count:    messages that left. arrived: copies by the queue that took them. left: those that stayed, counted by reason.
    places:   by the number a message had, where it is now: queue and number. stayed: by number, why. Of both MOST_NAMED at most.
    """

    count: int = 0
    arrived: Mapping[str, int] = field(default_factory=dict)
    left: Mapping[Left, int] = field(default_factory=dict)
    places: Mapping[int, tuple[tuple[str, int], ...]] = field(default_factory=dict)
    stayed: Mapping[int, Left] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MoveGroup:
    """Messages of a preview that have their origin in common and would go to the same queues."""

    origin: DeadLetterOrigin
    queues: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class MovePreview:
    """What a move would do now. last_number: the highest that the queue had given then: a move up to it takes nothing newer.

    overflowing: queues that would have more than they may, and drop their heads (RMQ-091); whether those are dead-lettered.
    scanned: messages looked at; capped: there are more, so the counts are lower bounds.
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
        """Copies by the queue that would get them, by name."""
        found = Counter(dict.fromkeys(sorted({name for group in self.groups for name in group.queues}), 0))
        for group in self.groups:
            found.update(dict.fromkeys(group.queues, group.count))
        return dict(found)


class _Wish(NamedTuple):
    """What is to go where. numbers: these alone, the lowest first; None: all. of: of those, one group."""

    to: Target
    numbers: Sequence[int] | None
    of: DeadLetterOrigin | None


class _Way(NamedTuple):
    """Where a message goes and as what. origin: by the death that said so, or by its last."""

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
    """Move ready messages of a queue, oldest first, in batches, each one transaction. Returns Moved.

    sequence_numbers: these alone; None: all that are there now. up_to: of all, none with a higher number, as a preview gave it.
    of: of those, this group alone; the others are neither moved nor told of (RMQ-397).
    Raises AmqpError: no such queue (404), another connection's (405), an exchange that is not there or internal (404, 403).
    """
    actor = actor or Actor.local()
    actor.require(Right.OPERATE, address)
    wish = _wish(to, sequence_numbers, of)
    queue = yield from _source(address, to)
    last = yield from _last(queue, wish.numbers, up_to)
    tally, after = _Tally(), -1
    while numbers := (yield from _next_numbers(queue, wish.numbers, after, last, BATCH)):
        some = yield from transact(address.namespace, str(actor), partial(_move_some, address, queue, wish, numbers))
        if some is None:  # the queue was deleted meanwhile
            break
        tally.add(*some)
        after = numbers[-1]
    if tally.count >= BATCH:
        yield from advance_head(queue.id, SubQueue.MAIN)
    return tally.result()


@use_case
def preview_move(
    address: EntityAddress,
    to: Target,
    sequence_numbers: Sequence[int] | None = None,
    *,
    of: DeadLetterOrigin | None = None,
    actor: Actor | None = None,
) -> Steps[MovePreview]:
    """What `move` would do now, as MovePreview. It changes nothing, holds nobody up, and looks at LOOKED_AT messages at most.

    Raises as `move` does.
    """
    (actor or Actor.local()).require(Right.BROWSE, address)
    wish = _wish(to, sequence_numbers, of)
    queue = yield from _source(address, to)
    last = yield from _last(queue, wish.numbers, None)
    known = yield from compiled.current(address.namespace)
    foreseen, scanned, after = _Foreseen(known), 0, -1
    while scanned < LOOKED_AT and (numbers := (yield from _next_numbers(queue, wish.numbers, after, last, LOOK_BATCH))):
        ways, stay = yield from _look(known, address.path, queue, wish, numbers)
        yield from foreseen.add(ways.values(), stay.values())
        scanned, after = scanned + len(numbers), numbers[-1]
    capped = scanned >= LOOKED_AT and bool((yield from _next_numbers(queue, wish.numbers, after, last, 1)))
    overflowing = yield from foreseen.overflowing()
    return MovePreview(foreseen.groups(), foreseen.left, overflowing, last, scanned, capped)


def _wish(to: Target, sequence_numbers: Sequence[int] | None, of: DeadLetterOrigin | None) -> _Wish:
    return _Wish(to, None if sequence_numbers is None else sorted(whole_numbers(sequence_numbers)), of)


def _source(address: EntityAddress, to: Target) -> Steps[QueueInfo]:
    """The queue to move from, once it is known that what is asked for is possible."""
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


def _look(known: Topology, name: str, queue: QueueInfo, wish: _Wish, numbers: Sequence[int]) -> Steps:
    """Where each of these messages can go, with what it is now, and why others stay. What is of another group is in neither, and
    what is gone is told only where it was named."""
    rows = yield call("rabbit_movable", entity_id=queue.id, numbers=numbers, dead_letters=True)
    ways: dict[int, tuple[_Way, Outgoing]] = {}
    stay: dict[int, Left] = {}
    for row in rows:
        if wish.of is not None and _origin(_death(row, first=wish.of.first), first=wish.of.first) != wish.of:
            continue
        found = Left(Why.HELD) if row.held else Left(Why.EXPIRED) if row.expired else _way(known, name, row, wish.to)
        if isinstance(found, Left):
            stay[row.sequence_number] = found
        else:
            ways[row.sequence_number] = found, as_outgoing(row)
    if wish.numbers is not None:
        stay |= dict.fromkeys(set(numbers) - {row.sequence_number for row in rows}, Left(Why.GONE))
    return ways, stay


def _death(row: Any, *, first: bool) -> Death | None:
    """The death that says where a message came from."""
    stored = row.application_properties or {}
    tell = table.decode({header: stored[header] for header in deaths.TELL_ORIGIN if header in stored})
    return deaths.origin(tell, first=first)


def _origin(death: Death | None, *, first: bool) -> DeadLetterOrigin:
    return DeadLetterOrigin(death.queue, death.reason, first) if death else DeadLetterOrigin(None, None, first)


def _way(known: Topology, name: str, row: Any, to: Target) -> _Way | Left:
    first = isinstance(to, Back) and to.first
    death = _death(row, first=first)
    origin = _origin(death, first=first)
    match to:
        case ToQueue(target):
            found = _Way((target,), _published_again(row, "", target), origin)
        case ToExchange(exchange, key):
            stored = row.application_properties or {}
            key = row.properties["routing_key"] if key is None else key
            keys, headers = messages.keys_of(key, _headers(stored))
            queues = known.router.route(exchange, keys, headers, by_broker=True).queues
            found = _Way(queues, _published_again(row, exchange, key), origin)
        case Back() if death is None:
            return Left(Why.NEVER_DIED)
        case Back() if death.queue == name:
            return Left(Why.DIED_HERE)
        case Back():
            found = _Way((death.queue,), _as_it_was(row, death), origin)
    missing = next((target for target in found.queues if target not in known.queues), None)
    if missing is not None:
        return Left(Why.NO_QUEUE, missing)
    return found if found.queues else Left(Why.NO_ROUTE)


def _headers(stored: Mapping[str, list]) -> dict[str, Any]:
    """A message's headers as it goes on with."""
    return deaths.set_aside(table.decode(stored))


def _as_it_was(row: Any, death: Death) -> dict[str, Any]:
    """A message's properties with the exchange and the routing key by which it had come to the queue that it died in.

    With the queue's name for its key, its next death could be routed to nowhere (RMQ-062).
    """
    exchange, key = (death.exchange, death.routing_keys[0]) if death.routing_keys else ("", death.queue)
    return {**row.properties, "exchange": exchange, "routing_key": key}


def _published_again(row: Any, exchange: str, key: str) -> dict[str, Any]:
    """Its properties as of a new publication, which does not know the blind keys of the first."""
    kept = {name: value for name, value in row.properties.items() if name not in PLACE_PROPERTIES}
    return {"exchange": exchange, "routing_key": key, **kept}


def _move_some(address: EntityAddress, queue: QueueInfo, wish: _Wish, numbers: Sequence[int], work: RoutingTransaction) -> Steps:
    """Places by number, and why others stay; None if the queue is gone.

    Making room delivers and removes messages, maybe of this very queue. So it comes before they are held, and only what is held
    then is moved.
    """
    known = work.queue(address.path)
    if known is None or known.id != queue.id:
        return None
    ways, stay = yield from _look(work.topology, address.path, queue, wish, numbers)
    targets = dict.fromkeys(name for way, _ in ways.values() for name in way.queues)
    limited = yield from lock_for_arrivals(work, targets, {way.properties["routing_key"] for way, _ in ways.values()})
    rows = (yield call("rabbit_hold_movable", entity_id=queue.id, numbers=list(ways))) if ways else ()
    held = {row.sequence_number: row for row in rows}
    placing, going = Placing(work), []
    for number, (way, message) in ways.items():
        if number not in held or held[number].expired:
            stay[number] = Left(Why.EXPIRED if number in held else Why.BUSY)
            continue
        refusing = yield from placing.put_whole(_letter(address.path, queue, message, way), way.queues)
        if refusing is not None:
            stay[number] = Left(Why.REFUSED, refusing)
        else:
            going.append(held[number])
    if not going:
        yield from require_current(work.topology)  # else there may be by now what was missing
    places = (yield from _carry(work, queue, going, placing)) if going else {}
    yield from settle_arrivals(work, limited, _brief(work, places))
    return places, stay


def _letter(name: str, queue: QueueInfo, message: Outgoing, way: _Way) -> Outgoing:
    """The message as it is published again. One that has an expiration, as no dead letter has, lives for it anew."""
    return message._replace(
        properties=way.properties,
        headers=table.encode(_headers(message.headers or {})) or None,
        expiration=parse(message.properties.get("expiration")),
        origin={"from": origin_of(name, queue, message.place, MOVED)},
    )


def _carry(work: RoutingTransaction, queue: QueueInfo, rows: Sequence[Any], placing: Placing) -> Steps:
    """Take what was placed out of its queue, into the others. Returns where each is now, by the number it had."""
    firsts = yield from remove_and_store(work, queue, rows, [(EventKind.MOVED, None)] * len(rows), MOVED, placing)
    places: dict[int, list[tuple[str, int]]] = {row.sequence_number: [] for row in rows}
    for entity_id, name in placing.names.items():
        for number, old in enumerate(placing.places(entity_id), firsts[entity_id]):
            places[old].append((name, number))
    return {old: tuple(found) for old, found in places.items()}


def _brief(work: RoutingTransaction, places: Mapping[int, Sequence[tuple[str, int]]]) -> dict[str, list[int]]:
    """What may live for no time where it is now: its numbers, by queue."""
    found: dict[str, list[int]] = {}
    for name, number in (place for some in places.values() for place in some):
        if work.topology.queues[name].lets_nothing_wait:
            found.setdefault(name, []).append(number)
    return found


class _Foreseen:
    """A preview in the making: who would go where, and what room there is, as far as it is known without holding anybody up."""

    def __init__(self, known: Topology):
        self.left = Counter[Left]()
        self._known, self._rooms = known, Rooms()
        self._groups = Counter[tuple[DeadLetterOrigin, tuple[str, ...]]]()
        self._counts, self._sizes = Counter[str](), Counter[str]()

    def add(self, ways: Collection[tuple[_Way, Outgoing]], stay: Iterable[Left]) -> Steps:
        """What becomes of some messages, in their order."""
        queues = self._known.queues
        yield from self._rooms.look((queues[name] for way, _ in ways for name in way.queues), hold=False)
        self.left.update(stay)
        for way, message in ways:
            refusing = next((name for name in way.queues if not self._rooms.fits(queues[name], message.size)), None)
            if refusing is not None:
                self.left[Left(Why.REFUSED, refusing)] += 1
                continue
            for name in way.queues:
                self._rooms.admit(queues[name], message.size)
                self._counts[name] += 1
                self._sizes[name] += message.size
            self._groups[way.origin, way.queues] += 1

    def groups(self) -> tuple[MoveGroup, ...]:
        """The largest first."""
        return tuple(MoveGroup(origin, names, count) for (origin, names), count in self._groups.most_common())

    def overflowing(self) -> Steps[dict[str, bool]]:
        """Of the queues that drop their heads, those that it would be too much for; whether what leaves them is dead-lettered."""
        queues = {name: queue for name in self._counts if drops_head(queue := self._known.queues[name])}
        there = (yield from ready([queue.id for queue in queues.values()])) if queues else {}
        found = {}
        for name, queue in queues.items():
            n, size = there.get(queue.id, (0, 0))
            if exceeds(queue, n + self._counts[name], size + self._sizes[name]):
                found[name] = "dead_letter_exchange" in queue.effective
        return found


class _Tally:
    """A report in the making."""

    def __init__(self) -> None:
        self.count = 0
        self._arrived, self._left = Counter[str](), Counter[Left]()
        self._places: dict[int, tuple[tuple[str, int], ...]] = {}
        self._stayed: dict[int, Left] = {}

    def add(self, places: Mapping[int, tuple], stay: Mapping[int, Left]) -> None:
        """What became of a batch."""
        self.count += len(places)
        self._arrived.update(name for some in places.values() for name, _ in some)
        self._left.update(stay.values())
        _name_some(self._places, places)
        _name_some(self._stayed, stay)

    def result(self) -> Moved:
        return Moved(self.count, dict(self._arrived), dict(self._left), self._places, self._stayed)


def _name_some(named: dict[int, Any], new: Mapping[int, Any]) -> None:
    """As many of the new ones as there is room to name, the lowest numbers first."""
    named.update((number, new[number]) for number in sorted(new)[: max(0, MOST_NAMED - len(named))])
