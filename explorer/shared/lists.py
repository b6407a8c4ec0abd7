"""The frame of an entity's page: lists under tabs, each with its count."""

from __future__ import annotations

from dataclasses import dataclass

from broker_core.reads import Capped


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
