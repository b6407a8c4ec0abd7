"""Messages with a time-to-live of zero are delivered to consumers of another process (RMQ-016, RMQ-922)."""

import json
import signal
import subprocess
import sys
import textwrap
import time
from uuid import uuid4

import pytest

from broker_core import rabbitmq
from broker_core.common.types import EntityAddress
from broker_core.rabbitmq.messages.publishing import Publication, publish
from tests.eventually import eventually
from tests.rabbitmq.shortcuts import ledger_agrees

from .conftest import ROOT

# It gets a message if it is told to, consumes, prints what it is given, and acknowledges everything when it is told to.
CHILD = textwrap.dedent("""
    import json, os, select, sys
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "explorer.site.settings")
    import django
    django.setup()
    from broker_core.rabbitmq import connect
    from broker_core.store.connections import Database, using

    dsn, vhost, options = sys.argv[1:]
    options = json.loads(options)
    with using(Database(dsn=dsn)):
        connection = connect(vhost, "child")
        if options["gets"]:
            assert connection.channel().get(options["gets"])
        channel = connection.channel()
        channel.qos(options["prefetch"], global_=options["of_all"])
        for queue in options["queues"]:
            channel.consume(queue, no_ack=options["no_ack"])
        print("ready", flush=True)
        while True:
            for delivery in channel.deliveries(10, max_wait_seconds=0.5):
                print(delivery.body.decode(), delivery.redelivered, flush=True)
            if select.select([sys.stdin], [], [], 0)[0]:
                if not sys.stdin.readline():
                    break
                channel.ack(0, multiple=True)
                print("acknowledged", flush=True)
""")


@pytest.fixture
def queues(on_cluster):
    vhost = f"v-{uuid4().hex[:8]}"
    rabbitmq.create_vhost(vhost)
    dead = rabbitmq.declare_queue(EntityAddress(vhost, "dead")).address
    rabbitmq.declare_queue(EntityAddress(vhost, "other"))
    arguments = {"x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    return rabbitmq.declare_queue(EntityAddress(vhost, "now"), arguments=arguments).address, dead


@pytest.fixture
def consuming(queues, dsn):
    started = []

    def start(*names, prefetch=0, of_all=False, no_ack=False, gets=None):
        options = {"prefetch": prefetch, "of_all": of_all, "no_ack": no_ack, "gets": gets, "queues": names or ["now"]}
        program = [sys.executable, "-c", CHILD, dsn, queues[0].namespace, json.dumps(options)]
        child = subprocess.Popen(program, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        started.append(child)
        assert child.stdout.readline() == "ready\n"
        return child

    yield start
    for child in started:
        child.kill()
        child.communicate()


def send(address, *texts, **properties):
    original = rabbitmq.Properties(**properties)
    publish(address.namespace, [Publication(text.encode(), routing_key=address.path, properties=original) for text in texts])


def ready(address):
    return rabbitmq.declare_queue(address, passive=True).messages


def read(child, count):
    return [child.stdout.readline().strip() for _ in range(count)]


@pytest.mark.slow
def test_a_message_with_a_ttl_of_zero_is_delivered_to_another_process(queues, consuming):
    now, dead = queues
    child = consuming(prefetch=2)
    began = time.monotonic()
    send(now, "a", "b", "c")
    assert read(child, 2) == ["a False", "b False"]
    assert time.monotonic() - began < 5
    assert (ready(now), ready(dead)) == (0, 1)  # for the third there was no room
    print("go on", file=child.stdin)
    assert read(child, 1) == ["acknowledged"]
    send(now, "d")
    assert read(child, 1) == ["d False"]
    assert ready(dead) == 1 and ledger_agrees(now) and ledger_agrees(dead)


def test_unacknowledged_messages_use_the_prefetch_capacity(queues, consuming):
    """The child is stopped, so that it cannot be the one that expires what was handed to it without room."""
    now, dead = queues
    child = consuming(prefetch=2)
    send(now, "a", "b")
    assert read(child, 2) == ["a False", "b False"]
    child.send_signal(signal.SIGSTOP)
    send(now, "c")
    assert (ready(now), ready(dead)) == (0, 1) and ledger_agrees(now) and ledger_agrees(dead)
    child.send_signal(signal.SIGCONT)


def test_a_no_ack_consumer_gets_all_messages(queues, consuming):
    now, dead = queues
    child = consuming(no_ack=True)
    send(now, *"abcde")
    assert read(child, 5) == [f"{text} False" for text in "abcde"]
    eventually(lambda: rabbitmq.get_queue(now).messages == 0)
    assert ready(dead) == 0 and ledger_agrees(now)


def test_a_zero_ttl_message_without_capacity_expires(queues, consuming):
    """The limit of a whole channel is known in its process alone."""
    now, dead = queues
    child = consuming(prefetch=1, of_all=True)
    send(now, *"abc")
    assert read(child, 1) == ["a False"]
    eventually(lambda: ready(dead) == 2)
    assert ready(now) == 0 and ledger_agrees(now) and ledger_agrees(dead)


@pytest.mark.slow
def test_a_zero_ttl_message_is_passed_on_to_a_consumer_with_capacity(queues, consuming):
    """The first child holds a message of another queue, which takes the only place of its channel."""
    now, dead = queues
    other = EntityAddress(now.namespace, "other")
    full, free = consuming("other", "now", prefetch=1, of_all=True), consuming(prefetch=1)
    send(other, "x")
    assert read(full, 1) == ["x False"]
    send(now, "a")
    assert read(free, 1) == ["a False"]
    send(now, "b")  # now both are full
    eventually(lambda: ready(dead) == 1)
    print("go on", file=full.stdin)
    assert read(full, 1) == ["acknowledged"]
    send(now, "c")
    assert read(full, 1) == ["c False"]
    assert (ready(now), ready(dead)) == (0, 1) and ledger_agrees(now) and ledger_agrees(other) and ledger_agrees(dead)


def test_a_message_got_by_a_connection_uses_no_prefetch_capacity(queues, consuming):
    """RMQ-144"""
    other = EntityAddress(queues[0].namespace, "other")
    send(other, "got")
    child = consuming("other", prefetch=1, gets="other")
    send(other, "a", expiration="0")
    assert read(child, 1) == ["a False"]
    send(other, "b", expiration="0")
    assert rabbitmq.get_queue(other).messages == 0 and ledger_agrees(other)


def test_without_a_consumer_a_zero_ttl_message_expires(queues, consuming):
    now, dead = queues
    child = consuming()
    child.kill()
    child.wait()
    eventually(rabbitmq.recover_dead)
    send(now, "a")
    assert (ready(now), ready(dead)) == (0, 1)


def test_messages_delivered_to_a_dead_process_are_recovered(queues, consuming):
    now, dead = queues
    child = consuming()
    child.kill()
    child.wait()
    send(now, "a")  # nobody has noticed yet
    eventually(lambda: (rabbitmq.recover_dead(), ready(dead))[1] == 1)
    assert ready(now) == 0 and ledger_agrees(now) and ledger_agrees(dead)
