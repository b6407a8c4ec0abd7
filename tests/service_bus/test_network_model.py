"""A network of a topic, its subscriptions, forwards and duplicate detection, against a model of it in plain Python: after every
random step every list of every entity must hold the same messages, under the same numbers, with the same ends (SB-130, SB-170,
SB-210 and what they lead to).

The model knows no SQL and no statement of the broker: it moves values between lists. Time passes only when the machine steps the
clock, and the sweeps run after each step, as the model tidies after each of its own.
"""

import uuid
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker_core import namespaces, service_bus, sweeps
from broker_core.common.types import EntityAddress, Family
from broker_core.service_bus import entities
from broker_core.service_bus.rules.filters import CorrelationFilter, Rule, compile_action, compile_filter
from broker_core.service_bus.rules.values import Message
from tests.broker_state import ledger_agrees, now
from tests.model_machines import run_machine

SECOND = timedelta(seconds=1)
WINDOW = timedelta(seconds=60)
HOPS = 4


@dataclass(frozen=True)
class Sent:
    """A message as it lies in a list. life: its own, as lowered so far."""

    body: bytes
    message_id: str
    color: str | None
    rule: str | None = None
    life: timedelta | None = None
    due: datetime | None = None
    hops: int = 0
    first_number: int | None = None


@dataclass(frozen=True)
class Held:
    number: int
    sent: Sent
    enqueued_at: datetime
    failures: int = 0
    scheduled: bool = False
    reason: str | None = None


@dataclass
class Place:
    """An entity of the model. default: of the messages' life, the topic's included."""

    name: str
    default: timedelta | None = None
    buries: bool = False
    most: int = 2
    forward_to: str | None = None
    forward_dead_to: str | None = None
    detects: bool = False
    next_number: int = 1
    main: list[Held] = field(default_factory=list)
    dead: list[Held] = field(default_factory=list)
    stuck: list[Held] = field(default_factory=list)  # in the transfer dead-letter queue
    seen: dict[str, datetime] = field(default_factory=dict)

    def ends(self, held: Held) -> datetime | None:
        life = held.sent.life if held.sent.life is not None else self.default
        return None if held.scheduled or life is None else held.enqueued_at + life

    def number(self) -> int:
        self.next_number += 1
        return self.next_number - 1


