"""Publishing: copies of a topic's messages for its subscriptions. Compiled rules are cached per process and version."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import uuid4

from broker_core.common.errors import ServerBusy
from broker_core.common.types import SubQueue
from broker_core.runtime.caches import BoundedCache
from broker_core.service_bus.rules import messages as service_bus
from broker_core.service_bus.rules.filters.rules import rule_from_json
from broker_core.service_bus.rules.matching import Copy, RuleIndex, SubscriptionRules
from broker_core.service_bus.rules.messages import Prepared
from broker_core.store import connections
from broker_core.store.driver import Steps
from broker_core.store.statements import call

from .shared import new_ids

RULE_TRIES = 5  # attempts while the topic's rules keep changing


class Stored(NamedTuple):
    """The result of storing messages. numbers: None for a dropped duplicate. entity_ids: where they are stored. waiting: those
    that processes wait for. forwards: those to forward from."""

    numbers: list[int | None]
    entity_ids: Sequence[int] = ()
    waiting: Sequence[int] = ()
    forwards: Sequence[int] = ()


def merge_numbers(
    count: int, later: Container[int], scheduled: Iterable[int | None], others: Iterable[int | None]
) -> list[int | None]:
    """Merge the numbers of a topic's messages: scheduled ones, at the positions `later`, and published ones."""
    scheduled, others = iter(scheduled), iter(others)
    return [next(scheduled if place in later else others) for place in range(count)]


class SourceMessage(NamedTuple):
    """The origin of a forwarded or scheduled message. enqueued_at: None: when it is stored."""

    enqueued_at: datetime | None = None
    enqueued_number: int | None = None
    source: str | None = None
    reason: str | None = None
    description: str | None = None
    transfer: str | None = None


class Entry(NamedTuple):
    """A message to be stored in one or more entities. place: the index of the sent message that it is made from."""

    place: int
    prepared: Prepared
    origin: SourceMessage = SourceMessage()
    list_: SubQueue = SubQueue.MAIN
    reason: str | None = None
    description: str | None = None


class _Rules(NamedTuple):
    version: int
    rules: RuleIndex


_compiled = BoundedCache(1_000)  # database and topic -> _Rules


def publish(
    topic_id: int, prepared: Sequence[Prepared], actor: str, origins: Sequence[SourceMessage] | None = None
) -> Steps[Stored | None]:
    """Store a topic's messages in the matching subscriptions, all or none (SB-210).

    Returns Stored with the topic's own numbers, or None if the topic rejects the messages; `entity_status` shows why.
    """
    for _ in range(RULE_TRIES):
        rules = yield from _rules(topic_id)
        if rules is None:
            return None
        entries, picks = _fan_out(rules.rules, prepared, origins)
        params = columns(prepared, entries, picks) | {"entity_id": topic_id, "from_id": topic_id, "actor": actor}
        if origins is not None:  # accepted before, so the size is not checked again
            params["largest"] = 0
        rows = yield call("publish", count=len(prepared), rules_version=rules.version, **params)
        if rows:
            first = rows[0].first
            return Stored(list(range(first, first + len(prepared))), list(picks), rows[0].waiting, rows[0].forwards)
        status = yield call("entity_status", entity_id=topic_id)
        if not status or status[0].rules_version == rules.version:
            return None
        _compiled.pop((connections.current_database(), topic_id), None)
    raise ServerBusy("The topic's rules changed during each attempt to send. Nothing was stored; try again.")


