"""Telling a script to a broker: each step's result, what consumers got, and how many messages are ready where.

Without time both brokers are told step by step: the core first, then the server, until it shows what the core shows, or its time
is up. So nothing sleeps, and a server that is behind is waited for. With time each is told the whole script, and what was seen at
the ticks is compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from broker_core import namespaces, rabbitmq, sweeps
from broker_core.common.types import EntityAddress

from .brokers import Broker, Core, Real, Seen
from .scripts import LONG, QUEUES, TICK, Script, Step

PATIENCE = 1.0  # seconds: how long the server may take to show what the core shows
MOMENT = timedelta(milliseconds=1)  # of the core's clock, between two steps
ENDS_AT = (150, 300, 450)  # ms after a tick: about then ends what lives for one of scripts.LIVES, and so on where it goes to
MOMENTS = 25  # that such ends take at most
MOST = 60  # messages that a queue is read out for
LATE = 0.12  # seconds after a tick: what is done later may meet what ends before the next
BREATH = 0.01  # seconds: for the server to do what a step asks for, where there is no time to look


class Held(NamedTuple):
    """A message that is to be settled; sorted by what is the same on both sides."""

    queue: str
    body: str
    client: str
    channel: str
    tag: int


class Consuming(NamedTuple):
    client: str
    channel: str
    queue: str
    no_ack: bool


@dataclass
class View:
    """What can be seen after a step. delivered: by consumer. queues: ready messages and consumers, or a refusal."""

    result: Any = None
    delivered: dict[str, list] = field(default_factory=dict)
    queues: dict[str, Any] = field(default_factory=dict)


@dataclass
class Difference:
    """The first step after which the brokers show different things. done: the steps until then, this one included. quorum: the
    quorum queues there are. shared: queues that more than one channel consumes from. returned: queues that got messages back.
    in_force: what is, by queue."""

    done: Script
    real: View
    core: View
    quorum: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    returned: frozenset[str] = frozenset()
    in_force: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def step(self) -> Step:
        return self.done[-1]

    @property
    def fields(self) -> list[str]:
        return [name for name in ("result", "delivered", "queues") if getattr(self.real, name) != getattr(self.core, name)]

    @property
    def queues(self) -> set[str]:
        """The queues for which something differs."""
        changed_names = {name for name in self.core.queues if self.core.queues[name] != self.real.queues.get(name)}
        if "result" in self.fields:
            changed_names |= {self.step.given[name] for name in ("queue", "name") if self.step.given.get(name) in QUEUES}
        for who in {*self.core.delivered, *self.real.delivered}:
            if self.core.delivered.get(who) != self.real.delivered.get(who):
                changed_names.add(who.partition(" of ")[2])
        return changed_names

    @property
    def kind(self) -> str:
        """Two differences of one kind are likely to have one cause."""
        shown = [f"{name} of {self.step.what}" for name in self.fields]
        return ", ".join(shown) + (" with quorum queues" if self.quorum else "")

    def __str__(self) -> str:
        lines = [f"    {step}" for step in self.done]
        for name in self.fields:
            lines += [f"  {name}, RabbitMQ: {getattr(self.real, name)!r}", f"  {name}, here:     {getattr(self.core, name)!r}"]
        return "\n".join(lines)


class Teller:
    """Tells steps to a broker, and keeps what its clients hold."""

    def __init__(self, broker: Broker, script: Script):
        self.clients: dict[str, Any] = {"a": broker}
        declared = sorted({step.given["name"] for step in script if step.what == "declare"})
        self.looked_at = () if any(expires(step) for step in script) else declared  # to look is to use (RMQ-041)
        self.held: list[Held] = []
        self.consumers: dict[str, Consuming] = {}
        self.delivered: dict[str, list] = {}
        self.returned: set[str] = set()  # queues that messages came back to

    def tell(self, step: Step) -> Any:
        """The step's result."""
        self.delivered = {}
        result = getattr(self, f"_{step.what}")(**step.given)
        self._forget_what_is_closed()
        return result

    def view(self, result: Any = None) -> View:
        self._take_deliveries()
        return View(result, self.delivered, {name: self._look(name) for name in self.looked_at})

    def close(self) -> None:
        for name, client in self.clients.items():
            if name != "a":
                client.disconnect()
        self.clients["a"].close()

    def client(self, name: str) -> Any:
        if name not in self.clients:
            self.clients[name] = self.clients["a"].another()
        return self.clients[name]

    # Steps: topology

    def _declare(self, name: str, client: str = "a", **options: Any) -> Any:
        return self.client(client).declare_queue(name, **options)

    def _delete(self, name: str, client: str = "a", **conditions: bool) -> Any:
        return self.client(client).delete_queue(name, **conditions)

    def _purge(self, name: str, client: str = "a") -> Any:
        return self.client(client).purge(name)

    def _exchange(self, name: str, type: str, client: str = "a", **options: Any) -> str:
        return self.client(client).exchange(name, type, **options)

    def _delete_exchange(self, name: str, if_unused: bool, client: str = "a") -> str:
        return self.client(client).delete_exchange(name, if_unused)

    def _bind(self, queue: str, exchange: str, key: str, arguments: Any = None, client: str = "a") -> str:
        return self.client(client).bind(queue, exchange, key, arguments)

    def _unbind(self, queue: str, exchange: str, key: str, arguments: Any = None, client: str = "a") -> str:
        return self.client(client).unbind(queue, exchange, key, arguments)

    def _bind_exchange(self, destination: str, source: str, key: str, arguments: Any = None, client: str = "a") -> str:
        return self.client(client).bind_exchange(destination, source, key, arguments)

    def _unbind_exchange(self, destination: str, source: str, key: str, arguments: Any = None, client: str = "a") -> str:
        return self.client(client).unbind_exchange(destination, source, key, arguments)

    def _policy(self, name: str, definition: Any, **options: Any) -> str:
        return self.client("a").policy(name, definition, **options)

    def _delete_policy(self, name: str, operator: bool = False) -> str:
        self.client("a").delete_policy(name, operator)  # one that is not there is the management API's to refuse
        return "done"

    # Steps: messages

    def _publish(self, body: str, exchange: str, key: str, client: str = "a", **options: Any) -> str:
        return self.client(client).publish(body, exchange, key, **options)

    def _get(self, queue: str, channel: str, no_ack: bool = False, client: str = "a") -> Any:
        delivery = self.client(client).get(queue, no_ack=no_ack, on=channel)
        if not isinstance(delivery, Seen):
            return delivery
        if not no_ack:
            self.held.append(Held(queue, delivery.body, client, channel, delivery.tag))
        return shown(delivery)

    def chosen(self, nth: int = 0, multiple: bool = False, **_: Any) -> list[Held]:
        """What a step settles."""
        if not self.held:
            return []
        tag = sorted(self.held)[nth % len(self.held)]
        return [h for h in sorted(self.held) if h[2:4] == tag[2:4] and h.tag <= tag.tag] if multiple else [tag]

    def _tick(self, count: int) -> None:
        raise NotImplementedError

    def _settle(self, nth: int, how: str, multiple: bool = False, **options: bool) -> Any:
        if not self.held:
            return "nothing is held"
        tag, chosen = sorted(self.held)[nth % len(self.held)], self.chosen(nth, multiple)
        self.held = [held for held in self.held if held not in chosen]
        if multiple:
            options["multiple"] = True
        if options.get("requeue"):
            self.returned |= {held.queue for held in chosen}
        return getattr(self.clients[tag.client], how)(tag.tag, on=tag.channel, **options)

    def _unknown_tag(self, channel: str, how: str, client: str = "a") -> Any:
        options = {} if how == "ack" else {"requeue": True}
        return getattr(self.client(client), how)(999, on=channel, **options)

    def _recover(self, channel: str, client: str = "a") -> str:
        self.client(client).recover(on=channel)
        self._lose([held for held in self.held if held[2:4] == (client, channel)])
        return "done"

    # Steps: consumers, connections

    def _consume(self, tag: str, queue: str, channel: str, client: str = "a", no_ack: bool = False, **options: Any) -> str:
        if tag in self.consumers:
            return "in use"  # pika refuses it itself
        result = self.client(client).consume(tag, queue, on=channel, no_ack=no_ack, **options)
        if result == "done":
            self.consumers[tag] = Consuming(client, channel, queue, no_ack)
        return result

    def _cancel(self, tag: str, channel: str, client: str = "a") -> str:
        self._take_deliveries()
        self.client(client).cancel(tag, on=channel)
        self._take_deliveries()
        if self.consumers.get(tag, ())[:2] == (client, channel):
            del self.consumers[tag]
        return "done"

    def _close_channel(self, channel: str, client: str = "a") -> str:
        if self.client(client).is_open(channel):
            self.client(client).close_channel(channel)
        return "done"

    def _disconnect(self, client: str = "a") -> str:
        self.client(client).disconnect()
        return "done"

    def _read_out(self, name: str) -> list:
        results: list = []
        while len(results) < MOST and isinstance(seen := self._ask(lambda client: client.get(name, no_ack=True)), Seen):
            results.append(shown(seen))
        return results

    # Inside

    def _ask(self, question: Callable[[Any], Any]) -> Any:
        """One client's answer; the other's, where that is the owner."""
        answers = (question(client) for client in self.clients.values())
        answer = next(answers)
        return next(answers, answer) if isinstance(answer, str) and answer.startswith("405") else answer

    def _look(self, name: str) -> Any:
        return self._ask(lambda client: client.declare_queue(name, passive=True))

    def _take_deliveries(self) -> None:
        raise NotImplementedError

    def _note(self, tag: str, found: Iterable[Seen]) -> None:
        consumer = self.consumers[tag]
        for seen in found:
            self.delivered.setdefault(f"{tag} of {consumer.queue}", []).append(shown(seen))
            if not consumer.no_ack:
                self.held.append(Held(consumer.queue, seen.body, consumer.client, consumer.channel, seen.tag))

    def _lose(self, lost: list[Held]) -> None:
        self.held = [held for held in self.held if held not in lost]
        self.returned |= {held.queue for held in lost}

    def _forget_what_is_closed(self) -> None:
        self._lose([h for h in self.held if not self.clients[h.client].is_open(h.channel)])
        self.consumers = {t: c for t, c in self.consumers.items() if self.clients[c.client].is_open(c.channel)}


