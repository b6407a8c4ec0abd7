"""The text of a step: its terms in brackets explained, and shown in the words of another family, by the glossary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from broker_core.common.types import Family
from explorer.frames.family import pages_of
from explorer.frames.glossary import Term, find

from .lesson import TERM


class Part(NamedTuple):
    """A piece of a text. term: it is one of the glossary. other: what the chosen family calls it; empty: it is not asked for."""

    text: str
    term: Term | None = None
    other: str = ""


def paragraphs(text: str, chosen: str, own: Family) -> list[list[Part]]:
    """The paragraphs of a text as pieces. chosen: the family whose words are asked for; its own: no other words."""
    return [list(_parts(paragraph, "" if chosen == own else chosen)) for paragraph in text.split("\n\n") if paragraph.strip()]


def _parts(text: str, chosen: str) -> Iterator[Part]:
    at = 0
    for match in TERM.finditer(text):
        yield Part(text[at : match.start()])
        term = find(match[1])
        yield Part(match[1], term, pages_of(chosen).term(term) if term and chosen else "")
        at = match.end()
    yield Part(text[at:])


def unknown_terms(text: str) -> list[str]:
    """The words in brackets that the glossary does not explain."""
    return [match[1] for match in TERM.finditer(text) if find(match[1]) is None]
