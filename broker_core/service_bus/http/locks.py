"""DELETE, PUT and POST on a lock's Location: complete, unlock (abandon), renew. 404 if the lock is lost (SB-087)."""

from __future__ import annotations

from broker_core import service_bus
from broker_core.common.types import Actor
from broker_core.wire.http.answer import Answer
from broker_core.wire.http.dates import write_rfc1123
from broker_core.wire.http.json_text import write_json

from . import broker_properties
from .request import Request


async def complete(request: Request, actor: Actor) -> Answer:
    await service_bus.complete.aio(request.target.address, request.target.lock, actor=actor)
    return Answer(200)


async def unlock(request: Request, actor: Actor) -> Answer:
    """Abandon the message; counts as a failed delivery."""
    await service_bus.abandon.aio(request.target.address, request.target.lock, actor=actor)
    return Answer(200)


async def renew(request: Request, actor: Actor) -> Answer:
    """Renew the lock; its new end is in BrokerProperties."""
    report = await service_bus.renew.aio(request.target.address, request.target.lock, actor=actor)
    until = report.locked_until and write_rfc1123(report.locked_until)
    renewed = {"LockToken": str(request.target.lock), "LockedUntilUtc": until}
    return Answer(200, [(broker_properties.HEADER, write_json(renewed))])
