"""A message's timeline: its events, their actors, and what the message did in between. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from broker_core.common.durations import human
from broker_core.common.types import EntityAddress, EventKind, Family
from broker_core.reads import Event, LinkedMessage, MessageRow

from .family import EventTexts, pages_of
from .presenters import actor_name, deadline

SHORTEST_GAP = timedelta(milliseconds=500)


@dataclass(frozen=True, slots=True)
class Words:
    """An event kind for display: a word with its icon and colour."""

    word: str
    icon: str
    hue: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the timeline: an event (words is set), or the gap before the next one (words is None).

    since: the gap goes on since then; its duration follows the text. note: a second sentence.
    elsewhere: address and number of the event if they differ from the page's.
    links: the messages that it was moved to, or was created from. repaired_by: the number of the operation that changed the body;
    compared: the numbers, as the page of comparisons reads them, of the message before and after it.
    """

    text: str
    words: Words | None = None
    at: datetime | None = None
    since: datetime | None = None
    actor: str | None = None
    note: str = ""
    elsewhere: tuple[EntityAddress | None, int] | None = None
    links: tuple[LinkedMessage, ...] = ()
    repaired_by: int | None = None
    compared: tuple[EntityAddress, str, str] | None = None


_WORDS = {
    EventKind.SENT: Words("sent", "send", "active"),
    EventKind.SCHEDULED: Words("scheduled", "scheduled", "scheduled"),
    EventKind.ACTIVATED: Words("activated", "play", "scheduled"),
    EventKind.RECEIVED: Words("locked", "locked", "locked"),
    EventKind.RENEWED: Words("lock renewed", "renew", "locked"),
    EventKind.COMPLETED: Words("completed", "done", "gone"),
    EventKind.ABANDONED: Words("abandoned", "unlock", "gone"),
    EventKind.RELEASED: Words("released", "unlock", "gone"),
    EventKind.DEFERRED: Words("deferred", "deferred", "deferred"),
    EventKind.DEAD_LETTERED: Words("dead-lettered", "dead", "dead"),
    EventKind.EXPIRED: Words("expired", "expired", "expired"),
    EventKind.LOCK_LOST: Words("lock ended", "expired", "expired"),
    EventKind.CANCELLED: Words("cancelled", "cross", "gone"),
    EventKind.PURGED: Words("purged", "trash", "gone"),
    EventKind.RESUBMITTED: Words("resubmitted", "back", "active"),
    EventKind.DELETED: Words("deleted with its queue", "trash", "gone"),
    EventKind.FORWARDED: Words("forwarded", "forward", "active"),
    EventKind.DUPLICATE_DROPPED: Words("duplicate dropped", "copy", "gone"),
    EventKind.PUBLISHED: Words("published", "topic", "active"),
    EventKind.RECEIVED_AND_DELETED: Words("received and deleted", "done", "gone"),
    EventKind.DROPPED: Words("dropped", "cross", "gone"),
    EventKind.MOVED: Words("moved", "forward", "dead"),
    EventKind.SETTLE_REFUSED: Words("settlement refused", "warning", "expired"),
    EventKind.RESTORED: Words("restored", "back", "active"),
    EventKind.EDITED: Words("edited", "edit", "active"),
}

_TEXTS = {
    EventKind.SENT: "Sent",
    EventKind.SCHEDULED: "Sent, to be enqueued later",
    EventKind.ACTIVATED: "Scheduled time reached: enqueued",
    EventKind.RECEIVED: "Received with peek-lock",
    EventKind.COMPLETED: "Completed",
    EventKind.ABANDONED: "Abandoned: available again",
    EventKind.RELEASED: "Released; delivery count unchanged",
    EventKind.DEFERRED: "Deferred: received only by sequence number",
    EventKind.DEAD_LETTERED: "Moved to the dead-letter queue",
    EventKind.EXPIRED: "Expired and dropped",
    EventKind.LOCK_LOST: "Lock expired without settlement",
    EventKind.CANCELLED: "Cancelled before its scheduled time",
    EventKind.PURGED: "Purged",
    EventKind.RESUBMITTED: "Resubmitted to the queue",
    EventKind.DELETED: "Deleted together with its queue",
    EventKind.FORWARDED: "Forwarded",
    EventKind.DUPLICATE_DROPPED: "A later message with the same id was dropped as a duplicate",
    EventKind.PUBLISHED: "Published",
    EventKind.RECEIVED_AND_DELETED: "Received and deleted in one step",
    EventKind.DROPPED: "Dropped",
    EventKind.MOVED: "Moved",
    EventKind.SETTLE_REFUSED: "Settlement refused",
    EventKind.RESTORED: "Restored by undoing an operation",
    EventKind.EDITED: "Edited",
}

