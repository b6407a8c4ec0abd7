"""The glossary: each term in a sentence, with what Azure and RabbitMQ call it (glossary.toml)."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

_STORAGE = "in Queue Storage: "  # in the column of Azure


class Term(NamedTuple):
    """A term. icon: of its badge; for a state also the name of its colour. also: labels of pages that mean it."""

    word: str
    meaning: str
    azure: str = ""
    rabbitmq: str = ""
    icon: str = ""
    also: Sequence[str] = ()

    @property
    def anchor(self) -> str:
        return self.word.replace(" ", "-")

    @property
    def service_bus(self) -> str:
        """What Service Bus calls it; empty: unknown."""
        return self.azure.partition(_STORAGE)[0].rstrip("; ")

    @property
    def queue_storage(self) -> str:
        """What Queue Storage calls it, where that differs; empty: unknown."""
        return self.azure.partition(_STORAGE)[2]

    @property
    def sheet(self) -> str:
        """The id of the element that explains it."""
        return f"term-{self.anchor}"


TERMS = {
    section: [Term(*line) for line in lines]
    for section, lines in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items()
}


BY_WORD = {term.word: term for terms in TERMS.values() for term in terms}
_BY_LABEL = {label.lower(): term for term in BY_WORD.values() for label in (term.word, *term.also)}
LISTS = (  # headings of the lists of messages, and settings in the head of an entity, in all families
    "sequence number", "message id", "subject", "session", "delivery count", "dequeue count", "lease", "locked", "exchange",
    "routing key", "expiration", "x-death", "redelivered", "dead-letter reason",
    "lock duration", "time-to-live", "expired", "duplicate detection", "max length", "dead-letter exchange", "delivery limit",
    "history",
)  # fmt: skip


def find(label: str) -> Term | None:
    """The term that a label names, by its word or by another label of pages."""
    return _BY_LABEL.get(str(label).lower().rstrip(":"))
