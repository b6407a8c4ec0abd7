"""Automatic renewal of locks on messages (SB-064) and sessions (SB-116), by one daemon thread per process.

The thread renews the locked messages of each entity in one statement, and each session, well before the first lock ends. Locks
that cannot be renewed are dropped, and reported to their on_lost callbacks.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

from broker_core.common.errors import BrokerError
from broker_core.common.types import Actor, EntityAddress
from broker_core.service_bus.rules.values import LockedMessage, Session
from broker_core.store import connections

log = logging.getLogger(__name__)
SHARE_OF_LOCK = 1 / 3  # renew when this much of the lock's duration has passed
LONGEST_PAUSE = 20.0  # seconds; the lock duration may be shortened in the meantime


@dataclass(slots=True)
class RenewedLock:
    """A lock being renewed, on a message or a session. Times are of the monotonic clock, in seconds."""

    session: Session | None
    address: EntityAddress
    database: connections.Database
    actor: Actor
    until: float | None
    on_lost: Callable[[UUID], object] | None
    renew_at: float


Renewed = tuple[Sequence[UUID], Sequence[UUID], timedelta]  # renewed tokens, lost tokens, lock duration


class LockRenewer:
    """Renews locks. Thread-safe; after a fork the child starts without locks.

    renew: renews the locks of an entity's messages, or a session; sessions.py sets it.
    """

    renew: Callable[[EntityAddress, Sequence[UUID], Session | None, Actor], Renewed]

    def __init__(self) -> None:
        self._reset()
        os.register_at_fork(after_in_child=self._reset)

    def _reset(self) -> None:
        self._locks: dict[UUID, RenewedLock] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def hold(
        self,
        locked: LockedMessage | Session,
        *,
        for_: timedelta | None = None,
        on_lost: Callable[[UUID], object] | None = None,
        actor: Actor | None = None,
    ) -> None:
        """Renew the lock of a received message or an accepted session until drop(), or for the time `for_`.

        on_lost: called from the renewal thread if the lock could not be renewed; not after drop().
        """
        now = time.monotonic()
        lock = RenewedLock(
            replace(locked, state=None, messages=()) if isinstance(locked, Session) else None,
            locked.address,
            connections.current_database(),
            actor or Actor.local(),
            None if for_ is None else now + for_.total_seconds(),
            on_lost,
            now + _pause(locked.lock_duration),
        )
        with self._changed:
            self._locks[locked.lock_token] = lock
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="vitrine-lock-renewal", daemon=True)
                self._thread.start()
            self._changed.notify()

    @property
    def has_locks(self) -> bool:
        return bool(self._locks)

    def drop(self, tokens: Iterable[UUID]) -> None:
        """Stop renewing these locks."""
        with self._changed:
            for token in tokens:
                self._locks.pop(token, None)

    def tokens(self) -> list[UUID]:
        with self._changed:
            return list(self._locks)

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._locks:
                    self._changed.wait(timeout=60)
                now = time.monotonic()
                for token in [token for token, lock in self._locks.items() if lock.until is not None and lock.until <= now]:
                    del self._locks[token]
                if not self._locks:
                    continue
                soonest = min(lock.renew_at for lock in self._locks.values())
                if soonest > now:
                    self._changed.wait(timeout=soonest - now)
                    continue
                due = {token: lock for token, lock in self._locks.items() if lock.renew_at <= now}
            try:
                self._renew(due)
            except Exception:
                log.exception("Renewing locks failed; they are tried again")
                self._postpone(list(due), timedelta(seconds=3))

    def _renew(self, due: dict[UUID, RenewedLock]) -> None:
        groups: dict[tuple, list[UUID]] = defaultdict(list)
        for token, lock in due.items():
            groups[lock.address, lock.database, lock.actor, lock.session].append(token)
        for (address, database, actor, session), tokens in groups.items():
            try:
                with connections.using(database):
                    renewed, lost, lock_duration = self.renew(address, tokens, session, actor)
            except BrokerError as exc:
                if exc.retryable:
                    log.warning("Locks on %s could not be renewed yet: %s", address, exc)
                    self._postpone(tokens, timedelta(seconds=3))
                else:
                    self._lose(tokens, address)
                continue
            if renewed:
                self._postpone(renewed, lock_duration)
            self._lose(lost, address)

    def _postpone(self, tokens: Sequence[UUID], lock_duration: timedelta) -> None:
        with self._changed:
            for token in tokens:
                if token in self._locks:
                    self._locks[token].renew_at = time.monotonic() + _pause(lock_duration)

    def _lose(self, tokens: Sequence[UUID], address: EntityAddress) -> None:
        for token in tokens:
            with self._changed:
                lock = self._locks.pop(token, None)
            if lock is not None:
                log.warning("The lock %s on %s was lost", token, address)
                if lock.on_lost:
                    lock.on_lost(token)


def _pause(lock_duration: timedelta) -> float:
    return min(lock_duration.total_seconds() * SHARE_OF_LOCK, LONGEST_PAUSE)


renewer = LockRenewer()
