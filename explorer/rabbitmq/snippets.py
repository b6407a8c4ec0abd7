"""RabbitMQ operations as code (explorer/snippets/). AMQP 0-9-1 is not served yet, so they are in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from broker_core.common.types import EntityAddress, EntityKind
from broker_core.reads import EntityRow, MessageDetail
from explorer.snippets.code import (
    ADDRESS,
    Args,
    Code,
    Operation,
    Program,
    address,
    advance,
    arguments,
    body_literal,
    calling,
    editing,
    literal,
    plain_properties,
)

_RABBIT = "from broker_core import rabbitmq"
_MESSAGE = "from broker_core.rabbitmq import Properties, Publication"
_SETTLED = {
    "ack": "channel.ack(delivery.delivery_tag)",
    "requeue": "channel.nack(delivery.delivery_tag, requeue=True)",
    "reject": "channel.nack(delivery.delivery_tag, requeue=False)",
    "lose": "pass  # the end of the connection requeues it",
}


def _publish(at: EntityAddress, args: Args) -> Code:
    exchange, key = args.get("exchange", ""), args.get("key", args.get("queue", at.path))
    ttl = args.get("ttl")
    expiration = str(int(ttl.total_seconds() * 1000)) if ttl else args.get("expiration")
    texts = []
    for message_id in args.get("ids") or [args.get("id", args.get("message_id"))]:
        body = args.get("body", message_id or "hello")
        properties = {
            "content_type": args.get("content_type", "text/plain"), "message_id": message_id, "expiration": expiration,
            "priority": args.get("priority"), "headers": args.get("headers") or None,
        }  # fmt: skip
        content = body_literal(body if isinstance(body, bytes) else str(body).encode())
        named = arguments(properties)[2:]
        texts.append(f"Publication({content}, {literal(exchange)}, {literal(key)}, Properties({named}))")
    return Code([_RABBIT, _MESSAGE], f"rabbitmq.publish({literal(at.namespace)}, [{', '.join(texts)}])")


def _get(then: str = "") -> Callable[[EntityAddress, Args], Code]:
    def write(at: EntityAddress, args: Args) -> Code:
        lines = (
            f"with rabbitmq.connect({literal(at.namespace)}) as connection:\n"
            "    channel = connection.channel()\n"
            f"    delivery = channel.get({literal(at.path)})\n"
            "    if delivery:\n"
            "        print(delivery.number, delivery.body)\n"
            f"        {_SETTLED[then or args.get('then', 'ack')]}"
        )
        return Code([_RABBIT], lines)

    return write


def _declare_queue(at: EntityAddress, args: Args) -> Code:
    given = {"type": args.get("type"), "arguments": args.get("arguments") or None}
    return Code([_RABBIT, ADDRESS], f"rabbitmq.declare_queue({address(at)}{arguments(given)})")


def _declare_exchange(at: EntityAddress, args: Args) -> Code:
    parts = map(literal, (at.namespace, args.get("exchange", "mine"), args.get("type", "fanout")))
    return Code([_RABBIT], f"rabbitmq.declare_exchange({', '.join(parts)})")


def _bind(at: EntityAddress, args: Args) -> Code:
    parts = map(literal, (at.namespace, args.get("queue", at.path), args.get("exchange", "amq.fanout"), args.get("key", "")))
    return Code([_RABBIT], f"rabbitmq.bind_queue({', '.join(parts)})")


def _set_policy(at: EntityAddress, args: Args) -> Code:
    parts = map(literal, (args["name"], args["pattern"], args["definition"], "queues", args.get("priority", 0)))
    policy = "from broker_core.rabbitmq.rules.policies import Policy"
    return Code([_RABBIT, policy], f"rabbitmq.set_policy({literal(at.namespace)}, Policy({', '.join(parts)}))")


def _delete_policy(at: EntityAddress, args: Args) -> Code:
    return Code([_RABBIT], f"rabbitmq.delete_policy({literal(at.namespace)}, {literal(args['name'])})")


def for_clients(entity: EntityRow, strings: Mapping[str, str], base: str) -> list[Program]:
    """None: AMQP 0-9-1 is not served yet."""
    return []


OPERATIONS = {
    "publish": Operation("Publish", _publish),
    "get": Operation("Get and acknowledge", _get()),
    "requeue": Operation("Get and requeue", _get("requeue")),
    "reject": Operation("Get and reject", _get("reject")),
    "release": Operation("Release delivery", calling("rabbitmq.release({at}, [{number}])", _RABBIT)),
    "edit": Operation("Edit", editing("rabbitmq.edit", 'body=b"new body"', _RABBIT)),
    "purge": Operation("Purge", calling("count = rabbitmq.purge_queue({at})\nprint(count)", _RABBIT)),
    "declare_queue": Operation("Declare queue", _declare_queue),
    "declare_exchange": Operation("Declare exchange", _declare_exchange),
    "bind": Operation("Bind", _bind),
    "set_policy": Operation("Set policy", _set_policy),
    "delete_policy": Operation("Delete policy", _delete_policy),
    "advance": Operation("Advance the clock", advance),
}

OF_ENTITY = {EntityKind.QUEUE: ("publish", "get", "requeue", "reject", "purge", "declare_queue", "bind")}
OF_MESSAGE = ("publish", "edit", "get", "release")
OF_DEAD_LETTER = OF_MESSAGE


def like(detail: MessageDetail, body: bytes) -> dict[str, Any]:
    """The arguments of a publication of the same message, as far as they are plain values."""
    known = detail.broker_properties
    return {
        "body": body, "message_id": detail.row.message_id, "content_type": detail.row.content_type,
        "expiration": known.get("expiration"), "exchange": known.get("exchange") or "",
        "key": known.get("routing_key") or detail.row.address.path, "headers": plain_properties(detail.application_properties),
    }  # fmt: skip
