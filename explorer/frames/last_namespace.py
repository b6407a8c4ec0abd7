"""The namespace that a person looked at last, in their session: where Insights and analyses open. The URL stays the truth."""

from __future__ import annotations

from collections.abc import Collection

from django.http import HttpRequest

KEY = "last_namespace"


def remember(request: HttpRequest, name: str) -> None:
    """Note that a page shows this namespace. Live updates have no session, and note nothing."""
    session = getattr(request, "session", None)
    if session is not None and session.get(KEY) != name:
        session[KEY] = name


def last_of(request: HttpRequest, names: Collection[str]) -> str | None:
    """The last one, if it is among these, which still exist and which the person may see."""
    name = request.session.get(KEY) if hasattr(request, "session") else None
    return name if name in names else None
