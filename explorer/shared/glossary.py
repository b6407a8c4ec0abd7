"""The glossary page: each term in a sentence, with what Azure and RabbitMQ call it (glossary.toml)."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_GET

from .attention import RULES
from .shell import page, show


class Term(NamedTuple):
    """A term. icon: of its badge; for a state also the name of its colour."""

    word: str
    meaning: str
    azure: str = ""
    rabbitmq: str = ""
    icon: str = ""

    @property
    def anchor(self) -> str:
        return self.word.replace(" ", "-")


TERMS = {
    section: [Term(*line) for line in lines]
    for section, lines in tomllib.loads(Path(__file__).with_suffix(".toml").read_text()).items()
}


BY_WORD = {term.word: term for terms in TERMS.values() for term in terms}


@page
@require_GET
def glossary(request: HttpRequest) -> HttpResponse:
    return show(request, "help", {"section": "help", "rules": RULES, **TERMS}, fragment="help")