class TooLate(Exception):
    """The machine is too busy for a script with time. Nothing can be said."""


class RealTeller(Teller):
    """Tells the server, and waits for its time to pass."""

    def __init__(self, broker: Real, script: Script):
        super().__init__(broker, script)
        self.ticked_at = time.monotonic()

    def require_in_time(self) -> None:
        if time.monotonic() - self.ticked_at > LATE:
            raise TooLate

    def _tick(self, count: int) -> None:
        self.require_in_time()
        self.ticked_at += count * TICK
        time.sleep(max(0, self.ticked_at - time.monotonic()))

    def _take_deliveries(self) -> None:
        for client in self.clients.values():
            client.listen()
        for tag, consumer in self.consumers.items():
            self._note(tag, self.clients[consumer.client].arrived(tag))


class CoreTeller(Teller):
    """Tells the core. Its queues keep what a message was given when a policy changes, as 3.10 does (RMQ-902). A sweep looks at
    what has expired at each head before anybody else does (RMQ-004)."""

    def __init__(self, broker: Core, script: Script):
        super().__init__(broker, script)
        self.vhost = broker.vhost
        self.quorum: set[str] = set()
        self.moments = 0  # since the last tick
        self.last_in_force: Mapping[str, Any] = {}

    def _declare(self, name: str, client: str = "a", **options: Any) -> Any:
        result = super()._declare(name, client, **options)
        if not isinstance(result, str) and not options.get("passive"):
            address = EntityAddress(self.vhost, name)
            if rabbitmq.get_queue(address).options["retroactive_ttl"]:
                rabbitmq.set_queue_option(address, retroactive_ttl=False)
            is_quorum = options.get("arguments", {}).get("x-queue-type") == "quorum"
            (self.quorum.add if is_quorum else self.quorum.discard)(name)
        return result

    def pass_a_moment(self) -> None:
        namespaces.step_clock(self.vhost, MOMENT)
        self.moments += 1

    def _tick(self, count: int) -> None:
        for _ in range(count):
            for ends_at in ENDS_AT:
                self._go_on_to(ends_at - 5)
                for _ in range(MOMENTS):
                    self.pass_a_moment()
                    sweeps.expire_messages(namespace=self.vhost, pause=lambda _: None)
                    sweeps.delete_idle_entities(namespace=self.vhost)
            self._go_on_to(round(TICK * 1000))
            self.moments = 0

    def _go_on_to(self, moments: int) -> None:
        namespaces.step_clock(self.vhost, (moments - self.moments) * MOMENT)
        self.moments = moments

    def view(self, result: Any = None) -> View:
        for _ in range(MOST):
            expired = sweeps.expire_messages(namespace=self.vhost, pause=lambda _: None)["expired"]
            if not self._take_from_all() and not expired:
                return super().view(result)
        return View("what expires goes round and round")

    def _take_deliveries(self) -> None:
        while self._take_from_all():
            pass

    def _take_from_all(self) -> bool:
        channels = dict.fromkeys(consumer[:2] for consumer in self.consumers.values())
        return sum(self._take_from(client, channel) for client, channel in channels) > 0

    def _take_from(self, client: str, channel: str) -> bool:
        deliveries = self.clients[client].arrived_on(channel)
        for tag, seen in deliveries.items():
            self._note(tag, seen)
        return bool(deliveries)

    def in_force(self) -> dict[str, Mapping[str, Any]]:
        return {queue.name: queue.effective for queue in rabbitmq.list_queues(self.vhost)}

    def shared(self) -> frozenset[str]:
        """Queues that are consumed from on more than one channel."""
        channels: dict[str, set] = {}
        for consumer in self.consumers.values():
            channels.setdefault(consumer.queue, set()).add(consumer[:2])
        return frozenset(name for name, channel in channels.items() if len(channel) > 1)


