"""The frame of an entity's page, which all families use: its board or one of its lists, the message beside it, the time bar.

A family gives its tabs, the context of a list and the head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse

from broker_core import reads
from broker_core.reads import EntityRow
from explorer import board, time_bar
from explorer.frames import split, vocabularies
from explorer.frames.forms.queries import HISTORY, SESSIONS
from explorer.frames.head import HEAD, oldest
from explorer.frames.shell import draws
from explorer.frames.vocabulary import Vocabulary, canonical
from explorer.live.page import FILTERED_SECONDS, HEAD_SECONDS, Live, refresh_seconds

_VOCABULARIES: Mapping[str, Vocabulary] = {HISTORY: vocabularies.HISTORY, SESSIONS: vocabularies.SESSIONS}


def at_canonical_address(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """The view of an entity's page, at one address for each filter of its lists (vocabulary.canonical)."""

    def with_canonical_address(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
        return canonical(request, _VOCABULARIES.get(request.GET.get("tab", ""))) or view(request, namespace=namespace, path=path)

    with_canonical_address.is_live = getattr(view, "is_live", False)  # type: ignore[attr-defined]
    return with_canonical_address


def body(
    request: HttpRequest,
    entity: EntityRow,
    lists: str,
    listing: Callable[[bool], Mapping[str, Any]],
    *,
    oldest_first: str = "oldest",
) -> dict[str, Any]:
    """Context below the head, and its oldest messages. lists: the template of the family's lists. listing: whether the board is
    shown -> the tabs, and the context of the selected list unless the board is shown. oldest_first: see head.oldest. Raises
    BadQuery for an unknown view."""
    as_board = board.is_asked(request, entity)
    context = {
        "lists": lists,
        **listing(as_board),
        **(board.context(request, entity) if as_board else {}),
        **split.context(request, entity.address),
        **time_bar.context(request, entity),
    }
    if draws(request, HEAD):
        messages = reads.oldest_messages(entity.address, actor=request.actor)
        context["oldest_messages"] = oldest(messages, context["tabs"], order=oldest_first)
    return context


def live_parts(
    request: HttpRequest, entities: Sequence[EntityRow], context: Mapping[str, Any], *, list_seconds: float, word: Callable
) -> Live:
    """The live parts of the page. entities: this one first, then the others that its list shows. list_seconds: the minimum
    interval between two renderings of the list. word: (kinds of events) -> what a leaving row says (timeline.leaving)."""
    slow = FILTERED_SECONDS if context.get("filtered") else list_seconds
    lists = board.fragments(entities[0]) if context.get("is_board") else {context["lists"]: slow}
    return Live(
        {HEAD: HEAD_SECONDS, **lists, **split.fragments(request), **time_bar.fragments()},
        entities=entities,
        refresh_seconds=refresh_seconds(entities),
        personal=bool(request.GET.get("m")),
        word=word,
    )
