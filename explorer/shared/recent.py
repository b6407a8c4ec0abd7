"""Values that every page shows, read once for all of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

KEPT_SECONDS = 2.0
SHARE = 0.02  # of the time may be spent reading a value: what takes long to read is kept for longer


class Recent(Generic[T]):
    """A value that is read again when it is older than KEPT_SECONDS. While one thread reads, the others get the last value."""

    def __init__(self, read: Callable[[], T]):
        self._read, self._lock = read, threading.Lock()
        self._value: T | None = None
        self._until = 0.0

    def get(self) -> T:
        """Raises what reading raises."""
        if self._value is not None and (time.monotonic() < self._until or self._lock.locked()):
            return self._value
        with self._lock:
            if self._value is None or time.monotonic() >= self._until:
                began = time.monotonic()
                self._value = self._read()
                ended = time.monotonic()
                self._until = ended + max(KEPT_SECONDS, (ended - began) / SHARE)
            return self._value

    def clear(self) -> None:
        self._value = None
