"""The five questions that analyses answer, and links that ask one of them with everything chosen. Pure but for the URLs."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.urls import reverse

from broker_core.common.types import EntityKind
from broker_core.reads import EntityRow

TITLES = {
    "slow": "Is it slow?",
    "lost": "Is anything lost?",
    "locks": "Are locks long enough?",
    "who": "Who does what?",
    "what-if": "What if?",
}
ANALYSED = (EntityKind.QUEUE, EntityKind.SUBSCRIPTION)  # a topic's messages pass through it in no time


def question_url(slug: str, **chosen: Any) -> str:
    """The page of a question. chosen: queue (its id) or namespace, and range, receiver (as stored) or reason; empty ones are
    left out."""
    query = urlencode({name: value for name, value in chosen.items() if value})
    return f"{reverse('explorer:analysis_question', args=(slug,))}?{query}"


def question_about(entity: EntityRow, slug: str, **chosen: Any) -> str:
    """The page of a question about an entity, or about its namespace if it stores no messages."""
    of = {"queue": entity.id} if entity.kind in ANALYSED else {"namespace": entity.address.namespace}
    return question_url(slug, **of, **chosen)
