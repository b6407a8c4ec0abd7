"""Combine concurrent calls of a process into few statements (docs/design.md D3, D12).

A call is made at once if no other call with its key is being made. Calls that arrive meanwhile go together into the next one, so
a single caller keeps its latency and many callers get batches. Threads are combined with threads, and tasks with tasks of their
event loop; there is no background thread. Calls with one key are made in the order in which they arrive.

A refusal of one caller never reaches another: a group that is refused is split, and each call is made separately. If the database
fails, it does so for the whole group, and nothing is made again.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from broker_core.common.errors import BrokerError, BrokerUnavailable, ServerBusy, StorageFull
from broker_core.store import connections
from broker_core.store.driver import Gathered, Steps

A = TypeVar("A")
R = TypeVar("R")
C = TypeVar("C", bound="_Call")

MOST_IN_A_GROUP = 500
SECONDS_FOR_A_GROUP = 1.0  # groups are smaller if calls are slow: a topic of 2,000 subscriptions stores 2,000 copies of a message
FEWEST_IN_A_GROUP = 10  # however slow, so that a slow database gets few statements
_ABOUT_THE_SERVER = (BrokerUnavailable, ServerBusy, StorageFull)  # these reach the whole group: another attempt would not help
_CHECK_SECONDS = 1.0  # after which a waiting thread checks whether it must lead: an interrupted leader may wake no thread


class Gathering(Generic[A, R]):
    """Calls of one kind that may be combined.

    together: steps that make the calls of a group, one or more. They get the key and the argument of each call, and return the
        outcome of each, in order: a result, or an exception to be raised in its caller. A refusal that they raise means that
        nothing was changed.
    size_of: what an argument adds to the size of its group. A group is as large as SECONDS_FOR_A_GROUP allows at the speed of the
        previous one, from FEWEST_IN_A_GROUP to MOST_IN_A_GROUP; a single larger argument forms its own group.
    """

    def __init__(self, together: Callable[[Any, Sequence[A]], Steps[Sequence[Any]]], *, size_of: Callable[[Any], int] = len):
        self._together, self._size_of = together, size_of
        self._forget_lines()
        os.register_at_fork(after_in_child=self._forget_lines)

    def _forget_lines(self) -> None:
        """Only lines in use are kept. A forked child does not have the threads of its parent's lines."""
        self._of_threads: dict[Hashable, _ThreadLine] = {}
        self._of_tasks: dict[Hashable, _TaskLine] = {}

    def call(self, key: Hashable, argument: A) -> Steps[R]:
        """Make a call, together with concurrent ones of the same key. Within a transaction it is made separately, as part of it.

        key: all that must be equal for calls to be combined.
        """
        return (yield Gathered(self, key, argument))

    # For the drivers

    def separately(self, key: Hashable, argument: A) -> Steps[R]:
        [outcome] = yield from self._together(key, [argument])
        return _result(outcome)

    def run(self, key: Hashable, argument: A, drive: Callable[[Steps], Any]) -> R:
        """Make the call of a thread. drive: runs steps on the thread's connection.

        The first thread makes its own call. Others wait; one of them makes what has gathered for all. If it is interrupted
        meanwhile, the others of its group get BrokerUnavailable, and another thread leads.
        """
        line_key = connections.current_database(), key
        line = self._of_threads.get(line_key) or self._of_threads.setdefault(line_key, _ThreadLine())
        try:
            if not line.is_busy():
                return line.lead(lambda: drive(self.separately(key, argument)))
            if line.is_led_by_this_thread():
                return drive(self.separately(key, argument))
            own = _ThreadCall(argument, self._size_of(argument))
            return line.take_part(own, lambda arguments: drive(self._outcomes(key, arguments)))
        finally:
            if not line.is_busy() and self._of_threads.get(line_key) is line:  # not a later one
                self._of_threads.pop(line_key, None)

    async def run_aio(self, key: Hashable, argument: A, drive: Callable[[Steps], Awaitable[Any]]) -> R:
        """Make the call of a task. drive: runs steps on the loop's connections.

        The first task makes its own call, which is interrupted if the task is cancelled. Groups are made by a task of their own,
        so a cancelled caller affects no other. Its call is not made if it has not begun.
        """
        loop = asyncio.get_running_loop()
        line_key = loop, connections.current_database(), key
        line = self._of_tasks.get(line_key) or self._of_tasks.setdefault(line_key, _TaskLine())
        try:
            if not line.is_busy:
                make = lambda arguments: drive(self._outcomes(key, arguments))  # noqa: E731
                return await line.lead(drive(self.separately(key, argument)), make)
            return await line.take_part(_TaskCall(argument, self._size_of(argument), loop.create_future()))
        finally:
            if not line.is_busy and self._of_tasks.get(line_key) is line:
                del self._of_tasks[line_key]

    def _outcomes(self, key: Hashable, arguments: Sequence[A]) -> Steps[Sequence[Any]]:
        """The outcome of each call of a group."""
        try:
            return (yield from self._together(key, arguments))
        except Exception as exc:
            if len(arguments) == 1 or isinstance(exc, _ABOUT_THE_SERVER) or not isinstance(exc, BrokerError):
                return [exc] * len(arguments)
        outcomes: list[Any] = []
        for argument in arguments:
            outcomes += yield from self._outcomes(key, [argument])
        return outcomes


