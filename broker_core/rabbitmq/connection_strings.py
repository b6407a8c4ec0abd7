"""Connection strings of virtual hosts (RabbitMQ documentation, "URI specification")."""

from __future__ import annotations

from urllib.parse import quote

from broker_core.common.connection_strings import NOT_YET, ConnectionString
from broker_core.wire.endpoints import endpoint

PORT = "AMQP_PORT"


def connection_strings(vhost: str) -> list[ConnectionString]:
    """The one of a virtual host. There are no users yet, so it names the one of a fresh server."""
    at = endpoint(PORT) or "127.0.0.1:5672"
    text = f"amqp://guest:guest@{at}/{quote(vhost, safe='')}"
    return [ConnectionString("amqp", "pika and other clients of AMQP 0-9-1", text, at, NOT_YET)]
