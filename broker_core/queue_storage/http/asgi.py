"""The ASGI application: authenticate a request, run its operation, send the answer.

Checks are made in the order of the service: version and names, operation, signature, parameters and body, then whether queue and
message exist (queue_storage.rules).
"""

from __future__ import annotations

import logging
from dataclasses import replace

from broker_core.common.errors import BrokerError
from broker_core.queue_storage.accounts import StorageAccount
from broker_core.queue_storage.rules.errors import SecondaryIsReadOnly
from broker_core.wire.failed_authentications import TooManyFailedAuthentications
from broker_core.wire.http import clients
from broker_core.wire.http.answer import Answer
from broker_core.wire.http.request import ClientGone

from . import answers, cors, parameters
from .authorization import account_of, actor_of
from .errors import INTERNAL, wire_error
from .operations import operation_of
from .request import Request

PROTOCOL = "Queue Storage REST"  # in the list of clients
_log = logging.getLogger(__name__)


async def application(scope, receive, send) -> None:
    """Handle `http`. Raises ValueError for other kinds of connection."""
    if scope["type"] != "http":
        raise ValueError(f"the Queue Storage REST API has no {scope['type']}")
    await clients.serve(_answer, Request(scope, receive), send)


async def _answer(request: Request) -> Answer:
    account: StorageAccount | None = None
    try:
        request.version  # noqa: B018 - refuses a malformed one
        account = await account_of(request)
        answer = await _run(request, account)
    except BrokerError as exc:
        answer = _log_and_answer(exc, request)
    except ClientGone:
        raise
    except Exception as exc:
        internal = BrokerError("Internal error. See the log under the request id.")
        internal.__cause__ = exc
        answer = _log_and_answer(internal, request)
    if account is None or request.method == "OPTIONS":
        return answer
    exposed = cors.exposed(request, account, answer)
    return replace(answer, headers=[*answer.headers, *exposed]) if exposed else answer


async def _run(request: Request, account: StorageAccount) -> Answer:
    if request.method == "OPTIONS":
        return cors.preflight(request, account)
    operation = operation_of(request)
    if request.target.is_secondary and not operation.on_secondary:
        raise SecondaryIsReadOnly(request.target.account)
    actor = await actor_of(request, account, operation.needs)
    clients.begin(PROTOCOL, request, actor, account.name)
    parameters.check_timeout(request)
    return await operation.run(request, actor)


def _log_and_answer(exc: BrokerError, request: Request) -> Answer:
    answer = answers.error(request, exc)
    if answer.status >= 500 and not isinstance(exc, TooManyFailedAuthentications):
        traceback = exc if wire_error(exc) is INTERNAL else None  # no traceback if the database is down
        _log.error("%s %s: %s (request id %s)", request.method, request.path, exc, request.id, exc_info=traceback)
    return answer
