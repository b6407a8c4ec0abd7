"""POST and DELETE .../messages/head: peek-lock, and receive-and-delete, waiting up to `timeout` seconds.

Concurrent requests for messages of one entity are served by one statement (runtime.dispatcher).
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from functools import partial
from typing import Any

from broker_core import service_bus
from broker_core.common.errors import BrokerError
from broker_core.common.lock_tokens import unique_tokens
from broker_core.common.types import Actor, EntityAddress
from broker_core.service_bus import tokens
from broker_core.service_bus.rules.values import LockedMessage
from broker_core.wire.http import clients
from broker_core.wire.http.answer import Answer

from .answers import with_message
from .request import Request

NOTHING = Answer(204)
COMPLETE, LOST_LOCKS = "vitrine-complete", "vitrine-lost-locks"
PEEK_LOCK, RECEIVE_AND_DELETE = "peek-lock", "receive-and-delete"  # modes in the list of clients
_LEAST_SECONDS = 0.001  # only receives that may wait are combined
_log = logging.getLogger(__name__)


async def peek_lock(request: Request, actor: Actor) -> Answer:
    """201 with the message and the Location of its lock, or 204. If the client disconnects, the message is released.

    The messages of the lock tokens in the header Vitrine-Complete are completed first; Vitrine-Lost-Locks has the tokens whose
    lock was lost.
    """
    address = request.target.address
    wait = max(request.timeout_seconds, _LEAST_SECONDS)
    lost = await _complete(request, actor)
    clients.received(request, address, 0, PEEK_LOCK)  # is shown while it waits
    messages = await _while_valid(request, service_bus.receive.aio(address, max_wait_seconds=wait, actor=actor))
    clients.received(request, address, len(messages), PEEK_LOCK)
    if not messages:
        return Answer(204, lost)
    (message,) = messages
    location = request.url(request.target.lock_path(message.sequence_number, message.lock_token))
    undo = partial(_release, address, message, actor=actor)
    return with_message(201, message, headers=[("location", location), *lost], undo=undo)


async def _complete(request: Request, actor: Actor) -> list[tuple[str, str]]:
    """Complete what the request says, together with the completions of other requests; not in one transaction with the receive,
    which is combined with other receives. Returns the header with the lost locks, if there are any."""
    text = request.header(COMPLETE)
    if text is None:
        return []
    locks = unique_tokens([token.strip() for token in text.split(",")])
    report = await service_bus.complete.aio(request.target.address, locks, actor=actor)
    return [(LOST_LOCKS, ", ".join(map(str, report.lost)))] if report.lost else []


async def receive_and_delete(request: Request, actor: Actor) -> Answer:
    """200 with the message, or 204. A client that has left meanwhile, as its request waited for the server, gets none."""
    await request.require_connected()
    wait, address = max(request.timeout_seconds, _LEAST_SECONDS), request.target.address
    clients.received(request, address, 0, RECEIVE_AND_DELETE)
    messages = await _while_valid(request, service_bus.receive_and_delete.aio(address, max_wait_seconds=wait, actor=actor))
    clients.received(request, address, len(messages), RECEIVE_AND_DELETE)
    return with_message(200, messages[0], headers=[]) if messages else NOTHING


async def _while_valid(request: Request, receiving: Coroutine[Any, Any, list]) -> list:
    """What is received while the client is connected, and its key valid. Raises ClientGone and TokenRefused."""
    with tokens.watched(request.verified) as ended:
        return await request.while_connected(receiving, ended=ended)


async def _release(address: EntityAddress, message: LockedMessage, *, actor: Actor) -> None:
    """Release a locked message. Errors are only logged, since the lock ends by itself."""
    try:
        await service_bus.release.aio(address, [message.lock_token], actor=actor)
    except BrokerError as exc:
        _log.warning("%s: message %d stays locked until %s: %s", address, message.sequence_number, message.locked_until, exc)
