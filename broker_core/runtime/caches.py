"""A cache for the hot path. Elsewhere, cachetools has what is needed."""

from __future__ import annotations

from typing import Any


class BoundedCache(dict):
    """A cache shared by the threads of a process. It is cleared when it reaches `max_entries`: a lookup is that of a dict."""

    def __init__(self, max_entries: int):
        self.max_entries = max_entries

    def keep(self, key: Any, value: Any) -> Any:
        if len(self) >= self.max_entries:
            self.clear()
        self[key] = value
        return value
