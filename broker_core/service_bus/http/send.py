"""POST .../messages: send one message, or a batch, all or none."""

from __future__ import annotations

from broker_core import service_bus
from broker_core.common.types import Actor, Right
from broker_core.service_bus.rules.values import Message
from broker_core.wire.http import clients
from broker_core.wire.http.answer import Answer

from . import batch, broker_properties, custom_headers
from .request import Request


async def send(request: Request, actor: Actor) -> Answer:
    """201 after the messages are stored."""
    actor.require(Right.SEND, request.target.address)  # before the body is read
    content_type = request.header("content-type")
    if batch.is_batch(content_type):
        messages = batch.read(await request.body())
    else:
        messages = [_message(request, content_type, await request.body())]
    await service_bus.send.aio(request.target.address, messages, actor=actor)
    clients.sent(request, request.target.address, len(messages))
    return Answer(201)


def _message(request: Request, content_type: str | None, body: bytes) -> Message:
    fields = {"content_type": content_type} | broker_properties.read_header(request.header(broker_properties.HEADER) or "{}")
    return Message(body=body, properties=custom_headers.read(request.headers), **fields)
