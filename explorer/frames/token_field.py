"""The field of conditions of a page (docs/search.md): the conditions in its address, q, each with a link that removes it, and
what is wrong with one that cannot be read. Lists of messages have the language of message filters (filtering.py), others the few
keys of their vocabulary (vocabulary.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from django.http import QueryDict

from broker_core.common.errors import FilterError
from broker_core.reads import Token

from .query import parameters, with_changes

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Chip:
    """A condition as written. without: the query of the page without it."""

    text: str
    without: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a filter cannot be used. before, at: its text up to the place, and from there on. status: of the page."""

    text: str
    before: str
    at: str
    status: int = 400


@dataclass(frozen=True, slots=True)
class TokenField:
    """Conditions as a page shows them. text: all of them. typed: what the field contains: nothing, as the conditions are chips; a
    text that cannot be read, so that it can be corrected. cleared: the query of the page without conditions. kept: the other
    parameters of the page, which the form passes on."""

    text: str
    chips: tuple[Chip, ...] = ()
    problem: Problem | None = None
    typed: str = ""
    cleared: str = "?"
    kept: Sequence[tuple[str, str]] = ()

    def __bool__(self) -> bool:
        return bool(self.text)

    @property
    def status(self) -> int:
        """Of the page."""
        return self.problem.status if self.problem else 200


def text_of(query: QueryDict, old: str = "") -> str:
    """The conditions in a query: those of its parameters q, which may be several. old: a parameter of earlier addresses that had
    conditions, too."""
    return " ".join(part.strip() for part in (*query.getlist(old), *query.getlist("q")) if part.strip())


def read(text: str, parse: Callable[[str], list[Token[T]]]) -> tuple[list[Token[T]], Problem | None]:
    """The conditions of a text, or why it cannot be read."""
    try:
        return parse(text), None
    except FilterError as exc:
        return [], Problem(exc.problem, text[: exc.position], text[exc.position :])


def values(query: QueryDict, text: str, tokens: Sequence[Token], problem: Problem | None) -> dict[str, Any]:
    """The attributes of a TokenField."""
    cleared, kept = with_changes(query, q=""), parameters(query, without=("q",))
    if problem:
        return {"text": text, "problem": problem, "typed": text, "cleared": cleared, "kept": kept}
    texts = [text[token.start : token.end] for token in tokens]
    chips = [Chip(chip, with_changes(query, q=" ".join(texts[:at] + texts[at + 1 :]))) for at, chip in enumerate(texts)]
    return {"text": text, "chips": tuple(chips), "cleared": cleared, "kept": kept}
