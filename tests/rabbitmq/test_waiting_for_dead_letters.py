"""Dead letters of queues that nobody looks at, for consumers that wait for them (RMQ-004, RMQ-920). No sweep runs here."""

import threading
import time

from broker_core.common.types import EntityAddress
from broker_core.rabbitmq import Properties, declare_queue
from broker_core.store import connections
from broker_core.store.statements import SQL
from tests.broker_state import has_waiting_receiver
from tests.eventually import eventually

from .connected import bodies, send, step
from .shortcuts import ledger_agrees


def due(vhost):
    """The queues in which there is something to be taken away."""
    rows = connections.current().execute(SQL["rabbit_heads_due"], {"vhost": vhost, "max_count": 20})
    return [row.path for row in rows]


def chain(vhost, *times_to_live):
    """Queues q0, q1, ..., each with a time-to-live and the next as its dead-letter queue; the last one, without, is returned."""
    for n, time_to_live in enumerate(times_to_live):
        arguments = {"x-message-ttl": time_to_live, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"q{n + 1}"}
        declare_queue(EntityAddress(vhost, f"q{n}"), arguments=arguments)
    return declare_queue(EntityAddress(vhost, f"q{len(times_to_live)}")).address


def test_a_waiting_consumer_gets_dead_letters_of_queues_without_consumers(vhost, channel):
    last = chain(vhost, 1000)
    send(EntityAddress(vhost, "q0"), "x", "y")
    channel.consume(last.path)
    assert channel.deliveries(5) == []
    step(vhost, 1000)
    assert bodies(channel.deliveries(5, max_wait_seconds=20)) == "xy"
    assert ledger_agrees(EntityAddress(vhost, "q0")) and ledger_agrees(last)


def test_a_waiting_consumer_gets_messages_that_expire_along_a_chain_of_queues(vhost, channel):
    last = chain(vhost, 1000, *[0] * 9)
    send(EntityAddress(vhost, "q0"), "x")
    channel.consume(last.path)
    results = []
    thread = threading.Thread(target=lambda: results.extend(channel.deliveries(5, max_wait_seconds=20)))
    thread.start()
    eventually(lambda: has_waiting_receiver(last))
    step(vhost, 1000)
    began = time.monotonic()
    thread.join()
    assert bodies(results) == "x" and time.monotonic() - began < 10
    assert [death["queue"] for death in results[0].properties.headers["x-death"]] == [f"q{n}" for n in reversed(range(10))]


def test_messages_behind_an_unexpired_head_are_not_checked_repeatedly(vhost, channel):
    """RMQ-013: it is no work for who waits elsewhere."""
    last = chain(vhost, 60_000)
    send(EntityAddress(vhost, "q0"), "lives")
    send(EntityAddress(vhost, "q0"), "over", properties=Properties(expiration="5"))
    step(vhost, 1000)
    assert due(vhost) == []
    step(vhost, 60_000)
    assert due(vhost) == ["q0"]
    channel.consume(last.path)
    assert bodies(channel.deliveries(5, max_wait_seconds=20)) == "livesover"
