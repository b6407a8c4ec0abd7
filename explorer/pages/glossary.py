"""The glossary page: each term in a sentence, with what Azure and RabbitMQ call it (glossary.toml)."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from explorer.frames.shell import page, show

from .attention import RULES

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


FILTER_EXAMPLES = (
    ("order-47", "contained in the message id, correlation id, subject, session id, or dead-letter reason or description"),
    ("id:order-47", "contained in the message id; id= for the whole id. Also subject, correlation, session, reason, description"),
    ("reason=TTL*", "a dead-letter reason that begins with TTL"),
    ("prop.tenant:acme", "an application property or header; also = > >= < <=. prop.tenant alone: has the property"),
    ("held-by:worker", "the holder of the lock; held-by:* for any"),
    ('body:"net total"', "text in the body, with this case"),
    ("$.order.id>4700", "a value in a JSON body; also : = >= < <=, and $.items[*].sku"),
    ("state:dead", "active, locked, deferred, scheduled, dead, expired; in the search also gone"),
    ("age>1h", "time since arrival; also age<30m, age:1h..2h, and dead-age since dead-lettering"),
    ("at:09:00..09:30", "time of arrival; also at:2026-11-22, at>2026-11-22T09:00, and dead-at for dead-lettering"),
    ("number>700", "sequence number; also deliveries, priority, and size>10KB"),
    ("-id:test", "not: messages that do not match id:test"),
)


@page
@require_GET
def glossary(request: HttpRequest) -> HttpResponse:
    from explorer.lessons import pages as lessons  # whose steps use the terms

    context = {"section": "help", "rules": RULES, "filter_examples": FILTER_EXAMPLES, **TERMS, **lessons.listed(request.user)}
    return show(request, "help", context, fragment="help")


@page
@require_GET
def keys(request: HttpRequest) -> HttpResponse:
    """The keyboard shortcuts. next: the page to return to from their switch."""
    return show(request, "keys", {"section": "help", "next": request.GET.get("next", "")})
