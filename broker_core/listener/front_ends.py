"""The front ends that the listener serves. To remove one, delete its folder and its two lines here.

Of several at one port, a request goes to the first that says it is for it, or else to the last.
"""

from collections.abc import Iterator

from broker_core.queue_storage import http as queue_storage_http
from broker_core.service_bus import administration as service_bus_administration
from broker_core.service_bus import http as service_bus_http

from . import ports
from .amqp import AmqpFrontEnd
from .ports import HttpFrontEnd, Port

HTTP = [
    HttpFrontEnd("SERVICE_BUS", "Service Bus REST", service_bus_http.application_at_root, service_bus_http.is_for_messages),
    HttpFrontEnd("SERVICE_BUS", "Service Bus administration", service_bus_administration.application),
    HttpFrontEnd("QUEUE_STORAGE", "Queue Storage", queue_storage_http.application),
]
AMQP: list[AmqpFrontEnd] = []


def known_ports() -> Iterator[Port]:
    """All ports of all front ends, those that are off too."""
    return ports.known(HTTP, AMQP)
