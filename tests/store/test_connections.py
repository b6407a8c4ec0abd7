"""The broker's own connections: one a thread, ended with it."""

import subprocess
import sys
import threading

from broker_core.store import connections


def opened_in_a_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(connections.current()))
    thread.start()
    thread.join()
    return found[0]


def test_a_connection_ends_with_its_thread(db):
    assert opened_in_a_thread().closed
    assert not connections.current().closed


def test_a_thread_has_its_own_connection_until_it_closes_it(db):
    first = connections.current()
    assert connections.current() is first
    connections.close_all_of_this_thread()
    assert first.closed and connections.current() is not first


def test_a_script_ends_silently(db):
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
