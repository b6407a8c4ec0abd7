"""The messages that this process has received and not settled yet.

They belong to the process rather than to a channel: a task that runs while its connection is re-established is acknowledged by
its lock token alone. One thread settles in groups: requests that arrive while a statement runs share the next one, so a single
acknowledgement is sent at once. A channel that receives from the queue takes along what is queued at that moment: both are one
transaction. While the database does not respond, requests wait and are tried again. If a lock ends before, this is logged, and
the message is delivered again.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any
from uuid import UUID

from broker_core import service_bus
from broker_core.common.errors import BrokerError
from broker_core.common.types import Actor, EntityAddress
from broker_core.service_bus.messages.renewal import renewer
from broker_core.service_bus.rules.values import LockedMessage
from broker_core.store.connections import Database, using

logger = logging.getLogger(__name__)

RETRY_AFTER_SECONDS = 0.5
SECONDS_TO_SETTLE_AT_EXIT = 5
REJECTED = "Rejected"
REJECTED_DESCRIPTION = "A worker rejected the task without requeueing it. See the worker's log for the cause."


class How(StrEnum):
    """How a message is settled."""

    COMPLETE = "complete"
    ABANDON = "abandon"  # requeued: a failed delivery
    REJECT = "reject"  # dead-lettered
    RELEASE = "release"  # not started: the delivery is not counted


_ACTIONS: dict[How, Callable[..., Any]] = {
    How.COMPLETE: service_bus.complete,
    How.ABANDON: service_bus.abandon,
    How.REJECT: partial(service_bus.dead_letter, reason=REJECTED, description=REJECTED_DESCRIPTION),
    How.RELEASE: service_bus.release,
}


@dataclass(frozen=True, slots=True)
class Holding:
    """A lock that this process holds."""

    database: Database
    address: EntityAddress
    actor: Actor
    token: UUID


class Holdings:
    """The locks that this process holds. Thread-safe. A forked child starts without any: the locks are its parent's."""

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)
        atexit.register(self.settle_all, SECONDS_TO_SETTLE_AT_EXIT)

    def _reset(self) -> None:
        self._holdings: dict[str, Holding] = {}
        self._pending: deque[tuple[How, Holding]] = deque()
        self._changed = threading.Condition()
        self._settling = 0  # groups that are being settled
        self._thread: threading.Thread | None = None

    def add(self, message: LockedMessage, database: Database, actor: Actor) -> str:
        """Add a received message, and renew its lock until it is settled. Returns its delivery tag."""
        tag = str(message.lock_token)
        self._holdings[tag] = Holding(database, message.address, actor, message.lock_token)
        with using(database):
            renewer.hold(message, actor=actor, on_lost=lambda _: self._holdings.pop(tag, None))
        return tag

    def holds(self, tag: str) -> bool:
        """Whether the message is not settled and its lock is not known to have ended."""
        return tag in self._holdings

    def settle(self, tag: str, how: How) -> None:
        """Queue the message with this delivery tag for settlement. Does nothing for an unknown tag."""
        holding = self._holdings.pop(tag, None)
        if holding is None:
            return
        renewer.drop([holding.token])
        with self._changed:
            self._pending.append((how, holding))
            if self._thread is None:
                self._thread = threading.Thread(target=self._settle_forever, name="vitrine-settle", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def settle_all(self, seconds: float) -> bool:
        """Wait at most so long for all queued settlements. Returns whether they are done."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._pending and not self._settling, seconds)

    def _settle_forever(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending)
                group, self._pending = self._pending, deque()
                self._settling += 1
            failed = self._settle(group)
            self._end_group(failed)
            if failed:
                time.sleep(RETRY_AFTER_SECONDS)

    def _end_group(self, failed: Iterable[tuple[How, Holding]]) -> None:
        with self._changed:
            self._pending.extendleft(reversed(list(failed)))
            self._settling -= 1
            self._changed.notify_all()

    @contextmanager
    def completions(self, database: Database, address: EntityAddress, actor: Actor) -> Iterator[list[UUID]]:
        """The tokens of a queue's messages that are queued to be completed, which the block does. If it fails, they are queued
        again."""
        taken: list[tuple[How, Holding]] = []
        with self._changed:
            pending, self._pending = self._pending, deque()
            for how, holding in pending:
                is_taken = how is How.COMPLETE and (holding.database, holding.address, holding.actor) == (
                    database,
                    address,
                    actor,
                )
                (taken if is_taken else self._pending).append((how, holding))
            self._settling += 1
        failed = taken
        try:
            yield [holding.token for _, holding in taken]
            failed = []
        finally:
            self._end_group(failed)

    def _settle(self, group: deque[tuple[How, Holding]]) -> list[tuple[How, Holding]]:
        """Settle the messages of a group, in one call per queue and settlement. Returns those to be tried again."""
        by_call = defaultdict(list)
        for how, holding in group:
            by_call[how, holding.database, holding.address, holding.actor].append(holding)
        failed = []
        for (how, database, address, actor), holdings in by_call.items():
            if not _settle_tokens(how, database, address, actor, [h.token for h in holdings]):
                failed += [(how, holding) for holding in holdings]
        return failed


def _settle_tokens(how: How, database: Database, address: EntityAddress, actor: Actor, tokens: list[UUID]) -> bool:
    """Make one settling call. False: a retry may succeed. Never raises, since it runs in the only thread that settles."""
    try:
        with using(database):
            report = _ACTIONS[how](address, tokens, actor=actor)
    except BrokerError as refusal:
        logger.warning("Could not %s %d messages of %s: %s", how, len(tokens), address, refusal)
        return not refusal.retryable
    except Exception:
        logger.exception("Could not %s %d messages of %s; they are redelivered when their locks end", how, len(tokens), address)
        return True
    report_lost(how, address, report.lost)
    return True


def report_lost(how: How, address: EntityAddress, tokens: Iterable[UUID]) -> None:
    for token in tokens:
        logger.warning("The lock %s of %s ended before its message was settled (%s); the task may run again", token, address, how)


HOLDINGS = Holdings()
