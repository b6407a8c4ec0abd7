"""The messages this process has taken and not settled yet.

They belong to the process and not to a channel: a task that runs while its connection is lost and made again is acknowledged by
its lock token alone, whichever channel it came by. One thread settles, in groups: what gathered while the last statement ran goes
into the next one, so a lone acknowledgement goes out at once and a crowd of them shares a statement. While the database does not
answer they wait and are tried again; a lock that ended meanwhile is logged, and its message is delivered again.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any
from uuid import UUID

from broker_core import service_bus
from broker_core.common.errors import BrokerError
from broker_core.common.types import Actor, EntityAddress, LockedMessage
from broker_core.service_bus.renewal import renewer
from broker_core.store.connections import Database, using

logger = logging.getLogger(__name__)

RETRY_AFTER_SECONDS = 0.5
SECONDS_TO_SETTLE_AT_EXIT = 5
REJECTED = "Rejected"
REJECTED_DESCRIPTION = "A worker rejected the task without requeueing it. See the worker's log for the cause."


class How(StrEnum):
    """How a message leaves this process's hands."""

    COMPLETE = "complete"
    ABANDON = "abandon"  # requeue: a failed delivery
    REJECT = "reject"  # to the dead-letter queue
    RELEASE = "release"  # never started: no delivery counted


_ACTIONS: dict[How, Callable[..., Any]] = {
    How.COMPLETE: service_bus.complete,
    How.ABANDON: service_bus.abandon,
    How.REJECT: partial(service_bus.dead_letter, reason=REJECTED, description=REJECTED_DESCRIPTION),
    How.RELEASE: service_bus.release,
}


@dataclass(frozen=True, slots=True)
class Holding:
    """A lock of this process: where, and which."""

    database: Database
    address: EntityAddress
    actor: Actor
    token: UUID


class Holdings:
    """What this process holds; safe to use from any thread. A forked child begins with nothing: the locks are its parent's."""

    def __init__(self) -> None:
        self._forget_all()
        os.register_at_fork(after_in_child=self._forget_all)
        atexit.register(self.settle_all, SECONDS_TO_SETTLE_AT_EXIT)

    def _forget_all(self) -> None:
        self._held: dict[str, Holding] = {}
        self._leaving: deque[tuple[How, Holding]] = deque()
        self._changed = threading.Condition()
        self._settling = False
        self._thread: threading.Thread | None = None

    def take(self, message: LockedMessage, database: Database, actor: Actor) -> str:
        """Note a message just received, and renew its lock until it is settled. Returns its delivery tag."""
        tag = str(message.lock_token)
        self._held[tag] = Holding(database, message.address, actor, message.lock_token)
        with using(database):
            renewer.hold(message, actor=actor, on_lost=lambda _: self._held.pop(tag, None))
        return tag

    def holds(self, tag: str) -> bool:
        """Whether the message is still this process's: not settled, and its lock not known to have ended."""
        return tag in self._held

    def settle(self, tag: str, how: How) -> None:
        """Settle the message with this delivery tag, soon. Of a tag that is not held nothing is left to settle."""
        holding = self._held.pop(tag, None)
        if holding is None:
            return
        renewer.drop([holding.token])
        with self._changed:
            self._leaving.append((how, holding))
            if self._thread is None:
                self._thread = threading.Thread(target=self._settle_forever, name="vitrine-settle", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def settle_all(self, seconds: float) -> bool:
        """Wait at most so long until all that was asked to be settled is. Returns whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._leaving and not self._settling, seconds)

    def _settle_forever(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._leaving)
                group, self._leaving, self._settling = self._leaving, deque(), True
            left = self._settle(group)
            with self._changed:
                self._leaving.extendleft(reversed(left))
                self._settling = False
                self._changed.notify_all()
            if left:
                time.sleep(RETRY_AFTER_SECONDS)

    def _settle(self, group: deque[tuple[How, Holding]]) -> list[tuple[How, Holding]]:
        """Settle them, a statement for each queue and way. Returns those to be tried again."""
        by_call = defaultdict(list)
        for how, holding in group:
            by_call[how, holding.database, holding.address, holding.actor].append(holding)
        left = []
        for (how, database, address, actor), holdings in by_call.items():
            if not _carry_out(how, database, address, actor, [h.token for h in holdings]):
                left += [(how, holding) for holding in holdings]
        return left


def _carry_out(how: How, database: Database, address: EntityAddress, actor: Actor, tokens: list[UUID]) -> bool:
    """One settling call. False: it may succeed later. Never raises, for it runs in the only thread that settles."""
    try:
        with using(database):
            report = _ACTIONS[how](address, tokens, actor=actor)
    except BrokerError as refusal:
        logger.warning("Could not %s %d messages of %s: %s", how, len(tokens), address, refusal)
        return not refusal.retryable
    except Exception:
        logger.exception("Could not %s %d messages of %s; they are redelivered when their locks end", how, len(tokens), address)
        return True
    for token in report.lost:
        logger.warning("The lock %s of %s ended before its message was settled (%s); the task may run again", token, address, how)
    return True


HOLDINGS = Holdings()