def shown(seen: Seen) -> tuple:
    """A message without what is of one side: its tag, the instants in x-death, and what expected_differences.ALIKE says."""
    headers = {name: value for name, value in seen.headers.items() if not name.startswith("x-last-death-")}
    if isinstance(headers.get("x-death"), list):
        deaths = [death for death in headers["x-death"] if isinstance(death, dict)]
        headers["x-death"] = [{key: value for key, value in death.items() if key != "time"} for death in deaths]
    return seen.body, seen.redelivered, seen.exchange, seen.key, seen.properties, headers


def expires(step: Step) -> bool:
    """Whether by this step a queue expires soon, for want of use."""
    life = step.given.get("arguments", {}).get("x-expires") or step.given.get("definition", {}).get("expires")
    return life is not None and life < LONG


# Without time


def first_difference(script: Script, real: Real, core: Core, *, patience: float = PATIENCE) -> Difference | None:
    """Tell both brokers a script, step by step, as far as they agree."""
    server, other = RealTeller(real, script), CoreTeller(core, script)
    try:
        for number, step in enumerate(script, 1):
            if step.what == "settle" and _names(server.chosen(**step.given)) != _names(other.chosen(**step.given)):
                continue  # who holds what is not the same on both sides (RMQ-145): such a step is two
            shared = other.shared()
            wanted = other.view(other.tell(step))
            shared |= other.shared()

            def alike(view: View) -> View:
                return compared(step, view, other.quorum, shared)

            shown = _shown_by_server(server, step, wanted, patience, alike)
            if alike(shown) != alike(wanted):
                now = frozenset(other.quorum), shared, frozenset(server.returned | other.returned), other.in_force()
                return Difference(script[:number], alike(shown), alike(wanted), *now)
        return None
    finally:
        server.close()
        other.close()


