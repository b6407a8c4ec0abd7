"""The split view: a message in a pane beside a list. The query's `m` says which: its number on a page with one entity, else
"namespace/path/number". The pane is part of the page without JavaScript, and split.js fetches it from the message's own URL."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from django.utils.http import url_has_allowed_host_and_scheme

from broker_core.common.errors import EntityNotFound
from broker_core.common.types import EntityAddress
from explorer.live.page import LiveRequest

from . import message_record
from .shell import BadQuery, targets, wants_fragment

PANE = "explorer/_pane.html"
PANE_SECONDS = 1.0  # minimum interval between two renderings of an open pane
HIGHEST = 2**63 - 1


def is_for_pane(request: HttpRequest) -> bool:
    """Whether htmx fetches only the pane of a list."""
    return wants_fragment(request) and targets(request, "pane")


def context(request: HttpRequest, address: EntityAddress | None = None) -> dict[str, Any]:
    """The context of a page with a split view. address: of the entity whose messages are listed; None: those of several.

    A message of which nothing is known closes the pane, with a sentence.
    """
    if not draws_pane(request):
        return {}
    text = request.GET.get("m", "")
    if not text:
        return {"pane": None}
    chosen, number = chosen_message(text, address, "m")
    try:
        return {"pane": message_record.context_of(request, chosen, number)}
    except (EntityNotFound, message_record.MessageGone) as exc:
        return {"pane": None, "pane_problem": str(exc)}


def draws_pane(request: HttpRequest) -> bool:
    """Whether the pane is rendered: with the whole page, or for the live feed."""
    return request.wants(PANE) if isinstance(request, LiveRequest) else not wants_fragment(request)


def fragments(request: HttpRequest) -> dict[str, float]:
    """The live fragments of an open pane."""
    return {PANE: PANE_SECONDS} if request.GET.get("m") else {}


def chosen_message(text: str, address: EntityAddress | None, parameter: str) -> tuple[EntityAddress, int]:
    """The message that a query names by its number, or as "namespace/path/number". Raises BadQuery."""
    place, _, digits = text.rpartition("/")
    number = int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 20 else HIGHEST + 1
    namespace, _, path = place.partition("/")
    chosen = EntityAddress(namespace, path) if namespace and path else address
    if chosen is None or number > HIGHEST:
        raise BadQuery([(parameter, f'There is no message "{text}".')])
    return chosen, number


def list_to_return_to(request: HttpRequest) -> str:
    """The page from whose pane a form was opened, or sent without JavaScript; empty: it was the message's own page."""
    back = request.POST.get("back") or request.GET.get("back", "")
    safe = url_has_allowed_host_and_scheme(back, allowed_hosts={request.get_host()}, require_https=request.is_secure())
    return back if safe else ""
