"""The ASGI applications: authenticate a request, run its operation, send the response. The site mounts one under /servicebus/;
the listener serves the other at the root of a port, with /health beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from broker_core.service_bus import http_requests
from broker_core.wire.http import clients
from broker_core.wire.http.answer import Answer, write
from broker_core.wire.http.errors import MethodNotAllowed

from . import health, locks, receive, send
from .addresses import Kind, kind_at_root
from .authorization import authenticate
from .errors import wire_error
from .request import Request, RootRequest

OPERATIONS = {
    Kind.MESSAGES: {"POST": send.send},
    Kind.HEAD: {"POST": receive.peek_lock, "DELETE": receive.receive_and_delete},
    Kind.LOCK: {"DELETE": locks.complete, "PUT": locks.unlock, "POST": locks.renew},
}
PROTOCOL = "Service Bus REST"  # in the list of clients


async def application(scope, receive, send) -> None:
    """Handle `http`. Raises ValueError for other kinds of connection."""
    if scope["type"] != "http":
        raise ValueError(f"the Service Bus REST API has no {scope['type']}")
    await clients.serve(_answer, Request(scope, receive), send)


async def application_at_root(scope, receive, send) -> None:
    """As `application`, with the namespace from the host or the key of a request; also answers /health."""
    if scope["type"] != "http":
        raise ValueError(f"the Service Bus port has no {scope['type']}")
    if health.is_asked(scope):
        await write(await health.answer(), RootRequest(scope, receive), send)
    else:
        await clients.serve(_answer, RootRequest(scope, receive), send)


def is_for_messages(scope: Mapping[str, Any]) -> bool:
    """Whether `application_at_root` has the operation of a request, or it asks for /health. Others may be at this port."""
    if health.is_asked(scope):
        return True
    kind = kind_at_root(scope)
    return kind is not None and scope["method"] in OPERATIONS[kind]


async def _answer(request: Request) -> Answer:
    return await http_requests.answer_or_refuse(request, _run, wire_error)


async def _run(request: Request) -> Answer:
    operations = OPERATIONS[request.target.kind]
    operation = operations.get(request.method)
    if operation is None:
        raise MethodNotAllowed(request.method, tuple(operations))
    actor = await authenticate(request)
    clients.begin(PROTOCOL, request, actor, request.target.address.namespace)
    return await operation(request, actor)
