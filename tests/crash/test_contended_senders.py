"""kill -9 of the whole database server under contended senders and combined calls: what was acknowledged is there (docs/design.md
D3).

`make soak` kills it 200 times; here it is a few.
"""

from uuid import uuid4

import psycopg
import pytest

from broker_core import namespaces, service_bus
from broker_core.common.types import EntityAddress, Family
from broker_core.history import archive
from broker_core.runtime import contention
from broker_core.service_bus import entities
from broker_core.service_bus.rules.values import Message
from broker_core.store import statements
from tests.soak.killed_server import KilledServer

KILLS = 3
KILLS_OF_CONTROL = 20  # at most: it ends with the first that loses something, which nearly each does


@pytest.mark.slow
def test_acknowledged_contended_sends_survive_each_kill(on_cluster, dsn, cluster, tmp_path):
    outcome = KilledServer(cluster, dsn, tmp_path, KILLS).run()
    assert not outcome.wrong, outcome.tell()
    for done in ("kills", "contended sends", "combined calls", "messages acknowledged", "completions acknowledged"):
        assert outcome.did[done], outcome.tell()


@pytest.mark.slow
def test_without_the_flush_acknowledged_messages_are_lost(on_cluster, dsn, cluster, tmp_path):
    """The control: the test above can fail."""
    outcome = KilledServer(cluster, dsn, tmp_path, KILLS_OF_CONTROL, flushes=False).run()
    assert outcome.did["acknowledged messages lost"], outcome.tell()


@pytest.fixture
def lazy_log(on_cluster, dsn):
    """A connection to a server that writes its log only when somebody flushes it."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
        connection.execute("SELECT pg_reload_conf()")
        yield connection
        connection.execute("ALTER SYSTEM RESET wal_writer_delay")
        connection.execute("SELECT pg_reload_conf()")


def is_flushed(connection, lsn):
    return connection.execute("SELECT pg_current_wal_flush_lsn() >= %s::pg_lsn", [lsn]).fetchone()[0]


def send_contended(queue, connection):
    """Send a message as if there were other senders. Returns where its commit ends in the log."""
    (counter,) = contention._counters.values()
    counter.left = contention.STAYS
    service_bus.send(queue, [Message(b"a")])
    return connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()[0]


@pytest.fixture
def queue(on_cluster):
    address = EntityAddress(f"lazy-{uuid4().hex[:8]}", "queue")
    namespaces.create_namespace(address.namespace, Family.SERVICE_BUS)
    entities.create_queue(address)
    contention._counters.clear()
    service_bus.send(address, [Message(b"first")])
    return address


@pytest.mark.slow
def test_a_contended_send_is_flushed_when_it_returns(queue, lazy_log):
    assert is_flushed(lazy_log, send_contended(queue, lazy_log))


def test_before_postgresql_17_and_with_standbys_a_send_is_flushed_by_a_commit(queue, lazy_log, monkeypatch):
    monkeypatch.setitem(statements.SQL, "flush", statements.SQL["flush_by_commit"])
    assert is_flushed(lazy_log, send_contended(queue, lazy_log))


@pytest.fixture
def unflushed(queue, lazy_log, monkeypatch):
    """Where a send that is committed and visible, but not flushed, ends in the log."""
    monkeypatch.setitem(statements.SQL, "flush", "SELECT true AS flushed")
    for _ in range(5):  # anybody else's commit would flush it
        lsn = send_contended(queue, lazy_log)
        if not is_flushed(lazy_log, lsn):
            return lsn
    raise AssertionError("every send was flushed")


def test_a_receive_flushes_the_messages_it_returns(queue, unflushed, lazy_log):
    assert len(service_bus.receive(queue, 10)) >= 2
    assert is_flushed(lazy_log, unflushed)


def test_the_archive_reads_a_slice_after_its_events_were_flushed(unflushed, lazy_log, monkeypatch, tmp_path, settings):
    """The commit that opens the slice flushes them: no file has events that a crash of the server takes back."""
    settings.ARCHIVE_URL = str(tmp_path)
    flushed = []
    monkeypatch.setattr(archive, "_write_slice", lambda *_: flushed.append(is_flushed(lazy_log, unflushed)) or 0)
    archive.archive_events()
    assert flushed and all(flushed)