class _Call:
    """A call that waits to be made together with others."""

    __slots__ = ("argument", "size")

    def __init__(self, argument: Any, size: int):
        self.argument, self.size = argument, size


class _Line(Generic[C]):
    """The calls with one key, one group at a time."""

    def __init__(self) -> None:
        self.waiting: deque[C] = deque()
        self._most = MOST_IN_A_GROUP

    def next_group(self) -> list[C]:
        group: list[C] = []
        size = 0
        while self.waiting and (not group or size + self.waiting[0].size <= self._most):
            call = self.waiting.popleft()
            group.append(call)
            size += call.size
        return group

    def note_speed(self, group: Sequence[C], seconds: float) -> None:
        """Limit the next group to the size that should take SECONDS_FOR_A_GROUP, given the time that this one took."""
        size = sum(call.size for call in group)
        target_size = size * SECONDS_FOR_A_GROUP / seconds if seconds > 0 else MOST_IN_A_GROUP
        self._most = max(FEWEST_IN_A_GROUP, int(min(target_size, MOST_IN_A_GROUP)))


class _ThreadCall(_Call):
    """A call of a thread, which sleeps until it has an outcome, or until it should lead."""

    __slots__ = ("_asleep", "_outcome", "is_done")

    def __init__(self, argument: Any, size: int):
        super().__init__(argument, size)
        self._asleep = threading.Lock()
        self._asleep.acquire()
        self._outcome: Any = None
        self.is_done = False

    def sleep(self) -> None:
        self._asleep.acquire(timeout=_CHECK_SECONDS)

    def wake(self) -> None:
        with suppress(RuntimeError):  # it is awake
            self._asleep.release()

    def finish(self, outcome: Any) -> None:
        if not self.is_done:
            self._outcome, self.is_done = outcome, True
            self.wake()

    def result(self) -> Any:
        return _result(self._outcome)


