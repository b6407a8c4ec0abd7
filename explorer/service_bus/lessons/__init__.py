"""Service Bus's part of lessons: the actions that a step can name. The lessons are the TOML files beside this module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from broker_core import namespaces, reads, service_bus
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, Behaviour, EntityAddress, EntityKind, EventKind, SubQueue
from broker_core.reads import EntityRow, Event
from broker_core.service_bus import entities
from broker_core.service_bus.rules.entity_settings import FIXED, KEPT
from broker_core.service_bus.rules.filters import CorrelationFilter, Rule, compile_action, compile_filter
from broker_core.service_bus.rules.values import (
    LockedMessage,
    Message,
    QueueSettings,
    Session,
    SubscriptionSettings,
    TopicSettings,
)
from explorer.frames.presenters import plural
from explorer.lessons.lesson import Action, Effect, as_value, seconds
from explorer.lessons.stage import Stage, actor_argument, body_argument, body_of, is_unrepeatable, operation
from explorer.models import FaultKind

from .load import ServiceBusLoad

Args = Mapping[str, Any]
_THEN: dict[str, tuple[Callable[..., Any], str]] = {
    "complete": (service_bus.complete, "completed"),
    "abandon": (service_bus.abandon, "abandoned"),
}


def _set_behaviour(stage: Stage, args: Args) -> str:
    changed = namespaces.update_namespace(stage.namespace, behaviour=args["behaviour"], actor=stage.actor)
    return f"Entities behave as {changed.behaviour}."


def _create_queue(stage: Stage, args: Args) -> str:
    settings = {name: value for name, value in args.items() if name != "queue"}
    entities.create_queue(stage.at(args["queue"]), hidden=True, actor=stage.actor, **settings)
    return f"Created the queue {args['queue']}."


def _create_topic(stage: Stage, args: Args) -> str:
    settings = {name: value for name, value in args.items() if name != "topic"}
    entities.create_topic(stage.at(args["topic"]), hidden=True, actor=stage.actor, **settings)
    return f"Created the topic {args['topic']}."


def _create_subscription(stage: Stage, args: Args) -> str:
    own = ("topic", "name", *_RULE)
    settings = {name: value for name, value in args.items() if name not in own}
    address = stage.at(args["topic"]).subscription(args["name"])
    entities.create_subscription(address, rule=_rule(args), hidden=True, actor=stage.actor, **settings)
    return f"Created the subscription {args['name']}."


def _create_rule(stage: Stage, args: Args) -> str:
    address = stage.at(args["topic"]).subscription(args["subscription"])
    rule = _rule(args) or Rule(args["name"])
    if rule.name.lower() in {stored.rule.name.lower() for stored in entities.list_rules(address, actor=stage.actor)}:
        entities.delete_rule(address, rule.name, actor=stage.actor)
    entities.create_rule(address, rule, actor=stage.actor)
    return f"Created the rule {args['name']}."


def _rule(args: Args) -> Rule | None:
    change = compile_action(args["change"]) if "change" in args else None
    if "correlation" in args or "matching" in args:
        return Rule(args["name"], CorrelationFilter(**args.get("correlation", {}), properties=args.get("matching", {})), change)
    if "subject" in args:
        return Rule(args["name"], CorrelationFilter(subject=args["subject"]), change)
    return Rule(args["name"], compile_filter(args["filter"]), change) if "filter" in args else None


def _change_queue(stage: Stage, args: Args) -> str:
    settings = {name: value for name, value in args.items() if name != "queue"}
    entities.update_queue(stage.at(args["queue"]), actor=stage.actor, **settings)
    return f"Changed the queue {args['queue']}."


def _send(stage: Stage, args: Args) -> str:
    ids = args.get("ids") or [args.get("id")] * args.get("count", 1)
    due = namespaces.get_clock(stage.namespace).now + args["in"] if "in" in args else None
    service_bus.send(
        stage.at(args["queue"]),
        [
            Message(
                body_of(args, "body", message_id or "hello"),
                message_id=message_id, session_id=args.get("session"), subject=args.get("subject"),
                content_type=args.get("content_type", "text/plain"),
                time_to_live=args.get("ttl"), scheduled_enqueue_at=due, properties=args.get("properties", {}),
            )
            for message_id in ids
        ],
        actor=stage.actor,
    )  # fmt: skip
    return f"Sent {plural(len(ids), 'message')}."


def _receive(stage: Stage, args: Args) -> str:
    place, then = _place(stage, args), args.get("then", "hold")
    if then not in ("hold", "delete", *_THEN):
        raise InvalidArgument("then", f"{then!r} must be one of hold, delete, {', '.join(_THEN)}")
    if then == "delete":
        return _receive_and_delete(stage, place, args)
    if "session" in args:
        messages = service_bus.receive_from_session(_session(stage, args), args.get("count", 1), actor=stage.actor)
    else:
        messages = service_bus.receive(place, args.get("count", 1), actor=stage.actor)
    text = _remember(stage, place, messages)
    if then == "hold" or not messages:
        return text
    settle, word = _THEN[then]
    settle(place, [message.lock_token for message in messages], actor=stage.actor)
    return f"Received and {word} {plural(len(messages), 'message')}."


def _receive_and_delete(stage: Stage, place: EntityAddress, args: Args) -> str:
    count = args.get("count", 1)
    if "session" in args:
        messages = service_bus.receive_and_delete_from_session(_session(stage, args), count, actor=stage.actor)
    else:
        messages = service_bus.receive_and_delete(place, count, actor=stage.actor)
    return f"Received and deleted {plural(len(messages), 'message')}." if messages else "No messages are available."


def _receive_deferred(stage: Stage, args: Args) -> str:
    place = _place(stage, args)
    return _remember(stage, place, service_bus.receive_deferred(place, [args["number"]], actor=stage.actor))


def _remember(stage: Stage, place: EntityAddress, messages: list[LockedMessage]) -> str:
    for message in messages:
        stage.memory[_key(stage, place, message.sequence_number)] = str(message.lock_token)
    return f"Received {plural(len(messages), 'message')}." if messages else "No messages are available."


def _settle(how: Callable[..., Any], words: str, *texts: str) -> Callable[[Stage, Args], str]:
    def run(stage: Stage, args: Args) -> str:
        place = _place(stage, args)
        extra = {name: args[name] for name in texts if name in args}
        how(place, _token(stage, place, args["number"]), **extra, actor=stage.actor)
        return f"{words} message {args['number']}."

    return run


def _token(stage: Stage, place: EntityAddress, number: int) -> UUID:
    """The actor's present lock token, else the one that it received last. Without either, one that the broker refuses."""
    detail = reads.message(place, number, actor=stage.person)
    if detail and detail.row.lock_token and detail.row.locked_by == stage.actor.holder_label:
        return detail.row.lock_token
    known = stage.memory.get(_key(stage, place, number))
    return UUID(known) if known else UUID(int=(4 << 76) | number)


