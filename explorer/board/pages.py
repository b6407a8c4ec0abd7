"""The board as part of a page: of an entity's own page (?view=board), and of any other page that includes TEMPLATE."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.http import HttpRequest

from broker_core.reads import EntityRow, Event, MessageRow
from explorer.frames.shell import BadQuery

from .reading import board_of, message_url

TEMPLATE = "explorer/board/_board.html"
LANES = "explorer/board/_lanes.html"  # live
TABS = "explorer/_tabs.html"
VIEWS = ("", "board")
QUIET_SECONDS, BUSY_SECONDS = 0.2, 1.0  # minimum interval between two renderings
BUSY = 50  # messages a second, in or out
TABS_SECONDS = 1.0


def is_asked(request: HttpRequest, entity: EntityRow) -> bool:
    """Whether the page shows the board instead of a list. Raises BadQuery."""
    view = request.GET.get("view", "")
    if view not in VIEWS or (view and not entity.holds_messages):
        raise BadQuery([("view", f'There is no view "{view}" of a {entity.kind}.')])
    return view == "board"


def of(
    request: HttpRequest,
    entity: EntityRow,
    *,
    url: Callable[[MessageRow], str] = message_url,
    newest: Sequence[Event] | None = None,
) -> dict[str, Any]:
    """The context of TEMPLATE, and of LANES alone. url: where the chip of a message leads. newest: as in board_of."""
    return {"entity": entity, "board": board_of(entity, request.actor, url, newest)}


def context(request: HttpRequest, entity: EntityRow) -> dict[str, Any]:
    """The context of an entity's page with the board instead of a list."""
    return {**of(request, entity), "lists": TEMPLATE, "tab": "", "is_board": True}


def fragments(entity: EntityRow) -> Mapping[str, float]:
    """The live fragments of a page with the board."""
    is_busy = max(entity.sent_rate, entity.completed_rate) > BUSY
    return {LANES: BUSY_SECONDS if is_busy else QUIET_SECONDS, TABS: TABS_SECONDS}
