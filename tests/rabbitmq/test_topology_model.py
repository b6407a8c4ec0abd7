"""A virtual host against a model of it in plain Python: after every random change its exchanges, bindings and queues, where
messages go, and what is in force must be the same; and its version is raised by what changes something, by nothing else.

The model knows no SQL, no statement and no rule of the broker: it routes by trying every binding, and finds what is in force by
trying every policy.
"""

import re
import uuid
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker_core import rabbitmq
from broker_core.common.types import EntityAddress
from broker_core.rabbitmq.rules.errors import AmqpError
from broker_core.rabbitmq.rules.exchanges import Router
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.rabbitmq.topology import compiled
from broker_core.store.driver import run
from broker_core.store.statements import call
from tests.model_machines import run_machine

EXCHANGES = st.sampled_from(["amq.topic", "amq.direct", "x", "y", "z"])
QUEUES = st.sampled_from(["q", "r", "xq"])
KEYS = st.sampled_from(["", "a", "a.b", "*.b", "#", "a.#"])
PROBES = ("", "a", "b", "a.b", "c.b", "a.b.c")
SYSTEM = {"amq.topic": "topic", "amq.direct": "direct"}
NUMBERS = {"message-ttl": "message_ttl", "max-length": "max_length"}


@dataclass(frozen=True)
class Exchange:
    type: str
    auto_delete: bool = False
    alternate: str | None = None


@dataclass(frozen=True)
class Binding:
    source: str
    destination: str
    to_queue: bool
    key: str


@dataclass
class Model:
    exchanges: dict[str, Exchange] = field(default_factory=lambda: {name: Exchange(type) for name, type in SYSTEM.items()})
    queues: dict[str, dict] = field(default_factory=dict)  # name -> arguments
    bindings: set[Binding] = field(default_factory=set)
    policies: dict[tuple[str, bool], Policy] = field(default_factory=dict)

    def drop(self, gone: set[Binding]) -> None:
        """Bindings go, and with the last one from it an auto-delete exchange."""
        self.bindings -= gone
        for name in {binding.source for binding in gone}:
            exchange = self.exchanges.get(name)
            if exchange and exchange.auto_delete and not any(b.source == name for b in self.bindings):
                self.delete_exchange(name)

    def delete_exchange(self, name: str) -> None:
        del self.exchanges[name]
        self.bindings = {binding for binding in self.bindings if binding.source != name}
        self.drop({b for b in self.bindings if not b.to_queue and b.destination == name})

    def delete_queue(self, name: str) -> None:
        del self.queues[name]
        self.drop({b for b in self.bindings if b.to_queue and b.destination == name})

    def alternate_of(self, name: str) -> str | None:
        return self.exchanges[name].alternate or (self.in_force(name, "exchanges").get("alternate-exchange"))

    def in_force(self, name: str, kind: str) -> dict:
        """The definitions of the policy and the operator policy that apply, the least number of both."""
        merged: dict = {}
        for is_operator in (False, True):
            matching = [
                p
                for (_, operator), p in self.policies.items()
                if operator == is_operator and p.apply_to in (kind, "all") and re.search(p.pattern, name)
            ]
            if matching:
                best = min(matching, key=lambda p: (-p.priority, p.name))
                merged = {
                    key: min(merged[key], best.definition[key]) if key in merged and key in best.definition else value
                    for key, value in (merged | best.definition).items()
                }
        return merged

    def of_queue(self, name: str) -> dict:
        arguments = {key.removeprefix("x-"): value for key, value in self.queues[name].items()}
        policies = self.in_force(name, "queues")
        results = {}
        for key, called in NUMBERS.items():
            values = [side[key] for side in (arguments, policies) if key in side]
            if values:
                results[called] = min(values)
        return results

    def route(self, exchange: str, key: str) -> set[str]:
        reached, todo, queues = {exchange}, [exchange], set()
        while todo:
            name = todo.pop()
            if name not in self.exchanges:
                continue
            hits = [b for b in self.bindings if b.source == name and matches(self.exchanges[name].type, b.key, key)]
            queues |= {b.destination for b in hits if b.to_queue}
            onward = {b.destination for b in hits if not b.to_queue}
            if not hits and (alternate := self.alternate_of(name)):
                onward = {alternate}
            todo += onward - reached
            reached |= onward
        return queues