def _key(stage: Stage, place: EntityAddress, number: int) -> str:
    return f"{place.path}/{int(place.subqueue)}#{number} {stage.actor}"


def _place(stage: Stage, args: Args) -> EntityAddress:
    return stage.at(args["queue"], SubQueue.DEAD_LETTER if args.get("dead_letters") else SubQueue.MAIN)


def _accept_session(stage: Stage, args: Args) -> str:
    session = service_bus.accept_session(stage.at(args["queue"]), args.get("session"), actor=stage.actor)
    known = {"token": str(session.lock_token)}
    stage.memory[_session_key(stage, args["queue"], session.session_id)] = known
    return f"Accepted the session {session.session_id}."


def _session_key(stage: Stage, queue: str, name: str) -> str:
    return f"session {queue}#{name} {stage.actor}"


def _session(stage: Stage, args: Args) -> Session:
    """The session that was accepted; only its id and its token matter."""
    address, name = stage.at(args["queue"]), args["session"]
    known = stage.memory.get(_session_key(stage, args["queue"], name)) or {"token": str(UUID(int=0))}
    now = namespaces.get_clock(stage.namespace).now
    return Session(address, name, UUID(known["token"]), now, timedelta(0))


def _close_session(stage: Stage, args: Args) -> str:
    closed = service_bus.close_session(_session(stage, args), actor=stage.actor)
    return f"Closed the session {args['session']}." if closed else f"The session {args['session']} was no longer held."


def _cancel(stage: Stage, args: Args) -> str:
    service_bus.cancel_scheduled(stage.at(args["queue"]), [args["number"]], actor=stage.actor)
    return f"Cancelled message {args['number']}."


def _resubmit(stage: Stage, args: Args) -> str:
    new = service_bus.resubmit(stage.at(args["queue"]).dead_letter, [args["number"]], actor=stage.actor)
    return f"Resubmitted {plural(len(new), 'message')}."


def _settings_of(kind: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name not in ("hidden", KEPT))