# What a message does after an event of this kind; {0} is the duration.
_GAPS = {
    EventKind.SENT: "waited {0} for a receiver",
    EventKind.SCHEDULED: "scheduled for {0}",
    EventKind.ACTIVATED: "waited {0} for a receiver",
    EventKind.RECEIVED: "held for {0}",
    EventKind.RENEWED: "held for another {0}",
    EventKind.ABANDONED: "waited {0} for the next receiver",
    EventKind.RELEASED: "waited {0} for the next receiver",
    EventKind.LOCK_LOST: "waited {0} for the next receiver",
    EventKind.DEFERRED: "deferred for {0}",
    EventKind.DEAD_LETTERED: "in dead letters for {0}",
    EventKind.PURGED: "removed for {0}",
    EventKind.RESUBMITTED: "elsewhere for {0}",
    EventKind.EDITED: "waited {0}",
}

_REMOVALS = ("archived", "discarded")  # reasons of a purge by an operation

COMMON = EventTexts({}, {}, _GAPS)


def leaving(family: Family, *staying: EventKind) -> Callable[[EventKind], str]:
    """What became of a message that left its list, in a word; empty for events that are no reason to leave."""
    return lambda kind: "" if kind in (*staying, EventKind.SETTLE_REFUSED) else words(kind, family).word


def words(kind: EventKind, family: Family | None = None, reason: str | None = None) -> Words:
    """The family's word, icon and colour of an event. family None: unknown."""
    default, texts = _WORDS[kind], texts_of(family)
    if kind == EventKind.MOVED and reason is not None and reason == texts.moved_by_operator:
        return replace(default, icon="back", hue="active")
    if kind == EventKind.PURGED and reason in _REMOVALS:
        return replace(default, word=reason)
    return replace(default, word=texts.words.get(kind, default.word))


def texts_of(family: Family | None) -> EventTexts:
    return COMMON if family is None else pages_of(family).events


def entries(events: Sequence[Event], entity_id: int, sequence_number: int, family: Family | None = None) -> list[Entry]:
    """The timeline of the message with this number, oldest first. Consecutive renewals are one line."""
    lines: list[Entry] = []
    grouped, texts = _with_renewals_grouped(events), texts_of(family)
    for i, (event, times) in enumerate(grouped):
        before = grouped[i - 1][0] if i else None
        if before is not None and (gap := _gap(before, event, texts)):
            lines.append(Entry(gap))
        is_own = (event.entity_id, event.sequence_number) == (entity_id, sequence_number)
        elsewhere = None if is_own else (event.address, event.sequence_number)
        if event.kind == EventKind.SETTLE_REFUSED:
            cause = autopsy(event, events)
            lines.append(Entry(cause.title, words(event.kind), event.at, None, event.actor, cause.history, elsewhere))
            continue
        text = _edited(event, family) if event.kind == EventKind.EDITED else _text(event, times, texts)
        lines.append(
            Entry(
                text, words(event.kind, family, event.reason), event.at, None, event.actor,
                _note(event, texts), elsewhere, _links(event, entity_id, sequence_number),
                event.details.get("repaired_by"), _compared(event),
            )
        )  # fmt: skip
    return lines


@dataclass(frozen=True, slots=True)
class Autopsy:
    """Why a settlement was refused. title: what was refused, and how late it was. history: of the lock: taken, renewed, ended."""

    title: str
    history: str


