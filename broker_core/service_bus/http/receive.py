"""POST and DELETE .../messages/head: peek-lock, and receive-and-delete, waiting up to `timeout` seconds."""

from __future__ import annotations

from functools import partial

from broker_core.common.types import Actor

from . import coalescing
from .answers import Answer, with_message
from .request import Request

NOTHING = Answer(204)


async def peek_lock(request: Request, actor: Actor) -> Answer:
    """201 with the message and the Location of its lock, or 204. If the client disconnects, the message is released."""
    address = request.target.address
    message = await request.while_connected(coalescing.receive(address, max_wait_seconds=request.timeout_seconds, actor=actor))
    if message is None:
        return NOTHING
    location = request.url(request.target.lock_path(message.sequence_number, message.lock_token))
    undo = partial(coalescing.release, address, message, actor=actor)
    return with_message(201, message, headers=[("location", location)], undo=undo)


async def receive_and_delete(request: Request, actor: Actor) -> Answer:
    """200 with the message, or 204."""
    wait, address = request.timeout_seconds, request.target.address
    message = await request.while_connected(coalescing.receive_and_delete(address, max_wait_seconds=wait, actor=actor))
    return NOTHING if message is None else with_message(200, message, headers=[])
