"""Dispatchers: one for each list of messages that calls of this process wait for (docs/design.md D8).

A dispatcher receives for all its listeners by one statement, never more than they want, and hands out what it received. One of
the waiting calls runs that statement for all, in its own thread or event loop; the others only wait for their signal. A message
that cannot be handed out, because its listener went away in that instant, is released.

Nothing here knows a family: `receive` and `release` of a dispatcher are the family's.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple, Protocol

from broker_core.common.errors import BrokerError, BrokerUnavailable, ServerBusy
from broker_core.store import connections
from broker_core.store.driver import Steps, WaitForSignal
from broker_core.store.signals import Signal

from .wake_ups import Poke, WatchedList, wake_ups

MOST_IN_A_ROUND = 500  # messages received by one statement for several listeners
SECONDS_UNANSWERED = 1.0  # after which another waiting call is asked to run the round
SECONDS_BETWEEN_LOOKS = 30.0  # of a waiting call, whether its wake-ups still arrive
_log = logging.getLogger(__name__)
_serve_order = count(1)


class Listener(Protocol):
    """One that wants messages of a list. `deliver` and `signal` may be used by any thread.

    priority: a higher one is served first. served: position of its last delivery in the order of all deliveries.
    signal: set when the listener has messages, or is asked to run a round (`Dispatcher.serve`); None: it cannot run rounds now.
    """

    holder: str
    priority: int
    served: int
    signal: Signal | None

    def capacity(self) -> int:
        """How many messages it may be given now."""

    def deliver(self, received: Sequence[Any]) -> None:
        """Take messages, at most `capacity`. Must not block."""


class Waking(Protocol):
    """What a dispatcher needs of the process's wake-ups (WakeUps)."""

    @property
    def failure(self) -> BrokerError | None: ...
    def watch(self, watched: WatchedList, poke: Poke) -> None: ...
    def unwatch(self, watched: WatchedList, poke: Poke) -> None: ...
    def expect(self, entity_id: int) -> None: ...
    def checked_since(self, since: float, entity_id: int) -> bool: ...
    def run_soon(self, steps: Callable[[], Steps]) -> None: ...


class Received(NamedTuple):
    """The result of a round: each message with its listener, and whether there may be more than was wanted. entity_id: of the
    entity that now has the address."""

    assignments: Sequence[tuple[Listener, Any]]
    may_have_more: bool
    entity_id: int


# Called with the listener whose call runs the round, and all that want messages.
Receive = Callable[[Any, Sequence[Any]], Steps[Received]]
# Called with listeners and the messages that they were not given.
Release = Callable[[Sequence[tuple[Any, Any]]], Steps]


def turns(listeners: Iterable[Listener], most: int) -> list[Any]:
    """The listener of each of the next messages of a list: highest priority first, equal priorities in turn, the one that was
    served longest ago first; none more often than it wants (RMQ-145)."""
    plan: list[Any] = []
    left = {listener: listener.capacity() for listener in listeners}
    for level in sorted({listener.priority for listener in left}, reverse=True):
        turn = deque(
            sorted(
                (candidate for candidate in left if candidate.priority == level and left[candidate] > 0),
                key=lambda candidate: candidate.served,
            )
        )
        while turn and len(plan) < most:
            listener = turn.popleft()
            plan.append(listener)
            left[listener] -= 1
            if left[listener] > 0:
                turn.append(listener)
    return plan


class Waiter:
    """The listener of a call that waits for up to `max_count` messages and ends with the first ones. asked: for the family."""

    __slots__ = ("asked", "holder", "max_count", "priority", "received", "served", "signal")

    def __init__(self, holder: str, max_count: int, asked: Any = None):
        self.holder, self.max_count, self.asked = holder, max_count, asked
        self.priority, self.served = 0, next(_serve_order)  # first come, first served
        self.signal: Signal | None = None  # made when it waits
        self.received: list[Any] = []

    def capacity(self) -> int:
        return 0 if self.received else self.max_count

    def deliver(self, received: Sequence[Any]) -> None:
        self.received += received
        if self.signal is not None:
            self.signal.set()


