"""The thread that renders live pages, and whose work it does next: users in turn, and the sockets of a user in turn.

Otherwise many requests of one viewer would stop the pages of all others.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


class Job(NamedTuple):
    work: Callable[[], Any]
    result: asyncio.Future


class FairThread:
    """One thread for one event loop."""

    def __init__(self, name: str):
        self._thread = ThreadPoolExecutor(1, name)
        self._waiting: dict[Hashable, dict[Hashable, deque[Job]]] = {}  # by user and socket, each in the order of their turns
        self._is_busy = False

    async def run(self, user: Hashable, socket: Hashable, work: Callable[..., T], *args: Any) -> T:
        """The result of `work(*args)`, called in the thread when it is the turn of this user and socket."""
        job = Job(partial(work, *args), asyncio.get_running_loop().create_future())
        self._waiting.setdefault(user, {}).setdefault(socket, deque()).append(job)
        self._start_next()
        return await job.result

    def shutdown(self) -> None:
        self._thread.shutdown(wait=False)

    def _start_next(self) -> None:
        while not self._is_busy and (job := self._next()):
            if not job.result.done():  # else its caller was cancelled
                self._is_busy = True
                job.result.get_loop().run_in_executor(self._thread, job.work).add_done_callback(partial(self._end, job))

    def _end(self, job: Job, ended: asyncio.Future) -> None:
        self._is_busy = False
        exception = ended.exception()
        if job.result.done():
            pass
        elif exception:
            job.result.set_exception(exception)
        else:
            job.result.set_result(ended.result())
        self._start_next()

    def _next(self) -> Job | None:
        for user in self._waiting:
            sockets = self._waiting.pop(user)
            socket = next(iter(sockets))
            jobs = sockets.pop(socket)
            job = jobs.popleft()
            if jobs:
                sockets[socket] = jobs  # behind the user's other sockets
            if sockets:
                self._waiting[user] = sockets  # behind the other users
            return job
        return None


def in_turn(items: Iterable[T], users_of: Callable[[T], Iterable[Hashable]]) -> Iterator[T]:
    """Each item once: the first item of each user, then the second of each. An item may belong to several users."""
    by_user: dict[Hashable, deque[T]] = {}
    for item in items:
        for user in users_of(item):
            by_user.setdefault(user, deque()).append(item)
    seen = set()
    while by_user:
        for user in list(by_user):
            while by_user[user] and id(by_user[user][0]) in seen:
                by_user[user].popleft()
            if by_user[user]:
                item = by_user[user].popleft()
                seen.add(id(item))
                yield item
            else:
                del by_user[user]
