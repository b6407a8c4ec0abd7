"""The entities that calls of this process wait for, and what wakes these calls (docs/design.md D8).

A commit of this process wakes them directly. One thread per process and database does the rest, on one connection: it receives
the notifications of other processes, marks the entities as waited for, so that other processes notify, and once a second asks by
a single statement which of them are ready: because of time (scheduled messages, locks, expiry), a missed notification, or because
they were deleted or changed. The thread ends when no call waits any more. A child process starts without waiting calls.
"""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from uuid import UUID

from broker_core.common.errors import BrokerError
from broker_core.common.types import SubQueue, WaitKind
from broker_core.store import connections, driver
from broker_core.store.driver import Steps
from broker_core.store.notifications import Notifications
from broker_core.store.statements import call

SECONDS_BETWEEN_CHECKS = 1.0  # of all entities
SECONDS_BETWEEN_MARKS = 0.02  # of one entity: at most one notification in this time
SECONDS_TO_SECOND_CHECK = 0.05  # a send that is under way when an entity is marked may not have seen the mark
SECONDS_MARKED = 3.0  # how long a mark holds
SECONDS_LEFT_TO_RENEW = 1.5  # a mark is renewed when less is left
SECONDS_TO_LINGER = 5.0  # without waiting calls, before the thread ends
RECONNECT_SECONDS = 0.5, 2.0  # a random pause in this range, so that processes do not return all at once
_JOIN_SECONDS = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WatchedList:
    """A list of messages of an entity, or its sessions. session_token: of the locked session, for its messages."""

    entity_id: int
    subqueue: int = SubQueue.MAIN
    kind: WaitKind = WaitKind.MESSAGES
    session_id: str | None = None
    session_token: UUID | None = None


Poke = Callable[[], object]  # called by any thread when messages may have arrived; must not block


@dataclass(slots=True, eq=False)
class _Entity:
    """An entity that is, or was until a moment ago, waited for. Times are of the monotonic clock."""

    pokes: list[tuple[WatchedList, Poke]] = field(default_factory=list)
    marked_until: float = 0.0
    checked_at: float = 0.0
    check_at: float | None = None  # when to check it before the regular check
    confirmed_at: float = 0.0  # when the last check that succeeded began
    poked_at: float = 0.0  # when a commit of this process woke its calls
    left_at: float = 0.0  # when the last call left


