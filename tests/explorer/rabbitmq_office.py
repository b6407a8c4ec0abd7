"""A virtual host with something of everything, and every address of RabbitMQ's pages."""

import itertools
import uuid
from datetime import timedelta
from types import SimpleNamespace

import pytest

from broker_core import namespaces, rabbitmq
from broker_core.common.types import Actor, EntityAddress
from broker_core.rabbitmq.messages.properties import Properties
from broker_core.rabbitmq.messages.publishing import Publication
from broker_core.rabbitmq.rules.policies import Policy
from broker_core.runtime import processes
from explorer.addresses import NamespaceConverter
from explorer.rabbitmq.connection_lines import RabbitConnections
from tests.fixtures import broker_database  # noqa: F401 - removes what a test configured

from .conftest import WORKER

_numbers = itertools.count()


@pytest.fixture
def office(broker_database):  # noqa: F811
    """A virtual host whose name has a slash, with a paused clock.

    mail: TTL 60 s and a dead-letter exchange; 1 is alive at its head, 2 behind it has expired, 3 is alive. scans: quorum, with a
    consumer that holds message 1; 2 is ready. dead: gets dead letters; 1 died of rejection in mail. spare: empty, it expires.
    """
    vhost = f"office {next(_numbers)}/{uuid.uuid4().hex[:6]}"
    rabbitmq.create_vhost(vhost)
    namespaces.pause_clock(vhost)
    declare, bind = rabbitmq.declare_queue, rabbitmq.bind_queue
    rabbitmq.declare_exchange(vhost, "events", "topic", arguments={"alternate-exchange": "lost"})
    rabbitmq.declare_exchange(vhost, "graves", "fanout")
    rabbitmq.declare_exchange(vhost, "sorted", "headers")
    rabbitmq.declare_exchange(vhost, "inner", "direct", internal=True)
    declare(EntityAddress(vhost, "mail"), arguments={"x-message-ttl": 60_000, "x-dead-letter-exchange": "graves"})
    declare(EntityAddress(vhost, "scans"), type="quorum", arguments={"x-delivery-limit": 3})
    declare(EntityAddress(vhost, "dead"))
    declare(EntityAddress(vhost, "spare"), arguments={"x-expires": 100_000})
    bind(vhost, "mail", "events", "mail.*")
    bind(vhost, "scans", "events", "#.scan")
    bind(vhost, "dead", "graves")
    bind(vhost, "dead", "sorted", "", {"x-match": "all", "town": "graz"})
    rabbitmq.bind_exchange(vhost, "inner", "events", "inner")
    for policy in (
        Policy("low", "", {"message-ttl": 900_000}, "queues", 1),
        Policy("high", "^scans$", {"max-length": 50}, "queues", 5),
        Policy("tied", "^dead$", {"max-length": 7}, "queues", 1),
        Policy("bound", "^mail$", {"message-ttl": 3_600_000, "max-length": 9}, "queues", 0, is_operator=True),
    ):
        rabbitmq.set_policy(vhost, policy)
    processes.leave_all()
    connection = rabbitmq.connect(vhost, "scanner", actor=WORKER)
    channel = connection.channel()
    _populate(vhost, channel)
    try:
        yield SimpleNamespace(vhost=vhost, at=NamespaceConverter().to_url(vhost), connection=connection, channel=channel)
    finally:
        connection.close()
        processes.leave_all()


def _populate(vhost, channel):
    publish(vhost, "mail.first", message_id="rejected")
    rejected = channel.get("mail")
    channel.reject(rejected.delivery_tag, requeue=False)
    publish(vhost, "mail.second", message_id="alive", headers={"town": "graz"})
    publish(vhost, "mail.third", message_id="brief", expiration="5000")
    publish(vhost, "mail.third", message_id="last")
    publish(vhost, "a.scan", message_id="held")
    publish(vhost, "b.scan", message_id="waits")
    channel.qos(1)
    channel.consume("scans", tag="scanner-1")
    [_] = channel.deliveries(1)
    namespaces.step_clock(vhost, timedelta(seconds=10))