class _ThreadLine(_Line[_ThreadCall]):
    """The calls of threads with one key. Whoever holds the lock leads.

    Nothing depends on code that runs after an interruption: the lock is released by its `with` statement, a call that was taken
    by a leader that is gone has no outcome and never will, and waiting threads check once a second whether a leader is missing.
    """

    def __init__(self) -> None:
        super().__init__()
        self._led = threading.Lock()
        self._leader = 0

    def is_busy(self) -> bool:
        return bool(self.waiting) or self._led.locked()

    def is_led_by_this_thread(self) -> bool:
        """So in a signal handler or a finalizer, which runs in the middle of this thread's own call."""
        return self._leader == threading.get_ident()

    def lead(self, work: Callable[[], R]) -> R:
        try:
            with self._led:
                self._leader = threading.get_ident()
                try:
                    return work()
                finally:
                    self._leader = 0
        finally:
            self._wake_next()

    def take_part(self, own: _ThreadCall, make: Callable[[list], Sequence[Any]]) -> Any:
        """Wait until another thread has made this call, or until none leads; then lead. make: makes the calls of a group."""
        try:
            self.waiting.append(own)
            while not own.is_done:
                if self._led.locked():
                    own.sleep()
                else:
                    self.lead(lambda: self._make_groups(own, make))
        except BaseException:
            with suppress(ValueError):  # it was taken
                self.waiting.remove(own)
            self._wake_next()
            raise
        return own.result()

    def _make_groups(self, own: _ThreadCall, make: Callable[[list], Sequence[Any]]) -> None:
        """Make the calls that have gathered, up to the leader's own."""
        if own not in self.waiting:  # it has its outcome, or was taken by a leader that is gone
            own.finish(_interrupted())
        while not own.is_done:
            self._make_group(make)

    def _make_group(self, make: Callable[[list], Sequence[Any]]) -> None:
        group = self.next_group()
        try:
            began = time.monotonic()
            outcomes = make([call.argument for call in group])
            self.note_speed(group, time.monotonic() - began)
            for call, outcome in zip(group, outcomes, strict=True):
                call.finish(outcome)
        except BaseException:
            for call in group:
                call.finish(_interrupted())
            raise

    def _wake_next(self) -> None:
        with suppress(IndexError):
            self.waiting[0].wake()


class _TaskCall(_Call):
    """A call of a task."""

    __slots__ = ("future",)

    def __init__(self, argument: Any, size: int, future: asyncio.Future):
        super().__init__(argument, size)
        self.future = future

    def finish(self, outcome: Any) -> None:
        if self.future.done():  # its task was cancelled
            return
        if isinstance(outcome, Exception):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


class _TaskLine(_Line[_TaskCall]):
    """The calls of a loop's tasks with one key."""

    def __init__(self) -> None:
        super().__init__()
        self.is_busy = False

    async def lead(self, call: Awaitable[R], make: Callable[[list], Awaitable[Sequence[Any]]]) -> R:
        """Make the first call; leave those that arrive meanwhile to a task of their own."""
        self.is_busy = True
        try:
            return await call
        finally:
            self.is_busy = self._has_waiting()
            if self.is_busy:
                _keep(self._make_groups(make))

    async def take_part(self, own: _TaskCall) -> Any:
        self.waiting.append(own)
        return await own.future

    async def _make_groups(self, make: Callable[[list], Awaitable[Sequence[Any]]]) -> None:
        group: list[_TaskCall] = []
        try:
            while self._has_waiting():
                group = self.next_group()
                began = time.monotonic()
                outcomes = await make([call.argument for call in group])
                self.note_speed(group, time.monotonic() - began)
                for call, outcome in zip(group, outcomes, strict=True):
                    call.finish(outcome)
        finally:
            self.is_busy = False
            for call in (*group, *self.waiting):  # some are left if the loop ends
                call.future.cancel()

    def _has_waiting(self) -> bool:
        """Whether calls are waiting; removes those of cancelled tasks."""
        self.waiting = deque(call for call in self.waiting if not call.future.done())
        return bool(self.waiting)


_workers: set[asyncio.Task] = set()


def _keep(work: Coroutine[Any, Any, None]) -> None:
    """Start a task and keep a reference to it; the event loop keeps only a weak one."""
    task = asyncio.get_running_loop().create_task(work)
    _workers.add(task)
    task.add_done_callback(_workers.discard)


def _result(outcome: Any) -> Any:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _interrupted() -> BrokerUnavailable:
    return BrokerUnavailable(
        "The thread that made this call together with its own was interrupted. Whether the call was made is unknown."
    )
