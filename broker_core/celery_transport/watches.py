"""The queues that a channel found empty. They are watched as by any other waiting call (docs/design.md D8)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from broker_core.runtime.wake_ups import Poke, WakeUps, WatchedList, wake_ups


@dataclass(slots=True, eq=False)
class _Watch:
    wake_ups: WakeUps
    watched: WatchedList
    poke: Poke
    is_empty: bool = False


class Watches:
    """The watches of one channel. A watch begins before the channel receives from a queue, and ends when the queue may have
    messages again. Other threads only end watches. A child process does not inherit its parent's."""

    def __init__(self, on_ready: Callable[[], object]):
        self._on_ready = on_ready
        self._watches: dict[str, _Watch] = {}
        self._pid = os.getpid()

    def is_empty(self, queue: str) -> bool:
        """Whether there is nothing to receive from this queue."""
        watch = self._own().get(queue)
        return watch is not None and watch.is_empty

    def begin(self, queue: str, entity_id: int) -> None:
        """The channel is about to receive from this queue of the database in use."""
        watched, current = WatchedList(entity_id), self._own().get(queue)
        if current is not None and current.watched == watched:
            current.is_empty = False
            return
        self.end(queue)
        watch = _Watch(wake_ups(), watched, lambda: self._ready(queue))
        watch.wake_ups.watch(watched, watch.poke)
        self._watches[queue] = watch

    def note_empty(self, queue: str) -> None:
        """The receive that followed `begin` found all that there was."""
        if (watch := self._watches.get(queue)) is not None:  # otherwise there is more since
            watch.is_empty = True
            watch.wake_ups.expect(watch.watched.entity_id)

    def end(self, queue: str) -> bool:
        """Returns whether the queue was watched."""
        watch = self._own().pop(queue, None)
        if watch is not None:
            watch.wake_ups.unwatch(watch.watched, watch.poke)
        return watch is not None

    def end_all(self) -> None:
        for queue in list(self._own()):
            self.end(queue)

    def _ready(self, queue: str) -> None:
        if self.end(queue):
            self._on_ready()

    def _own(self) -> dict[str, _Watch]:
        if self._pid != os.getpid():
            self._watches, self._pid = {}, os.getpid()
        return self._watches
