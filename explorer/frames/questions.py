"""The five questions that analyses answer, and links that ask one of them with everything chosen. Pure but for the URLs."""

from __future__ import annotations

from datetime import datetime, timedelta
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
RANGES = {"1d": ("24 hours", timedelta(days=1)), "7d": ("7 days", timedelta(days=7)), "30d": ("30 days", timedelta(days=30))}
LONGEST = timedelta(days=400)  # of a range of one's own
ANALYSED = (EntityKind.QUEUE, EntityKind.SUBSCRIPTION)  # a topic's messages pass through it in no time


def question_url(slug: str, **chosen: Any) -> str:
    """The page of a question. chosen: queue (its id) or namespace, and range, receiver (as stored) or reason; empty ones are
    left out. Without a range it is the last day."""
    query = urlencode({name: value for name, value in chosen.items() if value})
    return f"{reverse('explorer:analysis_question', args=(slug,))}?{query}"


def question_about(entity: EntityRow, slug: str, **chosen: Any) -> str:
    """The page of a question about an entity, or about its namespace if it stores no messages."""
    of = {"queue": entity.id} if entity.kind in ANALYSED else {"namespace": entity.address.namespace}
    return question_url(slug, **of, **chosen)


def range_since(instant: datetime | None, now: datetime) -> dict[str, str]:
    """The range of a question about what began at an instant: the shortest of RANGES that contains it, since their answers are
    kept. now: by the clock of the namespace. Empty: the instant is not known."""
    if instant is None:
        return {}
    name = next((name for name, (_, length) in RANGES.items() if now - instant <= length), "")
    return {"range": name} if name else _between(max(instant, now - LONGEST), now)


def range_of(length: timedelta, now: datetime) -> dict[str, str]:
    """The range of a question about a chart of the last minutes or days."""
    name = next((name for name, (_, of_name) in RANGES.items() if of_name == length), "")
    return {"range": name} if name else _between(now - length, now)


def _between(start: datetime, end: datetime) -> dict[str, str]:
    return {"start": f"{start:%Y-%m-%dT%H:%M}", "end": f"{end:%Y-%m-%dT%H:%M}"}
