"""The clients of a soak: child processes of several threads each, to be killed at any moment.

Each does what a client of its family may do, at random, and notes what the broker promised it. A refusal that a client must live
with is none of the soak's business; anything else that is raised is noted, and fails it.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing import parent_process
from pathlib import Path
from typing import Any

from broker_core.common import errors
from broker_core.common.types import Actor, Right
from broker_core.store.connections import Database, close_all_of_this_thread, using

from .journal import Journal

MUST_LIVE_WITH = (
    errors.BrokerUnavailable,
    errors.ServerBusy,
    errors.MessageNotFound,
    errors.SessionLockLost,
    errors.NoSessionAvailable,
    errors.SessionCannotBeLocked,
)
BACKLOG_BREAK = 0.01  # seconds a sender rests between batches, so that receivers keep up
RECENT = 24  # what others hold, for meddlers to choose from
END = "end"


@dataclass
class Client:
    """One thread of a child process, with a journal of its own.

    recent, deferred: what the family's clients of this process leave for each other. own: what its family keeps for it.
    """

    name: str
    scene: Any
    journal: Journal
    dice: random.Random
    recent: deque
    deferred: deque
    ending: threading.Event
    count: int = 0
    own: Any = None

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

    def chance(self, share: float) -> bool:
        return self.dice.random() < share

    def unique(self) -> str:
        """What no other client has or had."""
        self.count += 1
        return f"{self.name}-{self.count}"


def work(name: str, turn: int, roles: tuple[str, ...], parts: Sequence[Any], database: Database, folder: Path, seed: int) -> None:
    """A child process: one thread for each role, until there is a file named END in the folder.

    parts: of the soak's families, which the threads take in turns. turn: whose is the first.
    """
    import django

    django.setup()
    logging.getLogger("broker_core").setLevel(logging.ERROR)  # a line for each connection that is ended tells nothing here
    over = threading.Event()
    shared = [(deque(maxlen=RECENT), deque(maxlen=1000)) for _ in parts]

    def run(number: int, role: str) -> None:
        own, chosen = f"{name}-{number}", (turn + number) % len(parts)
        part = parts[chosen]
        client = Client(
            own, part.scene, Journal(folder / part.family, own), random.Random(f"{seed}-{own}"), *shared[chosen], over
        )
        with using(database):
            client.go_on(part.acts[role])
            close_all_of_this_thread()

    threads = [threading.Thread(target=run, args=each, daemon=True) for each in enumerate(roles)]
    for thread in threads:
        thread.start()
    # No lock or pipe, which a killed process might leave taken. A soak that was killed itself leaves nobody behind.
    while not (folder / END).exists() and parent_process().is_alive():
        time.sleep(0.05)
    over.set()
    for thread in threads:
        thread.join(15)
