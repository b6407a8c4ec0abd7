"""The places of the explorer, as data: what the navigation lists, and which of them a page belongs to. A page names its place in
the context variable `section`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from django.urls import NoReverseMatch, reverse


@dataclass(frozen=True, slots=True)
class Place:
    """An entry of the navigation.

    name: what pages of this place give as `section`. keys: a key sequence that opens it. is_low: below the others, as it is about
    Vitrine itself. needs_staff: only for users of the admin. count: the id of a number beside the title (`counts_of`).
    """

    name: str
    title: str
    icon: str
    url_name: str
    keys: str = ""
    is_low: bool = False
    needs_staff: bool = False
    count: str = ""

    @property
    def url(self) -> str:
        """Empty if the host site does not have the page."""
        try:
            return reverse(self.url_name)
        except NoReverseMatch:
            return ""


PLACES = (
    Place("now", "Now", "now", "explorer:now", "g w"),
    Place("entities", "Entities", "list", "explorer:entities", "g o"),
    Place("messages", "Messages", "search", "explorer:messages", "g f"),
    Place("locks", "Locks", "locked", "explorer:locks", "g l"),
    Place("insights", "Insights", "chart", "explorer:insights", "g n"),
    Place("help", "Learn", "book", "explorer:help", "g h"),
    Place("audit", "Activity", "audit", "explorer:audit", "g a", is_low=True),
    Place("system", "System", "system", "explorer:system", "g s", is_low=True),
    Place("admin", "Admin", "gear", "admin:index", is_low=True, needs_staff=True),
)


def places(user: Any) -> list[Place]:
    """The places that exist on this site for this user."""
    return [one for one in PLACES if one.url and (user.is_staff or not one.needs_staff)]


def in_groups(shown: Iterable[Place]) -> list[list[Place]]:
    """The upper and the lower group."""
    listed = list(shown)
    return [[one for one in listed if one.is_low is low] for low in (False, True)]