def publish(vhost, key, body=b'{"n": 1}', *, exchange="events", **properties):
    publication = Publication(body, exchange, key, Properties(content_type="application/json", **properties))
    return rabbitmq.publish(vhost, [publication], actor=WORKER)[0]


def addresses_of(at: str) -> dict[str, list[str]]:
    """An address or more for every page, by its name in the URL configuration."""
    return {
        "rabbitmq_vhost_new": ["/rabbitmq/new/vhost/"],
        "rabbitmq_vhost": [f"/rabbitmq/vhosts/{at}/"],
        "rabbitmq_vhost_delete": [f"/rabbitmq/delete/vhost/{at}/"],
        "rabbitmq_queues": [f"/rabbitmq/queues/{at}/", f"/rabbitmq/queues/{at}/?q=mail&sort=-ready"],
        "rabbitmq_queue_new_where": ["/rabbitmq/new/queue/"],
        "rabbitmq_queue_new": [f"/rabbitmq/new/queue/{at}/"],
        "rabbitmq_move": [
            f"/rabbitmq/move/{at}/dead",
            f"/rabbitmq/move/{at}/dead?to=first",
            f"/rabbitmq/move/{at}/mail?to=queue&numbers=2",
            f"/rabbitmq/move/{at}/mail?to=exchange&q=id:alive",
        ],
        "rabbitmq_get": [f"/rabbitmq/get/{at}/mail"],
        "rabbitmq_exchanges": [f"/rabbitmq/exchanges/{at}/", f"/rabbitmq/exchanges/{at}/?q=none-such"],
        "rabbitmq_exchange_new": [f"/rabbitmq/new/exchange/{at}/"],
        "rabbitmq_exchange": [
            f"/rabbitmq/exchanges/{at}/{name}" for name in ("events", "sorted", "inner", "amq.default", "amq.topic")
        ],
        "rabbitmq_exchange_delete": [f"/rabbitmq/delete/exchange/{at}/events"],
        "rabbitmq_publish": [f"/rabbitmq/publish/{at}/events", f"/rabbitmq/publish/{at}/amq.default?like=3&of=mail"],
        "rabbitmq_policies": [f"/rabbitmq/policies/{at}/"],
        "rabbitmq_policy_new": [f"/rabbitmq/new/policy/{kind}/{at}/?pattern=x" for kind in ("user", "operator")],
        "rabbitmq_policy": [f"/rabbitmq/policies/user/{at}/low", f"/rabbitmq/policies/operator/{at}/bound"],
        "rabbitmq_policy_delete": [f"/rabbitmq/delete/policy/user/{at}/low"],
        "rabbitmq_connections": [f"/rabbitmq/connections/{at}/"],
        "connections": ["/connections/"],
        "connection": [f"/connections/{line.id}/" for line in RabbitConnections().lines(Actor.local())],
        "rabbitmq_definitions": [f"/rabbitmq/definitions/{at}/"],
        "entity": [
            f"/entities/{at}/mail",
            *(f"/entities/{at}/mail?tab={tab}" for tab in ("ready", "unacked", "expired", "bindings", "settings", "history")),
            *(f"/entities/{at}/scans?tab={tab}" for tab in ("unacked", "consumers", "settings")),
            *(f"/entities/{at}/{queue}?view=board" for queue in ("mail", "scans")),
            f"/entities/{at}/dead",
            f"/entities/{at}/spare",
            f"/entities/{at}/mail?q=id:alive&q=prop.town=graz&order=newest",
            f"/entities/{at}/mail?q=id:none-such",
        ],
        "entity_delete": [f"/delete/{at}/mail"],
        "entity_revisions": [f"/revisions/{at}/mail"],
        "connect": [f"/connect/{at}/mail"],
        "namespace_connect": [f"/connect/{at}/"],
        "message": [f"/messages/{at}/mail/{number}" for number in (1, 2, 3)]
        + [f"/messages/{at}/dead/1", f"/messages/{at}/scans/1"],
        "message_edit": [f"/edit/{at}/mail/2", f"/edit/{at}/dead/1"],
    }