def compared(step: Step, view: View, quorum: Container[str], shared: Container[str]) -> View:
    """What is compared of what a step showed: see expected_differences.ALIKE."""

    def counts(name: str, found: Any) -> Any:
        return found[:1] if name in quorum and isinstance(found, tuple) else found

    delivered: dict[str, list] = {}
    for who, found in view.delivered.items():
        queue = who.partition(" of ")[2]
        delivered.setdefault(f"all of {queue}" if queue in shared else who, []).extend(found)
    in_any_order = {who: sorted(found, key=str) if who.startswith("all ") else found for who, found in delivered.items()}
    result = counts(step.given["name"], view.result) if step.what == "declare" else view.result
    return View(result, in_any_order, {name: counts(name, found) for name, found in view.queues.items()})


def _shown_by_server(teller: RealTeller, step: Step, wanted: View, patience: float, alike: Callable[[View], View]) -> View:
    result, ends_at = teller.tell(step), time.monotonic() + patience
    while True:
        shown = teller.view(result)
        if alike(shown) == alike(wanted) or time.monotonic() > ends_at:
            return shown
        time.sleep(0.005)


def _names(held: Iterable[Held]) -> list[tuple[str, str]]:
    return [(h.queue, h.body) for h in held]


# With time


class Told(NamedTuple):
    """A step, what it showed, and which queues were consumed from on more than one channel."""

    step: Step
    view: View
    shared: frozenset[str] = frozenset()


