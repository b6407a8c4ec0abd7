"""The broker's own connections: one a thread, ended with it."""

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