class Network:
    """Places by name; `topic` publishes to all, red and onward."""

    def __init__(self, topic_default: timedelta | None):
        lowered = lambda own: min((d for d in (own, topic_default) if d is not None), default=None)  # noqa: E731
        places = [
            Place("plain", default=50 * SECOND, buries=True),
            Place("unique", detects=True),
            Place("source", forward_to="middle"),
            Place("middle", forward_to="topic"),
            Place("mourned", default=30 * SECOND, buries=True, most=1, forward_dead_to="plain"),
            Place("loop", default=60 * SECOND, buries=True, forward_to="loop"),
            Place("again", default=30 * SECOND, buries=True, most=1, forward_dead_to="again"),
            Place("topic", default=topic_default, detects=True),
            Place("all", default=lowered(None), buries=True),
            Place("red", default=lowered(20 * SECOND)),
            Place("onward", default=lowered(None), forward_to="unique"),
        ]
        self.places = {place.name: place for place in places}

    def send(self, name: str, batch: list[Sent], now: datetime) -> list[int]:
        """The numbers of what is kept. A topic numbers what is scheduled before the rest of a batch."""
        place = self.places[name]
        kept = [sent for sent in batch if self._is_new(place, sent, now)]
        if name == "topic":
            kept.sort(key=lambda sent: not (sent.due and sent.due > now))
        return [self._store(place, sent, now, now) for sent in kept]

    def _is_new(self, place: Place, sent: Sent, now: datetime) -> bool:
        if place.detects and place.seen.get(sent.message_id, now - WINDOW) > now - WINDOW:
            return False
        place.seen[sent.message_id] = now
        return True

    def _store(self, place: Place, sent: Sent, enqueued_at: datetime, now: datetime) -> int:
        number = place.number()
        scheduled = sent.due is not None and sent.due > now
        if place.name == "topic" and not scheduled:
            self._publish(sent if sent.first_number is not None else replace(sent, first_number=number), enqueued_at)
        else:
            place.main.append(
                Held(number, replace(sent, life=_lower(sent.life, place.default)), enqueued_at, scheduled=scheduled)
            )
        return number

    def _publish(self, sent: Sent, at: datetime) -> None:
        copies = {"all": [sent], "red": [], "onward": [sent]}
        if sent.color == "red":
            copies["red"] = [replace(sent, color="pink", rule="paint")]
        for name, found in copies.items():
            place = self.places[name]
            for copy in found:
                held = Held(place.number(), replace(copy, life=_lower(copy.life, place.default)), at)
                place.main.append(held)

    def available(self, name: str) -> list[Held]:
        return [held for held in self.places[name].main if not held.scheduled]

    def complete(self, name: str, held: Held) -> None:
        self.places[name].main.remove(held)

    def abandon(self, name: str, held: Held) -> None:
        place = self.places[name]
        failed = replace(held, failures=held.failures + 1)
        if failed.failures >= place.most:
            self.bury(name, held, "MaxDeliveryCountExceeded")
        else:
            place.main[place.main.index(held)] = failed

    def bury(self, name: str, held: Held, reason: str) -> None:
        place = self.places[name]
        place.main.remove(held)
        place.dead = sorted([*place.dead, replace(held, failures=0, reason=reason)], key=lambda held: held.number)

    def tidy(self, now: datetime) -> None:
        """What is due, in the order in which the sweeps are run."""
        for place in self.places.values():
            for held in sorted(
                (h for h in place.main if h.scheduled and h.sent.due <= now), key=lambda h: (h.sent.due, h.number)
            ):
                place.main.remove(held)
                self._store(place, held.sent, held.sent.due, now)
        for name, place in self.places.items():
            for held in [h for h in place.main if (end := place.ends(h)) is not None and end <= now]:
                if place.buries:
                    self.bury(name, held, "TTLExpiredException")
                else:
                    place.main.remove(held)
        while True:
            moved = [self._forward(place, now) for place in self.places.values()]
            if not any(moved):
                break

    def _forward(self, place: Place, now: datetime) -> bool:
        moved = False
        for target, source in ((place.forward_to, place.main), (place.forward_dead_to, place.dead)):
            for held in [h for h in source if not h.scheduled] if target else []:
                source.remove(held)
                first = held.number if held.sent.first_number is None else held.sent.first_number
                if held.sent.hops >= HOPS:
                    failed = place.dead if source is place.main else place.stuck
                    failed.append(replace(held, failures=0, reason="MaxTransferHopCountExceeded"))
                else:
                    going = replace(held.sent, hops=held.sent.hops + 1, first_number=first)
                    self._arrive(self.places[target], going, now, held.reason)
                moved = True
        return moved

    def _arrive(self, place: Place, sent: Sent, now: datetime, reason: str | None) -> None:
        if self._is_new(place, sent, now):
            self._store(place, sent, now, now)
            if reason is not None:
                place.main[-1] = replace(place.main[-1], reason=reason)


def _lower(life: timedelta | None, default: timedelta | None) -> timedelta | None:
    return life if life is None or default is None else min(life, default)


