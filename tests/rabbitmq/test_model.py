"""The real store against a plain model of three queues: random histories, random lives and limits, a clock that is stepped.

`q` dead-letters to `d1`, that to `d2`, and that perhaps back to `q`. What has expired at a head leaves when somebody gets there,
so the model follows the store in when, and checks that it was allowed, where it went and in which order.
"""

import uuid
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker_core import namespaces, rabbitmq
from broker_core.common.errors import MessageHeld, NotAllowed
from broker_core.common.types import EntityAddress, EventKind, SubQueue
from broker_core.rabbitmq import Properties, Publication
from broker_core.rabbitmq.messages import delivering
from broker_core.runtime.pacing import advance_head
from broker_core.store import connections
from broker_core.store.driver import run
from tests.broker_state import bounds_hold, entity_id, events
from tests.model_machines import run_machine

from .shortcuts import deaths, declare, expire, ledger_agrees, policy

MS = timedelta(milliseconds=1)
REFUSE = "reject-publish"


@dataclass(eq=False)
class Modelled:
    """A message. history: (queue, reason), newest first, each once. deaths: how often each of them."""

    body: str
    at: datetime
    expires_at: datetime | None
    priority: int
    sent_priority: int = 0
    held: bool = False
    token: uuid.UUID | None = None
    was_delivered: bool = False
    returns: int = 0
    history: list = field(default_factory=list)
    deaths: dict = field(default_factory=dict)


@dataclass
class Queue:
    """A queue as declared, and what is in it by number. policy_*: what a policy adds."""

    name: str
    ttl: int | None
    max_length: int | None
    overflow: str
    target: str | None
    delivery_limit: int | None
    max_priority: int
    exact: bool
    policy_ttl: int | None = None
    policy_length: int | None = None
    messages: dict[int, Modelled] = field(default_factory=dict)
    next_number: int = 1

    @property
    def ttl_now(self):
        return min((t for t in (self.ttl, self.policy_ttl) if t is not None), default=None)

    @property
    def limit_now(self):
        return min((n for n in (self.max_length, self.policy_length) if n is not None), default=None)

    def ready(self):
        found = [(number, m) for number, m in self.messages.items() if not m.held]
        return sorted(found, key=lambda pair: (-pair[1].priority, pair[0]))

    def life_over(self, m, now):
        by_default = [] if self.ttl_now is None else [m.at + self.ttl_now * MS]
        ends = min([*by_default, *([m.expires_at] if m.expires_at else [])], default=None)
        return ends is not None and ends <= now


