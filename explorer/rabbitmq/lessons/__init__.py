"""RabbitMQ's part of lessons: the actions that a step can name. The lessons are the TOML files beside this module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_core import rabbitmq
from broker_core.common.errors import InvalidArgument
from broker_core.common.types import Actor, EventKind
from broker_core.rabbitmq.messages.properties import Properties
from broker_core.rabbitmq.messages.publishing import Publication
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.reads import EntityRow, Event
from explorer.frames.presenters import plural
from explorer.lessons.lesson import Action, Effect, seconds
from explorer.lessons.stage import Stage, actor_argument, body_argument, body_of, is_unrepeatable, operation
from explorer.models import FaultKind

Given = Mapping[str, Any]
_SETTLED = {"ack": "acknowledged", "requeue": "requeued", "reject": "rejected", "lose": "lost"}


def _declare_queue(stage: Stage, given: Given) -> str:
    rabbitmq.declare_queue(
        stage.at(given["queue"]), type=given.get("type"), arguments=given.get("arguments", {}), actor=stage.actor
    )
    return f"Declared the queue {given['queue']}."


def _declare_exchange(stage: Stage, given: Given) -> str:
    rabbitmq.declare_exchange(stage.namespace, given["exchange"], given.get("type", "fanout"), actor=stage.actor)
    return f"Declared the exchange {given['exchange']}."


def _bind(stage: Stage, given: Given) -> str:
    rabbitmq.bind_queue(stage.namespace, given["queue"], given["exchange"], given.get("key", ""), actor=stage.actor)
    return f"Bound {given['queue']} to {given['exchange']}."


def _set_policy(stage: Stage, given: Given) -> str:
    policy = Policy(given["name"], given["pattern"], given["definition"], "queues", given.get("priority", 0))
    rabbitmq.set_policy(stage.namespace, policy, actor=stage.actor)
    return f"Set the policy {given['name']}."


def _delete_policy(stage: Stage, given: Given) -> str:
    rabbitmq.delete_policy(stage.namespace, given["name"], actor=stage.actor)
    return f"Deleted the policy {given['name']}."


def _publish(stage: Stage, given: Given) -> str:
    ids = given.get("ids") or [given.get("id")]
    expiration = str(int(given["ttl"].total_seconds() * 1000)) if "ttl" in given else None
    publications = [
        Publication(
            body_of(given, "body", one or "hello"), given.get("exchange", ""), given.get("key", given.get("queue", "")),
            Properties(content_type=given.get("content_type", "text/plain"), message_id=one, expiration=expiration),
        )
        for one in ids
    ]  # fmt: skip
    rabbitmq.publish(stage.namespace, publications, actor=stage.actor)
    return f"Published {plural(len(ids), 'message')}."


def _get(stage: Stage, given: Given) -> str:
    """Get the message at the head and settle it, over a connection of its own, as the page of a queue does."""
    then = given.get("then", "ack")
    if then not in _SETTLED:
        raise InvalidArgument("then", f"{then!r} must be one of {', '.join(_SETTLED)}")
    with rabbitmq.connect(stage.namespace, stage.actor.name, actor=stage.actor) as connection:
        channel = connection.channel()
        delivery = channel.get(given["queue"])
        if delivery is None:
            return "No messages are ready."
        if then == "ack":
            channel.ack(delivery.delivery_tag)
        elif then != "lose":  # else the end of the connection requeues it
            channel.nack(delivery.delivery_tag, requeue=then == "requeue")
    return f"Got message {delivery.number} and {_SETTLED[then]} it."


def has_policy(vhost: str, name: str) -> bool:
    return any(policy.name == name for policy in rabbitmq.list_policies(vhost))


ACTIONS: dict[str, Action] = {
    "declare_queue": Action(_declare_queue, "Declare the queue {queue}", ("queue",), ("type", "arguments")),
    "declare_exchange": Action(_declare_exchange, "Declare the exchange {exchange}", ("exchange",), ("type",)),
    "bind": Action(_bind, "Bind {queue} to {exchange}", ("queue", "exchange"), ("key",)),
    "set_policy": Action(_set_policy, "Set the policy {name}", ("name", "pattern", "definition"), ("priority",)),
    "delete_policy": Action(_delete_policy, "Delete the policy {name}", ("name",)),
    "publish": Action(
        _publish, "Publish to {queue}", (), ("queue", "exchange", "key", "ids", "id", "body", "size", "content_type", "ttl")
    ),
    "get": Action(_get, "Get the message at the head of {queue}", ("queue",), ("then",)),
}

FAULTS = {
    FaultKind.KILLED: Effect("Gets nothing", None),
    FaultKind.FAILING: Effect("Fails for each message, and requeues it", {"then": "requeue"}),
    FaultKind.DISCONNECTED: Effect(
        "Loses its connection before it acknowledges; the broker requeues the message", {"then": "lose"}
    ),
}

_THEN = {EventKind.COMPLETED: "ack", EventKind.ABANDONED: "requeue", EventKind.MOVED: "reject", EventKind.DROPPED: "reject"}


def configuration(namespace: str, actor: Actor) -> list[dict[str, Any]]:
    """The actions that create the queues, exchanges, bindings between these, and policies of a virtual host as they are now."""
    exchanges = [one for one in rabbitmq.list_exchanges(namespace, actor=actor) if one.name and not one.name.startswith("amq.")]
    found: list[dict[str, Any]] = [{"action": "declare_exchange", "exchange": one.name, "type": one.type} for one in exchanges]
    for queue in rabbitmq.list_queues(namespace, actor=actor):
        arguments = {"arguments": dict(queue.arguments)} if queue.arguments else {}
        found.append({"action": "declare_queue", "queue": queue.address.path, "type": queue.type} | arguments)
    for one in rabbitmq.list_bindings(namespace, actor=actor):
        if one.source and one.destination_type == "queue" and not one.arguments:
            found.append({"action": "bind", "queue": one.destination, "exchange": one.source, "key": one.routing_key})
    for policy in rabbitmq.list_policies(namespace, False, actor=actor):
        given = {"name": policy.name, "pattern": policy.pattern, "definition": dict(policy.definition)}
        found.append({"action": "set_policy", **given, "priority": policy.priority})
    return found


def change(entity: EntityRow, columns: Mapping[str, Any]) -> dict[str, Any] | None:
    """None: the arguments of a queue never change."""
    return None


def derive(event: Event, person: Actor, memory: dict[str, Any]) -> list[dict[str, Any]] | None:
    """See catalog.derive. A get is recorded when it is settled."""
    who = actor_argument(event, person)
    if who is None or event.address is None:
        return []
    if operated := operation(event, who):
        return [operated]
    place, message = {"queue": event.address.path} | who, f"{event.entity_id}#{event.sequence_number}"
    got = memory.setdefault("got", [])
    if event.kind is EventKind.SENT and "from" not in event.details:
        ids = ({"ids": [event.message_id]} if event.message_id else {}) | body_argument("body", event, memory)
        life = {"ttl": seconds(event.time_to_live)} if event.time_to_live else {}
        return [{"action": "publish", **place, **ids, **life}]
    if event.kind is EventKind.RECEIVED:
        got.append(message)
        return None
    if event.kind in _THEN and message in got:
        got.remove(message)
        return [{"action": "get", **place, "then": _THEN[event.kind]}]
    return None if is_unrepeatable(event) else []
