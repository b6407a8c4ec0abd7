"""Everything at once: whoever publishes, consumes, gives back, rejects, sweeps or dies, each message ends in one place."""

import random
import threading
from collections import Counter
from datetime import timedelta

import pytest

from broker_core import namespaces, rabbitmq
from broker_core.common.types import EventKind
from broker_core.rabbitmq import Properties, Publication
from broker_core.rabbitmq.messages import delivering, tidying
from broker_core.store import connections
from broker_core.store.driver import run
from tests.broker_state import entity_id, events

from .shortcuts import OWNER, count, declare, ledger_agrees, policy, read_out, text, tokens

PUBLISHED = 300  # by each publisher
LIVES = [None, "20", "50", "500"]


class Crowd:
    """Who works on a queue at the same time, each in a thread of its own. acknowledged: how often each body was."""

    def __init__(self, vhost, queue):
        self.vhost, self.queue = vhost, queue
        self.acknowledged, self.failures, self.done = Counter(), [], threading.Event()

    def thread(self, work, *args):
        def guarded():
            try:
                work(*args)
            except Exception as exc:
                self.failures.append(exc)
            finally:
                connections.close_all_of_this_thread()

        return threading.Thread(target=guarded)

    def publish(self, n):
        chance = random.Random(n)
        for i in range(0, PUBLISHED, 3):
            bodies = [f"{n}-{i + k}".encode() for k in range(3)]
            rabbitmq.publish(
                self.vhost, [Publication(body, "", "q", Properties(expiration=chance.choice(LIVES))) for body in bodies]
            )

    def consume(self, n):
        chance, owner = random.Random(n), OWNER + n
        while not self.done.is_set():
            for delivery in rabbitmq.take(self.queue, chance.randint(1, 8), owner_id=owner):
                self.settle(delivery, chance.randint(0, 9))
            if chance.random() < 0.2:
                run(delivering.release_owner(self.vhost, owner))
        run(delivering.release_owner(self.vhost, owner))

    def settle(self, delivery, how):
        match how:
            case 0:
                rabbitmq.reject(self.queue, tokens(delivery))
            case 1 | 2:
                rabbitmq.requeue(self.queue, tokens(delivery))
            case 3:
                pass  # its connection will be lost
            case _:
                if rabbitmq.acknowledge(self.queue, tokens(delivery)).settled:
                    self.acknowledged[text(delivery)] += 1

    def let_time_pass(self):
        while not self.done.is_set():
            namespaces.step_clock(self.vhost, timedelta(milliseconds=3))

    def sweep(self):
        while not self.done.is_set():
            run(tidying.expire_head(entity_id(self.queue)))

    def change_policies(self):
        while not self.done.is_set():
            for ttl in (30, 300):
                policy(self.vhost, "p", "^q$", message_ttl=ttl)
            rabbitmq.delete_policy(self.vhost, "p")

    def work(self):
        publishers = [self.thread(self.publish, n) for n in range(2)]
        consumers = [self.thread(self.consume, n) for n in (10, 11)]
        others = [*consumers, *map(self.thread, (self.let_time_pass, self.sweep, self.change_policies))]
        for thread in (*publishers, *others):
            thread.start()
        for thread in publishers:
            thread.join()
        self.done.set()
        for thread in others:
            thread.join()
        assert not self.failures


@pytest.mark.slow
def test_each_message_is_dead_lettered_once_under_concurrency(vhost):
    dead = declare(vhost, "dead")
    q = declare(vhost, max_length=60, dead_letter_exchange="", dead_letter_routing_key="dead")
    crowd = Crowd(vhost, q)
    crowd.work()
    assert ledger_agrees(q) and ledger_agrees(dead)
    ended = crowd.acknowledged + Counter(read_out(q))
    died = Counter(read_out(dead))
    assert max(ended.values()) == 1 and max(died.values()) == 1
    assert ended + died == Counter(f"{n}-{i}" for n in range(2) for i in range(PUBLISHED))
    assert count(q) == count(dead) == 0 and ledger_agrees(q)
    gone = Counter(e.sequence_number for e in events(q) if EventKind(e.kind).is_terminal)
    assert gone == Counter(range(1, 2 * PUBLISHED + 1))
