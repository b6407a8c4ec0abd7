"""The ASGI application: authenticate a request, run its operation, send the answer."""

from __future__ import annotations

from dataclasses import replace

from broker_core.common.errors import BrokerError, InvalidArgument
from broker_core.common.types import Right
from broker_core.service_bus import http_requests
from broker_core.service_bus.rules.entity_settings import SERVICE_NAMES
from broker_core.wire.http import clients
from broker_core.wire.http.answer import Answer
from broker_core.wire.http.errors import MethodNotAllowed

from .errors import refusal_of
from .operations import OPERATIONS
from .request import Request

_ELEMENTS = SERVICE_NAMES | {
    "policy": "KeyName",
    "rights": "Rights",
    "primary_key": "PrimaryKey",
    "secondary_key": "SecondaryKey",
}
_MESSAGES = (
    "Requests for messages are POST .../messages, POST or DELETE .../messages/head, and POST, PUT or DELETE of "
    ".../messages/<id>/<lock token>, whose lock token is a UUID."
)
PROTOCOL = "Service Bus administration"  # in the list of clients


async def application(scope, receive, send) -> None:
    """Handle `http`. Raises ValueError for other kinds of connection."""
    if scope["type"] != "http":
        raise ValueError(f"the Service Bus port has no {scope['type']}")
    await clients.serve(_answer, Request(scope, receive), send)


async def _answer(request: Request) -> Answer:
    answer = await http_requests.answer_or_refuse(request, _run, refusal_of)
    return replace(answer, body=b"") if request.method == "HEAD" else answer


async def _run(request: Request) -> Answer:
    try:
        return await _operated(request)
    except InvalidArgument as problem:
        if name := _ELEMENTS.get(problem.name):
            raise InvalidArgument(name, problem.problem) from problem
        raise
    except BrokerError as problem:
        if request.target.is_like_that_of_messages:
            problem.message = f"{problem.message} {_MESSAGES}"
        raise


async def _operated(request: Request) -> Answer:
    target = request.target
    operations = OPERATIONS[target.level]
    operation = operations.get(request.method)
    if operation is None:
        raise MethodNotAllowed(request.method, tuple(operations))
    request.verified = verified = await http_requests.authenticate(request, path=target.path, entity=target.entity)
    actor = verified.actor("http", request.client_ip)
    clients.begin(PROTOCOL, request, actor, verified.namespace)
    actor.require(Right.MANAGE, target.address(verified.namespace))
    return await operation(request, actor)
