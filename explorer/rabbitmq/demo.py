"""RabbitMQ part of the demo: a post office that publishes events of letters and parcels, with TTLs, dead letters and policies.

`seed` creates content is missing; `programs` are a publisher and two consumers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

from broker_core import rabbitmq
from broker_core.common.types import Actor, EntityAddress, Right
from broker_core.rabbitmq.messages.properties import Properties
from broker_core.rabbitmq.messages.publishing import Publication
from broker_core.rabbitmq.rules.policies import Policy
from explorer.demo.parts import DesignedFailure, InjectedFailure, Program, Turns

NAMESPACE = "post-office"
EXCHANGE, DEAD = "parcels", "parcels.dead"
LETTERS, SCANS, UNDELIVERED = "letters", "scans", "undelivered"
QUEUES: dict[str, dict[str, Any]] = {
    # Has no consumer: letters expire after 30 s and are dead-lettered.
    LETTERS: {"arguments": {"x-message-ttl": 30_000, "x-dead-letter-exchange": DEAD}},
    # A quorum queue: a scan that is returned twice is dead-lettered, to the exchange that a policy sets.
    SCANS: {"type": "quorum", "arguments": {"x-delivery-limit": 2}},
    # Keeps the newest 100 messages.
    UNDELIVERED: {"arguments": {"x-max-length": 100}},
}
POLICIES = (
    Policy("scans-die-aside", "^scans$", {"dead-letter-exchange": DEAD, "message-ttl": 600_000}, "queues", 10),
    Policy("everything", "", {"message-ttl": 86_400_000}, "queues", 0),
    Policy("at-most-a-day", "", {"message-ttl": 86_400_000, "max-length": 5_000}, "queues", 0, is_operator=True),
)
TOWNS = ("bremen", "graz", "lille", "porto", "turku", "zwolle")
EVENTS = ("posted", "sorted", "delivered", "returned")


def seed(vhost: str = NAMESPACE) -> None:
    """Create the virtual host, exchanges, queues, bindings and policies that are missing."""
    rabbitmq.ensure_vhost(vhost, "A post office (demo)")
    rabbitmq.declare_exchange(vhost, EXCHANGE, "topic")
    rabbitmq.declare_exchange(vhost, DEAD, "fanout")
    for name, options in QUEUES.items():
        rabbitmq.declare_queue(EntityAddress(vhost, name), **options)
    rabbitmq.bind_queue(vhost, LETTERS, EXCHANGE, "letter.*")
    rabbitmq.bind_queue(vhost, SCANS, EXCHANGE, "parcel.#")
    rabbitmq.bind_queue(vhost, UNDELIVERED, DEAD)
    known = {(policy.name, policy.is_operator) for policy in rabbitmq.list_policies(vhost)}
    for policy in POLICIES:
        if (policy.name, policy.is_operator) not in known:
            rabbitmq.set_policy(vhost, policy)


DOES = {  # each program of the post office
    "post-office": f"publishes to the exchange {EXCHANGE}",
    "scanner-1": f"consumes {SCANS}",
    "archive": f"consumes {UNDELIVERED}",
}

DESIGNED = (
    DesignedFailure(LETTERS, "receivers", "Letters are left to expire."),
    DesignedFailure(UNDELIVERED, "poison", "Letters expire, and scans are returned."),
    DesignedFailure(UNDELIVERED, "quota", "It keeps the newest 100 of them."),
)


def programs(vhost: str, dice: Random, site: str = "") -> Mapping[str, Program]:
    """The post office's programs by name. About one message is published every 3 s."""
    return {
        "post-office": partial(_post, vhost, dice),
        "scanner-1": partial(_scan, vhost, dice, "scanner-1"),
        "archive": partial(_archive, vhost, dice),
    }


def _post(vhost: str, dice: Random) -> Turns:
    """Publishes parcel events and, in two cases of five, letters; one letter in three has an expiration of 5 to 20 s."""
    number = 1000
    while True:
        number += 1
        rabbitmq.publish(
            vhost, [_letter(dice, number) if dice.random() < 0.4 else _parcel(dice, number)], actor=_actor("post-office")
        )
        yield dice.uniform(2, 5)


def _letter(dice: Random, number: int) -> Publication:
    expiration = str(dice.randint(5, 20) * 1000) if dice.random() < 1 / 3 else None
    return _publication(
        f"letter.{dice.choice(TOWNS)}", {"letter": number, "grams": dice.randint(8, 90)}, f"letter-{number}", expiration
    )


def _parcel(dice: Random, number: int) -> Publication:
    content = {"parcel": number, "kg": round(dice.uniform(0.2, 9), 1)}
    return _publication(f"parcel.{dice.choice(TOWNS)}.{dice.choice(EVENTS)}", content, f"parcel-{number}", None)


def _publication(key: str, content: dict, message_id: str, expiration: str | None) -> Publication:
    properties = Properties(
        content_type="application/json", delivery_mode=2, message_id=message_id, expiration=expiration, app_id="post-office",
        headers={"town": key.split(".")[1]},
    )  # fmt: skip
    return Publication(json.dumps(content).encode(), EXCHANGE, key, properties)


def _scan(vhost: str, dice: Random, name: str) -> Turns:
    """Consumes scans with a prefetch of 3. One in eight is requeued until its delivery limit is exceeded."""
    with rabbitmq.connect(vhost, name, actor=_actor(name)) as connection:
        channel = connection.channel()
        channel.qos(3)
        channel.consume(SCANS, tag=name)
        while True:
            for delivery in channel.deliveries(3):
                fails = bool(delivery.delivery_count) or dice.random() < 1 / 8
                try:
                    yield dice.uniform(1, 4)
                except InjectedFailure:
                    fails = True
                if fails:
                    channel.reject(delivery.delivery_tag, requeue=True)
                else:
                    channel.ack(delivery.delivery_tag)
            yield dice.uniform(1, 3)


def _archive(vhost: str, dice: Random) -> Turns:
    """Gets and acknowledges one dead letter every few seconds."""
    with rabbitmq.connect(vhost, "archive", actor=_actor("archive")) as connection:
        channel = connection.channel()
        while True:
            delivery = channel.get(UNDELIVERED)
            if delivery is not None:
                yield 1.0
                channel.ack(delivery.delivery_tag)
            yield dice.uniform(8, 15)


def _actor(name: str) -> Actor:
    return Actor("process", name, Right.BROWSE | Right.SEND | Right.LISTEN)
