"""The keys of the fields of all pages that list something else than messages, as data. docs/search.md lists them."""

from __future__ import annotations

from collections.abc import Mapping

from broker_core.common.family import installed
from broker_core.common.types import TERMINAL_KINDS, EntityKind, EventKind
from broker_core.operations import Kind as Operation
from broker_core.operations import State

from .vocabulary import Key, Kind, Vocabulary, normal


def _families() -> Mapping[str, str]:
    return {normal(str(family.family)): family.title for family in installed()}


def outcome_name(kind: EventKind) -> str:
    """An event kind as it is written in a condition."""
    return normal(kind.name)


EVENT_GROUPS: Mapping[str, tuple[str, tuple[EventKind, ...]]] = {
    "arrivals": ("sent, scheduled or published", (EventKind.SENT, EventKind.SCHEDULED, EventKind.PUBLISHED)),
    "receives": ("received, with or without a lock", (EventKind.RECEIVED, EventKind.RECEIVED_AND_DELETED)),
    "ends": ("completed, or received and deleted", (EventKind.COMPLETED, EventKind.RECEIVED_AND_DELETED)),
    "failures": (
        "dead-lettered, expired, abandoned, lock lost, moved or dropped",
        (
            EventKind.DEAD_LETTERED,
            EventKind.EXPIRED,
            EventKind.ABANDONED,
            EventKind.LOCK_LOST,
            EventKind.MOVED,
            EventKind.DROPPED,
        ),
    ),
}


def _events() -> Mapping[str, str]:
    groups = {name: meaning for name, (meaning, _) in EVENT_GROUPS.items()}
    return groups | {outcome_name(kind): "event" for kind in EventKind}


def kinds_of(event: str) -> tuple[EventKind, ...]:
    """The kinds of events that a group, or the name of one, stands for."""
    return EVENT_GROUPS[event][1] if event in EVENT_GROUPS else (EventKind[event.replace("-", "_").upper()],)


NAMESPACE = Key("namespace", "namespace, account or virtual host", source="namespaces", old="namespace", is_place=True)
FAMILY = Key("family", "broker family", Kind.CHOICE, _families, old="family")
ENTITY_STATES = {
    "active": "sends and receives",
    "paused": "sending or receiving is paused",
    "no-receivers": "messages wait, and no receiver has asked for one within the last minute",
}
COUNTS = {  # the column by which entities are sorted
    "dead": "dead",
    "available": "available",
    "locked": "held",
    "scheduled": "waiting",
    "deferred": "deferred",
    "expired": "expired",
}

ENTITIES = Vocabulary(
    "entities", "Filter entities", "name", (
        Key("namespace", "namespace, account or virtual host", source="namespaces", is_place=True),
        FAMILY,
        Key("kind", "kind of entity", Kind.CHOICE, lambda: {str(kind): "kind" for kind in EntityKind}, old="kind"),
        Key("state", "state", Kind.CHOICE, lambda: ENTITY_STATES),
        Key("prefix", "beginning of the name", old="within"),
        *(Key(name, f"{name} messages", Kind.NUMBER, example=f"{name}>0") for name in COUNTS),
    ),
    example="orders state:paused dead>0",
)  # fmt: skip
DEAD_LETTERS = Vocabulary(
    "dead-letters", "Filter groups", "entity", (
        NAMESPACE, FAMILY, Key("reason", "reason, description or origin", old="why"),
    ),
    example="payments reason:currency",
)  # fmt: skip
LOCKS = Vocabulary(
    "locks", "Filter locks", "entity", (
        NAMESPACE, FAMILY, Key("holder", "holder", source="holders", old="holder"),
    ),
    example="orders holder:billing",
)  # fmt: skip
CONNECTIONS = Vocabulary(
    "connections", "Filter connections", "client, peer, policy or entity", (
        NAMESPACE, Key("protocol", "protocol"), Key("by", "policy or user", source="actors"),
        Key("entity", "entity that it uses", source="entities"), Key("holder", "holder of locks", source="holders"),
    ),
    example="storage-queue protocol:queue by:shop",
)  # fmt: skip
OPERATIONS = Vocabulary(
    "operations", "Filter operations", "entity", (
        Key("kind", "kind of operation", Kind.CHOICE, lambda: {str(kind): "kind" for kind in Operation}, old="kind"),
        Key("state", "state", Kind.CHOICE, lambda: {str(state): "state" for state in State}),
        Key("by", "who started it", source="people"),
        Key("is", "can be undone", Kind.CHOICE, lambda: {"undoable": "can be undone"}, old="undoable",
            old_value="undoable"),
        NAMESPACE,
    ),
    example="orders kind:resubmit by:ada",
)  # fmt: skip
ACTIVITY = Vocabulary(
    "activity", "Filter activity", "entity, action or target", (
        Key("actor", "who", source="people", old="actor"),
        Key("action", "what was done", source="actions"),
        Key("entity", "entity", source="entities", old="queue", is_place=True),
        Key("outcome", "outcome", Kind.CHOICE, lambda: {"done": "done", "refused": "refused"}, old="outcome"),
        Key("at", "time", Kind.TIME, example="at:09:00..09:30"),
    ),
    example="actor:ada outcome:refused at>09:00",
)  # fmt: skip
TAIL = Vocabulary(
    "tail", "Filter events", "message id", (
        Key("namespace", "namespace, account or virtual host", source="namespaces", old="namespace", is_place=True),
        Key("entity", "entity", source="entities", old="entity", is_place=True),
        Key("event", "event, or a group of events", Kind.CHOICE, _events, old="kinds"),
        Key("by", "who caused the event", source="actors", old="actor"),
    ),
    example="entity:demo/orders event:failures",
    old_words="id",
)  # fmt: skip
HISTORY = Vocabulary(
    "history", "Filter the history", "message id", (
        Key("outcome", "how the message left", Kind.CHOICE, lambda: {
            outcome_name(EventKind(kind)): "outcome" for kind in sorted(TERMINAL_KINDS)
        }, old="outcome"),
        Key("by", "who caused it", source="actors", old="by"),
    ),
    example="outcome:expired by:billing",
    old_words="id",
)  # fmt: skip
SESSIONS = Vocabulary("sessions", "Filter sessions", "session id", (), example="part of a session id", old_words="session")

ALL = {
    vocabulary.name: vocabulary
    for vocabulary in (ENTITIES, DEAD_LETTERS, LOCKS, CONNECTIONS, OPERATIONS, ACTIVITY, TAIL, HISTORY, SESSIONS)
}
