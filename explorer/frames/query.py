"""Addresses of pages: the query of a page with some parameters changed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.http import QueryDict

POSITIONS = ("cursor", "page", "before", "scanned", "found", "rows", "known", "go_on", "stop", "remember", "m")


def with_changes(query: QueryDict, *, without: Iterable[str] = POSITIONS, **changes: Any) -> str:
    """The query as a link, from the list's beginning, with some parameters set, or removed if they are empty. A list sets a
    parameter several times. without: parameters that the link leaves out."""
    changed = query.copy()
    for name in (*without, *changes):
        changed.pop(name, None)
    for name, value in changes.items():
        values = [part for part in (value if isinstance(value, list | tuple) else [value]) if part not in (None, "")]
        if values:
            changed.setlist(name, values)
    return f"?{changed.urlencode()}"


def parameters(query: QueryDict, *, without: Iterable[str]) -> list[tuple[str, str]]:
    """The parameters that a form passes on: all that have a value, except those of the form itself and the list's place."""
    left_out = {*POSITIONS, *without}
    return [(name, value) for name, values in query.lists() if name not in left_out for value in values if value]
