"""What lists of all families share: tabs with counts; how many names a field offers."""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.reads import Capped

MOST_LISTED = 300  # more are not listed at once: those with what is typed in them are


@dataclass(frozen=True, slots=True)
class TabView:
    """A list as the page names it. count: how many are in it; None: not counted."""

    slug: str
    word: str
    hue: str
    count: int | Capped | None
    selected: bool

    @property
    def text(self) -> str:
        return f"{self.count:,}" if isinstance(self.count, int) else str(self.count)