def autopsy(refused: Event, events: Sequence[Event]) -> Autopsy:
    """Why a settlement was refused, from the events of the message before it."""
    title = f"{(refused.reason or 'settlement').capitalize()} refused"
    of_actor = [e for e in events if e.event_id < refused.event_id and e.actor == refused.actor]
    received = next((e for e in reversed(of_actor) if e.kind == EventKind.RECEIVED), None)
    if received is None:
        return Autopsy(f"{title}: no valid lock", "")
    since = [e for e in events if received.event_id < e.event_id < refused.event_id]
    renewals = [e for e in since if e.kind == EventKind.RENEWED and e.actor == refused.actor]
    until = (renewals[-1] if renewals else received).locked_until
    renewed = f"renewed {'once' if len(renewals) == 1 else f'{len(renewals)} times'}" if renewals else "never renewed"
    history = f"taken at {received.at:%H:%M:%S}, {renewed}"
    ended = next((e for e in since if e.kind in _ENDS_A_LOCK and (until is None or e.at < until)), None)
    if ended is not None:
        how_ended = "settled" if ended.actor == refused.actor else "released"
        return Autopsy(f"{title}: the lock had been {how_ended} before", f"{history}, {how_ended} at {ended.at:%H:%M:%S}")
    if until is None or refused.at < until:
        return Autopsy(f"{title}: another lock token was given", history)
    return Autopsy(f"{title}: {human(refused.at - until)} too late", f"{history}, ended at {until:%H:%M:%S}")


_ENDS_A_LOCK = (
    EventKind.COMPLETED, EventKind.ABANDONED, EventKind.RELEASED, EventKind.DEFERRED, EventKind.DEAD_LETTERED,
    EventKind.LOCK_LOST,
)  # fmt: skip
_AHEAD = {
    "lock ends in": "Lock will end", "due in": "Will be enqueued", "visible in": "Will be visible again",
    "lease ends in": "Lease will end", "expires in": "Will expire",
}  # fmt: skip


def present(events: Sequence[Event], row: MessageRow, family: Family) -> list[Entry]:
    """What a present message does since its last event, and the next change that is known."""
    lines = []
    says = texts_of(family).gaps.get(events[-1].kind) if events else None
    if says:
        lines.append(Entry(says.partition("{0}")[0].strip(), since=events[-1].at))
    due = deadline(row)
    if due is not None:
        lines.append(Entry(_AHEAD.get(due.words, "Will expire"), at=due.at))
    return lines


def _with_renewals_grouped(events: Sequence[Event]) -> list[tuple[Event, int]]:
    """(event, count): of consecutive renewals only the last one is kept."""
    grouped: list[tuple[Event, int]] = []
    for event in events:
        if grouped and event.kind == grouped[-1][0].kind == EventKind.RENEWED:
            grouped[-1] = (event, grouped[-1][1] + 1)
        else:
            grouped.append((event, 1))
    return grouped


def _gap(before: Event, after: Event, texts: EventTexts) -> str:
    """What the message did between two events, in words; empty for a short gap."""
    length = after.at - before.at
    if length < SHORTEST_GAP or before.kind not in texts.gaps:
        return ""
    ended, says = before.locked_until, texts.gaps[before.kind]
    if before.kind in (EventKind.RECEIVED, EventKind.RENEWED) and ended is not None and after.at - ended > SHORTEST_GAP:
        return f"{says.format(human(ended - before.at))}; {texts.unnoticed.format(human(after.at - ended))}"
    return says.format(human(length))


def _text(event: Event, times: int, texts: EventTexts) -> str:
    text = texts.sentences.get(event.kind, _TEXTS.get(event.kind, ""))
    match event.kind:
        case EventKind.RENEWED:
            return texts.renewed[times > 1].format(times)
        case EventKind.PUBLISHED if "copies" in event.details:
            return _published(event.details["copies"])
        case EventKind.FORWARDED if event.other:
            duplicate = ", where it was dropped as a duplicate" if event.details.get("duplicate") else ""
            return f"Forwarded to {_named(event.other)}{duplicate}"
        case EventKind.MOVED:
            moved, because = _moved(event.reason, texts)
            return f"{moved} to {_listed(event.others)}{because}"
        case EventKind.SENT if isinstance(event.details.get("from"), dict):
            moved, because = _moved(event.details["from"].get("reason"), texts)
            return f"{moved} here from {_named(event.other)}{because}"
    if "published_from" in event.details:
        return _arrived(event)
    if event.kind == EventKind.PURGED and event.reason in _REMOVALS:
        return event.reason.capitalize()
    if event.kind in (EventKind.DEAD_LETTERED, EventKind.DROPPED) and event.reason:
        return f"{text}: {event.reason}"
    if event.kind == EventKind.SENT and "resubmitted_from" in event.details:
        return "Resubmitted from a dead letter"
    if event.kind == EventKind.SENT and "from" in event.details:
        return "Enqueued under a new number"
    return text


