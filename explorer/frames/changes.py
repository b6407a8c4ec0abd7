"""Changes of what a page shows: a form posts `do` and its fields; an Undo button has the same in its address."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse, QueryDict


def data_of(request: HttpRequest) -> QueryDict:
    """The fields of the form, or those of the Undo button."""
    return request.POST if "do" in request.POST else request.GET


def make(request: HttpRequest, known: Mapping[str, Callable[..., HttpResponse]], *subjects: Any) -> HttpResponse:
    """Make the change that `do` names, one of these: (request, *subjects, fields) -> response. Raises Http404."""
    data = data_of(request)
    change = known.get(data.get("do", ""))
    if change is None:
        raise Http404("There is no such change")
    return change(request, *subjects, data)


def undo_with(request: HttpRequest, before: Mapping[str, str]) -> Callable[[Any], str]:
    """For `act`: the address that an Undo button posts to, which has the values of before. Without these, and for an Undo itself,
    there is none."""
    address = f"{request.path}?{urlencode(before)}" if before and "do" in request.POST else ""
    return lambda _: address
