"""Shared by lists of all families: tabs with counts, and the limit of suggested names."""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.reads import Capped

MOST_LISTED = 300  # names; if there are more, a field suggests those that contain the typed text


@dataclass(frozen=True, slots=True)
class TabView:
    """A tab. count: the number of messages in its list; None: not counted."""

    slug: str
    word: str
    hue: str
    count: int | Capped | None
    selected: bool

    @property
    def text(self) -> str:
        return f"{self.count:,}" if isinstance(self.count, int) else str(self.count)
