"""The history of an entity: the messages that left it, by outcome, message id and actor."""

from __future__ import annotations

from typing import Any

from django.forms import Form
from django.http import QueryDict

from broker_core import reads
from broker_core.common.types import TERMINAL_KINDS, Actor, EventKind
from broker_core.reads import EntityRow

from . import timeline
from .forms.queries import HistoryQuery


def history(entity: EntityRow, form: Form, actor: Actor) -> dict[str, Any]:
    """Context of `_history.html`. form: a valid query with the fields id, outcome, by and cursor."""
    values = form.cleaned_data
    kind = values.get("outcome")
    events = reads.gone(
        entity.address, kinds=[kind] if kind else (), message_id=values["id"] or None, by=values["by"] or None,
        cursor=values["cursor"] or None, actor=actor,
    )  # fmt: skip
    chosen = {"id": values["id"], "outcome": kind.name if kind else "", "by": values["by"]}
    return {"events": events, "outcomes": outcomes(entity), "chosen": chosen, "filtered": any(chosen.values())}


def beside(query: QueryDict, entity: EntityRow, number: int, actor: Actor) -> tuple[int | None, int | None]:
    """The numbers before and after a message on the page of the history that the query selects; None: it has none."""
    form = HistoryQuery(query)
    if not form.is_valid():
        return None, None
    numbers = list(dict.fromkeys(event.sequence_number for event in history(entity, form, actor)["events"].rows))
    if number not in numbers:
        return None, None
    at = numbers.index(number)
    return numbers[at - 1] if at else None, numbers[at + 1] if at + 1 < len(numbers) else None


def outcomes(entity: EntityRow) -> list[tuple[str, str]]:
    """The ways in which messages leave, in the family's words."""
    words: dict[str, str] = {}
    for kind in sorted(TERMINAL_KINDS):
        words.setdefault(timeline.words(EventKind(kind), entity.family, None).word, kind.name)
    return [(name, word) for word, name in words.items()]