_OF_MESSAGE = ("queue", "number")
_RULE = ("filter", "subject", "correlation", "matching", "change")
_QUEUE = _settings_of(QueueSettings)
ACTIONS: dict[str, Action] = {
    "set_behaviour": Action(_set_behaviour, "Set the behaviour to {behaviour}", ("behaviour",)),
    "create_queue": Action(_create_queue, "Create the queue {queue}", ("queue",), _QUEUE),
    "create_topic": Action(_create_topic, "Create the topic {topic}", ("topic",), _settings_of(TopicSettings)),
    "create_subscription": Action(
        _create_subscription, "Create the subscription {name}", ("topic", "name"),
        (*_RULE, *_settings_of(SubscriptionSettings)),
    ),
    "create_rule": Action(_create_rule, "Create the rule {name}", ("topic", "subscription", "name"), _RULE),
    "change_queue": Action(_change_queue, "Change the settings of {queue}", ("queue",), _QUEUE),
    "send": Action(
        _send, "Send to {queue}", ("queue",),
        ("ids", "id", "count", "body", "size", "content_type", "session", "subject", "ttl", "in", "properties")
    ),
    "receive": Action(_receive, "Receive from {queue}", ("queue",), ("count", "session", "dead_letters", "then")),
    "receive_deferred": Action(_receive_deferred, "Receive message {number} by its number", _OF_MESSAGE),
    "complete": Action(_settle(service_bus.complete, "Completed"), "Complete message {number}", _OF_MESSAGE, ("dead_letters",)),
    "abandon": Action(_settle(service_bus.abandon, "Abandoned"), "Abandon message {number}", _OF_MESSAGE),
    "defer": Action(_settle(service_bus.defer, "Deferred"), "Defer message {number}", _OF_MESSAGE),
    "renew": Action(_settle(service_bus.renew, "Renewed the lock of"), "Renew the lock of message {number}", _OF_MESSAGE),
    "dead_letter": Action(
        _settle(service_bus.dead_letter, "Dead-lettered", "reason", "description"), "Dead-letter message {number}", _OF_MESSAGE,
        ("reason", "description"),
    ),
    "accept_session": Action(_accept_session, "Accept a session of {queue}", ("queue",), ("session",)),
    "close_session": Action(_close_session, "Close the session {session}", ("queue", "session")),
    "cancel": Action(_cancel, "Cancel message {number}", _OF_MESSAGE),
    "resubmit": Action(_resubmit, "Resubmit message {number}", _OF_MESSAGE),
}  # fmt: skip

FAULTS = {
    FaultKind.KILLED: Effect("Receives nothing. What it holds stays locked until the lock ends", None),
    FaultKind.SLOW: Effect("Works longer than its lock lasts", {"then": "hold"}),
    FaultKind.FAILING: Effect("Fails for each message, and abandons it", {"then": "abandon"}),
    FaultKind.DISCONNECTED: Effect("Loses its connection before it settles; the lock stays until it ends", {"then": "hold"}),
}

LoadClient = ServiceBusLoad

_LEFT_OUT = ("hidden", "status", "history_level", KEPT)  # of a recording


def configuration(namespace: str, actor: Actor) -> list[dict[str, Any]]:
    """The actions that create the entities and rules of a namespace as they are now."""
    actions: list[dict[str, Any]] = []
    behaviour = namespaces.get_namespace(namespace, actor=actor).behaviour
    if behaviour is not Behaviour.CONVENIENT:
        actions.append({"action": "set_behaviour", "behaviour": str(behaviour)})
    for entity in entities.list_entities(namespace, actor=actor):
        kind, settings = entity.kind, _different(asdict(entity.settings), type(entity.settings))
        if kind is EntityKind.SUBSCRIPTION:
            name, topic = entity.name, entity.topic.path
            actions.append({"action": "create_subscription", "topic": topic, "name": name, **settings})
            rules = [stored.rule for stored in entities.list_rules(entity.address, actor=actor)]
            actions += [{"action": "create_rule", "topic": topic, "subscription": name, **_of_rule(rule)} for rule in rules]
        else:
            actions.append({"action": f"create_{kind}", str(kind): entity.address.path, **settings})
    return actions


def change(entity: EntityRow, columns: Mapping[str, Any]) -> dict[str, Any] | None:
    """The action that gives a queue the settings of a revision."""
    if entity.kind is not EntityKind.QUEUE:
        return None
    settings = {name: columns[name] for name in _QUEUE if name in columns and name not in (*_LEFT_OUT, *FIXED)}
    return {"action": "change_queue", "queue": entity.address.path} | {
        name: as_value(value) for name, value in settings.items() if value is not None and not name.startswith("forward")
    }


