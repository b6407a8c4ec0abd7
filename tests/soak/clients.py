"""The clients of a soak: child processes of several threads each, to be killed at any moment.

They do all that a client may do, at random, and note what the broker promised them. A refusal that a client must live with is
none of the soak's business; anything else that is raised is noted, and fails it.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from broker_core import broker
from broker_core.semantics import errors
from broker_core.semantics.types import Actor, LockedMessage, Right
from broker_core.store.connections import Database, close_all_of_this_thread, using

from .journal import Journal
from .scene import LOCK, Scene, a_message, body_of

MUST_LIVE_WITH = tuple(
    getattr(errors, name)
    for name in (
        "BrokerUnavailable", "ServerBusy", "MessageNotFound", "SessionLockLost", "NoSessionAvailable", "SessionCannotBeLocked",
    )
    if hasattr(errors, name)
)  # fmt: skip
BACKLOG_BREAK = 0.01  # seconds a sender rests between batches, so that receivers keep up
RECENT = 24  # locks that the meddlers choose from
END = "end"


@dataclass
class Client:
    """One thread of a child process, with a journal of its own."""

    name: str
    scene: Scene
    journal: Journal
    dice: random.Random
    recent: deque  # (address, token) of locks in this process, for meddlers
    deferred: deque  # (address, number)
    ending: threading.Event
    count: int = 0

    def go_on(self, act: Callable[[Client], None]) -> None:
        """Act until the end, whatever the broker refuses."""
        while not self.ending.is_set():
            try:
                act(self)
            except MUST_LIVE_WITH as exc:
                self.journal.write("refused", by=type(exc).__name__)
                time.sleep(self.dice.uniform(0, 0.02))
            except Exception:
                self.journal.write("crash", trace=traceback.format_exc())
                return

    def actor(self, hold: str = "") -> Actor:
        return Actor("process", f"{self.name}{hold}", Right.ALL)

    def note(self, act: str, address, report) -> None:
        self.journal.write(
            act,
            path=address.path,
            list=int(address.subqueue),
            settled=[[str(t), n] for t, n in report.settled],
            lost=len(report.lost),
        )

    def got(self, messages, hold: str = "") -> None:
        for m in messages:
            if bytes(m.body) != body_of(m.message_id):
                self.journal.write("crash", trace=f"the body of {m.message_id} came back as {bytes(m.body)!r}")
        if messages:
            address = messages[0].address
            self.journal.write(
                "got", path=address.path, list=int(address.subqueue), hold=hold,
                locks=[[str(m.lock_token), m.sequence_number] for m in messages],
            )  # fmt: skip


def send(client: Client) -> None:
    """Send a batch and note its ids once they are accepted. Where duplicates are detected, ask again until they are."""
    path = client.dice.choice(client.scene.sent_to)
    batch = [a_message(path, f"{client.name}-{client.count + i}", client.dice) for i in range(client.dice.choice((1, 1, 5, 20)))]
    client.count += len(batch)
    if path == "talks":
        batch = [_in_session(client, message) for message in batch]
    ids = [message.message_id for message in batch]
    client.journal.write("sends", path=path, ids=ids)
    while True:
        try:
            broker.send(client.scene.address(path), batch, actor=client.actor())
            break
        except MUST_LIVE_WITH:
            if path != "once" or client.ending.is_set():
                raise
            time.sleep(0.02)
    client.journal.write("accepted", path=path, ids=ids)
    time.sleep(client.dice.uniform(0, 4 * BACKLOG_BREAK))


def _in_session(client: Client, message):
    from dataclasses import replace

    return replace(message, session_id=f"{client.name}-{client.dice.randrange(3)}")


def receive(client: Client) -> None:
    """Receive in one of the ways there are."""
    if "sessions" in client.scene.kinds and client.dice.random() < 0.25:
        return _in_a_session(client)
    address = client.scene.address(client.dice.choice(client.scene.received_from))
    chance = client.dice.random()
    if chance < 0.1:
        return _dead_letters(client, address.dead_letter)
    if chance < 0.2:
        gone = broker.receive_and_delete(address, client.dice.randint(1, 3), actor=client.actor())
        client.journal.write("deleted", path=address.path, numbers=[m.sequence_number for m in gone])
        return None
    if chance < 0.3 and client.deferred:
        address, number = client.deferred.popleft()
        held = broker.receive_deferred(address, [number], actor=client.actor())
    else:
        wait = client.dice.choice((0, 0, 0.05))
        held = broker.receive(address, client.dice.randint(1, 8), max_wait_seconds=wait, actor=client.actor())
    client.got(held)
    return _work_on(client, held)


def _work_on(client: Client, held: list[LockedMessage]) -> None:
    """Keep locks for a while, some past their end, and settle, some crosswise with meddlers."""
    if not held:
        return
    client.recent.extend((m.address, m.lock_token) for m in held)
    if client.dice.random() < 0.7:
        time.sleep(client.dice.uniform(0, 0.02))
    elif client.dice.random() < 0.15:
        time.sleep(client.dice.uniform(0.9, 1.2) * LOCK.total_seconds())
    while held:
        some = [held.pop() for _ in range(min(len(held), client.dice.randint(1, 4)))]
        _settle(client, some, client.dice.choices(_ACTS, _WEIGHTS)[0])


_ACTS = ("complete", "abandon", "defer", "dead_letter", "release", "renew", "forget")
_WEIGHTS = (60, 10, 5, 5, 4, 12, 4)


def _settle(client: Client, messages: list[LockedMessage], act: str) -> None:
    address, tokens = messages[0].address, [m.lock_token for m in messages]
    if act == "forget":
        return
    if act == "dead_letter" and address.subqueue:
        act = "complete"
    report = getattr(broker, act)(address, tokens, actor=client.actor())
    client.note(act, address, report)
    if act == "defer":
        client.deferred.extend((address, number) for _, number in report.settled)
    if act == "renew":
        _settle(client, messages, "complete")


def _dead_letters(client: Client, address) -> None:
    if client.dice.random() < 0.3:
        found = broker.peek(address, max_count=5, actor=client.actor())
        answer = broker.resubmit(address, [m.sequence_number for m in found], actor=client.actor()) if found else {}
        client.journal.write("resubmitted", path=address.path, numbers=sorted(answer.items()))
        return
    held = broker.receive(address, 4, actor=client.actor())
    client.got(held)
    _work_on(client, held)


def _in_a_session(client: Client) -> None:
    """Hold the next session, work through some of it in order, and let it go, or let its lock end."""
    client.count += 1
    hold = f"-{client.count}"
    actor = client.actor(hold)
    session = broker.accept_session(client.scene.address("talks"), max_count=client.dice.choice((0, 1, 3)), actor=actor)
    held = list(session.messages)
    for _ in range(client.dice.randint(1, 6)):
        client.got(held, client.name + hold)
        for message in held:
            act = client.dice.choices(("complete", "abandon", "defer", "forget"), (80, 8, 2, 4))[0]
            if act != "forget":
                client.note(act, session.address, getattr(broker, act)(session.address, [message.lock_token], actor=actor))
            if act in ("abandon", "forget"):
                break  # what comes next in the session is this one again, once its lock has ended
        if client.dice.random() < 0.2:
            session = broker.renew_session(session, actor=actor)
        if client.dice.random() < 0.03:
            time.sleep(LOCK.total_seconds())
        held = broker.receive_from_session(session, client.dice.randint(1, 4), actor=actor)
    client.got(held, client.name + hold)
    if client.dice.random() < 0.9:
        broker.close_session(session, actor=actor)


def meddle(client: Client) -> None:
    """Renew locks that others hold and are about to settle, and settle a few of them."""
    chosen = [client.recent[i] for i in range(-1, -min(len(client.recent), 6) - 1, -1)]
    if not chosen:
        time.sleep(0.002)
        return
    address = chosen[0][0]
    tokens = [token for where, token in chosen if where == address]
    act = client.dice.choices(("renew", "complete", "abandon", "release"), (90, 3, 3, 2))[0]
    client.note(act, address, getattr(broker, act)(address, tokens[: client.dice.randint(1, len(tokens))], actor=client.actor()))


def work(name: str, roles: tuple[str, ...], scene: Scene, database: Database, folder: Path, seed: int) -> None:
    """A child process: one thread for each role, until there is a file named END in the folder."""
    import django

    django.setup()
    logging.getLogger("broker_core").setLevel(logging.ERROR)  # a line for each connection that is ended tells nothing here
    over, recent, deferred = threading.Event(), deque(maxlen=RECENT), deque(maxlen=1000)
    acts = {"sender": send, "receiver": receive, "meddler": meddle}

    def run(number: int, role: str) -> None:
        own = f"{name}-{number}"
        client = Client(own, scene, Journal(folder, own), random.Random(f"{seed}-{own}"), recent, deferred, over)
        with using(database):
            client.go_on(acts[role])
            close_all_of_this_thread()

    threads = [threading.Thread(target=run, args=each, daemon=True) for each in enumerate(roles)]
    for thread in threads:
        thread.start()
    while not (folder / END).exists():  # no lock or pipe, which a killed process might leave taken
        time.sleep(0.05)
    over.set()
    for thread in threads:
        thread.join(15)
