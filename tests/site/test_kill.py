"""kill -9 of any part at any moment, then `up` again: nothing accepted is lost, and the invariants of the design hold."""

import threading
import time
from datetime import timedelta

import httpx
import psycopg
import pytest

from broker_core import service_bus
from broker_core.common.types import EntityAddress
from broker_core.store.connections import close_all_of_this_thread, using
from tests.eventually import eventually

from .vitrine import Vitrine

QUEUE = EntityAddress("demo", "killed")
LOCK = timedelta(seconds=5)
PARTS = ("web", "postgres", "worker", "beat", "supervisor")
RECORD = """
    SELECT kind, array_agg(sequence_number ORDER BY sequence_number) FROM vitrine_message_event
     WHERE entity_id = (SELECT id FROM vitrine_entity WHERE path = %s) GROUP BY kind
"""
SENT, COMPLETED, DEAD_LETTERED = 1, 6, 10


class Clients:
    """A sender and a receiver over HTTP that go on whatever happens, and remember what they were promised."""

    def __init__(self, vitrine: Vitrine):
        self._queue = f"{vitrine.url}/servicebus/{QUEUE.namespace}/{QUEUE.path}"
        self._headers = vitrine.headers(QUEUE.namespace)
        self._ending = threading.Event()
        self.accepted: list[str] = []
        self.completed: list[str] = []
        self._threads = [threading.Thread(target=self._go_on, args=[act], daemon=True) for act in (self._send, self._receive)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._ending.set()
        for thread in self._threads:
            thread.join(20)

    def _go_on(self, act) -> None:
        with httpx.Client(headers=self._headers, timeout=10) as client:
            number = 0
            while not self._ending.is_set():
                number += 1
                try:
                    act(client, number)
                except httpx.HTTPError:
                    time.sleep(0.05)
                time.sleep(0.005)

    def _send(self, client: httpx.Client, number: int) -> None:
        if client.post(f"{self._queue}/messages", content=str(number)).status_code == 201:
            self.accepted.append(str(number))

    def _receive(self, client: httpx.Client, number: int) -> None:
        """Complete two of three; the others' locks end by themselves."""
        locked = client.post(f"{self._queue}/messages/head?timeout=0")
        if locked.status_code == 201 and number % 3 and client.delete(locked.headers["Location"]).status_code == 200:
            self.completed.append(locked.text)


@pytest.fixture(scope="module")
def vitrine():
    with Vitrine() as running:
        running.create_queue(QUEUE, lock_duration=LOCK, max_delivery_count=1000)
        yield running


def works_again(vitrine: Vitrine, clients: Clients) -> None:
    """Every part is back, and another message is accepted."""
    before = len(clients.accepted)
    eventually(lambda: len(clients.accepted) > before + 5, 30)
    eventually(lambda: (parts := vitrine.health()) and parts["database"]["state"] == parts["web"]["state"] == "ok", 30)


@pytest.mark.slow
def test_no_message_is_lost_when_parts_are_killed(vitrine):
    with Clients(vitrine) as clients:
        works_again(vitrine, clients)
        for part in PARTS:
            killed = vitrine.process(part) if part != "supervisor" else None
            vitrine.kill(part)
            if part == "supervisor":
                vitrine.up()
            else:
                eventually(lambda killed=killed, part=part: vitrine.process(part).pid != killed.pid, 30)
            works_again(vitrine, clients)
    check_invariants(vitrine, clients)
    assert vitrine.health()["worker"]["state"] == "ok"  # sweeps go on, too


@pytest.mark.slow
def test_a_hanging_database_causes_503_and_recovers(vitrine):
    """Regression: neither a send nor /healthz got an answer while the database's processes were stopped."""
    with Clients(vitrine) as clients:
        works_again(vitrine, clients)
        headers = vitrine.headers(QUEUE.namespace)
        postmaster = vitrine.process("postgres")
        stopped = [postmaster, *postmaster.children()]
        try:
            for process in stopped:
                process.suspend()
            url = f"{vitrine.url}/servicebus/{QUEUE.namespace}/{QUEUE.path}/messages"
            send = httpx.post(url, content="during", headers=headers, timeout=5)
            assert send.status_code == 503 and "Retry-After" in send.headers
            before = len(clients.accepted)  # the response to a send that was stored just before has arrived by now
            health = httpx.get(f"{vitrine.url}/healthz", timeout=5)
            assert health.status_code == 503 and health.json()["parts"]["database"]["state"] in ("down", "no response")
            page = httpx.get(f"{vitrine.url}/", cookies={"vitrine_session": "a" * 32}, timeout=10)
            assert page.status_code == 503 and "Database unavailable" in page.text
            assert len(clients.accepted) == before
        finally:
            for process in stopped:
                process.resume()
        works_again(vitrine, clients)
    with psycopg.connect(vitrine.database().dsn) as connection:
        [events] = connection.execute(RECORD.replace("GROUP BY kind", "AND kind = 1 GROUP BY kind"), [QUEUE.path]).fetchall()
    assert events[1] == list(range(1, len(events[1]) + 1)) and len(events[1]) >= len(clients.accepted)


def check_invariants(vitrine: Vitrine, clients: Clients) -> None:
    """1 and 2 by events and rows, 5 by receiving all that is left once the locks have ended."""
    with psycopg.connect(vitrine.database().dsn) as connection:
        events = dict(connection.execute(RECORD, [QUEUE.path]).fetchall())
        rows = connection.execute(
            "SELECT sequence_number FROM vitrine_message WHERE entity_id = (SELECT id FROM vitrine_entity WHERE path = %s)",
            [QUEUE.path],
        )
        present = [number for (number,) in rows]
    sent, completed = events[SENT], events[COMPLETED]
    assert sent == list(range(1, len(sent) + 1))  # no number twice, none missing
    assert sorted(completed + present) == sent  # each is in exactly one place
    assert len(sent) >= len(clients.accepted)  # an answer may be lost, a message may not
    assert len(completed) >= len(clients.completed)
    assert DEAD_LETTERED not in events

    left = receive_the_rest(vitrine, len(present))
    assert len(left) == len(present)
    assert not set(left) & set(clients.completed)
    untold = len(completed) - len(clients.completed)  # completed, but the answer was lost with the killed part
    assert len(set(clients.accepted) - set(clients.completed) - set(left)) <= untold <= len(PARTS)


def receive_the_rest(vitrine: Vitrine, expected: int) -> list[str]:
    """All that can be received within a lock's duration and a bit."""
    bodies: list[str] = []
    ends_at = time.monotonic() + LOCK.total_seconds() + 2
    with using(vitrine.database()):
        while len(bodies) < expected and time.monotonic() < ends_at:
            bodies += [message.body.decode() for message in service_bus.receive_and_delete(QUEUE, 500)]
            time.sleep(0.05)
        close_all_of_this_thread()
    return bodies
