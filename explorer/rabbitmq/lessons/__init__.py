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

from .load import RabbitMQLoad

Args = Mapping[str, Any]
_SETTLED = {"ack": "acknowledged", "requeue": "requeued", "reject": "rejected", "lose": "lost"}


def _declare_queue(stage: Stage, args: Args) -> str:
    rabbitmq.declare_queue(stage.at(args["queue"]), type=args.get("type"), arguments=args.get("arguments", {}), actor=stage.actor)
    return f"Declared the queue {args['queue']}."


def _declare_exchange(stage: Stage, args: Args) -> str:
    rabbitmq.declare_exchange(stage.namespace, args["exchange"], args.get("type", "fanout"), actor=stage.actor)
    return f"Declared the exchange {args['exchange']}."


def _bind(stage: Stage, args: Args) -> str:
    rabbitmq.bind_queue(stage.namespace, args["queue"], args["exchange"], args.get("key", ""), actor=stage.actor)
    return f"Bound {args['queue']} to {args['exchange']}."


def _set_policy(stage: Stage, args: Args) -> str:
    policy = Policy(args["name"], args["pattern"], args["definition"], "queues", args.get("priority", 0))
    rabbitmq.set_policy(stage.namespace, policy, actor=stage.actor)
    return f"Set the policy {args['name']}."


def _delete_policy(stage: Stage, args: Args) -> str:
    rabbitmq.delete_policy(stage.namespace, args["name"], actor=stage.actor)
    return f"Deleted the policy {args['name']}."


def _publish(stage: Stage, args: Args) -> str:
    ids = args.get("ids") or [args.get("id")]
    expiration = str(int(args["ttl"].total_seconds() * 1000)) if "ttl" in args else None
    publications = [
        Publication(
            body_of(args, "body", message_id or "hello"), args.get("exchange", ""), args.get("key", args.get("queue", "")),
            Properties(content_type=args.get("content_type", "text/plain"), message_id=message_id, expiration=expiration),
        )
        for message_id in ids
    ]  # fmt: skip
    rabbitmq.publish(stage.namespace, publications, actor=stage.actor)
    return f"Published {plural(len(ids), 'message')}."


def _get(stage: Stage, args: Args) -> str:
    """Get the message at the head and settle it, over a connection of its own, as the page of a queue does."""
    then = args.get("then", "ack")
    if then not in _SETTLED:
        raise InvalidArgument("then", f"{then!r} must be one of {', '.join(_SETTLED)}")
    with rabbitmq.connect(stage.namespace, stage.actor.name, actor=stage.actor) as connection:
        channel = connection.channel()
        delivery = channel.get(args["queue"])
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

LoadClient = RabbitMQLoad


def configuration(namespace: str, actor: Actor) -> list[dict[str, Any]]:
    """The actions that create the queues, exchanges, bindings between these, and policies of a virtual host as they are now."""
    exchanges = [
        exchange
        for exchange in rabbitmq.list_exchanges(namespace, actor=actor)
        if exchange.name and not exchange.name.startswith("amq.")
    ]
    actions: list[dict[str, Any]] = [
        {"action": "declare_exchange", "exchange": exchange.name, "type": exchange.type} for exchange in exchanges
    ]
    for queue in rabbitmq.list_queues(namespace, actor=actor):
        arguments = {"arguments": dict(queue.arguments)} if queue.arguments else {}
        actions.append({"action": "declare_queue", "queue": queue.address.path, "type": queue.type} | arguments)
    for binding in rabbitmq.list_bindings(namespace, actor=actor):
        if binding.source and binding.destination_type == "queue" and not binding.arguments:
            actions.append(
                {"action": "bind", "queue": binding.destination, "exchange": binding.source, "key": binding.routing_key}
            )
    for policy in rabbitmq.list_policies(namespace, False, actor=actor):
        policy_args = {"name": policy.name, "pattern": policy.pattern, "definition": dict(policy.definition)}
        actions.append({"action": "set_policy", **policy_args, "priority": policy.priority})
    return actions


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
    received = memory.setdefault("got", [])
    if event.kind is EventKind.SENT and "from" not in event.details:
        ids = ({"ids": [event.message_id]} if event.message_id else {}) | body_argument("body", event, memory)
        life = {"ttl": seconds(event.time_to_live)} if event.time_to_live else {}
        return [{"action": "publish", **place, **ids, **life}]
    if event.kind is EventKind.RECEIVED:
        received.append(message)
        return None
    if event.kind in _THEN and message in received:
        received.remove(message)
        return [{"action": "get", **place, "then": _THEN[event.kind]}]
    return None if is_unrepeatable(event) else []
