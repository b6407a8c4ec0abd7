"""Shared by lists of all families: tabs with counts, and the limit of suggested names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from broker_core.reads import Capped, MessageRow, Page
from broker_core.reads.shared import microseconds

WHOLE = "list"  # the hue of the tab with all messages of the queue
STATES = ("active", "locked", "scheduled", "deferred", "expired")  # the hues of its parts
MOST_LISTED = 300  # names; if there are more, a field suggests those that contain the typed text


@dataclass(frozen=True, slots=True)
class TabView:
    """A tab. count: the number of messages in its list; None: not counted. is_aside: it is about the entity, not one of the lists
    that a person looks through. is_folded: only the menu of the tabs shows it."""

    slug: str
    word: str
    hue: str
    count: int | Capped | None
    selected: bool
    is_aside: bool = False
    is_folded: bool = False

    @property
    def text(self) -> str:
        return f"{self.count:,}" if isinstance(self.count, int) else str(self.count)


def folded(tabs: Sequence[TabView]) -> list[TabView]:
    """The tabs of an entity, those folded that say nothing now: a list without messages, the one state that all messages of the
    queue have, and what is about the entity. The open one always shows."""
    whole = tabs[0].count if tabs and tabs[0].hue == WHOLE else None
    return [replace(tab, is_folded=not tab.selected and _says_nothing(tab, whole)) for tab in tabs]


def _says_nothing(tab: TabView, whole: int | Capped | None) -> bool:
    is_all = tab.hue in STATES and tab.count == whole
    return tab.is_aside or is_all or (tab.count is not None and tab.text == "0")


class ReadsList(Protocol):
    """Reads a page of a list: reads.list_messages with the list and its filter."""

    def __call__(
        self, *, cursor: str, newest_first: bool, limit: int, max_scanned: int, max_seconds: float
    ) -> Page[MessageRow]: ...


def neighbour(side: str, number: int, *, newest_first: bool, read: ReadsList, due: datetime | None = None) -> int | None:
    """The number of the next or previous message of a list, in the list's order; None: there is none near. due: in a list of
    scheduled messages by the instant at which they are due, that of this one.

    A search for it is shorter than for a page, since a link is all that is lost.
    """
    below = (side == "next") == newest_first
    cursor = f"{'below' if below else 'above'}-{number}" + (f"-{microseconds(due)}" if due else "")
    page = read(cursor=cursor, newest_first=newest_first, limit=1, max_scanned=20_000, max_seconds=0.2)
    if not page.rows:
        return None
    row = page.rows[0]
    current, candidate = (due, number), (row.scheduled_enqueue_at if due else None, row.sequence_number)
    return row.sequence_number if (candidate < current if below else candidate > current) else None