def told_to_server(script: Script, real: Real) -> list[Told]:
    """Tell the server a script with time. Raises TooLate where the machine was too busy for it."""
    teller, results, delivered = RealTeller(real, script), [], {}
    try:
        real.count("none")  # so that it is connected
        teller.ticked_at = time.monotonic()
        for step in script:
            if step.what != "tick":
                teller.require_in_time()
            results.append(Told(step, _at_tick(teller, step, delivered)))
            if step.what != "tick":
                time.sleep(BREATH)
        return results
    finally:
        teller.close()


def told_to_core(script: Script, core: Core) -> tuple[list[Told], CoreTeller]:
    """Tell the core a script with time, by its own clock."""
    teller, results, delivered = CoreTeller(core, script), [], {}
    try:
        for step in script:
            shared = teller.shared()
            view = _at_tick(teller, step, delivered)
            results.append(Told(step, view, shared | teller.shared()))
            teller.pass_a_moment()
        teller.last_in_force = teller.in_force()
        return results, teller
    finally:
        teller.close()


def _at_tick(teller: Teller, step: Step, delivered: dict[str, list]) -> View:
    """What a step shows: its result; at a tick what was delivered since the last one, and what is ready."""
    result = teller.tell(step)
    view = teller.view(result)
    for who, found in view.delivered.items():
        delivered.setdefault(who, []).extend(found)
    if step.what != "tick":
        return View(result)
    view.delivered = dict(delivered)
    delivered.clear()
    return view


def timed_difference(script: Script, real: list[Told], core: tuple[list[Told], CoreTeller]) -> Difference | None:
    """The first difference of two that were told the same script."""
    expected_steps, teller = core
    for number, (expected, other) in enumerate(zip(real, expected_steps, strict=True), 1):
        shown, wanted = (compared(told.step, told.view, teller.quorum, other.shared) for told in (expected, other))
        if shown != wanted:
            about = frozenset(teller.quorum), other.shared, frozenset(teller.returned), teller.last_in_force
            return Difference(script[:number], shown, wanted, *about)
    return None
