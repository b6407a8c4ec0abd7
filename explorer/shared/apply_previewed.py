"""Doing what a page has previewed, as long as it would still do the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

from broker_core.common.errors import WorldMoved


class Previewed(Protocol):
    """What the previews of all families have."""

    @property
    def token(self) -> str: ...


P = TypeVar("P", bound=Previewed)


def made(
    subject: str, token: str | None, *, change: Callable[[], P], preview: Callable[[], P], apply: Callable[[P], object]
) -> P:
    """Make a change, and return what it means. token: of the preview that the form showed; None: it showed none, so that whatever
    it means is done. Raises WorldMoved where it means something else by now: nothing is changed, and the page previews anew."""
    if token is None:
        return change()
    previewed = preview()
    if previewed.token != token:
        raise WorldMoved(subject, "see the new preview below")
    apply(previewed)
    return previewed