class WakeUps:
    """The waiting calls of this process for entities of one database. Thread-safe."""

    def __init__(self, database: connections.Database):
        self._database = database
        self._lock = threading.Lock()
        self._entities: dict[int, _Entity] = {}
        self._left_behind: deque[Callable[[], Steps]] = deque()
        self._thread: threading.Thread | None = None
        self._is_stopping = False
        self._failure: BrokerError | None = None
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)

    # For waiting calls

    def watch(self, watched: WatchedList, poke: Poke) -> None:
        """Have `poke` called whenever messages may have arrived, or the entity was changed. The caller looks for messages once
        after this call, and calls `expect` before it begins to wait."""
        with self._lock:
            self._entities.setdefault(watched.entity_id, _Entity()).pokes.append((watched, poke))

    def unwatch(self, watched: WatchedList, poke: Poke) -> None:
        with self._lock:
            entity = self._entities[watched.entity_id]
            entity.pokes.remove((watched, poke))
            if not entity.pokes:
                entity.left_at = time.monotonic()

    def expect(self, entity_id: int) -> None:
        """A call begins to wait for this entity, or still waits: make sure that other processes wake it."""
        with self._lock:
            entity, now = self._entities[entity_id], time.monotonic()
            is_due = entity.marked_until <= now and entity.check_at is None
            if is_due:
                entity.check_at = max(now, entity.checked_at + SECONDS_BETWEEN_MARKS)
            is_running = self._is_running()
        if is_due or not is_running:
            self._start()

    def poke(self, entity_ids: Iterable[int], subqueue: int | None = None) -> None:
        """Messages of these entities may have become available, or the entities were changed. subqueue: in this list only."""
        for entity_id in entity_ids:
            if (entity := self._entities.get(entity_id)) is not None:
                entity.poked_at = time.monotonic()
                self._poke_all(entity_id, subqueue)

    @property
    def has_calls(self) -> bool:
        """Whether any call of this process waits, or did a moment ago."""
        return bool(self._entities)

    @property
    def failure(self) -> BrokerError | None:
        """Why the database does not respond; None if it does."""
        return self._failure

    def checked_since(self, since: float, entity_id: int) -> bool:
        """Whether this entity, which is being waited for, was checked after an instant of the monotonic clock."""
        return self._entities[entity_id].confirmed_at >= since

    def run_soon(self, steps: Callable[[], Steps]) -> None:
        """Run steps on this object's thread: they release what was received for a call that ended in that instant."""
        self._left_behind.append(steps)
        self._start()

    # The thread

    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _start(self) -> None:
        with self._lock:
            if not self._is_running():
                self._is_stopping = False
                self._thread = threading.Thread(target=self._run, name="vitrine-wake-ups", daemon=True)
                self._thread.start()
        self._interrupt()

    def _interrupt(self) -> None:
        with suppress(OSError):  # the buffer is full, so the thread will look
            self._wake.send(b"\0")

    def stop(self) -> None:
        """End the thread and close its connection. Calls that still wait start it again."""
        self._is_stopping = True
        self._interrupt()
        if (thread := self._thread) is not None and thread is not threading.current_thread():
            thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        with connections.using(self._database):
            try:
                while not self._may_end():
                    try:
                        self._keep(Notifications())
                    except BrokerError as exc:
                        self._pause_after(exc)
                    except Exception as exc:
                        _log.exception("Waking receivers failed; it is tried again")
                        self._pause_after(BrokerError(str(exc)))
            finally:
                connections.close_all_of_this_thread()

    def _may_end(self) -> bool:
        """Whether the thread ends. Then `_start` starts another one."""
        with self._lock:
            now = time.monotonic()
            for entity_id in [i for i, e in self._entities.items() if not e.pokes and e.left_at < now - SECONDS_TO_LINGER]:
                del self._entities[entity_id]
            ends = self._is_stopping or not (self._entities or self._left_behind)
            if ends:
                self._thread = self._failure = None
                for entity in self._entities.values():
                    entity.marked_until = 0.0
            return ends

    def _pause_after(self, exc: BrokerError) -> None:
        """The database does not respond: waiting calls stay, and the connection is opened again after a while."""
        if self._failure is None:
            _log.warning("The database does not respond; waiting receivers are woken when it does again: %s", exc)
        self._failure = exc
        for entity in list(self._entities.values()):
            entity.marked_until, entity.check_at = 0.0, None
        ends_at = time.monotonic() + random.uniform(*RECONNECT_SECONDS)
        while not self._is_stopping and (left := ends_at - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))

    def _keep(self, notifications: Notifications) -> None:
        check_all_at = 0.0
        while not self._may_end():
            now = time.monotonic()
            is_regular = now >= check_all_at
            if is_regular:
                check_all_at = now + SECONDS_BETWEEN_CHECKS
            self._check(self._due(now, is_regular))
            self._failure = None
            self._release_left_behind()
            with self._lock:
                soonest = min((e.check_at for e in self._entities.values() if e.check_at is not None), default=check_all_at)
            for entity_id in notifications.wait(min(soonest, check_all_at) - time.monotonic(), self._woken):
                self._notified(entity_id)

    def _due(self, now: float, is_regular: bool) -> list[WatchedList]:
        """The lists to check now: all, or those with an early check."""
        with self._lock:
            due: dict[WatchedList, None] = {}
            for entity in self._entities.values():
                is_early = entity.check_at is not None and entity.check_at <= now
                if is_regular or is_early:
                    due.update(dict.fromkeys(watched for watched, _ in entity.pokes))
                    entity.checked_at = now
                if is_early:
                    entity.check_at = None
            return list(due)

    def _check(self, lists: list[WatchedList]) -> None:
        """Mark these entities as waited for, and wake the calls of those that are ready or do not exist any more."""
        began = time.monotonic()
        rows = driver.run(_ask(lists)) if lists else []
        rows_by_list = {lists[row.place - 1]: row for row in rows}
        with self._lock:
            for watched in lists:
                if (entity := self._entities.get(watched.entity_id)) is not None:
                    entity.confirmed_at = began
                    if watched in rows_by_list:
                        self._marked(entity, rows_by_list[watched].is_marked, began)
        for watched in lists:
            if watched not in rows_by_list or rows_by_list[watched].is_ready:
                for watched_list, poke in self._pokes(watched.entity_id):
                    if watched_list == watched:
                        poke()

    @staticmethod
    def _marked(entity: _Entity, is_marked: bool, at: float) -> None:
        was_marked = entity.marked_until > at
        entity.marked_until = at + SECONDS_LEFT_TO_RENEW if is_marked else 0.0
        if not (was_marked and is_marked):
            entity.check_at = at + SECONDS_TO_SECOND_CHECK

    def _notified(self, entity_id: int) -> None:
        """The sender has removed the mark. If a commit of this process has just woken the calls, the notification is probably its
        own; the check that sets the mark again wakes them for another one."""
        with self._lock:
            entity, now = self._entities.get(entity_id), time.monotonic()
            if entity is None:
                return
            entity.marked_until = 0.0
            if entity.pokes:
                soonest = max(now, entity.checked_at + SECONDS_BETWEEN_MARKS)
                entity.check_at = min(soonest, entity.check_at or soonest)
        if now > entity.poked_at + SECONDS_BETWEEN_MARKS:
            self._poke_all(entity_id)

    def _poke_all(self, entity_id: int, subqueue: int | None = None) -> None:
        for watched, poke in self._pokes(entity_id):
            if subqueue in (None, watched.subqueue):
                poke()

    def _pokes(self, entity_id: int) -> list[tuple[WatchedList, Poke]]:
        with self._lock:
            entity = self._entities.get(entity_id)
            return list(entity.pokes) if entity is not None else []

    def _release_left_behind(self) -> None:
        while self._left_behind:
            steps = self._left_behind.popleft()
            try:
                driver.run(steps())
            except BrokerError as exc:
                _log.warning("Could not release what was received for a call that has ended: %s", exc)


