"""The operations on messages."""

from __future__ import annotations

from broker_core import queue_storage
from broker_core.common.types import Actor, EntityAddress
from broker_core.queue_storage.rules.errors import InvalidQueryParameterValue, MissingRequiredQueryParameter
from broker_core.wire.http import clients
from broker_core.wire.http.answer import Answer

from . import answers, documents, parameters
from .request import Request

MOST_BODY_BYTES = 1024 * 1024  # a text of 64 KiB of which each character is written as a reference
_PEEK_ONLY = "peekonly"


def address_of(request: Request) -> EntityAddress:
    return EntityAddress(request.target.account, request.target.queue)


async def put(request: Request, actor: Actor) -> Answer:
    """QS-001 to QS-012."""
    text = documents.read_text(await request.body(MOST_BODY_BYTES))  # is refused first (QS-F01)
    delay, life = parameters.delay(request), parameters.time_to_live(request)
    address = address_of(request)
    put = await queue_storage.put.aio(address, text, visibility_timeout=delay, time_to_live=life, actor=actor)
    clients.sent(request, address, 1)
    return answers.answer(request, 201, answers.put_list(put))


async def get(request: Request, actor: Actor) -> Answer:
    """QS-020 to QS-028. What was received for a client that is gone becomes visible again, without counting."""
    lease, count = parameters.lease(request), parameters.count(request)
    address = address_of(request)
    got = await request.while_connected(queue_storage.get.aio(address, count, visibility_timeout=lease, actor=actor))
    clients.received(request, address, len(got), "lease")
    return answers.answer(request, 200, answers.got_list(got))


async def peek(request: Request, actor: Actor) -> Answer:
    """QS-035 to QS-038."""
    peeked = await queue_storage.peek.aio(address_of(request), parameters.count(request), actor=actor)
    return answers.answer(request, 200, answers.peeked_list(peeked))


def is_peek(request: Request) -> bool:
    """Whether a request for messages is a peek (QS-039). Raises InvalidQueryParameterValue."""
    given = request.parameter(_PEEK_ONLY)
    if given is None or given.lower() == "false":
        return False
    if given.lower() != "true":
        raise InvalidQueryParameterValue(_PEEK_ONLY, given[:80], "must be true or false")
    return True


async def update(request: Request, actor: Actor) -> Answer:
    """QS-045 to QS-055: without a body, the text stays."""
    body = await request.body(MOST_BODY_BYTES)
    text = documents.read_text(body) if body else None
    receipt, visibility = _receipt(request), parameters.new_visibility(request)
    updated = await queue_storage.update.aio(
        address_of(request),
        request.target.message_id,
        receipt,
        visibility_timeout=visibility,
        text=text,
        actor=actor,
    )
    headers = {
        "x-ms-popreceipt": answers.receipt_text(updated.pop_receipt),
        "x-ms-time-next-visible": answers.date(updated.visible_at),
    }
    return answers.answer(request, 204, headers=headers)


async def delete(request: Request, actor: Actor) -> Answer:
    """QS-060 to QS-063."""
    await queue_storage.delete.aio(address_of(request), request.target.message_id, _receipt(request), actor=actor)
    return answers.answer(request, 204)


async def clear(request: Request, actor: Actor) -> Answer:
    """QS-064."""
    await queue_storage.clear.aio(address_of(request), actor=actor)
    return answers.answer(request, 204)


def _receipt(request: Request):
    text = request.parameter(parameters.POP_RECEIPT)
    if text is None:
        raise MissingRequiredQueryParameter(parameters.POP_RECEIPT)
    return answers.read_receipt(text)