def rebuilt(known):
    """The same topology with a router of its own, from nothing."""
    exchanges = [exchange.definition for exchange in known.router._exchanges.values()]
    router = Router(exchanges, list(known.bindings.values()), list(known.queues), known.vhost)
    return known._replace(router=router)


def shape(known):
    """All that a topology says, with the inside of each exchange."""
    prepared = [e for e in known.router._exchanges.values() if e.definition.type != "headers"]
    exchanges = {e.definition.name: (e.definition, e.alternate, e.matcher._root) for e in prepared}
    return known._replace(router=(sorted(known.router._queues), exchanges))


def run_statement(name, **params):
    def steps():
        return (yield call(name, **params))

    return run(steps())


def matches(type: str, binding_key: str, key: str) -> bool:
    if type == "fanout":
        return True
    if type == "direct":
        return binding_key == key
    return topic(binding_key.split(".") if binding_key else [], key.split(".") if key else [])


def topic(pattern: list[str], words: list[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(topic(pattern[1:], words[i:]) for i in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and topic(pattern[1:], words[1:])


class BrokerAgainstModel(RuleBasedStateMachine):
    @initialize()
    def begin(self):
        self.vhost = f"model {uuid.uuid4().hex[:8]}"
        rabbitmq.create_vhost(self.vhost)
        self.model = Model()
        self.version = self.seen().version
        self.kept = [self.seen()]

    def seen(self):
        return run(compiled.current(self.vhost))

    def expect(self, code, attempt, changes):
        """Attempt something: it is refused with a code, or is not; and raises the version if it changes something."""
        try:
            attempt()
            got = None
        except AmqpError as exc:
            got = exc.reply_code
        assert got == code
        before, self.version = self.version, self.seen().version
        assert (self.version > before) == changes

    @rule(name=EXCHANGES, type=st.sampled_from(["direct", "fanout", "topic"]), auto_delete=st.booleans(),
          alternate=st.none() | EXCHANGES)  # fmt: skip
    def declare_exchange(self, name, type, auto_delete, alternate):
        wanted, there = Exchange(type, auto_delete, alternate), self.model.exchanges.get(name)
        arguments = {} if alternate is None else {"alternate-exchange": alternate}
        self.expect(
            None if there in (None, wanted) else 406,
            lambda: rabbitmq.declare_exchange(self.vhost, name, type, auto_delete=auto_delete, arguments=arguments),
            changes=there is None,
        )
        self.model.exchanges.setdefault(name, wanted)

    @rule(name=EXCHANGES, if_unused=st.booleans())
    def delete_exchange(self, name, if_unused):
        there = name in self.model.exchanges
        in_use = if_unused and any(b.source == name for b in self.model.bindings)
        code = 403 if name in SYSTEM else 406 if in_use else None
        if there and code is None:
            self.model.delete_exchange(name)
        self.expect(code, lambda: rabbitmq.delete_exchange(self.vhost, name, if_unused), changes=there and code is None)

    @rule(name=QUEUES, ttl=st.none() | st.sampled_from([1000, 5000]))
    def declare_queue(self, name, ttl):
        arguments, there = {} if ttl is None else {"x-message-ttl": ttl}, self.model.queues.get(name)
        self.expect(
            None if there in (None, arguments) else 406,
            lambda: rabbitmq.declare_queue(EntityAddress(self.vhost, name), arguments=arguments),
            changes=there is None,
        )
        self.model.queues.setdefault(name, arguments)

    @rule(name=QUEUES)
    def delete_queue(self, name):
        there = name in self.model.queues
        if there:
            self.model.delete_queue(name)
        self.expect(None, lambda: rabbitmq.delete_queue(EntityAddress(self.vhost, name)), changes=there)

    @rule(source=EXCHANGES, destination=QUEUES | EXCHANGES, key=KEYS, binds=st.booleans() | st.just(True))
    def bind(self, source, destination, key, binds):
        to_queue = destination in ("q", "r", "xq")
        binding = Binding(source, destination, to_queue, key)
        ends = source in self.model.exchanges and destination in (self.model.queues if to_queue else self.model.exchanges)
        changes = ends and (binding not in self.model.bindings) == binds
        verb = f"{'' if binds else 'un'}bind_{'queue' if to_queue else 'exchange'}"
        self.expect(
            404 if binds and not ends else None,
            lambda: getattr(rabbitmq, verb)(self.vhost, destination, source, key),
            changes,
        )
        if changes and binds:
            self.model.bindings.add(binding)
        elif changes:
            self.model.drop({binding})

    @rule(name=st.sampled_from(["p", "o"]), is_operator=st.booleans(), pattern=st.sampled_from(["", "^x", "q$", "none"]),
          apply_to=st.sampled_from(["all", "queues", "exchanges"]), priority=st.integers(-1, 1), length=st.integers(0, 3),
          ttl=st.none() | st.sampled_from([2000, 9000]), alternate=st.none() | EXCHANGES)  # fmt: skip
    def set_policy(self, name, is_operator, pattern, apply_to, priority, length, ttl, alternate):
        definition = {"max-length": length} | ({} if ttl is None else {"message-ttl": ttl})
        if alternate is not None and not is_operator:
            definition["alternate-exchange"] = alternate
        policy = Policy(name, pattern, definition, apply_to, priority, is_operator)
        rabbitmq.set_policy(self.vhost, policy)
        self.model.policies[name, is_operator] = policy
        self.version = self.seen().version

    @rule(name=st.sampled_from(["p", "o"]), is_operator=st.booleans())
    def delete_policy(self, name, is_operator):
        there = self.model.policies.pop((name, is_operator), None) is not None
        assert rabbitmq.delete_policy(self.vhost, name, is_operator).deleted == there
        self.version = self.seen().version

    @rule(back=st.integers(1, 30))
    def look_again_after_a_while(self, back):
        """From any state before, the changes lead to what is there, and leave that state as it was."""
        start = self.kept[-back:][0]
        before = rebuilt(start)
        compiled._compiled[compiled._key(self.vhost)] = start
        assert shape(self.seen()) == shape(rebuilt(self.seen()))
        assert shape(start) == shape(before)

    @invariant()
    def what_is_kept_is_what_is_there(self):
        self.kept.append(self.seen())
        (row,) = run_statement("topology", vhost=self.vhost)
        assert shape(self.seen()) == shape(compiled._loaded(row))

    @invariant()
    def the_same_is_there(self):
        exchanges = {e.name: e for e in rabbitmq.list_exchanges(self.vhost)}
        assert {name for name in exchanges if not name.startswith("amq.") and name} == self.model.exchanges.keys() - SYSTEM.keys()
        assert {
            Binding(b.source, b.destination, b.destination_type == "queue", b.routing_key)
            for b in rabbitmq.list_bindings(self.vhost)
        } == self.model.bindings
        assert {q.name: dict(q.arguments) for q in rabbitmq.list_queues(self.vhost)} == self.model.queues
        assert {(p.name, p.is_operator): p for p in rabbitmq.list_policies(self.vhost)} == self.model.policies

    @invariant()
    def messages_go_the_same_ways(self):
        router = self.seen().router
        for exchange in self.model.exchanges:
            for key in PROBES:
                assert set(router.route(exchange, [key]).queues) == self.model.route(exchange, key), (exchange, key)
        assert set(router.route("", ["q", "r", "xq", "x"]).queues) == self.model.queues.keys()

    @invariant()
    def the_same_is_in_force(self):
        queues = self.seen().queues
        assert queues.keys() == self.model.queues.keys()
        for name, queue in queues.items():
            expected = self.model.of_queue(name)
            for shown in (queue.effective, rabbitmq.effective(EntityAddress(self.vhost, name)).values):
                assert {key: shown[key] for key in NUMBERS.values() if key in shown} == expected
        for exchange in rabbitmq.list_exchanges(self.vhost):
            if exchange.name in self.model.exchanges:
                assert exchange.effective.get("alternate_exchange") == self.model.alternate_of(exchange.name)


def test_a_virtual_host_agrees_with_its_model(broker_database):
    run_machine(BrokerAgainstModel, 10)