class StoreAgainstModel(RuleBasedStateMachine):
    @initialize(data=st.data())
    def begin(self, data):
        self.vhost = f"m-{uuid.uuid4().hex[:10]}"
        rabbitmq.create_vhost(self.vhost)
        namespaces.pause_clock(self.vhost)
        self.queues: dict[str, Queue] = {}
        for name, target in (("q", "d1"), ("d1", "d2"), ("d2", data.draw(st.sampled_from([None, "q", "q"])))):
            quorum = data.draw(st.booleans())
            queue = Queue(
                name,
                ttl=data.draw(st.sampled_from([None, None, 40, 90, 0])),
                max_length=data.draw(st.sampled_from([None, None, 0, 2, 3])),
                overflow=data.draw(st.sampled_from(["drop-head", REFUSE])),
                target=data.draw(st.sampled_from([target, target, None])),
                delivery_limit=data.draw(st.sampled_from([0, 1])) if quorum else None,
                max_priority=0 if quorum else data.draw(st.sampled_from([0, 0, 2])),
                exact=data.draw(st.booleans()),
            )
            self.queues[name] = queue
            declare(self.vhost, name, type="quorum" if quorum else "classic", **self._arguments(queue))
            rabbitmq.set_queue_option(self._address(name), exact_expiry=queue.exact)
        self.published = 0
        self.owner = uuid.uuid4().int % 10**15  # a connection of its own

    @staticmethod
    def _arguments(queue):
        values = {
            "message_ttl": queue.ttl,
            "max_length": queue.max_length,
            "overflow": queue.overflow,
            "dead_letter_exchange": None if queue.target is None else "",
            "dead_letter_routing_key": queue.target,
            "delivery_limit": queue.delivery_limit,
            "max_priority": queue.max_priority or None,
        }
        return {name: value for name, value in values.items() if value is not None}

    # What the machine does

    @rule(
        name=st.sampled_from(["q", "q", "d1"]),
        lives=st.lists(st.tuples(st.sampled_from([None, None, 20, 60, 200, 0]), st.integers(0, 3)), min_size=1, max_size=4),
    )
    def publish(self, name, lives):
        queue = self.queues[name]
        bodies = [f"m{self.published + i}" for i in range(len(lives))]
        self.published += len(lives)
        sent = [
            Publication(body.encode(), "", name, Properties(expiration=None if life is None else str(life), priority=priority))
            for body, (life, priority) in zip(bodies, lives, strict=True)
        ]
        outcomes = rabbitmq.publish(self.vhost, sent)
        if queue.limit_now is not None and queue.overflow == REFUSE:
            self._expire_head(queue)
        numbers = []
        for (life, priority), body, outcome in zip(lives, bodies, outcomes, strict=True):
            if self._is_full(queue):
                assert outcome == ((), True, False)
                continue
            assert outcome == (((name, queue.next_number),), False, False)
            numbers.append(queue.next_number)
            self._store(queue, body, life, priority)
        if queue.ttl_now == 0:
            self._trim(self._die(queue, [n for n in numbers if queue.life_over(queue.messages[n], self.now)], "expired"))
        elif any(queue.messages[n].expires_at == self.now for n in numbers):
            self._expire_head(queue)
        self._trim([name])

    @rule(name=st.sampled_from(["q", "d1", "d2"]), count=st.integers(1, 4))
    def take(self, name, count):
        queue = self.queues[name]
        alive = [(number, m) for number, m in queue.ready() if not queue.life_over(m, self.now)]
        deliveries = rabbitmq.take(self._address(name), count, owner_id=self.owner)
        self._follow()  # what expired behind those that were taken may be at the head now, and stay
        assert bool(deliveries) == bool(alive) and len(deliveries) <= count
        for delivery, (number, m) in zip(deliveries, alive, strict=False):
            assert (delivery.number, bytes(delivery.body).decode()) == (number, m.body)
            assert delivery.redelivered == m.was_delivered and delivery.delivery_count == m.returns
            assert {(d.queue, d.reason): d.count for d in deaths(delivery)} == m.deaths
            assert [(d.queue, d.reason) for d in deaths(delivery)] == m.history
            m.held, m.was_delivered, m.token = True, True, delivery.token

    @rule(name=st.sampled_from(["q", "d1", "d2"]))
    def get_for_good(self, name):
        queue = self.queues[name]
        alive = [(number, m) for number, m in queue.ready() if not queue.life_over(m, self.now)]
        delivery = rabbitmq.get(self._address(name), no_ack=True)
        assert (delivery and delivery.number) == (alive[0][0] if alive else None)
        if alive:
            there = self._there()[name]
            if any(number not in there for number in queue.messages if number != delivery.number):
                self._expire_head(queue)  # those before the message; one behind it is at the head only from now on
            del queue.messages[delivery.number]

    @precondition(lambda self: self._held())
    @rule(data=st.data(), how=st.sampled_from(["acknowledge", "requeue", "requeue", "reject"]), counts=st.booleans())
    def settle(self, data, how, counts):
        name = data.draw(st.sampled_from(sorted({queue.name for queue, _, _ in self._held()})))
        mine = [(number, m) for queue, number, m in self._held() if queue.name == name]
        chosen = sorted(data.draw(st.lists(st.sampled_from(mine), min_size=1, max_size=3, unique=True)), key=lambda pair: pair[0])
        options = {"counts": counts} if how == "requeue" else {}
        report = getattr(rabbitmq, how)(self._address(name), [m.token for _, m in chosen], **options)
        assert len(report.settled) == len(chosen)
        again = getattr(rabbitmq, how)(self._address(name), [m.token for _, m in chosen], **options)
        assert not again.settled
        queue = self.queues[name]
        match how:
            case "acknowledge":
                for number, _ in chosen:
                    del queue.messages[number]
            case "reject":
                self._trim(self._die(queue, [number for number, _ in chosen], "rejected"))
            case "requeue":
                self._give_back(queue, chosen, counts)

    @precondition(lambda self: self._held())
    @rule(data=st.data())
    def an_operator_releases_deliveries(self, data):
        """RMQ-928: each is requeued at its position, and counts as a return."""
        name = data.draw(st.sampled_from(sorted({queue.name for queue, _, _ in self._held()})))
        mine = [(number, m) for queue, number, m in self._held() if queue.name == name]
        chosen = sorted(data.draw(st.lists(st.sampled_from(mine), min_size=1, max_size=3, unique=True)), key=lambda pair: pair[0])
        numbers = [number for number, _ in chosen]
        assert sorted(rabbitmq.release(self._address(name), [*numbers, 999])) == numbers
        self._give_back(self.queues[name], chosen, counts=True)

    @precondition(lambda self: any(queue.messages for queue in self.queues.values()))
    @rule(data=st.data(), body=st.sampled_from(["", "edited", "edited twice"]))
    def an_operator_edits(self, data, body):
        """RMQ-931: a ready message that has not expired, at its position."""
        queue = data.draw(st.sampled_from([queue for queue in self.queues.values() if queue.messages]))
        number = data.draw(st.sampled_from(sorted(queue.messages)))
        m = queue.messages[number]
        waits = not m.held and not queue.life_over(m, self.now)
        try:
            rabbitmq.edit(self._address(queue.name), number, body=body.encode())
        except (MessageHeld, NotAllowed):
            assert not waits
        else:
            assert waits
            m.body = body

    @rule()
    def lose_the_connection(self):
        held = self._held()
        assert run(delivering.release_owner(self.vhost, self.owner)) == len(held)
        for queue in self.queues.values():
            mine = [(number, m) for q, number, m in held if q is queue]
            if mine:
                self._give_back(queue, mine, counts=True)

    @rule(name=st.sampled_from(["q", "d1", "d2"]))
    def purge(self, name):
        queue = self.queues[name]
        ready = queue.ready()
        assert rabbitmq.purge_queue(self._address(name)) == len(ready)
        for number, _ in ready:
            del queue.messages[number]

    @rule(ttl=st.sampled_from([None, 30, 70]), length=st.sampled_from([None, 1, 2]))
    def change_the_policy(self, ttl, length):
        queue = self.queues["q"]
        keys = {key: value for key, value in (("message_ttl", ttl), ("max_length", length)) if value is not None}
        before = queue.ttl_now, queue.limit_now
        queue.policy_ttl, queue.policy_length = ttl, length
        if keys:
            policy(self.vhost, "p", "^q$", **keys)
        else:
            rabbitmq.delete_policy(self.vhost, "p")
        if (queue.ttl_now, queue.limit_now) != before:
            self._expire_head(queue)
            if queue.exact:
                self._expire_anywhere(queue)
            self._trim(["q"])

    @rule(milliseconds=st.sampled_from([5, 20, 40, 100]))
    def let_time_pass(self, milliseconds):
        namespaces.step_clock(self.vhost, milliseconds * MS)

    @rule(name=st.sampled_from(["q", "d1", "d2"]))
    def sweep(self, name):
        expire(self._address(name))
        self._expire_head(self.queues[name])
        if self.queues[name].exact:
            self._expire_anywhere(self.queues[name])

    @rule(name=st.sampled_from(["q", "d1", "d2"]))
    def advance_bounds(self, name):
        run(advance_head(entity_id(self._address(name)), SubQueue.MAIN))

    # What must hold

    @invariant()
    def both_have_the_same(self):
        if not hasattr(self, "queues"):
            return
        self._follow()
        there = self._there()
        for name, queue in self.queues.items():
            mine = {n: (m.body, m.held, m.expires_at, m.returns) for n, m in queue.messages.items()}
            assert there[name] == mine
            assert ledger_agrees(self._address(name)) and bounds_hold(self._address(name))

    def teardown(self):
        if not hasattr(self, "queues"):
            return
        for name in ("q", "d1", "d2", "q", "d1", "d2"):
            self.sweep(name)
            self.both_have_the_same()
        for name, queue in self.queues.items():
            ready = queue.ready()
            assert not ready or not queue.life_over(ready[0][1], self.now)  # a sweep leaves nothing undone
            self._every_number_is_accounted_for(name, queue)

    def _every_number_is_accounted_for(self, name, queue):
        """From events alone: sent = present + gone, each gone one once; and what was moved says where to."""
        recorded = events(self._address(name))
        born = [e.sequence_number for e in recorded if e.kind == EventKind.SENT]
        gone = [e for e in recorded if EventKind(e.kind).is_terminal]
        assert sorted(born) == sorted([*(e.sequence_number for e in gone), *queue.messages]) == list(range(1, queue.next_number))
        for event in gone:
            assert (event.kind == EventKind.MOVED) == bool(event.details and "to" in event.details)

    # The model's own machinery

    @property
    def now(self):
        return namespaces.get_clock(self.vhost).now

    def _address(self, name):
        return EntityAddress(self.vhost, name)

    def _held(self):
        return [(queue, number, m) for queue in self.queues.values() for number, m in queue.messages.items() if m.held]

    def _there(self):
        """What the store has, by queue and number."""
        results = {}
        for name in self.queues:
            rows = connections.current().execute(
                "SELECT sequence_number, convert_from(body, 'UTF8') AS body, lock_token IS NOT NULL AS held, expires_at,"
                " delivery_count FROM vitrine_message WHERE entity_id = %s",
                [entity_id(self._address(name))],
            )
            results[name] = {row.sequence_number: (row.body, row.held, row.expires_at, row.delivery_count) for row in rows}
        return results

    def _is_full(self, queue):
        return queue.overflow == REFUSE and queue.limit_now is not None and len(queue.ready()) >= queue.limit_now

    def _store(self, queue, body, life, priority, dead=None):
        lives = min((t for t in (life, queue.ttl_now) if t is not None), default=None)
        m = Modelled(
            body, self.now, None if lives is None else self.now + lives * MS, min(priority, queue.max_priority), priority
        )
        if dead:
            m.history, m.deaths = dead
        queue.messages[queue.next_number] = m
        queue.next_number += 1

    def _give_back(self, queue, chosen, counts):
        spent = [n for n, m in chosen if counts and queue.delivery_limit is not None and m.returns >= queue.delivery_limit]
        for number, m in chosen:
            if number not in spent:
                m.held, m.returns = False, m.returns + counts
        self._trim(self._die(queue, spent, "delivery_limit"))
        self._trim([queue.name])
        if any(queue.life_over(m, self.now) for _, m in chosen):
            self._expire_head(queue)
            if queue.exact:
                self._expire_anywhere(queue)

    def _expire_head(self, queue):
        gone = []
        for number, m in queue.ready():
            if not queue.life_over(m, self.now):
                break
            gone.append(number)
        self._trim(self._die(queue, gone, "expired"))

    def _expire_anywhere(self, queue):
        gone = [(m.expires_at or self.now, n) for n, m in queue.ready() if queue.life_over(m, self.now)]
        self._trim(self._die(queue, [n for _, n in sorted(gone)], "expired"))

    def _die(self, queue, numbers, reason):
        """Messages leave, and arrive where they may. Returns the queues that got some."""
        arrived = []
        for number in numbers:
            m = queue.messages.pop(number)
            key = (queue.name, reason)
            history = [key, *(entry for entry in m.history if entry != key)]
            counts = m.deaths | {key: m.deaths.get(key, 0) + 1}
            if queue.target is None or self._is_cycle(history, queue.target):
                continue
            target = self.queues[queue.target]
            if not self._is_full(target):
                self._store(target, m.body, None, m.sent_priority, (history, counts))
                arrived.append(target.name)
        for target in [self.queues[name] for name in dict.fromkeys(arrived)]:
            if target.ttl_now == 0 and target.overflow == REFUSE:  # each expires as it arrives (RMQ-016), and others have room
                arrived += self._die(target, sorted(n for n, m in target.ready() if target.life_over(m, self.now)), "expired")
        return list(dict.fromkeys(arrived))

    @staticmethod
    def _is_cycle(history, target):
        for name, reason in history:
            if reason == "rejected":
                return False
            if name == target:
                return True
        return False

    def _trim(self, names):
        todo = list(names)
        while todo:
            queue = self.queues[todo.pop(0)]
            if queue.limit_now is None or queue.overflow == REFUSE:
                continue
            over = queue.ready()[: max(0, len(queue.ready()) - queue.limit_now)]
            expired = []
            for number, m in over:
                if not queue.life_over(m, self.now):
                    break
                expired.append(number)
            rest = [number for number, _ in over[len(expired) :]]
            todo += self._die(queue, expired, "expired") + self._die(queue, rest, "maxlen")

    def _follow(self):
        """What has expired leaves when the store gets there: let those leave that have left, if they were to."""
        for _ in range(4):
            there = self._there()
            for name, queue in self.queues.items():
                if any(number not in there[name] for number in queue.messages):
                    self._expire_head(queue)
                    there = self._there()
                    if queue.exact and any(number not in there[name] for number in queue.messages):
                        self._expire_anywhere(queue)


@pytest.mark.slow
@pytest.mark.usefixtures("broker_database")
def test_the_store_agrees_with_the_model(monkeypatch):
    """With deliveries that pass unacknowledged messages as soon as there are two (docs/design.md D17)."""
    monkeypatch.setattr("broker_core.runtime.pacing.HEAD_LAG", 1)
    monkeypatch.setattr("broker_core.rabbitmq.messages.delivering.HEAD_LAG", 1)
    run_machine(StoreAgainstModel, 25)
