"""kill -9, or an endless stop, of a process that is connected to a virtual host: all it held is free at once, and stays so."""

import os
import signal
import subprocess
import sys
import textwrap
from uuid import uuid4

import psycopg
import pytest

from broker_core import rabbitmq
from broker_core.common.errors import BrokerUnavailable
from broker_core.common.types import EntityAddress
from broker_core.rabbitmq import connect, recover_dead
from broker_core.rabbitmq.messages.publishing import Publication, publish
from broker_core.rabbitmq.rules.errors import AmqpError, ConnectionLost
from broker_core.runtime import processes
from broker_core.store import connections
from explorer.site.embedded_postgres import server
from tests.broker_state import events, ledger_agrees
from tests.eventually import eventually

from .conftest import ROOT

# It takes half the messages, declares queues of its own, says so, and then does what it is told, line by line.
CHILD = textwrap.dedent("""
    import os, sys
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "explorer.site.settings")
    import django
    django.setup()
    from broker_core.rabbitmq import connect
    from broker_core.store.connections import Database, using

    dsn, vhost = sys.argv[1:]
    with using(Database(dsn=dsn)):
        channel = connect(vhost, "child").channel()
        channel.declare_queue("exclusive", exclusive=True)
        channel.declare_queue("brief", auto_delete=True)
        channel.consume("brief")
        channel.consume("q", exclusive=True)
        held = channel.deliveries(5)
        print("holds", *(delivery.delivery_tag for delivery in held), flush=True)
        for line in sys.stdin:
            try:
                if line.strip() == "acknowledge by token":
                    from broker_core.rabbitmq import acknowledge
                    report = acknowledge(held[0].address, [delivery.token for delivery in held])
                    print("settled", len(report.settled), flush=True)
                else:
                    channel.ack(0, multiple=True)
                    print("settled", flush=True)
            except Exception as exc:
                print("refused", exc, flush=True)
""")


@pytest.fixture
def queue(on_cluster):
    """A queue with ten messages, and nobody connected."""
    vhost = f"v-{uuid4().hex[:8]}"
    rabbitmq.create_vhost(vhost)
    address = rabbitmq.declare_queue(EntityAddress(vhost, "q")).address
    publish(vhost, [Publication(str(i).encode(), routing_key="q") for i in range(10)])
    return address


@pytest.fixture
def child(queue, dsn):
    """A process that holds the first five messages of the queue, and queues of its own."""
    program = [sys.executable, "-c", CHILD, dsn, queue.namespace]
    process = subprocess.Popen(program, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert process.stdout.readline().split() == ["holds", "1", "2", "3", "4", "5"]
    yield process
    process.kill()
    process.communicate()


def query(text, *params):
    return connections.current().execute(text, params).fetchall()


def names(queue):
    text = "SELECT path FROM vitrine_entity_now WHERE namespace_name = %s ORDER BY path"
    return [row.path for row in query(text, queue.namespace)]


def take_all(queue):
    """Everything by a connection of this process: bodies, and whether they were delivered before."""
    with connect(queue.namespace) as connection:
        channel = connection.channel()
        channel.consume("q", no_ack=True)
        deliveries = channel.deliveries(100)
        return [(int(delivery.body), delivery.redelivered) for delivery in deliveries]


LOCK_IS_FREE = "SELECT pg_try_advisory_xact_lock(hashtextextended('vitrine epoch ' || %s, 0)) AS taken"
ALL = [(i, i < 5) for i in range(10)]


@pytest.mark.slow
def test_a_killed_process_releases_all_its_messages_immediately(queue, child):
    assert recover_dead() == {}
    assert names(queue) == ["brief", "exclusive", "q"]
    with connect(queue.namespace) as connection, pytest.raises(AmqpError, match="in exclusive use$"):
        connection.channel().consume("q")
    child.kill()
    child.wait()
    eventually(recover_dead)  # the database has to notice
    assert names(queue) == ["q"]
    (row,) = query("SELECT count(*) AS n FROM vitrine_broker_process")
    assert row.n == 1  # this one's
    assert take_all(queue) == ALL
    assert ledger_agrees(queue)


def test_a_stopped_process_loses_its_messages_with_its_lease_and_changes_nothing_later(queue, child):
    os.kill(child.pid, signal.SIGSTOP)
    (row,) = query("SELECT epoch FROM vitrine_broker_process WHERE lease_until > clock_timestamp() ORDER BY epoch DESC LIMIT 1")
    assert not query(LOCK_IS_FREE, row.epoch)[0].taken
    assert recover_dead() == {}  # its lock is held, and its lease goes on
    query("UPDATE vitrine_broker_process SET lease_until = clock_timestamp() WHERE epoch = %s RETURNING epoch", row.epoch)
    assert recover_dead() == {"connections": 1}
    assert names(queue) == ["q"]
    with connect(queue.namespace) as connection:
        channel = connection.channel()
        channel.consume("q")
        held = channel.deliveries(100)
        assert [(int(d.body), d.redelivered) for d in held] == ALL
        os.kill(child.pid, signal.SIGCONT)
        assert request(child, "acknowledge by token") == "settled 0"
        refusal = "refused CONNECTION_FORCED - connection 'child' is lost: another process closed it"
        assert request(child, "acknowledge").startswith(refusal)
        channel.ack(0, multiple=True)
    assert take_all(queue) == []
    kinds = [event.kind for event in events(queue, 1)]
    assert kinds.count(6) == 1  # completed once, by who held it
    assert ledger_agrees(queue)


def test_the_next_process_to_connect_recovers_dead_processes(queue, child):
    (row,) = query("SELECT max(epoch) AS epoch FROM vitrine_broker_process")
    child.kill()
    child.wait()
    processes.leave_all()
    eventually(lambda: query(LOCK_IS_FREE, row.epoch)[0].taken, 60)
    assert take_all(queue) == ALL
    assert names(queue) == ["q"]


def test_a_killed_database_ends_connections_and_loses_no_message(queue, cluster):
    connection = connect(queue.namespace)
    channel = connection.channel()
    channel.declare_queue("exclusive", exclusive=True)
    channel.consume("q")
    assert len(channel.deliveries(5)) == 5
    channel.ack(1)
    os.kill(int((cluster / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)
    eventually(lambda: processes.current() is None and not still_answers(), 60)  # the server's processes end one after another
    for act in (lambda: channel.ack(2), lambda: connect(queue.namespace)):
        with pytest.raises(BrokerUnavailable):
            act()
    server.ensure_running(cluster)
    with pytest.raises(ConnectionLost, match="the database has ended the session"):
        channel.ack(2)
    assert take_all(queue) == [(i, i < 5) for i in range(1, 10)]
    assert names(queue) == ["q"]
    assert ledger_agrees(queue)


def still_answers():
    try:
        return bool(query("SELECT 1"))
    except psycopg.Error:
        return False


def request(child, line):
    child.stdin.write(line + "\n")
    return child.stdout.readline().strip()
