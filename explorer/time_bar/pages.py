"""The time bar as part of a page: of an entity's own page, and of any other page that includes TEMPLATE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.http import HttpRequest

from broker_core import reads
from broker_core.common.types import Right
from broker_core.reads import EntityRow, Event, EventFilter
from explorer.frames.shell import draws

from .bar import TimeBar, coming, past

TEMPLATE = "explorer/time_bar/_time_bar.html"  # live
SECONDS = 1.0  # minimum interval between two renderings
MOST_CHANGES, MOST_EVENTS, MOST_SCANNED = 20, 100, 5_000


def context(request: HttpRequest, entity: EntityRow) -> dict[str, Any]:
    """The context of an entity's page, if its time bar is rendered."""
    return of(request, entity) if draws(request, TEMPLATE) else {}


def fragments() -> Mapping[str, float]:
    """The live fragment."""
    return {TEMPLATE: SECONDS}


def of(
    request: HttpRequest,
    entity: EntityRow,
    *,
    may_set: bool | None = None,
    travels: bool = True,
    page: str = "",
    newest: Sequence[Event] | None = None,
    is_shown: bool = True,
    plays: bool = True,
    may_fold: bool = True,
) -> dict[str, Any]:
    """The context of TEMPLATE. may_set: whether this person may move the clock; None: with the right to manage. travels: whether
    it leads to the past. page: where a form returns to without JavaScript; empty: this page. newest: the entity's newest events
    first; None: those among the newest of the database. is_shown, plays, may_fold: see TimeBar."""
    actor, clock = request.actor, entity.clock
    allowed = Right.MANAGE in actor.rights if may_set is None else may_set
    changes = reads.next_changes(entity.address, limit=MOST_CHANGES, actor=actor)
    if newest is None:
        newest = reads.events(EventFilter(entity_id=entity.id), limit=MOST_EVENTS, max_scanned=MOST_SCANNED, actor=actor).rows
    bar = TimeBar(
        namespace=entity.address.namespace,
        path=entity.address.path,
        page=page or request.get_full_path(),
        clock=clock,
        coming=coming(changes, clock.now),
        past=past(newest[:MOST_EVENTS], clock.now, entity.family),
        may_set=allowed,
        travels=travels,
        is_shown=is_shown,
        plays=plays or not clock.is_paused,
        may_fold=may_fold,
    )
    return {"time_bar": bar}


def of_past(request: HttpRequest, entity: EntityRow, at: datetime, before: datetime | None, after: datetime | None) -> TimeBar:
    """The bar of a page that shows an instant of the past."""
    address = entity.address
    return TimeBar(
        address.namespace, address.path, request.get_full_path(), entity.clock, (), (), False, at=at, before=before, after=after
    )
