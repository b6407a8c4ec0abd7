"""The menu View of a list: how the list is shown, in contrast to what it contains. Its order, its columns, whether hidden
entities are listed, and the saved filters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import QueryDict

from .query import parameters, with_changes


@dataclass(frozen=True, slots=True)
class Choice:
    """A way to show the list. href: the page that shows it so."""

    word: str
    href: str
    is_chosen: bool = False


@dataclass(frozen=True, slots=True)
class ColumnOption:
    value: str
    title: str
    is_chosen: bool
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ColumnMenu:
    """The columns to choose from. parameter: of the query. kept: the other parameters of the query. takes_names: whether the
    name of an application property can be typed. reset: the page with the columns of a first visit; empty: not offered."""

    parameter: str
    options: Sequence[ColumnOption]
    kept: Sequence[tuple[str, str]]
    takes_names: bool = False
    reset: str = ""


@dataclass(frozen=True, slots=True)
class ViewMenu:
    """The sections of the menu, each of which may be missing. target: the id of the part of the page that a link replaces.
    hidden: lists hidden entities too, or leaves them out. saved_url: of the saved filters."""

    target: str
    orders: Sequence[Choice] = ()
    columns: ColumnMenu | None = None
    hidden: Choice | None = None
    saved_url: str = ""


def orders(query: QueryDict, choices: Sequence[tuple[str, str]], chosen: str, *, parameter: str = "order") -> list[Choice]:
    """The orders of a list. choices: value of the parameter -> word; the first one may be empty."""
    return [Choice(word, with_changes(query, **{parameter: value}), value == chosen) for value, word in choices]


def hidden(query: QueryDict, *, is_shown: bool, what: str = "hidden and system entities") -> Choice:
    """The link that lists hidden entities, or leaves them out."""
    return Choice(f"{'Hide' if is_shown else 'Show'} {what}", with_changes(query, all=None if is_shown else "1"))


def column_menu(
    query: QueryDict, parameter: str, options: Sequence[ColumnOption], *, takes_names: bool = False, reset: str = ""
) -> ColumnMenu:
    kept = parameters(query, without=(parameter, "toggle"))
    return ColumnMenu(parameter, options, kept, takes_names, reset)
