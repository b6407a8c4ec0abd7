"""The ASGI applications: authenticate a request, run its operation, send the response. The site mounts one under /servicebus/;
the listener serves the other at the root of a port, with /health beside it."""

from __future__ import annotations

import logging

from broker_core.common.errors import BrokerError
from broker_core.wire.http import clients
from broker_core.wire.http.answer import Answer, write
from broker_core.wire.http.errors import MethodNotAllowed
from broker_core.wire.http.request import ClientGone

from . import health, locks, receive, send
from .addresses import Kind
from .answers import error_answer
from .authorization import authenticate
from .errors import INTERNAL, wire_error
from .request import Request, RootRequest

OPERATIONS = {
    Kind.MESSAGES: {"POST": send.send},
    Kind.HEAD: {"POST": receive.peek_lock, "DELETE": receive.receive_and_delete},
    Kind.LOCK: {"DELETE": locks.complete, "PUT": locks.unlock, "POST": locks.renew},
}
PROTOCOL = "Service Bus REST"  # in the list of clients
_log = logging.getLogger(__name__)


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


async def _answer(request: Request) -> Answer:
    try:
        operations = OPERATIONS[request.target.kind]
        operation = operations.get(request.method)
        if operation is None:
            raise MethodNotAllowed(request.method, tuple(operations))
        actor = await authenticate(request)
        clients.begin(PROTOCOL, request, actor, request.target.address.namespace)
        return await operation(request, actor)
    except BrokerError as exc:
        return _log_and_answer(exc, request)
    except ClientGone:
        raise
    except Exception as exc:
        internal = BrokerError("Internal error. See the broker's log under the tracking id.")
        internal.__cause__ = exc
        return _log_and_answer(internal, request)


def _log_and_answer(exc: BrokerError, request: Request) -> Answer:
    answer = error_answer(exc, request.path)
    if answer.status >= 500:
        traceback = exc if wire_error(exc) is INTERNAL else None  # no traceback if the database is down
        _log.error("%s %s: %s (tracking id %s)", request.method, request.path, exc, exc.tracking_id, exc_info=traceback)
    return answer