class Dispatcher:
    """The listeners of one list in this process. Thread-safe. `join` and `leave` make and end them.

    passes_on: a message whose listener is gone goes to another one; otherwise, and if there is none, it is released.
    is_closed: another entity has the address now; listeners look it up again.
    """

    def __init__(self, watched: WatchedList, waking: Waking, receive: Receive, release: Release, *, passes_on: bool = False):
        self.watched, self.is_closed = watched, False
        self._waking, self._receive, self._release, self._passes_on = waking, receive, release, passes_on
        self._lock = threading.Lock()
        self._listeners: dict[Any, int] = {}  # with the number of rounds that each took part in
        self._in_round: Sequence[Any] = ()
        self._overdue: set[Any] = set()  # listeners in a running round whose time is up: they leave when it ends
        self._is_running = False
        self._is_due = False  # there may be messages
        self._called: Any = None  # the listener that was asked to run a round, and has not begun
        self._called_at = 0.0

    def add(self, listener: Listener) -> None:
        """Messages may be there already, so a round is due."""
        with self._lock:
            self._listeners[listener] = 0
            self._is_due = True

    def remove(self, listener: Listener) -> bool:
        """Returns whether it was the last one."""
        with self._lock:
            self._listeners.pop(listener, None)
            self._overdue.discard(listener)
            self._end_call(listener)
            return not self._listeners

    def poke(self) -> None:
        """There may be messages, or a listener wants more: a round is due, which one of the waiting calls is asked to run."""
        with self._lock:
            self._is_due = True
            self._call()

    def serve(self, listener: Listener) -> Steps[None]:
        """Run the rounds that are due, until this listener has messages or there are none. Returns at once while another call
        runs one."""
        try:
            while hungry := self._begin(listener):
                yield from self._run(listener, hungry)
        finally:
            with self._lock:
                self._end_call(listener)

    def wait(self, listener: Listener, max_wait_seconds: float) -> Steps[None]:
        """Wait until the listener, which was added, wants no more, or the time is up; at least one round is run for it. Raises
        BrokerUnavailable if the database does not respond when the time is up."""
        began, has_waited, signal = time.monotonic(), False, listener.signal
        deadline = began + max_wait_seconds
        assert signal is not None
        while True:
            signal.clear()
            try:
                yield from self.serve(listener)
            except (BrokerUnavailable, ServerBusy):
                if not has_waited:
                    raise
            if self.is_closed or not listener.capacity():
                return
            left = deadline - time.monotonic()
            if left > 0:
                self._waking.expect(self.watched.entity_id)
                has_waited = True
            elif self.may_leave(listener):
                if has_waited and (failure := self._waking.failure) is not None:
                    raise BrokerUnavailable(failure.message) from failure
                if not has_waited or self._waking.checked_since(began, self.watched.entity_id):
                    return
                began = 0.0  # the time was too short for the first check, so there is another round
                self.poke()
            yield WaitForSignal(signal, min(left, SECONDS_BETWEEN_LOOKS) if left > 0 else SECONDS_UNANSWERED)

    def release_soon(self, listener: Listener, received: Sequence[Any]) -> None:
        """Release what was delivered to a listener whose call has ended in that instant and can run no steps."""
        assignments = [(listener, message) for message in received]
        self._waking.run_soon(lambda: self._release(assignments))

    def close(self) -> None:
        """The entity was deleted, and another one has its address."""
        with self._lock:
            self.is_closed = True
            for listener in self._listeners:
                if listener.signal is not None:
                    listener.signal.set()

    def _run(self, listener: Listener, hungry: Sequence[Any]) -> Steps[None]:
        """Run the round that `_begin` began."""
        is_due = True
        try:
            received = yield from self._receive(listener, hungry)
            missed = self._hand_out(received.assignments)
            is_due = received.may_have_more
        except (BrokerUnavailable, ServerBusy):
            is_due = False  # the check of all entities finds the messages once the database responds
            raise
        finally:
            with self._lock:
                self._end(is_due)
        if received.entity_id != self.watched.entity_id:
            self.close()
        if missed:
            try:
                yield from self._release(missed)
            except BrokerError as exc:
                _log.warning("%d messages for receivers that had gone stay locked: %s", len(missed), exc)

    def _begin(self, listener: Listener) -> list[Any]:
        """The listeners of the round that this call runs now. Empty: none is due, another call runs one, or this listener has
        what it wanted; the round is then left to another call."""
        with self._lock:
            if self._is_running or not self._is_due or self.is_closed or not listener.capacity():
                return []
            hungry = [candidate for candidate in self._listeners if candidate.capacity() > 0]
            self._is_running, self._is_due, self._called, self._in_round = True, False, None, hungry
            return hungry

    def _end(self, is_due: bool) -> None:
        self._is_running = False
        self._is_due = self._is_due or is_due
        for listener in self._in_round:
            if listener in self._listeners:
                self._listeners[listener] += 1
        self._in_round = ()
        for listener in self._overdue:
            listener.signal.set()
        self._overdue.clear()

    def _call(self) -> None:
        """Ask a waiting call to run the round that is due; another one if it does not answer."""
        now = time.monotonic()
        if self._is_running or not self._is_due or (self._called and now < self._called_at + SECONDS_UNANSWERED):
            return
        able = (
            candidate
            for candidate in self._listeners
            if candidate.signal is not None and candidate is not self._called and candidate.capacity() > 0
        )
        if (listener := next(able, None)) is not None:
            self._called, self._called_at = listener, now
            listener.signal.set()

    def _end_call(self, listener: Listener) -> None:
        """This listener runs no round now: if one is due, another is asked."""
        if self._called is listener:
            self._called = None
        self._call()

    def _hand_out(self, assignments: Sequence[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Deliver messages. Returns those whose listener is gone."""
        shares: dict[Any, list[Any]] = {}
        missed: list[tuple[Any, Any]] = []
        with self._lock:
            for chosen, received in assignments:
                listener = chosen
                if chosen not in self._listeners and self._passes_on:
                    listener = next(
                        (candidate for candidate in self._listeners if candidate.capacity() > len(shares.get(candidate, ()))),
                        chosen,
                    )
                if listener in self._listeners:
                    shares.setdefault(listener, []).append(received)
                else:
                    missed.append((listener, received))
            for listener, share in shares.items():
                listener.served = next(_serve_order)
                listener.deliver(share)
        return missed

    def may_leave(self, listener: Listener) -> bool:
        """Whether the listener took part in a round, or wants nothing; and is in no round that is running, which may still give
        it messages."""
        with self._lock:
            if listener in self._in_round:
                self._overdue.add(listener)
                return False
            return self._listeners[listener] > 0 or not listener.capacity()


_dispatchers: dict[tuple[connections.Database, WatchedList, Hashable], Dispatcher] = {}
_joining = threading.Lock()


def join(
    listener: Listener, watched: WatchedList, mode: Hashable, receive: Receive, release: Release, *, passes_on: bool = False
) -> Dispatcher:
    """Add a listener to the dispatcher of a list, which is made if there is none. `leave` must follow.

    mode: how it receives; listeners of the same list and mode share a dispatcher, with `receive` and `release` of the first.
    """
    waking, key = wake_ups(), (connections.current_database(), watched, mode)
    with _joining:
        dispatcher = _dispatchers.get(key)
        if dispatcher is None or dispatcher.is_closed:
            dispatcher = _dispatchers[key] = Dispatcher(watched, waking, receive, release, passes_on=passes_on)
            waking.watch(watched, dispatcher.poke)
        dispatcher.add(listener)
        return dispatcher


def leave(dispatcher: Dispatcher, listener: Listener) -> None:
    with _joining:
        if dispatcher.remove(listener):
            dispatcher._waking.unwatch(dispatcher.watched, dispatcher.poke)
            for key in [key for key, other in _dispatchers.items() if other is dispatcher]:
                del _dispatchers[key]


def wait_in_turn(
    waiter: Waiter,
    watched: WatchedList,
    mode: Hashable,
    receive: Receive,
    release: Release,
    max_wait_seconds: float,
    *,
    passes_on: bool = False,
) -> Steps[bool]:
    """Receive for a waiter, together with the others that wait for the same list; wait at most so long. Returns False if the
    entity was replaced: the caller looks up its address again."""
    waiter.signal = waiter.signal or Signal()
    dispatcher = join(waiter, watched, mode, receive, release, passes_on=passes_on)
    is_claimed = False
    try:
        yield from dispatcher.wait(waiter, max_wait_seconds)
        is_claimed = True
    finally:
        leave(dispatcher, waiter)
        if waiter.received and not is_claimed:
            dispatcher.release_soon(waiter, waiter.received)
    return bool(waiter.received) or not dispatcher.is_closed


def _reset_after_fork() -> None:
    global _joining
    _joining = threading.Lock()
    _dispatchers.clear()


os.register_at_fork(after_in_child=_reset_after_fork)
