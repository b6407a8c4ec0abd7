"""Messages that a message is related to: what it was made from and became, and those of the same conversation. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from django.urls import reverse

from broker_core.common.types import EntityAddress, EventKind
from broker_core.reads import Event, exactly

_BECAME = {
    EventKind.RESUBMITTED: "Resubmitted as",
    EventKind.ACTIVATED: "Enqueued as",
    EventKind.FORWARDED: "Forwarded to",
    EventKind.MOVED: "Moved to",
    EventKind.PUBLISHED: "Copied to",
}


@dataclass(frozen=True, slots=True)
class Related:
    """A link to related messages. word: how they are related. text: what the link shows. url: empty: there is nothing to open."""

    word: str
    text: str
    url: str = ""
    note: str = ""


def lineage(events: Sequence[Event], entity_id: int, number: int) -> list[Related]:
    """What the message was made from, and what it became, nearest first."""
    related: list[Related] = []
    for event in events:
        is_own = (event.entity_id, event.sequence_number) == (entity_id, number)
        for other in event.others:
            is_this = (other.entity_id, other.sequence_number) == (entity_id, number)
            if is_own and not is_this:
                related.append(_linked(_word(event), other.address, other.sequence_number, entity_id == other.entity_id))
            elif is_this and not is_own:
                word = _BECAME_OF.get(event.kind, "Made from")
                related.append(_linked(word, event.address, event.sequence_number, entity_id == event.entity_id))
    return list(dict.fromkeys(related))


_BECAME_OF = {
    EventKind.RESUBMITTED: "Resubmitted from",
    EventKind.ACTIVATED: "Scheduled as",
    EventKind.FORWARDED: "Forwarded from",
    EventKind.MOVED: "Moved from",
    EventKind.PUBLISHED: "Published as",
    EventKind.SENT: "Resubmitted as",
}


def _word(event: Event) -> str:
    if event.kind in _BECAME:
        return _BECAME[event.kind]
    details: Mapping[str, Any] = event.details
    if details.get("resubmitted_from"):
        return "Resubmitted from"
    if details.get("published_from"):
        topic = event.other.address if event.other else None
        return "Published as" if event.address is not None and event.address.topic == topic else "Forwarded from"
    return "Moved from" if isinstance(details.get("from"), dict) else "Scheduled as"


def _linked(word: str, address: EntityAddress | None, number: int | None, same_entity: bool) -> Related:
    if address is None or number is None:
        return Related(word, f"message {number}" if number else "a message", note="in a deleted entity")
    url = reverse("explorer:message", args=(address.namespace, address.path, number))
    return Related(word, f"message {number}", url, "" if same_entity else f"in {address.path}")


def by_properties(
    properties: Mapping[str, Any],
    message_id: str | None,
    address: EntityAddress,
    entity_exists: Callable[[EntityAddress], bool],
    session_id: str | None = None,
) -> list[Related]:
    """Searches for the messages of the same conversation, and the entity to which answers go.

    properties: as stored. entity_exists: whether there is an entity with this address.
    """
    related: list[Related] = []
    if session_id:
        related.append(Related("Same session", session_id, search_url("session", session_id)))
    if correlation := properties.get("correlation_id"):
        related.append(Related("Same correlation ID", str(correlation), search_url("correlation", correlation)))
        related.append(Related("In answer to", f"message ID {correlation}", search_url("id", correlation)))
    if message_id:
        related.append(Related("Answers", f"correlation ID {message_id}", search_url("correlation", message_id)))
    if reply_to := properties.get("reply_to"):
        target = EntityAddress(address.namespace, str(reply_to))
        url = reverse("explorer:entity", args=(target.namespace, target.path)) if entity_exists(target) else ""
        related.append(Related("Answers go to", str(reply_to), url, "" if url else "no such entity here"))
    return related


def search_url(key: str, value: Any) -> str:
    """The search over all messages for one property."""
    return f"{reverse('explorer:messages')}?q={quote(exactly(key, str(value)), safe='')}"
