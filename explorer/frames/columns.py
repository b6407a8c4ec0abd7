"""Columns that a person adds to the lists of an entity: properties of the messages, by name.

The query's `show` has them. They are stored in a cookie of the entity's page, so that the next visit shows them again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, QueryDict

from broker_core import reads
from broker_core.common.types import EntityAddress, Family
from broker_core.reads import MessageProperties, MessageRow
from explorer.live.page import LiveRequest
from explorer.people.preferences import ONE_YEAR

from .family import pages_of
from .presenters import typed_text
from .shell import BadQuery, wants_fragment
from .view_menu import ColumnMenu, ColumnOption, column_menu

PARAMETER, REMEMBER, COOKIE = "show", "remember", "vitrine_columns"
APPLICATION = "prop."
LONGEST_NAME = 128
MOST_COLUMNS = 8
MOST_OFFERED = 30


@dataclass(frozen=True, slots=True)
class Column:
    """key: as in the query: the stored name of a broker property, or "prop." and that of an application property."""

    key: str
    title: str


@dataclass(frozen=True, slots=True)
class Columns:
    """chosen: those of the query. offered: the properties of the listed messages, and the chosen ones. values: by sequence
    number, what each chosen column contains."""

    chosen: Sequence[Column]
    offered: Sequence[Column]
    values: Mapping[int, Sequence[Any]]


def columns_of(request: HttpRequest, address: EntityAddress, rows: Sequence[MessageRow]) -> Columns:
    """The added columns of a list with these rows. Raises BadQuery."""
    family = rows[0].family if rows else None
    keys = chosen_keys(request.GET)
    numbers = [row.sequence_number for row in rows]
    properties = reads.message_properties(address, numbers, actor=request.actor) if numbers else {}
    names = {key for message_properties in properties.values() for key in _keys(message_properties)}
    offered = [*keys, *sorted(names - set(keys), key=str.lower)][:MOST_OFFERED]
    texts = (
        {number: [_value(message_properties, key) for key in keys] for number, message_properties in properties.items()}
        if keys
        else {}
    )
    return Columns([_column(key, family) for key in keys], [_column(key, family) for key in offered], texts)


def menu(query: QueryDict, columns: Columns) -> ColumnMenu:
    """The section of the menu View that chooses the columns."""
    options = [ColumnOption(column.key, column.title, column in columns.chosen) for column in columns.offered]
    return column_menu(query, PARAMETER, options, takes_names=True)


def chosen_keys(query: QueryDict) -> list[str]:
    """The columns in a query, each once."""
    keys = list(dict.fromkeys(key.strip() for key in query.getlist(PARAMETER) if key.strip() not in ("", APPLICATION)))
    if len(keys) > MOST_COLUMNS:
        raise BadQuery([(PARAMETER, f"At most {MOST_COLUMNS} columns can be added.")])
    if any(len(key) > LONGEST_NAME or "\x00" in key for key in keys):
        raise BadQuery([(PARAMETER, f"A column's name must have at most {LONGEST_NAME} characters.")])
    return keys


def remembering(view: Callable[..., HttpResponse]) -> Callable[..., HttpResponse]:
    """The view of an entity's page with the columns that this person chose there last. They are put into the address, so that
    links and the live feed have them."""

    def with_columns(request: HttpRequest, namespace: str, path: str) -> HttpResponse:
        if isinstance(request, LiveRequest) or wants_fragment(request) or request.method != "GET":
            return view(request, namespace=namespace, path=path)
        if REMEMBER in request.GET:
            return _remember(request)
        stored = request.COOKIES.get(COOKIE, "")
        if stored and PARAMETER not in request.GET and "of" not in request.GET:
            query = request.GET.copy()
            query.setlist(PARAMETER, QueryDict(stored).getlist(PARAMETER)[:MOST_COLUMNS])
            if query.getlist(PARAMETER):
                return HttpResponseRedirect(f"{request.path}?{query.urlencode()}")
        return view(request, namespace=namespace, path=path)

    with_columns.is_live = getattr(view, "is_live", False)  # type: ignore[attr-defined]
    return with_columns


def _remember(request: HttpRequest) -> HttpResponse:
    """Store the columns of this link, and go to the page without `remember`."""
    query = request.GET.copy()
    query.pop(REMEMBER, None)
    typed = [f"{APPLICATION}{name.strip()}" for name in query.pop("name", []) if name.strip()]
    keys = [*(key for key in query.getlist(PARAMETER) if key), *typed]
    query.setlist(PARAMETER, keys)
    response = HttpResponseRedirect(f"{request.path}?{query.urlencode()}")
    chosen = QueryDict(mutable=True)
    chosen.setlist(PARAMETER, keys)
    if keys:
        response.set_cookie(
            COOKIE, chosen.urlencode(), path=request.path, max_age=ONE_YEAR, samesite="Lax", httponly=True,
            secure=request.is_secure(),
        )  # fmt: skip
    else:
        response.delete_cookie(COOKIE, path=request.path)
    return response


def _keys(properties: MessageProperties) -> list[str]:
    return [*properties.broker, *(f"{APPLICATION}{name}" for name in properties.application)]


def _column(key: str, family: Family | None) -> Column:
    if family is None or key.startswith(APPLICATION):
        return Column(key, key.removeprefix(APPLICATION))
    return Column(key, pages_of(family).message.property_name(key))


def _value(properties: MessageProperties, key: str) -> Any:
    if not key.startswith(APPLICATION):
        return properties.broker.get(key, "")
    kind, text = properties.application.get(key.removeprefix(APPLICATION), ("", ""))
    return typed_text(kind, text)[0] if isinstance(text, str) else text