def _edited(event: Event, family: Family | None) -> str:
    """What an operator changed, by the family's names."""
    if family is None:
        return _TEXTS[EventKind.EDITED]
    names = pages_of(family).texts
    words = {"body": names.body.lower(), "properties": names.application_properties.lower()}
    return f"Edited the {' and the '.join(words[part] for part in event.details.get('changed', ()))}"


def _named(place: LinkedMessage | None) -> str:
    return place.address.path if place and place.address else "a deleted entity"


def _listed(places: Sequence[LinkedMessage]) -> str:
    return ", ".join(dict.fromkeys(map(_named, places))) or "no queue"


def _moved(reason: str | None, texts: EventTexts) -> tuple[str, str]:
    """The text of a move, and its reason; empty if an operator moved the message."""
    if reason is not None and reason == texts.moved_by_operator:
        return _TEXTS[EventKind.MOVED], ""
    return texts.sentences.get(EventKind.MOVED, _TEXTS[EventKind.MOVED]), f": {reason}" if reason else ""


def _published(copies: int) -> str:
    if not copies:
        return "Published; no subscription's rules matched, so it was discarded"
    return f"Published: {copies} {'copy' if copies == 1 else 'copies'} for its subscriptions"


def _arrived(event: Event) -> str:
    """How a message arrived that was not sent here."""
    origin = event.other.address if event.other else None
    is_copy = origin is not None and event.address is not None and event.address.topic == origin
    if event.kind == EventKind.DEAD_LETTERED:
        return f"Copied from the topic into the dead-letter queue: {event.reason}"
    if is_copy:
        return "Copied from the topic by a matching rule"
    return f"Forwarded from {origin.path if origin else 'a deleted entity'}"


def _note(event: Event, texts: EventTexts) -> str:
    parts = []
    if event.kind in (EventKind.RECEIVED, EventKind.RENEWED) and event.locked_until:
        parts.append(texts.locked.format(human(event.locked_until - event.at)))
    if event.kind in (EventKind.ABANDONED, EventKind.LOCK_LOST, EventKind.DEAD_LETTERED) and event.delivery_count:
        parts.append(f"{texts.count}: {event.delivery_count}")
    if event.kind in (EventKind.SENT, EventKind.SCHEDULED) and event.time_to_live:
        parts.append(f"time-to-live {human(event.time_to_live)}")
    if "visible_at" in event.details:
        parts.append(f"invisible for {human(datetime.fromisoformat(event.details['visible_at']) - event.at)}")
    if "text_bytes" in event.details:
        parts.append(f"new text of {event.details['text_bytes']:,} bytes")
    if "dropped_by" in event.details:
        parts.append(f"released by {actor_name(event.details['dropped_by'])}")
    if event.kind == EventKind.EDITED and event.size is not None and event.size != event.details["size_before"]:
        parts.append(f"{event.details['size_before']:,} bytes before, {event.size:,} now")
    if event.kind in (EventKind.LOCK_LOST, EventKind.RELEASED, EventKind.ABANDONED, EventKind.EDITED) and event.reason:
        parts.append(event.reason)
    if "held_by" in event.details:
        parts.append(f"previously leased by {actor_name(event.details['held_by'])}")
    description = event.details.get("description")
    if description:
        parts.append(str(description))
    return " · ".join(parts)


def _compared(event: Event) -> tuple[EntityAddress, str, str] | None:
    """The message before and after a repair; None: it was not repaired, or an entity was deleted long ago."""
    other = event.other
    if "repaired_by" not in event.details or event.address is None or other is None or other.address is None:
        return None
    after = f"{other.address.namespace}/{other.address.path}/{other.sequence_number}"
    return event.address.main, str(event.sequence_number), after


def _links(event: Event, entity_id: int, sequence_number: int) -> tuple[LinkedMessage, ...]:
    """The messages that this event refers to, without the one that the page is about."""
    return tuple(
        other for other in event.others
        if other.address is not None and other.sequence_number is not None
        and (other.entity_id, other.sequence_number) != (entity_id, sequence_number)
    )  # fmt: skip
