"""Values that every page shows, or that take long to read, read once for all who ask."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from datetime import timedelta
from typing import Generic, TypeVar

from cachetools import LRUCache

T = TypeVar("T")

KEPT_SECONDS = 2.0
SHARE = 0.02  # of the time may be spent reading a value: what takes long to read is kept for longer
LARGE = 20_000  # entities, from which their sums are kept, with their age
SHARE_OF_LARGE = 0.1
MOST_KEPT = 50  # keys with such values


class Recent(Generic[T]):
    """A value that is read again when it is older than KEPT_SECONDS. While one thread reads, the others get the last value."""

    def __init__(self, read: Callable[[], T], *, share: float = SHARE):
        self._read, self._share, self._lock = read, share, threading.Lock()
        self._value: T | None = None
        self._until = self._began = 0.0

    @property
    def age(self) -> timedelta:
        """Of the value that `get` returned last."""
        return timedelta(seconds=time.monotonic() - self._began)

    def get(self) -> T:
        """Raises what reading raises."""
        if self._value is not None and (time.monotonic() < self._until or self._lock.locked()):
            return self._value
        with self._lock:
            if self._value is None or time.monotonic() >= self._until:
                began = time.monotonic()
                self._value = self._read()
                ended = time.monotonic()
                self._began, self._until = began, ended + max(KEPT_SECONDS, (ended - began) / self._share)
            return self._value

    def clear(self) -> None:
        self._value = None


class CacheByKey(Generic[T]):
    """Values by what they are of, as sums of very many entities. Those of the MOST_KEPT keys asked for last are kept."""

    def __init__(self) -> None:
        self._kept: LRUCache[Hashable, Recent[T]] = LRUCache(MOST_KEPT)
        self._lock = threading.Lock()

    def get(self, key: Hashable, read: Callable[[], T]) -> tuple[T, timedelta]:
        """The value and its age. Raises what reading raises. `read` is kept with it, and called by others too."""
        with self._lock:
            sums = self._kept.setdefault(key, Recent(read, share=SHARE_OF_LARGE))
        return sums.get(), sums.age

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