def _different(settings: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """The settings that are not those of a new entity."""
    new = asdict(kind())
    return {name: as_value(value) for name, value in settings.items() if value != new[name] and name not in _LEFT_OUT}


def _of_rule(rule: Rule) -> dict[str, Any]:
    arguments: dict[str, Any] = {"name": rule.name} | ({"change": rule.action.text} if rule.action else {})
    if not isinstance(rule.filter, CorrelationFilter):
        return arguments | {"filter": rule.filter.text}
    parts = {"correlation": rule.filter.texts, "matching": dict(rule.filter.properties)}
    return arguments | {name: part for name, part in parts.items() if part}


_SETTLEMENTS = {EventKind.COMPLETED: "complete", EventKind.ABANDONED: "abandon", EventKind.RENEWED: "renew"}


def derive(event: Event, person: Actor, memory: dict[str, Any]) -> list[dict[str, Any]] | None:
    """See catalog.derive."""
    who = actor_argument(event, person)
    if who is None or event.address is None:
        return []
    if operated := operation(event, who):
        return [operated]
    place, message = {"queue": event.address.path} | who, f"{event.entity_id}#{event.sequence_number}"
    number = place | {"number": event.sequence_number}
    then = {"then": "delete"} if event.kind is EventKind.RECEIVED_AND_DELETED else {}
    dead = {"dead_letters": True} if event.address.subqueue is SubQueue.DEAD_LETTER else {}
    match event.kind:
        case EventKind.SENT | EventKind.PUBLISHED if not {"published_from", "resubmitted_from", "from"} & event.details.keys():
            return [{"action": "send", **place, **_content(event, memory)}]
        case EventKind.SCHEDULED if "scheduled_enqueue_at" in event.details:
            wait = datetime.fromisoformat(event.details["scheduled_enqueue_at"]) - event.at
            return [{"action": "send", **place, **_content(event, memory), "in": seconds(wait)}]
        case EventKind.RECEIVED if message in memory.get("deferred", ()):
            return [{"action": "receive_deferred", **number}]
        case EventKind.RECEIVED | EventKind.RECEIVED_AND_DELETED if event.session_id is not None:
            session = place | {"session": event.session_id}
            accepted = memory.setdefault("sessions", [])
            first = [] if session in accepted else [{"action": "accept_session", **session}]
            accepted.append(session)
            return [*first, {"action": "receive", **session, **then}]
        case EventKind.RECEIVED | EventKind.RECEIVED_AND_DELETED:
            return [{"action": "receive", **place, **dead, **then}]
        case EventKind.DEFERRED:
            memory.setdefault("deferred", []).append(message)
            return [{"action": "defer", **number}]
        case EventKind.DEAD_LETTERED if event.reason not in ("MaxDeliveryCountExceeded", "TTLExpiredException"):
            return [{"action": "dead_letter", **number, **({"reason": event.reason} if event.reason else {})}]
        case EventKind.RESUBMITTED:
            return [{"action": "resubmit", **number}]
        case EventKind.CANCELLED:
            return [{"action": "cancel", **number}]
        case EventKind.SETTLE_REFUSED if event.reason in _SETTLEMENTS.values():
            return [{"action": event.reason, **number}]
        case EventKind.COMPLETED:
            return [{"action": "complete", **number, **dead}]
        case kind if kind in _SETTLEMENTS:
            return [{"action": _SETTLEMENTS[kind], **number}]
    return None if is_unrepeatable(event) else []


def _content(event: Event, memory: Mapping[str, Any]) -> dict[str, Any]:
    """What of a message is known from its first event, and its body if it is still there."""
    arguments: dict[str, Any] = ({"ids": [event.message_id]} if event.message_id else {}) | body_argument("body", event, memory)
    if (content_type := event.properties.get("content_type")) not in (None, "text/plain"):
        arguments["content_type"] = content_type
    if event.session_id is not None:
        arguments["session"] = event.session_id
    if event.time_to_live is not None:
        arguments["ttl"] = seconds(event.time_to_live)
    if subject := event.properties.get("subject"):
        arguments["subject"] = subject
    texts = {name: text for name, (kind, text) in event.application_properties.items() if kind == "string"}
    return arguments | ({"properties": texts} if texts else {})