class BrokerAgainstNetwork(RuleBasedStateMachine):
    @initialize(topic_default=st.sampled_from([None, 40 * SECOND]))
    def begin(self, topic_default):
        self.namespace = f"net-{uuid.uuid4().hex[:10]}"
        namespaces.create_namespace(self.namespace, Family.SERVICE_BUS)
        namespaces.pause_clock(self.namespace)
        self.network = Network(topic_default)
        self.bodies = 0
        topic = self.address("topic")
        entities.create_topic(
            topic,
            default_message_time_to_live=topic_default,
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window=WINDOW,
        )
        for name in ("plain", "unique", "middle", "source", "mourned", "loop", "again"):
            self._create_queue(self.network.places[name])
        bury: dict[str, Any] = {"dead_lettering_on_message_expiration": True}
        entities.create_subscription(self.address("all"), max_delivery_count=2, **bury)
        paint = Rule("paint", compile_filter("color = 'red'"), compile_action("SET color = 'pink'"))
        entities.create_subscription(
            self.address("red"), rule=paint, max_delivery_count=2, default_message_time_to_live=20 * SECOND
        )
        entities.create_rule(self.address("red"), Rule("never", CorrelationFilter(subject="nobody writes this")))
        entities.create_subscription(self.address("onward"), forward_to="unique")

    def _create_queue(self, place: Place) -> None:
        entities.create_queue(
            self.address(place.name),
            default_message_time_to_live=place.default,
            dead_lettering_on_message_expiration=place.buries,
            max_delivery_count=place.most,
            forward_to=place.forward_to,
            forward_dead_lettered_messages_to=place.forward_dead_to,
            requires_duplicate_detection=place.detects,
            duplicate_detection_history_time_window=WINDOW,
        )

    def address(self, name: str) -> EntityAddress:
        topic = EntityAddress(self.namespace, "topic")
        return topic.subscription(name) if name in ("all", "red", "onward") else EntityAddress(self.namespace, name)

    @rule(
        to=st.sampled_from(["plain", "unique", "source", "middle", "mourned", "loop", "again", "topic"]),
        batch=st.lists(
            st.tuples(
                st.sampled_from(["a", "b", "c", "d", "e"]),
                st.sampled_from([None, "red", "blue"]),
                st.sampled_from([None, 10, 25, 100]),
                st.sampled_from([None, 0, 15]),
            ),
            min_size=1,
            max_size=4,
        ),
    )
    def send(self, to, batch):
        at = self.now
        sent = []
        for message_id, color, life, delay in batch:
            self.bodies += 1
            due = None if delay is None else at + delay * SECOND
            own = None if life is None else life * SECOND
            sent.append(Sent(b"%d" % self.bodies, message_id, color, life=own, due=due))
        numbers = service_bus.send(self.address(to), [_message(each) for each in sent])
        expected = self.network.send(to, sent, at)
        assert sorted(number for number in numbers if number is not None) == expected
        self.tidy()

    @rule(
        where=st.sampled_from(["plain", "unique", "mourned", "again", "all", "red"]),
        how=st.sampled_from(["complete", "abandon", "dead_letter"]),
    )
    def settle_the_first(self, where, how):
        address, expected = self.address(where), self.network.available(where)
        messages = service_bus.receive(address, 1)
        assert [m.sequence_number for m in messages] == [held.number for held in expected[:1]]
        if messages:
            assert getattr(service_bus, how)(address, [messages[0].lock_token]).settled
            if how == "dead_letter":
                self.network.bury(where, expected[0], None)
            else:
                getattr(self.network, how)(where, expected[0])
        self.tidy()

    @rule(seconds=st.sampled_from([1, 10, 16, 30, 61]))
    def step(self, seconds):
        namespaces.step_clock(self.namespace, seconds * SECOND)
        self.tidy()

    def tidy(self):
        sweeps.activate_scheduled()
        sweeps.expire_messages(pause=lambda _: None)
        service_bus.sweeps.forward_messages()
        self.network.tidy(self.now)

    @property
    def now(self) -> datetime:
        return now(EntityAddress(self.namespace, "plain"))

    @invariant()
    def every_list_is_the_same(self):
        """Of messages that came from two sides at one instant either may be first: the model takes over their numbers."""
        for name, place in self.network.places.items():
            place.main = self._compared(place, self.address(name), place.main)
            place.dead = self._compared(place, self.address(name).dead_letter, place.dead)
            place.stuck = self._compared(place, self.address(name).transfer_dead_letter, place.stuck)

    def _compared(self, place: Place, where: EntityAddress, modelled: list[Held]) -> list[Held]:
        messages = sorted(service_bus.peek(where, max_count=1000), key=lambda m: (repr(_comparable(m)), m.sequence_number))
        expected = sorted(modelled, key=lambda held: (repr(_expected(held)), held.number))
        assert [_comparable(m) for m in messages] == [_expected(held) for held in expected], where
        renumbered = [replace(held, number=m.sequence_number) for held, m in zip(expected, messages, strict=True)]
        return sorted(renumbered, key=lambda held: held.number)

    @invariant()
    def the_ledger_agrees(self):
        assert all(ledger_agrees(self.address(name)) for name in self.network.places)


def _message(sent: Sent) -> Message:
    properties = {} if sent.color is None else {"color": sent.color}
    return Message(
        sent.body, message_id=sent.message_id, time_to_live=sent.life, scheduled_enqueue_at=sent.due, properties=properties
    )


def _comparable(m):
    properties = m.properties
    color, rule_name = properties.get("color"), properties.get("RuleName")
    return (
        m.body,
        m.message_id,
        color,
        rule_name,
        m.delivery_count,
        m.state.name,
        m.dead_letter_reason,
        m.enqueued_at,
        m.time_to_live,
    )


def _expected(held: Held):
    sent, state = held.sent, "SCHEDULED" if held.scheduled else "ACTIVE"
    return sent.body, sent.message_id, sent.color, sent.rule, held.failures, state, held.reason, held.enqueued_at, sent.life


@pytest.mark.slow
def test_the_broker_agrees_with_the_network(broker_database):
    run_machine(BrokerAgainstNetwork, 8, 25)