def columns(prepared: Sequence[Prepared], entries: Sequence[Entry], picks: dict[int, list[int]]) -> dict[str, Any]:
    """Entries, and the numbers (from 1) of those that each entity gets, as the array parameters of `publish` and `deliver`."""
    messages = [entry.prepared.message for entry in entries]
    sizes, ids = [entry.prepared.size for entry in entries], new_ids(len(prepared))
    return {
        "bodies": [bytes(p.message.body) for p in prepared],
        "largest": max(p.size for p in prepared),
        "bytes": sum(sizes[i - 1] for chosen in picks.values() for i in chosen),
        "places": [entry.place for entry in entries],
        "sizes": sizes,
        "body_kinds": [int(m.body_kind) for m in messages],
        "message_ids": [entry.prepared.message.message_id or ids[entry.place] for entry in entries],
        "session_ids": [m.session_id for m in messages],
        "times_to_live": [entry.prepared.time_to_live for entry in entries],
        "scheduled_at": [m.scheduled_enqueue_at for m in messages],
        "properties": [entry.prepared.properties for entry in entries],
        "application_properties": [entry.prepared.application_properties for entry in entries],
        "encoded": [entry.prepared.encoded for entry in entries],
        "enqueued_at": [entry.origin.enqueued_at for entry in entries],
        "enqueued_numbers": [entry.origin.enqueued_number for entry in entries],
        "lists": [int(entry.list_) for entry in entries],
        "reasons": [entry.reason or entry.origin.reason for entry in entries],
        "descriptions": [entry.description or entry.origin.description for entry in entries],
        "sources": [entry.origin.source for entry in entries],
        "transfers": [entry.origin.transfer for entry in entries],
        "entity_ids": list(picks),
        "picks": _picks_as_text(picks.values()),
    }


def _picks_as_text(picks: Iterable[list[int]]) -> list[str]:
    """Arrays as PostgreSQL literals. Most subscriptions get the same messages, so equal arrays share a string."""
    texts: dict[tuple[int, ...], str] = {}
    return [texts.setdefault(key, "{" + ",".join(map(str, key)) + "}") for key in map(tuple, picks)]


def _rules(topic_id: int) -> Steps:
    """The topic's compiled rules; None if it does not exist."""
    key = (connections.current_database(), topic_id)
    rules = _compiled.get(key)
    if rules is None:
        rows = yield call("topic_rules", entity_id=topic_id)
        if not rows:
            return None
        rules = _compiled.keep(key, _Rules(rows[0].rules_version, RuleIndex(_subscriptions(rows))))
    return rules


def _subscriptions(rows: Sequence[Any]) -> list[SubscriptionRules]:
    grouped: dict[int, list] = defaultdict(list)
    for row in rows:
        if row.entity_id is not None:
            grouped[row.entity_id].append(row)
    return [
        SubscriptionRules(
            entity_id,
            group[0].requires_session,
            group[0].dead_letter_filter_errors,
            [rule_from_json(row._asdict()) for row in group if row.name is not None],
        )
        for entity_id, group in grouped.items()
    ]


def _fan_out(index: RuleIndex, prepared: Sequence[Prepared], origins: Sequence[SourceMessage] | None):
    """The messages, followed by their changed and dead-lettered copies; and for each entity the numbers (from 1) of those it
    gets."""
    origins = origins or [SourceMessage()] * len(prepared)
    entries = [Entry(place, p, origin) for place, (p, origin) in enumerate(zip(prepared, origins, strict=True))]
    picks: dict[int, list[int]] = defaultdict(list)
    for place, (p, origin) in enumerate(zip(prepared, origins, strict=True)):
        matches = index.match(p.message, size=p.size, enqueued_sequence_number=origin.enqueued_number, new_id=uuid4)
        for entity_id in matches.plain:
            picks[entity_id].append(place + 1)
        for copy in matches.changed:
            entries.append(_changed_entry(place, p, origin, copy))
            picks[copy.entity_id].append(len(entries))
    return entries, dict(picks)


def _changed_entry(place: int, sent: Prepared, origin: SourceMessage, copy: Copy) -> Entry:
    """A copy that an action changed, or that cannot be delivered (SB-212, SB-218)."""
    prepared = sent if copy.message is sent.message else service_bus.prepare(copy.message)
    if copy.dead_letter_reason is not None:
        return Entry(place, prepared, origin, SubQueue.DEAD_LETTER, copy.dead_letter_reason, copy.dead_letter_description)
    return Entry(place, prepared, origin)
