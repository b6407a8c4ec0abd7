"""A signal that wakes one waiting call, whether the call runs in a thread or in an event loop."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Signal:
    """Set by any thread; waited for by one call at a time (the step WaitForSignal)."""

    __slots__ = ("_event", "_notify")

    def __init__(self) -> None:
        self._event = threading.Event()
        self._notify: Callable[[], object] | None = None

    def set(self) -> None:
        self._event.set()
        if (notify := self._notify) is not None:
            notify()

    def clear(self) -> None:
        self._event.clear()

    def is_set(self) -> bool:
        return self._event.is_set()

    def wait(self, seconds: float) -> None:
        """Block this thread until the signal is set, at most so long."""
        self._event.wait(seconds)

    def notify(self, callback: Callable[[], object] | None) -> None:
        """Have `set` also call this: the event loop's way to wait."""
        self._notify = callback