def _ask(lists: list[WatchedList]) -> Steps[list]:
    return (
        yield call(
            "watch_entities",
            entity_ids=[watched.entity_id for watched in lists],
            subqueues=[int(watched.subqueue) for watched in lists],
            kinds=[int(watched.kind) for watched in lists],
            session_ids=[watched.session_id for watched in lists],
            session_tokens=[watched.session_token for watched in lists],
            seconds=SECONDS_MARKED,
            renewed_below=SECONDS_LEFT_TO_RENEW,
        )
    )


_of_database: dict[connections.Database, WakeUps] = {}
_making = threading.Lock()


def wake_ups() -> WakeUps:
    """Those of the database in use."""
    database = connections.current_database()
    instance = _of_database.get(database)
    if instance is None:
        with _making:
            instance = _of_database.setdefault(database, WakeUps(database))
    return instance


@contextmanager
def watching(lists: Collection[WatchedList], poke: Poke) -> Iterator[WakeUps]:
    """Within the block, `poke` is called whenever messages of these lists may have arrived."""
    waking = wake_ups()
    for watched in lists:
        waking.watch(watched, poke)
    try:
        yield waking
    finally:
        for watched in lists:
            waking.unwatch(watched, poke)


def _stop_all() -> None:
    for instance in list(_of_database.values()):
        instance.stop()


def _reset_after_fork() -> None:
    """The parent's calls wait in the parent."""
    global _making
    _making = threading.Lock()
    _of_database.clear()


connections.at_close(_stop_all)
os.register_at_fork(after_in_child=_reset_after_fork)
