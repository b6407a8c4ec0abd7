"""The broker's own connections: one a thread, ended with it."""

import subprocess
import sys
import threading

import psycopg

from broker_core.store import connections
from tests.eventually import eventually


def opened_in_a_thread(*, leaving=False, statement="SELECT 1"):
    def work():
        results.append(connections.current())
        results[0].execute(statement)
        if leaving:
            connections.leave_to_other_threads()

    results = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return results[0]


def test_a_connection_ends_with_its_thread(db):
    assert opened_in_a_thread().closed


def test_a_thread_reuses_the_connection_of_an_ended_thread(db):
    connections.close_all()
    first = opened_in_a_thread(leaving=True)
    assert not first.closed
    assert opened_in_a_thread(leaving=True) is first
    connections.close_all()
    assert first.closed
    assert opened_in_a_thread() is not first


def test_a_connection_that_the_server_closed_is_not_used_again(db):
    connections.close_all()
    first = opened_in_a_thread(leaving=True)
    with psycopg.connect(**connections.current_database().parameters()) as other:
        other.execute("SELECT pg_terminate_backend(%s)", [first.info.backend_pid])
    eventually(lambda: connections.is_dead(first))
    assert opened_in_a_thread() is not first


def test_a_connection_inside_a_transaction_is_not_reused(db):
    assert opened_in_a_thread(leaving=True, statement="BEGIN").closed


def test_the_number_of_kept_connections_is_limited(db):
    def work():
        opened.append(connections.current())
        barrier.wait(10)
        connections.leave_to_other_threads()

    connections.close_all()
    barrier, opened = threading.Barrier(connections.MAX_IDLE + 2), []
    threads = [threading.Thread(target=work) for _ in range(barrier.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(not connection.closed for connection in opened) == connections.MAX_IDLE


def test_a_thread_has_its_own_connection_until_it_closes_it(db):
    first = connections.current()
    assert connections.current() is first
    connections.close_all_of_this_thread()
    assert first.closed and connections.current() is not first


def test_a_script_with_connections_ends_silently(db):
    """Its connections are closed before the modules go, those of threads that still run, too."""
    script = """
import sys, threading, time
from broker_core.store import connections
database = connections.Database(dsn=sys.argv[1])

def work():
    with connections.using(database):
        connections.current()
        connected.set()
        time.sleep(60)

connected = threading.Event()
threading.Thread(target=work, daemon=True).start()
connected.wait()
with connections.using(database):
    print(connections.current().execute("SELECT 1").fetchone()[0])
"""
    dsn = connections.current().info.dsn
    ended = subprocess.run([sys.executable, "-c", script, dsn], capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("1\n", "")


def test_a_forked_child_does_not_use_the_connections_of_its_parent(db):
    """Those of other threads end with these in the child; those that are open are closed when it exits."""
    script = """
import os, sys, threading
from broker_core.store import connections
database = connections.Database(dsn=sys.argv[1])

def select():
    with connections.using(database):
        print(connections.current().execute("SELECT pg_backend_pid()").fetchone()[0])

def work():
    select()
    connected.set()
    forked.wait()
    select()

connected, forked = threading.Event(), threading.Event()
thread = threading.Thread(target=work)
thread.start()
connected.wait()
select()
if (child := os.fork()) == 0:
    connections.close_all()
    os._exit(0)
os.waitpid(child, 0)
forked.set()
thread.join()
select()
"""
    dsn = connections.current().info.dsn
    ended = subprocess.run([sys.executable, "-u", "-c", script, dsn], capture_output=True, text=True, timeout=60, check=True)
    first, own, again, own_again = ended.stdout.split()
    assert (first, own, ended.stderr) == (again, own_again, "")
